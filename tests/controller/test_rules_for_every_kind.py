"""Hold, priority, time limit and `waitForPodsReady` of kinds other than Jobs: by suspend field, by gates, in groups."""

from __future__ import annotations

import pytest
from custom_kinds import JOBSET, jobset, pod, served
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated
from pod_examples import pod as plain_pod
from queue_objects import priority_class

from admission.controller.state.policy import ControllerPolicy, WaitForPodsReady
from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("pod", "statefulset", "ray.io/raycluster", "jobset.x-k8s.io/jobset"))
QUEUE = {"sluice.dev/queue-name": "lq"}
NOWHERE = {"kubernetes.io/hostname": "nowhere"}
"""Node selector with which pods are never scheduled, and so never ready."""


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster that gates these kinds, with a queue of 4 CPUs and a class of the priority 7."""
    high = priority_class("high", 7)
    await world.apply(flavor(), cluster_queue(), local_queue(), high)
    async with (
        served(world.sandbox, KINDS.get("ray.io", "RayCluster")),
        served(world.sandbox, KINDS.get(*JOBSET)),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"),
    ):
        yield world


def stateful_set(selector):
    one = plain_pod("x", queue=None, restartPolicy="Always", nodeSelector=selector)
    template = {"metadata": {"labels": {"app": "x"}}, "spec": one["spec"]}
    spec = {"replicas": 2, "serviceName": "x", "selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"labels": {**QUEUE}}, "spec": spec}


def ray_cluster(selector):
    template = pod(cpu="1", seconds=1_000_000)
    template["spec"]["nodeSelector"] = selector
    spec = {"headGroupSpec": {"template": template}, "workerGroupSpecs": []}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"labels": {**QUEUE}}, "spec": spec}


def job_set(selector):
    obj = jobset("x")
    for each in obj["spec"]["replicatedJobs"]:
        each["template"]["spec"]["template"]["spec"]["nodeSelector"] = selector
    return obj


def grouped_pod(selector):
    obj = plain_pod("x", nodeSelector=selector)
    obj["metadata"]["labels"]["sluice.dev/pod-group-name"] = "x"
    obj["metadata"]["annotations"]["sluice.dev/pod-group-total-count"] = "1"
    return obj


EACH = pytest.mark.parametrize(
    ("plural", "make", "is_pod"),
    [
        ("statefulsets", stateful_set, False),
        ("rayclusters", ray_cluster, False),
        ("jobsets", job_set, False),
        ("pods", lambda selector: plain_pod("x", nodeSelector=selector), True),
        ("pods", grouped_pod, True),
    ],
    ids=["StatefulSet", "RayCluster", "JobSet", "Pod", "PodGroup"],
)


@pytest.mark.costly
@EACH
async def test_labels_set_hold_priority_and_maximum_execution_time(cluster, plural, make, is_pod):
    await cluster.start(kinds=KINDS)
    obj = make({})
    own = {"sluice.dev/hold": "true", "sluice.dev/priority-class": "high", "sluice.dev/max-exec-time-seconds": "600"}
    obj["metadata"] |= {"name": "x", "labels": {**obj["metadata"]["labels"], **own}}
    await cluster.user.create(plural, "team-a", obj)
    held = await cluster.record("x", "pending", reason="OnHold")
    assert held.workload.priority == 7
    await cluster.user.patch(plural, "team-a", "x", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    assert (await cluster.record("x", "admitted")).workload.priority == 7
    cluster.pass_time(300)
    await cluster.record("x", "admitted")
    cluster.pass_time(310)
    await _was_stopped(cluster, is_pod, "DeactivatedDueToMaximumExecutionTimeExceeded")


@EACH
async def test_workload_with_unready_pods_is_evicted_after_timeout(cluster, plural, make, is_pod):
    await cluster.start(
        ControllerPolicy(pods_ready=WaitForPodsReady(timeout=300.0, recovery_timeout=120.0)), kinds=KINDS
    )
    obj = make(NOWHERE)
    obj["metadata"]["name"] = "x"
    await cluster.user.create(plural, "team-a", obj)
    await cluster.record("x", "admitted")
    cluster.pass_time(150)
    await cluster.record("x", "admitted")
    cluster.pass_time(160)
    await _was_stopped(cluster, is_pod, "PodsReadyTimeout")


async def _was_stopped(cluster, is_pod, reason):
    """Check that a plain pod has finished as evicted, or that any other object is pending again."""
    record = await cluster.record("x", "finished" if is_pod else "pending")
    assert (record.admission, record.outcome) == (None, "Evicted" if is_pod else "")
    assert reason in [line for line, _ in await cluster.history("x")]
