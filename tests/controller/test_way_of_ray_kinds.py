"""Lifecycle of RayJobs and RayServices with the webhook: their pods belong to a RayCluster that KubeRay creates."""

from __future__ import annotations

import pytest
from grouped_kinds import pods_until, running
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated

from admission.controller.auditing.audit_sources import without_leader
from admission.kinds import all_kinds
from admission.kinds.rules import QueueRule
from admission.sandbox.operators import serve_kinds

FIELDS = [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")]
NAMES = ("ray.io/rayjob", "ray.io/rayservice", "ray.io/raycluster")
KINDS = all_kinds(frameworks=("batch/job", *NAMES))


def pods():
    container = {"name": "ray", "image": "ray", "resources": {"requests": {"cpu": "500m"}}}
    about = {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}
    return {"metadata": about, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}


def ray(kind):
    """A head and two workers of half a CPU each."""
    workers = {"groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 9, "template": pods()}
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


@pytest.mark.costly
@pytest.mark.parametrize(("kind", "field"), FIELDS)
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


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
async def test_audit_takes_the_cluster_for_a_part_with_a_leader_and_without(cluster, kind):
    await cluster.sandbox.local("alice").create(f"{kind.lower()}s", "team-a", ray(kind))
    await pods_until(cluster.user, "team-a", running(3))
    cluster.controller.auditor.grace = 0.0
    assert await cluster.controller.audit(repair=False) == []
    assert await without_leader(cluster.store, cluster.client, KINDS, clock=cluster.store.now) == []


async def scale(cluster, replicas):
    """Change the workers of the RayCluster as Ray's autoscaler does; return it as the API server has stored it."""
    (child,) = cluster.user.list("rayclusters", "team-a")
    groups = [{**child["spec"]["workerGroupSpecs"][0], "replicas": replicas}]
    autoscaler = cluster.sandbox.local("autoscaler")
    return await autoscaler.patch(
        "rayclusters", "team-a", child["metadata"]["name"], {"spec": {"workerGroupSpecs": groups}}
    )


@pytest.mark.parametrize("kind", [kind for kind, _ in FIELDS])
async def test_autoscaler_gets_workers_by_the_quota_of_the_object_that_its_cluster_is_part_of(cluster, kind):
    plural = f"{kind.lower()}s"
    await cluster.sandbox.local("alice").create(plural, "team-a", ray(kind))
    before = await pods_until(cluster.user, "team-a", running(3))
    await scale(cluster, 4)
    grown = await pods_until(cluster.user, "team-a", running(5))
    assert before.keys() <= grown.keys()
    await cluster.holds(2500)
    # Without quota the request waits, and the object that its user knows says so; the next leader knows it, too.
    await cluster.apply(cluster_queue(cpu="2500m"))
    asked = await scale(cluster, 5)
    assert asked["spec"]["workerGroupSpecs"][0]["replicas"] == 4
    await says(cluster, "It asks for 1 more pod")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert (await pods_until(cluster.user, "team-a", running(5))).keys() == grown.keys()
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(6))
    await cluster.holds(3000)
    # Quota follows the pods that the autoscaler removes, and a new start has the numbers of the object.
    await scale(cluster, 1)
    await cluster.holds(1000)
    await pods_until(cluster.user, "team-a", running(2))
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster.user, "team-a", running(0))
    await cluster.record("ray", "pending")
    await cluster.apply(cluster_queue())
    await pods_until(cluster.user, "team-a", running(3))
    await cluster.holds(1500)


async def test_workers_that_an_autoscaler_gets_past_the_webhook_are_taken_back_and_asked_for(world):
    """With admission policies nothing reverts a raised number."""
    await world.apply(flavor(), cluster_queue(cpu="1500m"), local_queue())
    async with serve_kinds(world.sandbox, NAMES):
        await world.start(kinds=KINDS)
        await world.sandbox.local("alice").create("rayjobs", "team-a", ray("RayJob"))
        await pods_until(world.user, "team-a", running(3))
        await scale(world, 3)
        await says(world, "It asks for 1 more pod")
        await pods_until(world.user, "team-a", running(3))
        await world.apply(cluster_queue())
        await pods_until(world.user, "team-a", running(4))
        await world.holds(2000)


async def says(cluster, words):
    async def look():
        return words in (await cluster.record("ray", "admitted")).message

    await cluster.eventually(look)


async def test_rayjob_of_a_raycronjob_is_queued_by_a_rule(world, tmp_path):
    """A RayCronJob, which Sluice does not queue, gives its RayJobs a label with its name, and no queue label."""
    made, labels = ray("RayJob"), {"ray.io/cronjob-name": "nightly"}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "name": "nightly", "uid": "c-1", "controller": True}
    made["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    rule = QueueRule("lq", kinds=("ray.io/rayjob",), labels=labels)
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with (
        serve_kinds(world.sandbox, NAMES),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates", rules=(rule,)),
    ):
        await world.start(kinds=KINDS)
        created = await world.sandbox.local("kuberay").create("rayjobs", "team-a", made)
        assert created["metadata"]["labels"] == {**labels, "sluice.dev/queue-name": "lq"}
        assert created["spec"]["suspend"] is True
        await pods_until(world.user, "team-a", running(3))
        await world.holds(1500)
