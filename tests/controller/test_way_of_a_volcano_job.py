"""Lifecycle of Volcano Jobs as TorchX submits them, with the webhook: gated per pod, queued as a whole."""

from __future__ import annotations

from functools import partial

import pytest
from custom_kinds import until
from grouped_kinds import JOBS, KINDS, grouped_served, lasting, manifest, pods_until, running
from job_examples import TOLERATION, cluster_queue, flavor, local_queue
from pod_examples import gated, pod

from admission.sandbox.apiserver.errors import ApiError

DDP = "train-zjcxz05r7m5lsd"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster with Volcano, whose pods are gated, with a queue `test` of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("test"))
    async with (
        grouped_served(world.sandbox),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


def train(cpu="2", **spec):
    """The two workers of `dist.ddp -j 2x4`, of a size that fits."""
    obj = lasting(manifest("volcano-torchx-ddp"))
    for task in obj["spec"]["tasks"]:
        task["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return {**obj, "spec": {**obj["spec"], **spec}}


async def submit(cluster, obj, user="alice"):
    return await cluster.sandbox.local(user).create(JOBS, "team-a", obj)


def job(cluster, name=DDP):
    return cluster.user.get(JOBS, "team-a", name)


async def phase(cluster, wanted, name=DDP):
    def reached(obj):
        return obj.get("status", {}).get("state", {}).get("phase") == wanted

    return await until(cluster.user, JOBS, name, reached)


def cpus(record):
    return sum(each.usage["cpu"] for each in record.admission.pod_sets)


async def holds(cluster, cpu):
    return cpus(await cluster.record(DDP, "admitted")) == cpu


async def next_pod_gets_the_whole_quota(cluster):
    await cluster.user.create("pods", "team-a", pod("next", queue="test", cpu="4"))
    await pods_until(cluster.user, "team-a", runs("next"))
    found = (await cluster.store.workloads.list(namespace="team-a")).workloads
    assert [record.workload.name for record in found if record.admission] == ["next"]


async def end_pods(cluster, outcome):
    for name, each in (await pods_until(cluster.user, "team-a", bool)).items():
        if each["status"].get("phase") == "Running":
            await cluster.user.patch("pods", "team-a", name, {"status": {"phase": outcome}}, subresource="status")


async def test_volcano_job_starts_as_a_whole_and_finishes_when_completed(cluster):
    stored = await submit(cluster, train())
    for task in stored["spec"]["tasks"]:
        metadata = task["template"]["metadata"]
        assert metadata["labels"]["sluice.dev/queue-name"] == "test"
        assert metadata["annotations"]["sluice.dev/pod-group-total-count"] == "2"
    found = await pods_until(cluster.user, "team-a", running(2))
    for each in found.values():
        assert each["spec"]["nodeSelector"] == {"type": "kwok"}
        assert TOLERATION in each["spec"]["tolerations"]
        assert each["spec"]["schedulerName"] == "volcano"
    record = await cluster.record(DDP, "admitted")
    assert (record.workload.kind, record.workload.user, cpus(record)) == ("PodGroup", "alice", 4000)
    assert [each.count for each in record.workload.pod_sets] == [2]  # equal tasks are one pod set
    await phase(cluster, "Running")
    await end_pods(cluster, "Succeeded")
    await phase(cluster, "Completed")
    assert (await cluster.record(DDP, "finished")).outcome == "Succeeded"
    await next_pod_gets_the_whole_quota(cluster)


async def test_volcano_job_of_torchx_utils_echo_is_admitted(cluster):
    await submit(cluster, lasting(manifest("volcano-torchx-echo")))
    record = await cluster.record("echo-ddjzwzwnndsb3c", "admitted")
    (pod_set,) = record.workload.pod_sets
    assert (pod_set.count, pod_set.requests["cpu"]) == (1, 900)
    await pods_until(cluster.user, "team-a", running(1))


async def test_volcano_job_starts_when_foreign_pod_with_its_pod_name_is_gone(cluster):
    # A Volcano Job of that name was deleted, and its pods stayed as orphans.
    (taken,) = {f"{DDP}-{task['name']}-0" for task in train()["spec"]["tasks"][:1]}
    await cluster.user.create("pods", "team-a", pod(taken, queue="nowhere", cpu="1"))
    await submit(cluster, train())
    await pods_until(cluster.user, "team-a", lambda found: len(found) == 2)
    await cluster.user.delete("pods", "team-a", taken)
    await pods_until(cluster.user, "team-a", running(2))


def _train(cluster):
    pods = cluster.user.list("pods", "team-a")
    return {each["metadata"]["name"]: each for each in pods if each["metadata"]["name"].startswith(DDP)}


@pytest.mark.long
async def test_evicted_volcano_job_is_admitted_again_without_using_a_retry(cluster):
    await submit(cluster, train())
    before = await phase(cluster, "Running")
    first = await cluster.record(DDP, "admitted")
    for _ in range(4):  # more often than `maxRetry`
        await pods_until(cluster.user, "team-a", running(2))
        await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
        await pods_until(cluster.user, "team-a", running(0, 2))
        await phase(cluster, "Pending")
        waiting = await cluster.record(DDP, "pending")
        assert waiting.admission is None
        assert waiting.workload.uid == first.workload.uid
        assert waiting.workload.queued_at == first.workload.queued_at
        await cluster.apply(cluster_queue())
        await phase(cluster, "Running")
    after = job(cluster)
    assert after["spec"] == before["spec"]
    assert "retryCount" not in after["status"]


def runs(name):
    return lambda found: name in found and found[name]["status"].get("phase") == "Running"


@pytest.mark.long
async def test_pod_that_succeeds_during_eviction_is_recreated_and_runs(cluster):
    obj = train()
    for task in obj["spec"]["tasks"]:
        task["template"]["spec"]["terminationGracePeriodSeconds"] = 4_000_000
        task["template"]["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "3000000"
    await submit(cluster, obj)
    await phase(cluster, "Running")
    before = await cluster.record(DDP, "admitted")
    first, second = sorted(_train(cluster))
    succeeded = {"status": {"phase": "Succeeded"}}
    await cluster.user.patch("pods", "team-a", first, succeeded, subresource="status")
    await cluster.eventually(partial(holds, cluster, 2000))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster.user, "team-a", lambda found: "deletionTimestamp" in found[second]["metadata"])
    await cluster.user.patch("pods", "team-a", second, succeeded, subresource="status")
    waiting = await cluster.record(DDP, "pending")
    await cluster.user.delete("pods", "team-a", second, grace=0)
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", runs(second))
    assert first in _train(cluster)  # a succeeded pod is not recreated
    again = await cluster.record(DDP, "admitted")
    assert before.workload.uid == waiting.workload.uid == again.workload.uid
    await end_pods(cluster, "Succeeded")
    assert (await cluster.record(DDP, "finished")).outcome == "Succeeded"


@pytest.mark.long
async def test_retry_by_volcano_keeps_the_admission(cluster):
    await submit(cluster, train())
    await phase(cluster, "Running")
    first = await cluster.record(DDP, "admitted")
    name = f"{DDP}-train-1-0"
    await cluster.user.patch("pods", "team-a", name, {"status": {"phase": "Failed"}}, subresource="status")
    await until(cluster.user, JOBS, DDP, lambda obj: obj["status"].get("retryCount") == 1)
    await pods_until(cluster.user, "team-a", running(2))
    await phase(cluster, "Running")
    now = await cluster.record(DDP, "admitted")
    assert (now.workload.uid, now.admitted_at) == (first.workload.uid, first.admitted_at)


async def test_failed_volcano_job_is_finished_although_its_pods_are_kept(cluster):
    obj = train()
    for task in obj["spec"]["tasks"]:
        del task["policies"]
    await submit(cluster, obj)
    await phase(cluster, "Running")
    await end_pods(cluster, "Failed")
    await phase(cluster, "Failed")
    over = await cluster.record(DDP, "finished")
    assert (over.outcome, over.message) == ("Failed", "The Volcano Job is Failed.")
    assert len(_train(cluster)) == 2
    await next_pod_gets_the_whole_quota(cluster)


@pytest.mark.costly
async def test_deleted_volcano_job_holds_quota_until_its_last_pod_is_gone(cluster):
    obj = train()
    template = obj["spec"]["tasks"][0]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = 400
    template["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "300"
    await submit(cluster, obj)
    await phase(cluster, "Running")
    await cluster.user.delete(JOBS, "team-a", DDP, propagation="Background")
    await pods_until(cluster.user, "team-a", lambda found: set(found) == {f"{DDP}-train-0-0"})
    assert cpus(await cluster.record(DDP, "admitted")) == 4000
    over = await cluster.record(DDP, "finished")
    assert over.outcome == "Deleted"


async def test_aborted_pending_volcano_job_is_finished_as_failed(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await submit(cluster, train())
    await cluster.record(DDP, "pending")
    aborted = {"status": {"state": {"phase": "Aborted"}}}
    await cluster.user.patch(JOBS, "team-a", DDP, aborted, subresource="status")
    over = await cluster.record(DDP, "finished")
    assert (over.outcome, over.message) == ("Failed", "The Volcano Job is Aborted.")


async def test_hold_label_of_volcano_job_keeps_the_job_pending(cluster):
    obj = train()
    await submit(cluster, {**obj, "metadata": {**obj["metadata"], "labels": {"sluice.dev/hold": "true"}}})
    await cluster.record(DDP, "pending", reason="OnHold")
    await cluster.user.patch(JOBS, "team-a", DDP, {"metadata": {"labels": {"sluice.dev/hold": None}}})
    await pods_until(cluster.user, "team-a", running(2))


def one_after_the_other():
    """A Volcano Job whose second worker starts when the first one runs."""
    obj = train()
    obj["spec"]["tasks"][1]["dependsOn"] = {"name": [obj["spec"]["tasks"][0]["name"]]}
    return obj


@pytest.mark.costly
async def test_quota_is_reserved_for_tasks_that_depend_on_other_tasks(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await submit(cluster, one_after_the_other())
    await pods_until(cluster.user, "team-a", running(0, 1))
    waiting = await cluster.record(DDP, "pending", reason="Suspended")
    assert [(each.name, each.count, each.requests) for each in waiting.workload.pod_sets] == [
        ("train-0", 1, {"cpu": 2000}),
        ("train-1", 1, {"cpu": 2000}),
    ]
    await cluster.apply(cluster_queue())
    # Another pod, which would fit beside the first one, must not start.
    await cluster.user.create("pods", "team-a", pod("other", queue="test", cpu="1"))
    await pods_until(cluster.user, "team-a", running(2, 1))
    assert cpus(await cluster.record(DDP, "admitted")) == 4000
    await cluster.record("other", "pending")

    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record(DDP, "pending", reason="Suspended")
    # Volcano recreates the second pod if it is gone while the first one, whose status was just written, still runs.
    stopped = {(0, 2), (0, 3)}
    await pods_until(cluster.user, "team-a", lambda pods: any(running(*each)(pods) for each in stopped))
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(2, 1))
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await end_pods(cluster, "Succeeded")
    await phase(cluster, "Completed")
    assert (await cluster.record(DDP, "finished")).outcome == "Succeeded"
    await cluster.record("other", "admitted")


async def test_dependent_task_with_raised_requests_stays_gated(cluster):
    created = await submit(cluster, one_after_the_other())
    await pods_until(cluster.user, "team-a", running(2))
    tasks = created["spec"]["tasks"]
    later = cluster.user.get("pods", "team-a", f"{DDP}-train-1-0")
    larger = [tasks[0], {**tasks[1], "template": {**tasks[1]["template"], "spec": {**tasks[1]["template"]["spec"]}}}]
    larger[1]["template"]["spec"]["containers"] = [
        {**each, "resources": {"requests": {"cpu": "3"}}} for each in tasks[1]["template"]["spec"]["containers"]
    ]
    await cluster.user.patch(JOBS, "team-a", DDP, {"spec": {"tasks": larger}})
    await cluster.user.delete("pods", "team-a", later["metadata"]["name"], grace=0)
    await pods_until(cluster.user, "team-a", running(1, 1))
    assert cpus(await cluster.record(DDP, "admitted")) == 4000


async def test_runtime_class_of_dependent_task_is_rejected(cluster):
    obj = one_after_the_other()
    obj["spec"]["tasks"][1]["template"]["spec"]["runtimeClassName"] = "kata"
    with pytest.raises(ApiError, match=r"spec.tasks\[1\].template.spec.runtimeClassName: must not be set where tasks"):
        await submit(cluster, obj)
