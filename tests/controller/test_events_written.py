"""Kubernetes Events about Jobs in the API server: their number, and that other requests do not wait for them."""

from __future__ import annotations

from collections import Counter

import pytest
from job_examples import cluster_queue, flavor, job, local_queue

from admission.cluster.events import IN_FLIGHT

EVENTS = "/apis/events.k8s.io/v1/namespaces/team-a/events"


async def events(world) -> list[tuple[str, str]]:
    """(name of the Job, reason) of all Events that Sluice has written."""
    found = (await world.client.get(EVENTS))["items"]
    assert all(each["reportingController"] == "sluice.dev/sluice" for each in found)
    return sorted((each["regarding"]["name"], each["reason"]) for each in found)


@pytest.fixture
def controllers() -> bool:
    return False  # pods are not tested here, and would have Events, too


@pytest.mark.long
async def test_each_of_thousand_jobs_has_one_event_and_starts_wait_for_no_event(world):
    """All Jobs are started while the API server answers no request for an Event."""
    await world.apply(flavor(), cluster_queue(cpu="1000"), local_queue())
    match = {"verb": "create", "group": "events.k8s.io", "resource": "events"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "delay", "seconds": 600}]})
    await world.start()

    async def started(number: int) -> bool:
        return sum(not obj["spec"]["suspend"] for obj in world.user.list("jobs", "team-a")) == number

    async def all_events_are_held_up() -> bool:
        return world.sandbox.faults.describe()["rules"][0]["struck"] == IN_FLIGHT

    for number in range(IN_FLIGHT):
        await world.submit(job(f"j{number}", cpu="1m"))
    await world.eventually(all_events_are_held_up)
    for number in range(IN_FLIGHT, 1000):
        await world.submit(job(f"j{number}", cpu="1m"))
    await world.eventually(lambda: started(1000))
    assert world.controller.events.outcomes["ok"] == 0
    assert await events(world) == []

    world.sandbox.faults.remove()

    async def all_told() -> bool:
        return world.controller.events.outcomes["ok"] >= 1000

    await world.eventually(all_told)
    await world.controller.events.idle()
    # No pod can be scheduled, which is told after ten seconds.
    admitted = [each for each in await events(world) if each[1] == "Admitted"]
    assert admitted == sorted((f"j{number}", "Admitted") for number in range(1000))


@pytest.mark.costly
async def test_pending_jobs_have_one_pending_event_across_leader_changes(world):
    await world.begin()
    await world.submit(job("too-large", cpu="5"))
    await world.submit(job("first", cpu="4"))
    first = await world.record("first", "admitted")
    # Without any pod it would have an Event for that.
    labels = {"batch.kubernetes.io/controller-uid": first.workload.uid, "controller-uid": first.workload.uid}
    pod = {"metadata": {"name": "first-0", "namespace": "team-a", "labels": labels}}
    await world.user.create("pods", "team-a", pod | {"spec": job("first")["spec"]["template"]["spec"]})
    await world.submit(job("waits", cpu="1"))
    await world.record("waits", "pending", reason="WaitingForQuota")
    world.pass_time(20)
    expected = [("first", "Admitted"), ("too-large", "Pending"), ("waits", "Pending")]

    async def all_told() -> bool:
        return await events(world) == expected

    await world.eventually(all_told)
    for later, outcomes in ((0, {"repeated": 2}), (1000, {"repeated": 3})):
        await world.end()
        world.clock.advance(later)
        await world.start()
        controller = world.controller

        async def told_again(controller=controller, outcomes=outcomes) -> bool:
            return controller.events.outcomes == outcomes and not controller.events.pending

        await world.eventually(told_again)
        # When the Event of a new Job is there, all earlier ones have been written.
        await world.submit(job(f"new-{later}", cpu="6"))
        expected = sorted([*expected, (f"new-{later}", "Pending")])
        await world.eventually(all_told)
    world.pass_time(3600)
    expected = sorted([*expected, *((name, "PendingForLong") for name in ("too-large", "waits", "new-0", "new-1000"))])
    await world.eventually(all_told)


async def test_pending_job_that_is_admitted_later_has_an_event_for_each_state(world):
    await world.begin()
    await world.submit(job("first", cpu="4"))
    await world.record("first", "admitted")
    await world.submit(job("second", cpu="4"))
    await world.record("second", "pending", reason="WaitingForQuota")
    world.pass_time(20)

    async def is_told() -> bool:
        return ("second", "Pending") in await events(world)

    await world.eventually(is_told)
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.record("second", "admitted")
    await world.eventually(lambda: _told(world, "second", {"Pending": 1, "Admitted": 1}))


async def _told(world, name: str, wanted: dict[str, int]) -> bool:
    return Counter(reason for job_name, reason in await events(world) if job_name == name) == wanted


@pytest.mark.costly
async def test_next_leader_writes_event_of_changed_reason_after_long_downtime(world):
    """The first leader ends before the API server has answered any Event of the new reason."""
    await world.begin(flavor(), cluster_queue(cpu="4"), local_queue())
    await world.submit(job("full", cpu="4"))
    await world.record("full", "admitted")
    await world.submit(job("waits", cpu="4"))
    await world.record("waits", "pending", reason="WaitingForQuota")
    world.pass_time(1800)
    await world.eventually(lambda: _told(world, "waits", {"Pending": 1}))
    match = {"verb": "create", "group": "events.k8s.io", "resource": "events"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "delay", "seconds": 600}]})
    await world.apply(cluster_queue(cpu="3"))
    await world.record("waits", "pending", reason="ExceedsMaxQuota")
    await world.end()
    world.sandbox.faults.remove()
    world.clock.advance(1000)
    await world.start()
    await world.eventually(lambda: _told(world, "waits", {"Pending": 2}))
