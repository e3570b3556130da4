"""Lifecycle of RayJobs and RayServices with the webhook: their pods belong to a RayCluster that KubeRay creates."""

from __future__ import annotations

import pytest
from grouped_kinds import pods_until, running
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated

from admission.kinds import all_kinds
from admission.sandbox.operators import serve_kinds

NAMES = ("ray.io/rayjob", "ray.io/rayservice", "ray.io/raycluster")
KINDS = all_kinds(frameworks=("batch/job", *NAMES))


def pods():
    container = {"name": "ray", "image": "ray", "resources": {"requests": {"cpu": "500m"}}}
    about = {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}
    return {"metadata": about, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}


def ray(kind):
    """A head and two workers of half a CPU each."""
    workers = {"groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "template": pods()}
    cluster = {"headGroupSpec": {"template": pods()}, "workerGroupSpecs": [workers]}
    of_job = {"shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode", "rayClusterSpec": cluster}
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {"name": "ray", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": of_job if kind == "RayJob" else {"rayClusterConfig": cluster},
    }


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose objects are gated, with a queue of 4 CPUs; Sluice and KubeRay run."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with (
        serve_kinds(world.sandbox, NAMES),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


@pytest.mark.parametrize(("kind", "field"), [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")])
async def test_runs_on_with_fewer_workers_is_stopped_and_started_with_them_and_is_one_workload(cluster, kind, field):
    plural = f"{kind.lower()}s"
    await cluster.sandbox.local("alice").create(plural, "team-a", ray(kind))
    before = await pods_until(cluster.user, "team-a", running(3))
    groups = cluster.user.get(plural, "team-a", "ray")["spec"][field]["workerGroupSpecs"]
    fewer = {field: {"workerGroupSpecs": [{**groups[0], "replicas": 1}]}}
    await cluster.sandbox.local("alice").patch(plural, "team-a", "ray", {"spec": fewer})
    await cluster.apply(cluster_queue(cpu="3"))  # a commit later than the edit
    assert (await pods_until(cluster.user, "team-a", running(3))).keys() == before.keys()
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster.user, "team-a", running(0))
    await cluster.record("ray", "pending")
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(2))
    names = [each.workload.name for each in (await cluster.store.workloads.list(namespace="team-a")).workloads]
    assert names == ["ray"]
