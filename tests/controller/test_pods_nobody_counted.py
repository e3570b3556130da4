"""A Job that is suspended before its controller has updated its status: that status is from before the start."""

from __future__ import annotations

from contextlib import closing

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue

SUSPENDED = {
    "ready": 0,
    "terminating": 0,
    "conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}],
}


@pytest.fixture
def controllers():
    """No controllers: the test acts as Job controller."""
    return False


@pytest.fixture
async def sluice(world):
    """A running Sluice with one queue of 4 CPUs."""
    await world.begin()
    return world


async def started(world, name):
    """Start a Job and create a pod of it that its status does not count yet; return the pod."""
    created = await world.submit(job(name, cpu="4"))
    await world.user.patch("jobs", "team-a", name, {"status": SUSPENDED}, subresource="status")
    await world.job(name, lambda obj: not is_gated(obj))
    labels = {"batch.kubernetes.io/controller-uid": created["metadata"]["uid"]}
    pod = {
        "metadata": {"name": f"{name}-pod", "namespace": "team-a", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    }
    return await world.user.create("pods", "team-a", pod)


async def events_until_job_runs_again(world, pod):
    """Delete a pod once its Job is gated; return the events in order until the Job runs again."""
    order = []
    with closing(world.user.watch("jobs", "pods")) as changes:
        async for batch in changes:
            for plural, change, obj, _ in batch:
                if plural == "pods":
                    order.append(f"pod {change}")
                elif obj["metadata"]["name"] == "flipped":
                    order.append("gated" if is_gated(obj) else "runs")
            if order[-1] == "runs":
                return order
            if "pod DELETED" not in order and "gated" in order:
                await world.submit(job("probe", cpu="0"))
                await world.record("probe", "admitted")  # all earlier events were processed
                await world.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    raise AssertionError("the watch ended")


async def test_suspended_job_is_resumed_after_its_uncounted_pod_is_gone(sluice):
    pod = await started(sluice, "flipped")
    await sluice.patch("flipped", {"spec": {"suspend": True}})
    order = await events_until_job_runs_again(sluice, pod)
    assert order.index("pod DELETED") < order.index("runs")


async def test_job_put_on_hold_keeps_quota_until_its_uncounted_pod_is_gone(sluice):
    pod = await started(sluice, "held")
    await sluice.patch("held", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await sluice.job("held", is_gated)
    await sluice.submit(job("next", cpu="4"))
    for number in range(3):  # their requests are sent after all that were due before
        await sluice.submit(job(f"probe-{number}", cpu="0"))
        await sluice.job(f"probe-{number}", lambda obj: not is_gated(obj))
    await sluice.record("next", "pending", reason="WaitingForQuota")
    assert (await sluice.record("held", "evicting")).admission is not None
    await sluice.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    await sluice.record("held", "pending", reason="OnHold")
    await sluice.record("next", "admitted")


async def test_deleted_job_keeps_quota_until_its_uncounted_pod_is_gone(sluice):
    pod = await started(sluice, "deleted")
    await sluice.patch("deleted", {"spec": {"suspend": True}})
    await sluice.user.delete("jobs", "team-a", "deleted", propagation="Background")
    await sluice.record("deleted", "evicting", reason="Deleted")
    await sluice.submit(job("next", cpu="4"))
    await sluice.record("next", "pending", reason="WaitingForQuota")
    await sluice.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    await sluice.record("next", "admitted")
    assert (await sluice.record("deleted", "finished")).outcome == "Deleted"


async def test_job_suspended_during_downtime_is_resumed_after_its_pod_is_gone(sluice):
    pod = await started(sluice, "flipped")
    await sluice.end()
    await sluice.patch("flipped", {"spec": {"suspend": True}})
    await sluice.start()
    order = await events_until_job_runs_again(sluice, pod)
    assert order.index("pod DELETED") < order.index("runs")


async def test_late_patch_response_does_not_revive_a_deleted_job(sluice):
    await sluice.apply({**flavor(), "spec": {}})  # without injected fields no restore is due
    pod = await started(sluice, "late")
    match = {"verb": "patch", "resource": "jobs", "name": "late"}
    sluice.sandbox.faults.install({"rules": [{"match": match, "do": "delay", "when": "after", "seconds": 600}]})
    await sluice.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await sluice.job("late", is_gated)  # its response is delayed
    await sluice.user.delete("jobs", "team-a", "late", propagation="Background")
    await sluice.apply(cluster_queue())
    await _all_requests_sent(sluice, "first")
    sluice.sandbox.faults.remove()
    await _all_requests_sent(sluice, "second")
    await sluice.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    assert (await sluice.record("late", "finished")).outcome == "Deleted"
    assert set(sluice.controller.writer.outcomes) == {"ok"}  # no request was sent for the deleted Job


async def _all_requests_sent(world, probe):
    """Start two Jobs in turn: the requests that were due before are sent before that of the second Job."""
    for number in range(2):
        await world.submit(job(f"{probe}-{number}", cpu="0"))
        await world.job(f"{probe}-{number}", lambda obj: not is_gated(obj))


async def test_forbidden_pod_list_in_a_namespace_delays_no_other_namespace(world, caplog):
    elsewhere = local_queue()
    elsewhere["metadata"]["namespace"] = "team-b"
    await world.begin(flavor(), cluster_queue(cpu="8"), local_queue(), elsewhere)
    for namespace in ("team-a", "team-b"):
        await world.submit(job("gone", namespace=namespace, cpu="4"))
        await world.job("gone", lambda obj: not is_gated(obj), namespace)
    match = {"verb": "list", "resource": "pods", "namespace": "team-a"}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 403}]})
    for namespace in ("team-a", "team-b"):
        await world.user.delete("jobs", namespace, "gone", propagation="Background")
    assert (await world.record("gone", "finished", "team-b")).outcome == "Deleted"
    assert "cannot list pods of namespace team-a" in caplog.text
    await world.record("gone", "evicting")
