"""Deployments and StatefulSets whose templates have the queue label: their pods are queued, and hold quota."""

from __future__ import annotations

from contextlib import closing

import pytest
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds

QUEUE = "sluice.dev/queue-name"
KINDS = all_kinds(frameworks=("batch/job", "pod", "deployment"))


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def controller(kind, replicas, *, labels=None, annotations=None, **spec):
    """A Deployment or StatefulSet `web` whose pods request one CPU each."""
    one = pod("template")
    template = {
        "metadata": {
            "labels": {**one["metadata"]["labels"], "app": "web", **(labels or {})},
            "annotations": {**one["metadata"]["annotations"], **(annotations or {})},
        },
        "spec": {**one["spec"], "restartPolicy": "Always"},
    }
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


async def pods_until(cluster, until):
    """Wait until all pods satisfy `until`, and return them by name."""
    with closing(cluster.user.watch("pods")) as changes:
        async for _ in changes:
            if until(found := cluster.user.list("pods", "team-a")):
                return found
    raise AssertionError("the watch ended")


def running(number, gated_ones=0):
    def until(found):
        waiting = [obj for obj in found if GATE in obj["spec"].get("schedulingGates", ())]
        ready = [
            obj
            for obj in found
            if obj["status"].get("phase") == "Running" and "deletionTimestamp" not in obj["metadata"]
        ]
        return (len(ready), len(waiting)) == (number, gated_ones)

    return until


@pytest.mark.costly
async def test_each_pod_of_deployment_is_one_workload_and_quota_follows_replicas(cluster):
    await cluster.user.create("deployments", "team-a", controller("Deployment", 3))
    await pods_until(cluster, running(3))
    await cluster.holds(3000)
    await cluster.user.patch("deployments", "team-a", "web", {"spec": {"replicas": 6}})
    await pods_until(cluster, running(4, 2))
    await cluster.holds(4000)
    await cluster.user.patch("deployments", "team-a", "web", {"spec": {"replicas": 1}})
    await pods_until(cluster, running(1))
    await cluster.holds(1000)
    await cluster.user.delete("deployments", "team-a", "web", propagation="Background")
    await cluster.holds(0)


def labelled(replicas, queue="lq", **spec):
    """A Deployment that has the queue label, but not on its template."""
    obj = controller("Deployment", replicas, **spec)
    del obj["spec"]["template"]["metadata"]["labels"][QUEUE]
    obj["metadata"]["labels"] = {QUEUE: queue}
    return obj


def of_queue(pods, queue):
    return [pod for pod in pods if pod["metadata"]["labels"].get(QUEUE) == queue]


@pytest.mark.costly
async def test_relabelled_deployment_moves_to_new_queue_within_its_quota(cluster):
    """New pods run within the quota of the new queue only, and no old pod ends before a new one replaces it."""
    await cluster.apply(cluster_queue(name="other", cpu="2"), local_queue("other", cluster_queue="other"))
    limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await cluster.user.create("deployments", "team-a", labelled(3, strategy=limits))
    await pods_until(cluster, running(3))
    await cluster.user.patch("deployments", "team-a", "web", {"metadata": {"labels": {QUEUE: "other"}}})
    # The new queue has quota for two pods: the third one waits, and one old pod stays.
    found = await pods_until(cluster, lambda found: running(3, 1)(found) and running(1)(of_queue(found, "lq")))
    assert running(2, 1)(of_queue(found, "other"))
    await cluster.holds(3000)
    await cluster.user.patch("deployments", "team-a", "web", {"metadata": {"labels": {QUEUE: "lq"}}})
    await pods_until(cluster, lambda found: running(3)(of_queue(found, "lq")) and len(found) == 3)
    await cluster.holds(3000)


async def test_queue_label_added_to_deployment_replaces_its_pods_by_queued_pods(cluster):
    await cluster.apply(cluster_queue(cpu="2"))
    unqueued = labelled(3, strategy={"type": "Recreate"})
    del unqueued["metadata"]["labels"]
    await cluster.user.create("deployments", "team-a", unqueued)
    before = await pods_until(cluster, lambda found: len(found) == 3)
    assert of_queue(before, None) == before
    await cluster.user.patch("deployments", "team-a", "web", {"metadata": {"labels": {QUEUE: "lq"}}})
    after = await pods_until(cluster, running(2, 1))
    assert of_queue(after, "lq") == after
    await cluster.holds(2000)


GROUP = {
    "labels": {"sluice.dev/pod-group-name": "web"},
    "annotations": {"sluice.dev/pod-group-total-count": "3", "sluice.dev/pod-group-fast-admission": "true"},
}


@pytest.mark.costly
@pytest.mark.parametrize("management", ["OrderedReady", "Parallel"])
async def test_pod_group_of_stateful_set_is_evicted_and_admitted_again(cluster, management):
    spec = {"serviceName": "web", "podManagementPolicy": management}
    await cluster.user.create("statefulsets", "team-a", controller("StatefulSet", 3, **GROUP, **spec))
    await pods_until(cluster, running(3))
    await cluster.holds(3000)
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await pods_until(cluster, running(0, 1 if management == "OrderedReady" else 3))
    await cluster.holds(0)
    await cluster.apply(cluster_queue())
    await pods_until(cluster, running(3))
    await cluster.holds(3000)
    await cluster.user.delete("pods", "team-a", "web-1")
    await pods_until(cluster, lambda found: not running(3)(found))
    await pods_until(cluster, running(3))
    await cluster.holds(3000)
    # Pods beyond the size of the group wait; if deleted, they would only be recreated.
    await cluster.user.patch("statefulsets", "team-a", "web", {"spec": {"replicas": 4}})
    await pods_until(cluster, running(3, 1))
    await cluster.holds(3000)
    await cluster.user.delete("statefulsets", "team-a", "web", propagation="Background")
    await cluster.holds(0)
