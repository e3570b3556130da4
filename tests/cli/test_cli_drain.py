"""`sluice drain`: Drains of nodes and flavors from the command line."""

from __future__ import annotations

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import click
import pytest

from admission.cli.commands.drain import instant

NOW = datetime(2026, 11, 30, 17, 30, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("18:00", "2026-11-30T17:00:00Z"),
        ("17:30", "2026-12-01T16:30:00Z"),
        ("2h", "2026-11-30T18:30:00Z"),
        ("2026-12-24T18:00", "2026-12-24T17:00:00Z"),
        ("2026-12-24T18:00:00+00:00", "2026-12-24T18:00:00Z"),
    ],
)
def test_time_is_an_hour_an_instant_or_a_duration(text, at):
    assert instant(text, NOW) == at


def test_hour_of_the_deadline_is_the_next_one_after_the_begin():
    begin = datetime.fromisoformat(instant("17:00", NOW))
    assert instant("18:00", NOW, begin) == "2026-12-01T17:00:00Z"


@pytest.mark.parametrize("text", ["25:00", "soon", "12:75"])
def test_time_that_is_none_is_a_usage_error(text):
    with pytest.raises(click.UsageError):
        instant(text, NOW)


async def test_flavor_is_drained_and_the_drain_ended(sluice):
    done = await sluice(
        "drain", "flavor", "a100", "h100", "--from", "2999-11-30T17:00Z", "--until", "2999-11-30T18:00Z",
        "--reason", "new driver",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "flavor/a100 drained\n  what runs there is evicted at 2999-11-30T18:00:00Z" in done.stdout
    assert "no workload runs on flavor a100" in done.stdout
    listed = (await sluice("drain")).stdout
    assert listed == (await sluice("get", "drains")).stdout
    assert "flavor/a100" in listed
    found = json.loads((await sluice("get", "drains", "flavor-a100", "-o", "json")).stdout)
    times = {"startTime": "2999-11-30T17:00:00Z", "deadline": "2999-11-30T18:00:00Z"}
    assert found["spec"] == {"flavors": ["a100"], "cluster": "local", "reason": "new driver", **times}
    again = await sluice("drain", "flavor", "a100")
    assert "drained, as now given\n  what runs there may end" in again.stdout
    ended = await sluice("drain", "flavor", "a100", "--cancel", "--reason", "done")
    assert ended.stdout == "flavor/a100 no longer drained\n"
    assert "flavor-a100" not in (await sluice("drain")).stdout
    history = await sluice("history", "drain/flavor-h100")
    assert "new driver" in history.stdout
    missing = await sluice("drain", "flavor", "a100", "--cancel")
    assert missing.exit_code == 1
    assert "not found" in missing.stderr or "no Drain" in missing.stderr


async def test_node_of_another_cluster_is_drained_beside_the_one_of_that_name_here(sluice):
    for options in ((), ("--cluster", "b")):
        done = await sluice("drain", "node", "n17", *options)
        assert done.exit_code == 0, done.stderr
    assert "no cluster b has joined" in done.stderr
    found = json.loads((await sluice("get", "drains", "-o", "json")).stdout)["items"]
    assert {each["metadata"]["name"]: each["spec"]["cluster"] for each in found} == {
        "node-n17": "local", "node-b.n17": "b",
    }  # fmt: skip
    assert " b/n17 " in (await sluice("drain")).stdout
    await sluice("drain", "node", "n17", "--cluster", "b", "--cancel")
    assert (await sluice("get", "drains", "-o", "name")).stdout.split() == ["drain.sluice.dev/node-n17"]


async def test_mistakes_are_told(sluice):
    both = await sluice("drain", "node", "n17", "--cancel", "--until", "2h")
    assert (both.exit_code, "give --cancel, --running, or the times" in both.stderr) == (2, True)
    late = await sluice("drain", "node", "n17", "--from", "3h", "--until", "2h")
    assert (late.exit_code, "is before --from" in late.stderr) == (2, True)
    nameless = await sluice("drain", "node", "--until", "2h")
    assert nameless.exit_code == 2
    assert "deadline" not in (await sluice("drain")).stdout
