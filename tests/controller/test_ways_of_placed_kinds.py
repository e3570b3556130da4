"""Each kind whose pods are placed by topology: one rack for each pod set, ranks in the order of nodes, no gate left."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import pytest
from custom_kinds import jobset, pod
from job_examples import local_queue
from pod_examples import gated
from test_way_of_a_leader_worker_set import workers
from test_way_of_a_ray_cluster import ray_cluster
from test_way_of_a_stateful_set import stateful_set
from topology_examples import HOSTNAME, REQUIRED, placed_job, queues_by, racks, racks_of
from trainer import trainer

from admission.kinds import all_kinds
from admission.kinds.topology import POD_SET
from admission.sandbox.operators import serve_kinds

KUBEFLOW = "training.kubeflow.org/replica-index"
JOB = "batch.kubernetes.io/job-completion-index"
COPY = "jobset.sigs.k8s.io/job-index"
POD = "apps.kubernetes.io/pod-index"
LWS = "leaderworkerset.sigs.k8s.io/worker-index"


def replicas(kind, version, field, **roles):
    """An object of the training operator, with pods of one CPU."""
    specs = {role: {"replicas": count, "template": pod(cpu="1", seconds=1_000_000)} for role, count in roles.items()}
    metadata = {"name": "placed", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    return {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "metadata": metadata, "spec": {field: specs}}


def train_job():
    """A TrainJob of four pods, and its runtime."""
    metadata = {"name": "placed", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    version = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": pod(cpu="1", seconds=1_000_000)},
        },
    }
    spec = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}}
    runtime = {**version, "kind": "TrainingRuntime", "metadata": {"name": "torch", "namespace": "team-a"}, "spec": spec}
    trained = {"runtimeRef": reference, "trainer": {"numNodes": 4, "numProcPerNode": 1}}
    return runtime, {**version, "kind": "TrainJob", "metadata": metadata, "spec": trained}


def app_wrapper(wrapped):
    metadata = {"name": "placed", "namespace": "team-a", "labels": wrapped["metadata"].pop("labels")}
    del wrapped["spec"]["suspend"]
    version = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}
    component = {"template": {"apiVersion": "batch/v1", "kind": "Job", **wrapped}}
    return {**version, "metadata": metadata, "spec": {"suspend": True, "components": [component]}}


CASES = {
    "Job": (6, JOB, lambda: [placed_job("placed", 6, "", indexed=True)]),
    "JobSet": (7, JOB, lambda: [jobset("placed", workers=3)]),
    "PyTorchJob": (6, KUBEFLOW, lambda: [replicas("PyTorchJob", "v1", "pytorchReplicaSpecs", Master=1, Worker=5)]),
    "MPIJob": (6, KUBEFLOW, lambda: [replicas("MPIJob", "v2beta1", "mpiReplicaSpecs", Launcher=1, Worker=5)]),
    "RayCluster": (6, "", lambda: [ray_cluster(gpu=5)]),
    "TrainJob": (4, JOB, train_job),
    "AppWrapper": (6, JOB, lambda: [app_wrapper(placed_job("placed", 6, "", indexed=True))]),
    "StatefulSet": (6, POD, lambda: [stateful_set(6)]),
    "LeaderWorkerSet": (4, LWS, lambda: [workers(replicas=1)]),
}
"""Kind -> number of pods, label with the rank, and the objects to create."""
FRAMEWORKS = {
    "JobSet": "jobset.x-k8s.io/jobset",
    "PyTorchJob": "kubeflow.org/pytorchjob",
    "MPIJob": "kubeflow.org/mpijob",
    "RayCluster": "ray.io/raycluster",
    "TrainJob": "trainer.kubeflow.org/trainjob",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
    "AppWrapper": "workload.codeflare.dev/appwrapper",
}


def in_rack(value):
    """Have each pod template in an object, in place, request a rack."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            value.setdefault("metadata", {}).setdefault("annotations", {})[REQUIRED] = "rack"
        for each in value.values():
            in_rack(each)
    elif isinstance(value, list):
        for each in value:
            in_rack(each)
    return value


def rank(each, label):
    labels = each["metadata"]["labels"]
    return int(labels.get(COPY, 0)), int(labels[label])


@pytest.mark.costly
@pytest.mark.parametrize("kind", CASES)
async def test_pods_of_each_kind_are_in_their_racks_in_the_order_of_their_ranks(world, tmp_path, kind):
    number, label, objects = CASES[kind]
    await racks(world, 2, "a1", "b1")  # 8 CPUs each
    await world.apply(*queues_by("rack", HOSTNAME), local_queue("user-queue"))
    names = ["batch/job", "pod", "statefulset", *([FRAMEWORKS[kind]] if kind in FRAMEWORKS else [])]
    names += ["jobset.x-k8s.io/jobset"] if kind == "TrainJob" else []
    kinds = all_kinds(frameworks=names)
    async with AsyncExitStack() as stack:
        if kind == "TrainJob":
            await stack.enter_async_context(trainer(world.sandbox, "2.2"))
        elif kind in FRAMEWORKS:
            await stack.enter_async_context(serve_kinds(world.sandbox, [FRAMEWORKS[kind]]))
        await stack.enter_async_context(gated(world.user, kinds, tmp_path / "certificates"))
        await world.start(kinds=kinds)
        for obj in map(in_rack, objects()):
            plural = world.user.plural_of(obj["apiVersion"], obj["kind"])
            await world.user.create(plural, "team-a", obj)

        async def bound():
            pods = world.user.list("pods", "team-a")
            return pods if len(pods) == number and all(each["spec"].get("nodeName") for each in pods) else None

        pods = await world.eventually(bound)
        assert not any(each["spec"].get("schedulingGates") for each in pods)
        (record,) = (await world.store.workloads.list(namespace="team-a")).workloads
        placed = Counter()
        for assignment in record.admission.pod_sets:
            assert len({values[-1].partition("-")[0] for values, _ in assignment.topology.domains}) == 1
            placed.update({values[-1]: count for values, count in assignment.topology.domains})
        assert Counter(each["spec"]["nodeSelector"][HOSTNAME] for each in pods) == placed
        by_set = {}
        for each in pods:
            own = each["metadata"]["annotations"].get(POD_SET) or each["metadata"]["labels"].get(LWS) == "0"
            by_set.setdefault(own, []).append(each)
        for members in by_set.values():
            assert len(racks_of(members)) == 1
            if label and all(label in each["metadata"]["labels"] for each in members):
                nodes = [each["spec"]["nodeName"] for each in sorted(members, key=lambda each: rank(each, label))]
                assert nodes == sorted(nodes)
