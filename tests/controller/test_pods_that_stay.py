"""Pods that stay when their object has finished: the quota is released when they have terminated, and not before."""

from __future__ import annotations

import pytest
from custom_kinds import pod, pytorch_job, served, until
from job_examples import cluster_queue, flavor, job, local_queue

from admission.engine.vocabulary import WAITING_FOR_QUOTA
from admission.kinds import all_kinds
from admission.model.sentences import FINISHED_WITH_PODS
from admission.store.records import State

KINDS = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob"))
TORCH = KINDS.get("kubeflow.org", "PyTorchJob")


def torch():
    template = pod(cpu="1", seconds=1_000_000)
    policy = {"suspend": True, "cleanPodPolicy": "None"}
    return pytorch_job({"Master": (1, template), "Worker": (2, template)}, runPolicy=policy)


@pytest.fixture
async def finished(world):
    """A PyTorchJob that has succeeded and whose operator has left three pods running, as Sluice has noticed."""
    await world.apply(flavor(), cluster_queue(cpu="3"), local_queue())
    async with served(world.sandbox, TORCH):
        await world.start(kinds=KINDS)
        await world.user.create("pytorchjobs", "team-a", torch())
        await until(world.user, "pytorchjobs", "torch", lambda each: TORCH.observe(each).ready)
        status = {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Done", "message": "it is done"}]}
        await world.user.patch("pytorchjobs", "team-a", "torch", {"status": status}, subresource="status")
        await world.eventually(lambda: says(world, FINISHED_WITH_PODS))
        await world.submit(job("next", cpu="3"))
        await world.record("next", "pending", reason=WAITING_FOR_QUOTA)
        yield


async def says(world, message):
    record = await world.store.workloads.get("team-a", "torch")
    return record is not None and record.message == message


async def end_pods(world, number):
    for each in world.user.controlled_by("pods", world.user.get("pytorchjobs", "team-a", "torch")["metadata"]["uid"])[
        :number
    ]:
        await world.user.delete("pods", "team-a", each["metadata"]["name"], grace=0)


async def next_job_starts_after_pods(world):
    """Wait until the next Job starts, and check that no pod of the PyTorchJob is left."""
    await world.job("next", until=lambda each: not each["spec"]["suspend"])
    assert not [each for each in world.user.list("pods") if each["metadata"]["name"].startswith("torch")]


@pytest.mark.costly
@pytest.mark.usefixtures("finished")
async def test_finished_pytorchjob_releases_quota_after_its_last_pod(world):
    await end_pods(world, 2)
    assert (await world.store.workloads.get("team-a", "torch")).state is State.ADMITTED
    await end_pods(world, 1)
    await next_job_starts_after_pods(world)
    record = await world.store.workloads.get("team-a", "torch")
    assert (record.outcome, record.message) == ("Succeeded", "it is done")


@pytest.mark.costly
@pytest.mark.usefixtures("finished")
async def test_finished_pytorchjob_deleted_before_its_pods_keeps_outcome_succeeded(world):
    await world.user.delete("pytorchjobs", "team-a", "torch", propagation="Orphan")
    assert (await world.store.workloads.get("team-a", "torch")).state is State.ADMITTED
    for number in range(2):
        await world.user.delete("pods", "team-a", f"torch-worker-{number}", grace=0)
    await world.user.delete("pods", "team-a", "torch-master-0", grace=0)
    await next_job_starts_after_pods(world)
    assert (await world.store.workloads.get("team-a", "torch")).outcome == "Succeeded"


@pytest.mark.costly
@pytest.mark.usefixtures("finished")
async def test_next_leader_waits_for_the_pods_of_finished_pytorchjob(world):
    await world.end()
    await world.start(kinds=KINDS)
    await end_pods(world, 3)
    await next_job_starts_after_pods(world)
    assert (await world.store.workloads.get("team-a", "torch")).outcome == "Succeeded"


@pytest.mark.costly
async def test_pod_with_label_of_another_pod_set_holds_quota_of_its_actual_pod_set(world):
    """No admission policy protects the pod-set label here, as before Kubernetes 1.30."""
    await world.apply(flavor(), cluster_queue(cpu="3"), local_queue())
    async with served(world.sandbox, TORCH):
        await world.start(kinds=KINDS)
        manifest = torch()
        worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
        worker["template"]["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "120"
        await world.user.create("pytorchjobs", "team-a", manifest)
        await until(world.user, "pytorchjobs", "torch", lambda each: TORCH.observe(each).ready)
        await world.submit(job("next", cpu="1"))
        labelled = {"metadata": {"labels": {"sluice.dev/pod-set": "master"}}}
        await world.user.patch("pods", "team-a", "torch-worker-1", labelled)
        fewer = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}
        await world.user.patch("pytorchjobs", "team-a", "torch", fewer)
        await world.job("next", until=lambda each: not each["spec"]["suspend"])
        assert world.user.get("pods", "team-a", "torch-worker-1") is None
