"""Pods that stay when their object has finished: the quota is released when they have terminated, and not before."""

from __future__ import annotations

import pytest
from custom_kinds import pod, served, until
from job_examples import cluster_queue, flavor, job, local_queue

from admission.engine.vocabulary import WAITING_FOR_QUOTA
from admission.kinds import all_kinds
from admission.model.sentences import FINISHED_WITH_PODS
from admission.store.records import State

KINDS = all_kinds(frameworks=("batch/job", "kubeflow.org/pytorchjob"))
TORCH = KINDS.get("kubeflow.org", "PyTorchJob")


def torch():
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {
            "runPolicy": {"suspend": True, "cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {
                name: {"replicas": count, "template": pod(cpu="1", seconds=1_000_000)}
                for name, count in (("Master", 1), ("Worker", 2))
            },
        },
    }


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


async def starts_after_the_pods(world):
    """The next Job starts, at a time when none of the pods is left."""
    await world.job("next", until=lambda each: not each["spec"]["suspend"])
    assert not [each for each in world.user.list("pods") if each["metadata"]["name"].startswith("torch")]


@pytest.mark.usefixtures("finished")
async def test_the_quota_of_what_has_finished_is_released_after_its_last_pod(world):
    await end_pods(world, 2)
    assert (await world.store.workloads.get("team-a", "torch")).state is State.ADMITTED
    await end_pods(world, 1)
    await starts_after_the_pods(world)
    record = await world.store.workloads.get("team-a", "torch")
    assert (record.outcome, record.message) == ("Succeeded", "it is done")


@pytest.mark.usefixtures("finished")
async def test_it_is_so_if_it_is_deleted_meanwhile_and_it_has_succeeded_all_the_same(world):
    await world.user.delete("pytorchjobs", "team-a", "torch", propagation="Orphan")
    assert (await world.store.workloads.get("team-a", "torch")).state is State.ADMITTED
    for number in range(2):
        await world.user.delete("pods", "team-a", f"torch-worker-{number}", grace=0)
    await world.user.delete("pods", "team-a", "torch-master-0", grace=0)
    await starts_after_the_pods(world)
    assert (await world.store.workloads.get("team-a", "torch")).outcome == "Succeeded"


@pytest.mark.usefixtures("finished")
async def test_another_leader_waits_for_them_too(world):
    await world.end()
    await world.start(kinds=KINDS)
    await end_pods(world, 3)
    await starts_after_the_pods(world)
    assert (await world.store.workloads.get("team-a", "torch")).outcome == "Succeeded"


async def test_a_pod_with_the_label_of_another_pod_set_holds_the_quota_of_its_own(world):
    """No policy keeps the label here, as before Kubernetes 1.30."""
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
