"""Pod groups in a cluster with the webhook: creation, waiting for states, and the quota that they hold."""

from __future__ import annotations

from contextlib import asynccontextmanager

from grouped_kinds import pods_until as pods_of_namespace
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated, pod

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod"))


@asynccontextmanager
async def running_cluster(world, folder):
    """A cluster with the webhook, a queue of 4 CPUs, and Sluice running."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with gated(world.user, KINDS, folder / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def member(name, total=3, group="g", **options):
    """Return a pod of a group of `total` pods, with Kueue's label and annotation."""
    each = pod(name, **options)
    each["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = group
    each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(total)
    return each


async def create(cluster, *manifests):
    for each in manifests:
        await cluster.user.create("pods", "team-a", each)


async def pods_until(cluster, until):
    """Wait until all pods of team-a satisfy `until`, and return them by name."""
    return await pods_of_namespace(cluster.user, "team-a", until)


def runs(obj):
    return obj["status"].get("phase") == "Running"


def run(*names):
    def until(found):
        return set(found) == set(names) and all(map(runs, found.values()))

    return until


def event_says(cluster, name, text):
    async def look():
        events = (await cluster.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        return any(each["regarding"]["name"] == name and text in each.get("note", "") for each in events)

    return cluster.eventually(look)
