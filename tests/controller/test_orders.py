"""Admins' orders about single workloads override their objects, and are in their history."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.model import sentences
from admission.store.audit_log import Author
from admission.store.workloads.places import QueuePlace


@pytest.fixture
async def sluice(world):
    """A running Sluice with two queues of 4 CPUs."""
    await world.begin(flavor(), cluster_queue(), local_queue(), cluster_queue("other"), local_queue("other", "other"))
    return world


@pytest.fixture
async def full(sluice):
    """All quota of the first queue is in use; two Jobs are pending, the older one first."""
    await sluice.submit(job("full", cpu="4"))
    await sluice.job("full", runs)
    for name in ("elder", "younger"):
        await sluice.submit(job(name, cpu="4"))
        await sluice.record(name, "pending", reason="WaitingForQuota")
    return sluice


async def delete_full_job(world):
    await world.user.delete("jobs", "team-a", "full", propagation="Background")


@pytest.mark.costly
async def test_pending_workload_is_moved_to_the_ordered_local_queue(full):
    await full.order("younger", local_queue="other")
    await full.job("younger", runs)
    record = await full.record("younger", "admitted")
    assert (record.cluster_queue, record.workload.queue) == ("other", "other")
    assert ("Ordered", "moved to LocalQueue other by ada: because") in await full.history("younger")
    # The label names the old queue, and an edit of the Job does not move it back.
    await full.patch("younger", {"metadata": {"labels": {"team": "x"}}})
    await full.order("younger", priority=3)
    await full.eventually(lambda: _priority(full, "younger", 3))
    assert (await full.record("younger", "admitted")).cluster_queue == "other"


async def _priority(world, name, priority):
    record = await world.store.workloads.get("team-a", name)
    return record.workload.priority == priority


@pytest.mark.costly
async def test_cluster_queue_can_be_deleted_once_workloads_on_hold_wait_elsewhere(sluice):
    await sluice.submit(job("z", cpu="4"))
    await sluice.job("z", runs)
    await sluice.order("z", held=True)
    stopped = await sluice.record("z", "pending")
    assert stopped.status_cluster_queue == ""
    await sluice.apply(local_queue(cluster_queue="other"))
    await sluice.store.queues.delete("ClusterQueue", "cq", author=Author("ada"))
    await sluice.order("z", held=False)
    await sluice.job("z", runs)
    assert (await sluice.record("z", "admitted")).status_cluster_queue == "other"


@pytest.mark.costly
async def test_admitted_workload_is_evicted_before_the_move_to_another_queue(full):
    await full.order("full", local_queue="other")
    await full.job("elder", runs)  # it got the quota
    await full.job("full", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 5)
    record = await full.record("full", "admitted")
    assert record.cluster_queue == "other"
    assert ("Moved", sentences.moved("other")) in await full.history("full")

    await full.order("full", local_queue=None, held=True)
    back = await full.record("full", "pending", reason="OnHold")
    assert back.workload.queue == "lq"


async def test_workload_with_higher_ordered_priority_is_admitted_first(full):
    await full.order("younger", priority=10)
    await delete_full_job(full)
    await full.job("younger", runs)
    assert (await full.record("elder", "pending")).workload.priority == 0


async def test_workload_ordered_to_the_top_is_admitted_first_with_unchanged_priority(full):
    await full.order("younger", place=QueuePlace())
    await delete_full_job(full)
    await full.job("younger", runs)
    record = await full.record("younger", "admitted")
    assert record.workload.priority == 0
    assert ("Ordered", "another place in the queue by ada: because") in await full.history("younger")


@pytest.mark.long
async def test_ordered_place_before_another_workload_survives_restart(full):
    elder = await full.store.workloads.get("team-a", "elder")
    await full.order("younger", place=QueuePlace(before=elder.workload.uid))
    await full.eventually(lambda: _ordered(full, "younger"))
    await full.end()
    await full.start()
    await delete_full_job(full)
    await full.job("younger", runs)


async def _ordered(world, name):
    return "Ordered" in [reason for reason, _ in await world.history(name)]


@pytest.mark.costly
async def test_ordered_priority_of_admitted_workload_decides_its_preemption(sluice):
    await sluice.apply(cluster_queue(preemption={"withinClusterQueue": "LowerPriority"}))
    await sluice.submit(job("victim", cpu="4"))
    await sluice.job("victim", runs)
    await sluice.order("victim", priority=5)
    await sluice.eventually(lambda: _priority(sluice, "victim", 5))
    await sluice.submit(job("strong", cpu="4"))
    await sluice.record("strong", "pending")
    await sluice.order("strong", priority=4)
    await sluice.eventually(lambda: _priority(sluice, "strong", 4))
    await sluice.record("strong", "pending", reason="WaitingForQuota")
    assert (await sluice.record("victim", "admitted")).workload.priority == 5

    await sluice.order("victim", priority=3)
    await sluice.job("strong", runs)
    assert ("Prioritized", "priority 3") in await sluice.history("victim")


@pytest.mark.costly
@pytest.mark.parametrize("admitted", [False, True])
async def test_workload_put_on_hold_waits_until_release(full, admitted):
    name = "full" if admitted else "elder"
    await full.order(name, held=True)
    held = await full.record(name, "pending", reason="OnHold")
    assert held.message == sentences.held_by_admin("ada", "because")
    if not admitted:
        await delete_full_job(full)
    await full.job("younger" if not admitted else "elder", runs)
    await full.order(name, held=False)
    await full.record(name, "pending", reason="WaitingForQuota")


@pytest.mark.long
async def test_hold_message_names_the_holding_admin_despite_later_orders(full):
    """Also after a restart, and although its user has put it on hold, too."""
    await full.patch("elder", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    assert (await full.record("elder", "pending", reason="OnHold")).message == sentences.HELD_BY_USER
    await full.order("elder", held=True)
    said = sentences.held_by_admin("ada", "because")
    await full.eventually(lambda: _message(full, "elder", said))
    record = await full.record("elder", "pending")
    await full.leading.orders.give(record.workload.uid, author=Author("bob", reason="deadline"), priority=7)
    await full.eventually(lambda: _priority(full, "elder", 7))
    assert await _message(full, "elder", said)
    await full.end()
    await full.start()
    await full.patch("elder", {"metadata": {"labels": {"again": "seen"}}})
    await full.submit(job("later"))
    await full.record("later", "pending", reason="WaitingForQuota")
    assert await _message(full, "elder", said)


async def test_history_of_workload_put_on_hold_names_admin_and_reason(full):
    await full.order("full", held=True)
    await full.record("full", "pending", reason="OnHold")
    assert ("OnHold", sentences.put_on_hold("ada", "because")) in await full.history("full")
    assert sentences.put_on_hold("ada", "because") == "It was put on hold by ada: because."


@pytest.mark.costly
async def test_deactivated_workload_leaves_the_queue_until_activation(full):
    await full.order("full", active=False)
    await full.job("elder", runs)
    out = await full.record("full", "pending", reason="Deactivated")
    assert (out.active, out.message) == (False, sentences.deactivated(author="ada", reason="because"))
    await full.end()
    await full.start()
    assert (await full.record("full", "pending")).reason == "Deactivated"
    await full.order("full", active=True)
    assert (await full.record("full", "pending", reason="WaitingForQuota")).active


@pytest.mark.costly
async def test_orders_given_during_downtime_take_effect_at_startup(full):
    await full.end()
    await full.order("full", held=True)
    await full.order("younger", priority=10)
    await full.order("elder", active=False)
    await full.start()
    await full.job("younger", runs)
    await full.record("full", "pending", reason="OnHold")
    assert not (await full.record("elder", "pending", reason="Deactivated")).active
    assert ("Ordered", "priority 10 by ada: because") in await full.history("younger")
    assert (await full.record("younger", "admitted")).workload.priority == 10


@pytest.mark.long
async def test_withdrawn_priority_order_restores_the_default_priority(full):
    await full.order("younger", priority=10)
    await full.eventually(lambda: _priority(full, "younger", 10))
    await full.end()
    await full.start()
    await full.order("younger", priority=None)
    await full.eventually(lambda: _priority(full, "younger", 0))
    await delete_full_job(full)
    await full.job("elder", runs)


async def _message(world, name, message):
    return (await world.store.workloads.get("team-a", name)).message == message
