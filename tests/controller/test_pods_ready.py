"""`waitForPodsReady`, the maximum execution time, and the requeue backoff after either."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.controller.decisions import scheduler
from admission.controller.state.policy import ControllerPolicy, WaitForPodsReady
from admission.model import sentences

NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
"""Pod fields with which pods are never scheduled, and so never ready."""


def policy(**fields):
    return ControllerPolicy(pods_ready=WaitForPodsReady(**{"timeout": 300.0, "recovery_timeout": 120.0} | fields))


@pytest.fixture
async def queues(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    return world


def is_ready(obj):
    return obj["status"].get("ready", 0) >= 1


async def test_job_with_pods_ready_in_time_is_not_evicted(queues):
    await queues.start(policy())
    await queues.submit(job("good"))
    await queues.job("good", is_ready)
    await queues.eventually(lambda: _is_ready(queues, "good"))
    queues.pass_time(3600)
    await queues.submit(job("later"))
    await queues.job("later", runs)
    assert (await queues.record("good", "admitted")).unready_at is None


async def _is_ready(world, name):
    return (await world.store.workloads.get("team-a", name)).ready_at is not None


async def test_job_with_unready_pods_is_evicted_and_admitted_again_after_backoff(queues):
    await queues.start(policy())
    await queues.submit(job("stuck", cpu="3", **NOWHERE))
    await queues.job("stuck", runs)
    await queues.submit(job("next", cpu="3"))
    await queues.record("next", "pending", reason="WaitingForQuota")
    queues.pass_time(290)
    await queues.submit(job("small"))
    await queues.job("small", runs)
    await queues.record("stuck", "admitted")

    queues.pass_time(20)
    await queues.job("next", runs)
    waiting = await queues.record("stuck", "pending")
    assert ("PodsReadyTimeout", sentences.pods_not_ready(300.0, recovering=False)) in await queues.history("stuck")
    assert waiting.requeues == 1
    assert 50 < waiting.not_before - queues.clock() <= 60.006
    assert 60 <= waiting.not_before - waiting.workload.queued_at < 60.1
    await queues.user.delete("jobs", "team-a", "next", propagation="Background")
    await queues.record("next", "finished")
    assert (await queues.record("stuck", "pending")).requeues == 1

    queues.pass_time(61)
    again = await queues.record("stuck", "admitted")
    assert again.requeues == 1
    assert again.not_before is None


async def test_requeue_backoff_survives_restart(queues):
    await queues.start(policy())
    await queues.submit(job("stuck", **NOWHERE))
    await queues.job("stuck", runs)
    queues.pass_time(301)
    await queues.record("stuck", "pending")
    await queues.end()
    await queues.start(policy())
    await queues.submit(job("other"))
    await queues.job("other", runs)
    await queues.record("stuck", "pending")
    queues.pass_time(61)
    await queues.record("stuck", "admitted")


async def test_pods_ready_timeout_continues_across_restart(queues):
    await queues.start(policy())
    await queues.submit(job("stuck", **NOWHERE))
    await queues.job("stuck", runs)
    await queues.end()
    queues.clock.advance(301)
    await queues.start(policy())
    assert (await queues.record("stuck", "pending")).requeues == 1


@pytest.mark.costly
async def test_job_whose_pods_become_unready_is_evicted_after_recovery_timeout(queues):
    await queues.start(policy())
    await queues.submit(job("shaky"))
    await queues.job("shaky", is_ready)
    await queues.eventually(lambda: _is_ready(queues, "shaky"))
    for number in range(4):
        await queues.user.patch("nodes", "", f"node-{number}", {"spec": {"unschedulable": True}})
    (pod,) = [pod for pod in queues.user.list("pods") if pod["metadata"]["labels"].get("job-name") == "shaky"]
    await queues.user.delete("pods", "team-a", pod["metadata"]["name"])
    await queues.eventually(lambda: _is_unready(queues, "shaky"))
    queues.pass_time(100)
    await queues.submit(job("other"))
    await queues.record("other", "admitted")
    await queues.record("shaky", "admitted")
    queues.pass_time(21)
    await queues.record("shaky", "pending")
    assert ("PodsReadyTimeout", sentences.pods_not_ready(120.0, recovering=True)) in await queues.history("shaky")
    seconds = await queues.eventually(lambda: _time_from_ready_to_evicted(queues))
    assert seconds.labels == {"cluster_queue": "cq", "reason": "PodsReadyTimeout", "underlying_cause": ""}
    assert seconds.value >= 121


async def _time_from_ready_to_evicted(world):
    """Return the sum of this metric, or None before it counts, which the leader does after the commit."""
    (metric,) = world.controller.metrics.ready_to_evicted.metric.collect()
    return next((sample for sample in metric.samples if sample.name.endswith("_sum")), None)


async def test_ready_job_is_counted_once_across_restarts(queues):
    await queues.start(policy())
    await queues.submit(job("steady"))
    await queues.job("steady", is_ready)
    # The leader counts it after the commit, which this test may see first.
    await queues.eventually(lambda: _has_counted(queues, 1))
    await queues.end()
    await queues.start(policy())
    for number in range(4):
        await queues.user.patch("nodes", "", f"node-{number}", {"spec": {"unschedulable": True}})
    (pod,) = queues.user.list("pods")
    await queues.user.delete("pods", "team-a", pod["metadata"]["name"])
    await queues.eventually(lambda: _is_unready(queues, "steady"))
    assert _ready_workloads(queues) == []


async def _has_counted(world, number):
    return _ready_workloads(world) == [number]


def _ready_workloads(world):
    """Return the number of workloads that became ready, as counted by the running process."""
    (metric,) = world.controller.metrics.ready_wait.cluster_queue.metric.collect()
    return [sample.value for sample in metric.samples if sample.name.endswith("_count")]


async def _is_unready(world, name):
    return (await world.store.workloads.get("team-a", name)).unready_at is not None


async def test_unready_job_is_deactivated_when_backoff_limit_is_exceeded(queues):
    await queues.start(policy(backoff_limit=1, backoff_base=10.0))
    await queues.submit(job("stuck", **NOWHERE))
    for requeues in (0, 1):
        await queues.job("stuck", runs)
        assert (await queues.record("stuck", "admitted")).requeues == requeues
        queues.pass_time(301)
        await queues.record("stuck", "pending")
        queues.pass_time(11)
    out = await queues.record("stuck", "pending", reason="DeactivatedDueToRequeuingLimitExceeded")
    assert (out.active, out.requeues, out.not_before) == (False, 0, None)
    assert out.message == sentences.deactivated(sentences.TOO_MANY_REQUEUES)
    await queues.order("stuck", active=True)
    await queues.job("stuck", runs)


@pytest.mark.costly
async def test_block_admission_admits_next_job_only_when_pods_are_ready(queues):
    await queues.start(policy(block_admission=True))
    await queues.submit(job("stuck", **NOWHERE))
    await queues.job("stuck", runs)
    await queues.submit(job("first"))
    await queues.submit(job("second"))
    waiting = await queues.record("first", "pending", reason="WaitingForPodsReady")
    assert waiting.message == (
        "It waits until the pods of all workloads that are admitted are ready (waitForPodsReady.blockAdmission)."
    )
    queues.pass_time(301)  # evicts `stuck`, which blocks admission
    await queues.job("first", is_ready)
    await queues.job("second", is_ready)
    for name in ("first", "second"):
        await queues.eventually(lambda name=name: _is_ready(queues, name))
    records = [await queues.record(name, "admitted") for name in ("first", "second")]
    earlier, later = sorted(records, key=lambda record: record.admitted_at)
    assert earlier.ready_at <= later.admitted_at
    await queues.record("stuck", "pending")


@pytest.mark.parametrize(("by_eviction", "first", "second"), [(False, "stuck", "next"), (True, "next", "stuck")])
async def test_requeued_job_keeps_its_position_unless_counted_from_eviction(queues, by_eviction, first, second):
    await queues.start(policy(count_from_eviction=by_eviction, backoff_base=0.0))
    await queues.submit(job("stuck", cpu="4", **NOWHERE))
    await queues.job("stuck", runs)
    clock = queues.sandbox.clock
    await clock.sleep_until(int(clock.now()) + 1)  # creations are stamped with full seconds
    await queues.submit(job("next", cpu="4"))
    await queues.record("next", "pending", reason="WaitingForQuota")
    queues.pass_time(100_000)  # later than each creation by the clock of the cluster, which runs faster
    await queues.eventually(lambda: _requeued(queues, "stuck", 1))
    await queues.record(first, "admitted")
    await queues.record(second, "pending", reason="WaitingForQuota")
    queued_at = (await queues.store.workloads.get("team-a", "stuck")).workload.queued_at
    assert (queued_at is not None) == by_eviction


async def _requeued(world, name, times):
    return (await world.store.workloads.get("team-a", name)).requeues == times


# --- maximum execution time


def limited(name, seconds, **fields):
    manifest = job(name, **fields)
    manifest["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(seconds)
    return manifest


@pytest.mark.costly
async def test_job_exceeding_its_maximum_execution_time_is_deactivated(queues):
    await queues.start()
    await queues.submit(limited("long", 600, cpu="4"))
    await queues.job("long", runs)
    await queues.submit(job("next", cpu="4"))
    queues.pass_time(590)
    await queues.record("next", "pending", reason="WaitingForQuota")
    await queues.record("long", "admitted")
    queues.pass_time(11)
    await queues.job("next", runs)
    out = await queues.record("long", "pending", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    assert out.message == sentences.deactivated(sentences.RAN_TOO_LONG)
    assert is_gated(queues.user.get("jobs", "team-a", "long"))
    await queues.user.delete("jobs", "team-a", "next", propagation="Background")
    await queues.order("long", active=True)
    assert (await queues.record("long", "admitted")).past_seconds == 0


@pytest.mark.costly
async def test_maximum_execution_time_includes_earlier_admissions_and_restarts(queues):
    await queues.start()
    await queues.submit(limited("long", 600))
    await queues.job("long", runs)
    queues.pass_time(400)
    await queues.order("long", held=True)
    held = await queues.record("long", "pending", reason="OnHold")
    assert 400 <= held.past_seconds < 410
    queues.pass_time(10_000)  # on hold: this time does not count
    await queues.order("long", held=False)
    await queues.job("long", runs)
    await queues.end()
    queues.clock.advance(150)
    await queues.start()
    await queues.record("long", "admitted")
    queues.pass_time(50)
    await queues.record("long", "pending", reason="DeactivatedDueToMaximumExecutionTimeExceeded")


async def test_maximum_execution_time_ends_soon_after_the_clock_was_set_forward(queues, monkeypatch):
    """Also when nothing else happens: timers follow the monotonic clock, which does not move then."""
    pauses, original = [], scheduler.Scheduler.seconds_until_next

    def recorded(self, now):
        pauses.append(original(self, now))
        return pauses[-1]

    async def nothing_else_is_due():
        return pauses[-1] == scheduler.MAX_PAUSE

    monkeypatch.setattr(scheduler, "MAX_PAUSE", 0.05)
    monkeypatch.setattr(scheduler.Scheduler, "seconds_until_next", recorded)
    await queues.start()
    await queues.submit(limited("long", 600))
    await queues.job("long", is_ready)
    await queues.eventually(nothing_else_is_due)
    queues.clock.advance(601)
    await queues.record("long", "pending", reason="DeactivatedDueToMaximumExecutionTimeExceeded")


# --- backoff formula


@pytest.mark.parametrize(
    ("requeues", "pause"), [(1, 60.0), (2, 120.0), (3, 240.0), (6, 1920.0), (7, 3600.0), (99, 3600.0)]
)
def test_requeue_backoff_doubles_up_to_its_maximum(requeues, pause):
    wait = WaitForPodsReady(timeout=1.0, recovery_timeout=None)
    assert wait.pause(requeues, 0.0) == pause
    assert wait.pause(requeues, 1.0) in (pause, pytest.approx(pause * 1.0001))
