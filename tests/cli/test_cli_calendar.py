"""`sluice calendar`: entries are added, shown and removed."""

from __future__ import annotations

import pytest

from tests.cli.test_cli_change import QUEUES

ADD = ("calendar", "add", "cq/team-a", "nights", "--start", "2030-12-02T20:00", "--end", "2030-12-03T06:00")
QUOTA = ("--nominal-quota", "default:cpu=16")


@pytest.fixture(autouse=True)
async def queues(sluice, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    assert (await sluice("apply", "-f", str(file))).exit_code == 0
    return file


async def test_entry_is_added_shown_replaced_and_removed(sluice, queues):
    zone = ("--time-zone", "Europe/Berlin")
    done = await sluice(*ADD, "--every", "FREQ=WEEKLY;BYDAY=MO;COUNT=2", *zone, *QUOTA, "--reason", "batch at night")
    assert (done.exit_code, done.stdout) == (0, "clusterqueue.sluice.dev/team-a has the entry nights\n"), done.stderr
    shown = (await sluice("calendar", "show", "clusterqueue/team-a", "--output", "json")).stdout
    assert '"changes": []' in shown  # more than a year ahead
    done = await sluice(*ADD, "--start", "2025-01-05T20:00", "--end", "2090-01-01T00:00", *QUOTA)
    assert done.exit_code == 0, done.stderr
    shown = (await sluice("calendar", "show", "clusterqueue/team-a")).stdout
    assert shown.splitlines() == ["now: cpu of default 16, nights until 2090-01-01 00:00 CET", "no change is coming"]
    assert "16" in (await sluice("top", "queues")).stdout
    # A manifest from a repository, with a calendar or without, is compared with what was written, not with what is now.
    live = await sluice("get", "cq", "team-a", "-o", "yaml")
    assert "currentQuota: '16'" in live.stdout or 'currentQuota: "16"' in live.stdout
    assert "currentQuota" not in (await sluice("export")).stdout

    done = await sluice("calendar", "remove", "cq/team-a", "days")
    assert done.exit_code == 2
    assert 'there is no entry "days" in the calendar; it has nights' in done.stderr
    done = await sluice("calendar", "remove", "cq/team-a", "nights")
    assert (done.exit_code, done.stdout) == (0, "clusterqueue.sluice.dev/team-a has no entry nights any more\n")
    same = await sluice("diff", "-f", str(queues))
    assert (same.exit_code, same.output) == (0, "")


async def test_diff_of_a_manifest_with_a_calendar_ignores_what_applies_now(sluice, tmp_path):
    file = tmp_path / "calendar.yaml"
    file.write_text(
        QUEUES.replace(
            "  resourceGroups:",
            "  calendar: {entries: [{name: a, start: '2025-01-01T00:00', end: '2090-01-01T00:00', quotas: "
            "[{flavor: default, resource: cpu, nominalQuota: '9'}]}]}\n  resourceGroups:",
            1,
        )
    )
    assert (await sluice("apply", "-f", str(file))).exit_code == 0
    same = await sluice("diff", "-f", str(file))
    assert (same.exit_code, same.output) == (0, "")
    again = await sluice("apply", "-f", str(file))
    assert "clusterqueue.sluice.dev/team-a unchanged" in again.stdout


async def test_mistakes_are_named(sluice):
    wrong = await sluice(*ADD, "--every", "FREQ=HOURLY", *QUOTA)
    assert wrong.exit_code == 1
    assert "spec.calendar.entries[0].recurrence" in wrong.stderr
    wrong = await sluice("calendar", "show", "lq/main")
    assert "names no ClusterQueue or Cohort" in wrong.stderr
    await sluice(*ADD, *QUOTA)
    wrong = await sluice(*ADD, *QUOTA, "--time-zone", "Europe/Berlin")
    assert "the calendar's time zone is UTC, not Europe/Berlin" in wrong.stderr
