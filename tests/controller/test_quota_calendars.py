"""Quota that changes by a calendar: written at its time, or by a leader that slept, and evicting as overQuota says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from job_examples import cluster_queue, flavor, job, local_queue, runs
from postgresql_databases import on_both_databases

from admission.controller.decisions.quota_calendars import CalendarQuotas
from admission.controller.state.faults import Faults


def with_calendar(world, *, start: float, end: float, quota: str, cpu: str = "1", **spec):
    """A ClusterQueue with another quota from `start` to `end`, in seconds from now."""
    now = datetime.fromtimestamp(world.clock(), UTC)
    first, last = ((now + timedelta(seconds=each)).isoformat()[:19] for each in (start, end))
    quotas = [{"flavor": "default", "resource": "cpu", "nominalQuota": quota}]
    entry = {"name": "deadline", "start": first, "end": last, "quotas": quotas, "reason": "conference"}
    return cluster_queue(cpu=cpu, calendar={"entries": [entry]}, **spec)


async def current(world) -> tuple[str, str | None]:
    queue = await world.store.queues.get("ClusterQueue", "cq")
    (quota,) = queue.spec.resource_groups[0].flavors[0].resources
    return quota.nominal_quota, quota.current_quota


async def becomes(world, quota: str | None) -> None:
    async def equal():
        return (await current(world))[1] == quota

    await world.eventually(equal)


@on_both_databases
async def test_quota_grows_for_a_time_and_what_exceeds_it_then_is_evicted(world):
    manifest = with_calendar(world, start=1000, end=2000, quota="3", overQuota={"evictAfterSeconds": 0})
    await world.begin(flavor(), manifest, local_queue())
    await world.submit(job("first"))
    await world.job("first", runs)
    await world.submit(job("large", cpu="2"))
    await world.record("large", "pending", reason="ExceedsMaxQuota")
    world.pass_time(1000)
    await world.job("large", runs)
    assert await current(world) == ("1", "3")

    await world.apply(manifest)  # as from a repository, which knows nothing of the time
    assert await current(world) == ("1", "3")
    world.pass_time(1001)
    await becomes(world, None)
    await world.record("large", "pending", reason="ExceedsMaxQuota")
    await world.job("first", runs)
    reasons = [
        each.reason for each in await world.store.queues.versions("ClusterQueue", "cq") if each.author == "sluice"
    ]
    assert reasons[-1] == "calendar: cpu of default from 3 to 1, as usual"
    assert any(each.startswith("calendar: cpu of default from 1 to 3, deadline until ") for each in reasons)


async def test_leader_that_slept_over_changes_writes_what_applies_now(world):
    await world.begin(flavor(), with_calendar(world, start=1000, end=2000, quota="3"), local_queue())
    await world.end()
    world.clock.advance(1500)
    assert await current(world) == ("1", None)
    await world.start()
    await becomes(world, "3")
    await world.end()
    world.clock.advance(1000)
    await world.start()
    await becomes(world, None)


async def test_entry_that_is_removed_while_it_applies_ends_at_once(world):
    await world.apply(flavor(), with_calendar(world, start=-100, end=1000, quota="3"), local_queue())
    assert await current(world) == ("1", "3")
    await world.apply(cluster_queue(cpu="1"))
    assert await current(world) == ("1", None)


async def test_next_look_is_at_the_next_change_and_a_clock_that_is_set_back_takes_the_quota_of_its_time(world):
    await world.apply(flavor(), with_calendar(world, start=1000, end=2000, quota="3"), local_queue())
    leads = False
    calendars = CalendarQuotas(world.store, lambda: leads, Faults(world.clock))
    world.clock.advance(1500)
    assert await calendars.write() == 10
    assert await current(world) == ("1", None)  # a replica that does not lead writes nothing
    leads = True
    assert await calendars.write() < 1  # what is due was written; look again whether that is all
    assert await current(world) == ("1", "3")
    assert await calendars.write() == 10
    world.clock.advance(495)
    assert 0 < await calendars.write() <= 6
    world.clock.advance(-1000)
    await calendars.write()
    assert await current(world) == ("1", None)


async def test_quota_that_is_taken_away_is_written_before_that_which_is_given(world):
    more, less = (with_calendar(world, start=100, end=2000, quota=quota, cpu="3") for quota in ("5", "1"))
    more["metadata"]["name"], less["metadata"]["name"] = "a-gets", "b-gives"
    await world.apply(flavor(), more, less)
    world.clock.advance(500)
    await CalendarQuotas(world.store, lambda: True, Faults(world.clock)).write()
    changes = await world.store.queues.changes_since(0)
    assert [(each.object.name) for each in changes if each.author == "sluice"] == ["b-gives", "a-gets"]
