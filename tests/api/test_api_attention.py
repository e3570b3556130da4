"""`reports/attention`: workloads that failed, do not start, or can never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from api_client import Client, on_both_databases, serving
from workload_records import NOW, NOW_TEXT, record

from admission.api.resources.leader_view import NoLeader
from admission.store.records import State
from admission.store.store import Store


class Leader(NoLeader):
    """A leader that makes no decisions."""

    def standstill(self) -> str:
        return "the database does not answer"


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Client]:
    async with serving(store, options={"now": lambda: NOW, "leader": Leader()}) as client:
        yield client


@on_both_databases
async def test_workloads_in_trouble_are_named_and_counted(api: Client, commit: Callable[..., Awaitable[int]]) -> None:
    ended: dict[str, Any] = {"state": State.FINISHED, "outcome": "Failed", "reason": "Failed"}
    await commit(
        record("1", "failed", finished_at=NOW, message="exit code 3", **ended),
        record("2", "failed-long-ago", finished_at=NOW - 3601, **ended),
        record("3", "succeeded", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
        record(
            "4", "no-node", State.ADMITTED, admitted_at=NOW, cleared_at=NOW, reason="PodsUnscheduled", message="none"
        ),
        record("5", "runs", State.ADMITTED, admitted_at=NOW, cleared_at=NOW),
        *(record(f"w{n}", f"too-large-{n}", reason="ExceedsMaxQuota") for n in range(25)),
        record("6", "waits", reason="WaitingForQuota"),
    )
    found = (await api.get("reports/attention")).body
    assert found["failed"] == {
        "count": 1,
        "items": [
            {
                "namespace": "a",
                "name": "failed",
                "cluster": "local",
                "user": "alice",
                "clusterQueue": "one",
                "reason": "Failed",
                "message": "exit code 3",
                "at": NOW_TEXT,
            }
        ],
    }
    assert [item["name"] for item in found["notStarted"]["items"]] == ["no-node"]
    assert (found["impossible"]["count"], len(found["impossible"]["items"])) == (25, 20)
    assert found["standstill"] == "the database does not answer"
