"""Kueue's annotation `admission-gated-by`: objects of any kind do not queue while it names a controller."""

from __future__ import annotations

import pytest
from custom_kinds import pod, served
from grouped_kinds import GATE, pods_until, running
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs
from pod_examples import gated
from pod_examples import pod as plain_pod

from admission.kinds import all_kinds
from admission.kinds.base import GATED_BY

NAMES = ("batch/job", "pod", "statefulset", "ray.io/raycluster")
KINDS = all_kinds(frameworks=NAMES)
MESSAGE = (
    "Admission is gated by {}: it queues when each of these has removed its name from the annotation "
    "kueue.x-k8s.io/admission-gated-by."
)


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster that gates all of these kinds, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with (
        served(world.sandbox, KINDS.get("ray.io", "RayCluster")),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


def gated_by(obj, *controllers):
    obj["metadata"].setdefault("annotations", {})[GATED_BY] = ",".join(controllers)
    return obj


async def says(cluster, name, *controllers):
    """Wait until a workload is pending because of these gates only."""

    async def look():
        found = await cluster.record(name, "pending", reason="AdmissionGated")
        return found.message == MESSAGE.format(", ".join(controllers))

    await cluster.eventually(look)


def annotate(value):
    return {"metadata": {"annotations": {GATED_BY: value}}}


@pytest.mark.costly
async def test_job_queues_when_last_controller_removes_its_admission_gate(cluster):
    await cluster.submit(gated_by(job("a", suspend=False, cpu="3"), "example.com/sizes", " example.com/budget/b"))
    await says(cluster, "a", "example.com/sizes", "example.com/budget/b")
    await cluster.submit(job("b"))  # not delayed by the gated Job
    await cluster.job("b", runs)
    await cluster.patch("a", annotate("example.com/budget/b"))
    await says(cluster, "a", "example.com/budget/b")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await says(cluster, "a", "example.com/budget/b")
    smaller = {"template": {"spec": {"nodeSelector": {"type": "kwok"}}}}  # as a controller may change a gated Job
    await cluster.patch("a", {**annotate(None), "spec": smaller})
    assert (await cluster.job("a", runs))["spec"]["template"]["spec"]["nodeSelector"]["type"] == "kwok"


@pytest.mark.costly
async def test_admission_gate_added_to_admitted_job_is_ignored(cluster):
    await cluster.submit(job("a"))
    await cluster.job("a", runs)
    kept = await cluster.patch("a", annotate("example.com/late"))
    assert GATED_BY not in kept["metadata"]["annotations"]
    # The same without the webhook.
    await cluster.user.delete("mutatingwebhookconfigurations", "", "sluice")
    await cluster.patch("a", annotate("example.com/late"))
    await cluster.submit(job("b"))
    await cluster.job("b", runs)
    assert (await cluster.record("a", "admitted")).reason == "Admitted"


@pytest.mark.costly
async def test_gated_job_unsuspended_by_user_is_suspended_again(cluster):
    await cluster.submit(gated_by(job("a"), "example.com/sizes"))
    await says(cluster, "a", "example.com/sizes")
    await cluster.user.delete("mutatingwebhookconfigurations", "", "sluice")
    await cluster.patch("a", {"spec": {"suspend": False}})
    await cluster.job("a", lambda obj: is_gated(obj) and obj["metadata"]["generation"] > 2)
    await says(cluster, "a", "example.com/sizes")


@pytest.mark.costly
async def test_pod_group_waits_for_the_admission_gates_of_all_its_pods(cluster):
    for number in range(2):
        each = gated_by(plain_pod(f"p-{number}"), f"example.com/{number}")
        each["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "g"
        each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        await cluster.user.create("pods", "team-a", each)
    await says(cluster, "g", "example.com/0", "example.com/1")
    await cluster.user.patch("pods", "team-a", "p-0", annotate(None))
    await says(cluster, "g", "example.com/1")
    await cluster.user.patch("pods", "team-a", "p-1", annotate(None))
    await pods_until(cluster.user, "team-a", running(2))


def stateful_set():
    one = plain_pod("x", queue=None)
    metadata = {"name": "web", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**one["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": 2, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def ray_cluster():
    group = {"groupName": "w", "replicas": 1, "template": pod(cpu="1", seconds=1_000_000)}
    metadata = {"name": "web", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    spec = {"headGroupSpec": {"template": pod(cpu="1", seconds=1_000_000)}, "workerGroupSpecs": [group]}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(("plural", "make"), [("statefulsets", stateful_set), ("rayclusters", ray_cluster)])
async def test_stateful_set_and_raycluster_wait_for_admission_gates(cluster, plural, make):
    await cluster.user.create(plural, "team-a", gated_by(make(), "example.com/sizes"))
    await says(cluster, "web", "example.com/sizes")
    assert all(GATE in each["spec"]["schedulingGates"] for each in cluster.user.list("pods", "team-a"))
    kept = await cluster.user.patch(plural, "team-a", "web", annotate("example.com/sizes,example.com/more"))
    assert kept["metadata"]["annotations"][GATED_BY] == "example.com/sizes"
    await cluster.user.patch(plural, "team-a", "web", annotate(""))
    await cluster.record("web", "admitted")
    await pods_until(cluster.user, "team-a", running(2))
