"""`whatifs`: questions with mistakes. Answers are tested with the command, in `tests/cli/test_whatif.py`."""

from __future__ import annotations

import pytest
from api_client import Client


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"from": "x"}, 400, 'from: "x" is not a time'),
        ({"from": "1h", "to": "2h"}, 400, "must be before to"),
        ({"from": "500d"}, 400, "at most 400 days"),
        ({"month": "2026-01", "from": "1h"}, 400, "month, quarter: give one of these two"),
        ({"form": "1h"}, 400, "form: there is no such field"),
        ({"objects": [1]}, 400, "objects: must be a list of queue objects"),
        ({"objects": [{"kind": "Pod", "apiVersion": "v1"}]}, 422, "objects[0]"),
        ({"goal": {"clusterQueue": "a"}}, 400, "goal: must be an object with"),
        (
            {"goal": {"clusterQueue": "a", "flavor": "b", "resource": "c", "p90Seconds": "1h"}},
            400,
            "goal.p90Seconds: must be a number",
        ),
    ],
)
async def test_question_with_a_mistake_is_refused_with_the_field(api: Client, body, status, text):
    answer = await api.post("whatifs", body)
    assert answer.status == status
    assert text in answer.body["message"]


async def test_server_without_processes_that_replay_says_so(api: Client):
    answer = await api.post("whatifs", {"from": "1h"})
    assert (answer.status, answer.body["message"]) == (404, "this server replays nothing; ask a `sluice serve`")
