"""Restarts of Sluice at any time: nothing is lost or done twice, and no quota is assigned twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from job_examples import cluster_queue, flavor, is_done, is_gated, job, local_queue, runs
from postgresql_databases import on_both_databases

from admission.cluster.informer import WatchedChange
from admission.controller.controller import Controller
from admission.controller.state.inbox import ObjectsChanged
from admission.kinds import all_kinds
from admission.store.audit_log import Author
from admission.store.records import Changes, State
from admission.store.store import Store

pytestmark = on_both_databases


@pytest.fixture
async def queues(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    return world


@pytest.mark.costly
async def test_running_and_pending_jobs_keep_their_state_across_restart(queues):
    await queues.start()
    await queues.submit(job("runs", cpu="3"))
    await queues.job("runs", runs)
    await queues.submit(job("waits", cpu="3"))
    await queues.record("waits", "pending", reason="WaitingForQuota")
    before = await queues.record("runs", "admitted")
    await queues.end()

    await queues.start()
    await queues.submit(job("fits"))
    await queues.job("fits", runs)
    assert await queues.record("runs", "admitted") == before
    await queues.record("waits", "pending", reason="WaitingForQuota")
    assert not queues.controller.writer.outcomes["ok"] > 1


@pytest.mark.costly
async def test_admitted_but_unstarted_job_is_started_after_restart(queues):
    """Sluice ends between commit and PATCH."""
    await queues.start()
    await queues.cut_off()
    await queues.submit(job("cut"))
    await queues.record("cut", "admitted")
    assert is_gated(queues.user.get("jobs", "team-a", "cut"))
    await queues.end()
    await queues.reconnect()

    await queues.start()
    await queues.job("cut", runs)
    assert queues.controller.writer.outcomes == {"ok": 1}


@pytest.mark.costly
async def test_started_job_gets_no_second_patch_after_restart(queues):
    """Sluice ends between the start PATCH and its response."""
    await queues.start()
    await queues.submit(job("cut"))
    await queues.job("cut", lambda obj: not is_gated(obj))
    await queues.end()

    await queues.start()
    await queues.job("cut", runs)
    await queues.record("cut", "admitted")
    assert queues.controller.writer.outcomes == {}


@pytest.mark.costly
async def test_evicted_but_running_job_is_stopped_after_restart(queues):
    await queues.start()
    await queues.submit(job("evicted"))
    await queues.job("evicted", runs)
    await queues.cut_off()
    await queues.patch("evicted", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await queues.record("evicted", "evicting")
    await queues.end()
    assert runs(queues.user.get("jobs", "team-a", "evicted"))
    await queues.reconnect()

    await queues.start()
    await queues.record("evicted", "pending", reason="OnHold")
    stopped = await queues.job("evicted", is_gated)
    assert "tolerations" not in stopped["spec"]["template"]["spec"]


@pytest.mark.costly
@pytest.mark.parametrize("successors", [1, 2])
async def test_late_start_request_of_old_leader_is_reverted(queues, successors):
    """The API server handles a start request after the next leader has evicted the Job."""
    await queues.start()
    await queues.cut_off()
    await queues.submit(job("late"))
    given = (await queues.record("late", "admitted")).original["given"]
    written = queues.user.get("jobs", "team-a", "late")["spec"]["template"]
    await queues.end()
    await queues.reconnect()
    await queues.patch("late", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await queues.start()
    await queues.record("late", "pending", reason="OnHold")

    if successors == 2:
        await queues.cut_off()
    await queues.patch("late", {"spec": {**given, "suspend": False}})
    if successors == 2:  # one leader sees it run, and the next one finds it stopped
        await queues.record("late", "pending", reason="PendingEvaluation")
        await queues.end()
        await queues.reconnect()
        await queues.patch("late", {"spec": {"suspend": True}})
        await queues.start()
    given_back = await queues.job("late", lambda obj: is_gated(obj) and obj["spec"]["template"] == written)
    assert not given_back["status"].get("active")
    await queues.record("late", "pending", reason="OnHold")
    await queues.patch("late", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    await queues.job("late", runs)


async def test_fields_added_by_user_to_pending_job_are_kept(queues):
    """Also if the added fields equal those of an earlier admission."""
    await queues.start()
    await queues.submit(job("pinned"))
    await queues.job("pinned", runs)
    given = (await queues.record("pinned", "admitted")).original["given"]
    await queues.patch("pinned", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await queues.record("pinned", "pending", reason="OnHold")
    await queues.patch("pinned", {"spec": given})
    pinned = queues.user.get("jobs", "team-a", "pinned")
    await queues.patch("pinned", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    started = await queues.job("pinned", runs)
    assert started["spec"]["template"] == pinned["spec"]["template"]
    assert started["metadata"]["generation"] == pinned["metadata"]["generation"] + 1  # the fields were never removed


@pytest.mark.costly
async def test_job_finished_during_downtime_releases_quota_at_startup(queues):
    await queues.start()
    await queues.submit(job("ends", cpu="4", seconds=60))
    await queues.job("ends", runs)
    await queues.submit(job("next", cpu="4"))
    await queues.record("next", "pending")
    await queues.end()
    await queues.job("ends", is_done)

    await queues.start()
    await queues.job("next", runs)
    assert (await queues.record("ends", "finished")).outcome == "Succeeded"


@pytest.mark.costly
async def test_job_deleted_during_downtime_releases_quota_at_startup(queues):
    await queues.start()
    await queues.submit(job("gone", cpu="4"))
    await queues.job("gone", runs)
    await queues.end()
    await queues.user.delete("jobs", "team-a", "gone", propagation="Background")
    await queues.submit(job("next", cpu="4"))

    await queues.start()
    await queues.job("next", runs)
    assert (await queues.record("gone", "finished")).outcome == "Deleted"


@pytest.mark.costly
async def test_job_edited_and_moved_during_downtime_is_admitted_in_new_queue(queues):
    await queues.begin(local_queue("other"))
    await queues.submit(job("edited", cpu="1", pods=9))
    await queues.record("edited", "pending", reason="ExceedsMaxQuota")
    await queues.end()
    await queues.patch(
        "edited", {"metadata": {"labels": {"sluice.dev/queue-name": "other"}}, "spec": {"parallelism": 2}}
    )

    await queues.start()
    await queues.job("edited", runs)
    assert (await queues.record("edited", "admitted")).workload.queue == "other"


@pytest.mark.costly
async def test_job_unsuspended_during_downtime_is_suspended_again_at_startup(queues):
    await queues.start()
    await queues.submit(job("full", cpu="4"))
    await queues.job("full", runs)
    await queues.submit(job("pushy"))
    await queues.record("pushy", "pending", reason="WaitingForQuota")
    await queues.end()
    await queues.patch("pushy", {"spec": {"suspend": False}})

    await queues.start()
    await queues.job("pushy", is_gated)
    await queues.record("pushy", "pending", reason="WaitingForQuota")


@pytest.mark.costly
async def test_evicting_job_is_restored_after_restart_when_its_pods_are_gone(queues):
    """Sluice ends while the pods terminate."""
    await queues.start()
    before = await queues.submit(job("slow", terminationGracePeriodSeconds=60))
    await queues.job("slow", runs)
    await queues.patch("slow", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    stopping = await queues.job("slow", is_gated)
    await queues.end()
    assert "tolerations" in stopping["spec"]["template"]["spec"]

    await queues.start()
    await queues.record("slow", "pending", reason="OnHold")
    restored = queues.user.get("jobs", "team-a", "slow")["spec"]["template"]["spec"]
    assert restored == before["spec"]["template"]["spec"]
    assert await free(queues)


@pytest.mark.costly
async def test_restored_but_unreleased_job_releases_quota_after_restart(queues):
    """Sluice ends between the PATCH that restores the Job and the commit that releases its quota."""
    await queues.start()
    await queues.submit(job("slow", terminationGracePeriodSeconds=60))
    await queues.job("slow", runs)
    await queues.patch("slow", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await queues.job("slow", is_gated)
    await queues.end()
    await queues.job("slow", lambda obj: not obj["status"].get("active") and not obj["status"].get("terminating"))
    template = {"spec": {"tolerations": None, "nodeSelector": None}}
    await queues.patch("slow", {"spec": {"podReplacementPolicy": "TerminatingOrFailed", "template": template}})
    assert (await queues.record("slow", "evicting")).admission is not None

    await queues.start()
    await queues.record("slow", "pending", reason="OnHold")
    assert await free(queues)
    assert queues.controller.writer.outcomes == {}


@pytest.mark.costly
async def test_local_queue_replaced_during_downtime_stops_only_pending_jobs(queues):
    """The running Job continues. The pending Job's message names the missing queue; it starts in its new queue."""
    await queues.start()
    await queues.submit(job("runs", cpu="3"))
    await queues.job("runs", runs)
    await queues.submit(job("waits"))
    await queues.job("waits", runs)
    await queues.submit(job("later", cpu="1"))
    await queues.record("later", "pending", reason="WaitingForQuota")
    await queues.end()
    await queues.store.queues.delete("LocalQueue", "lq", namespace="team-a", author=Author("test"))
    await queues.apply(local_queue("renamed"))

    await queues.start()
    record = await queues.record("later", "pending", reason="Misconfigured")
    assert record.message.startswith("LocalQueue team-a/lq does not exist. ")
    assert runs(queues.user.get("jobs", "team-a", "runs"))
    await queues.record("runs", "admitted")
    await queues.user.delete("jobs", "team-a", "waits", propagation="Background")
    await queues.patch("later", {"metadata": {"labels": {"sluice.dev/queue-name": "renamed"}}})
    await queues.job("later", runs)
    assert (await queues.record("later", "admitted")).workload.queue == "renamed"


@pytest.mark.costly
async def test_finished_job_is_not_requeued_by_stale_object(queues):
    """A new leader may receive an old version of a Job whose end its predecessor has recorded."""
    await queues.start()
    await queues.submit(job("over", cpu="8"))
    record = await queues.record("over", "pending")
    await queues.end()
    async with Store.open(queues.url) as store:
        ended = replace(record, state=State.FINISHED, outcome="Succeeded", finished_at=record.queued_at)
        await store.commit(Changes(workloads=(ended,)), epoch=await store.lead("before"))

    await queues.start()
    await queues.submit(job("next"))
    await queues.job("next", runs)
    assert (await queues.record("over", "finished")).outcome == "Succeeded"


@pytest.mark.costly
async def test_late_watch_events_do_not_requeue_finished_jobs(queues):
    """A response may show a newer version of a Job, or its end, before the watch delivers older versions."""
    await queues.start()
    late = [await queues.submit(job("ends", seconds=1))]
    for name in ("goes", "leaves"):
        late.append(await queues.submit(job(name, cpu="8")))
        record = await queues.record(name, "pending")
    await queues.job("ends", is_done)
    await queues.user.delete("jobs", "team-a", "goes", propagation="Background")
    unlabelled = {"metadata": {"labels": {"sluice.dev/queue-name": None}}}
    await queues.patch("leaves", unlabelled)
    outcomes = {"ends": "Succeeded", "goes": "Deleted", "leaves": "Dequeued"}
    for name, outcome in outcomes.items():
        assert (await queues.record(name, "finished")).outcome == outcome

    changes = [
        WatchedChange("MODIFIED", f"team-a/{each['metadata']['name']}", each["metadata"]["uid"], each) for each in late
    ]
    queues.controller.inbox.put(ObjectsChanged(queues.controller._kinds.of(record.workload), changes))
    await queues.submit(job("next"))
    await queues.job("next", runs)
    for name in outcomes:
        assert [reason for reason, _ in await queues.history(name)].count("Queued") == 1
    await queues.patch("leaves", {"metadata": {"labels": {"sluice.dev/queue-name": "lq"}}})
    await queues.record("leaves", "pending")


@pytest.mark.costly
async def test_job_unlabelled_during_downtime_is_dequeued_and_stays_suspended(queues):
    await queues.start()
    await queues.submit(job("full", cpu="4"))
    await queues.job("full", runs)
    await queues.submit(job("leaves"))
    await queues.record("leaves", "pending", reason="WaitingForQuota")
    await queues.end()
    await queues.patch("leaves", {"metadata": {"labels": {"sluice.dev/queue-name": None}}})

    await queues.start()
    assert (await queues.record("leaves", "finished")).outcome == "Dequeued"
    assert is_gated(queues.user.get("jobs", "team-a", "leaves"))


async def free(world) -> bool:
    """Whether no quota is in use."""
    status = await world.store.workloads.cluster_queue_status()
    return not any(numbers.usage for numbers in status.values())


async def test_a_second_sluice_on_the_same_database_is_refused(queues):
    from admission.store.errors import AlreadyRunning

    await queues.start()
    async with Store.open(queues.url) as other:
        with pytest.raises(AlreadyRunning, match="another Sluice"):
            await other.lead("second")


async def test_lead_that_ends_before_the_first_lists_leaves_no_task_behind(queues):
    """Else each lead that is lost while the API server does not answer would leave tasks for ever."""

    async def loaded():
        return any(task.get_name() == "orders" for task in asyncio.all_tasks())

    match = {"user": "sluice", "resource": "jobs"}
    queues.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 500}]})
    async with Store.open(queues.url) as store:
        controller = Controller(store=store, client=queues.client, kinds=all_kinds())
        epoch = await store.lead("test")
        watching = asyncio.create_task(controller.watch())
        before = asyncio.all_tasks()
        deciding = asyncio.create_task(controller.decide(epoch=epoch))
        await queues.eventually(loaded)
        deciding.cancel()
        await asyncio.wait([deciding])
        left = {task for task in asyncio.all_tasks() - before if "Inbox" in repr(task) or "Event" in repr(task)}
        watching.cancel()
        await asyncio.wait([watching])
    assert left == set()
