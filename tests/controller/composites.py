"""Helpers that create CompositePodGroups of Kubernetes, their PodGroups and pods, in a cluster that gates pods."""

from __future__ import annotations

from contextlib import asynccontextmanager

from custom_kinds import definition
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds
from admission.model import child_sentences

KINDS = all_kinds(frameworks=("batch/job", "pod"))
COMPOSITE = KINDS.sizes["scheduling.k8s.io", "CompositePodGroup"]
POD_GROUP = KINDS.sizes["scheduling.k8s.io", "PodGroup"]
NO_PARENT = "It starts as a whole, but its parent CompositePodGroup rc does not exist."
AFTER = child_sentences.starts_after("rc", 2)
"""Messages of groups that wait in the trees of `tree`."""


@asynccontextmanager
async def running_cluster(world, folder, *, cpu="4", served=(COMPOSITE, POD_GROUP), kinds=KINDS):
    """A cluster whose pods are gated, with a queue of `cpu` CPUs and the CRDs of the kinds `served`; Sluice runs."""
    await world.apply(flavor(), cluster_queue(cpu=cpu), local_queue())
    for kind in served:
        await serve(world, kind)
    async with gated(world.user, kinds, folder / "certificates"):
        await world.start(kinds=kinds)
        yield world


async def serve(cluster, kind, version=None):
    await cluster.user.create("customresourcedefinitions", "", definition(kind, version))


def plural(kind):
    return f"{kind.plural}.{kind.group}"


async def group(cluster, kind, name, parent="", *, version="", **policy):
    """Create a group. `gang`: number of its groups or pods that start together; without it, its policy is `basic`."""
    gang = {"minGroupCount" if kind is COMPOSITE else "minCount": policy["gang"]} if "gang" in policy else None
    obj = {
        "apiVersion": f"{kind.group}/{version or kind.versions[0]}",
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": gang} if gang else {"basic": {}}},
    }
    obj["spec"] |= {"parentCompositePodGroupName": parent} if parent else {}
    obj["spec"] |= {key: value for key, value in policy.items() if key not in ("gang", "basic")}
    await cluster.user.create(plural(kind), "team-a", obj)


async def composite(cluster, name, parent="", **policy):
    await group(cluster, COMPOSITE, name, parent, **policy)


async def pod_group(cluster, name, parent="", **policy):
    await group(cluster, POD_GROUP, name, parent, **policy)


async def tree(cluster, name="rc", *, gpu, **options):
    """Create the groups of a RayCluster: a gang of a head and `gpu` workers."""
    await composite(cluster, name, gang=2, **options)
    await pod_group(cluster, f"{name}-head", name, gang=1)
    await pod_group(cluster, f"{name}-gpu", name, gang=gpu)


async def pods(cluster, leaf, *numbers, **options):
    """Create pods of the PodGroup `leaf`, by default with 1 CPU each."""
    for number in numbers:
        obj = pod(f"{leaf}-{number}", schedulingGroup={"podGroupName": leaf}, **options)
        await cluster.user.create("pods", "team-a", obj)


async def ungated(cluster, *names):
    """Wait until exactly these pods have no gate, and run; return all pods by name."""

    def look(found):
        let_in = {name for name, obj in found.items() if GATE not in obj["spec"].get("schedulingGates", ())}
        return let_in == {*names} and all(found[name]["status"].get("phase") == "Running" for name in names)

    return await pods_until(cluster.user, "team-a", look)


async def started(cluster):
    """Create the tree `rc` of a head and two workers, of one CPU each, and wait until it runs; returns the pods."""
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    return await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")


async def runs(cluster, *names):
    """Whether these pods run now."""
    found = {each["metadata"]["name"]: each["status"].get("phase") for each in cluster.user.list("pods", "team-a")}
    return all(found.get(name) == "Running" for name in names)


async def workloads(cluster):
    """Return state and pod counts of all workloads, including finished ones, by name."""
    found = (await cluster.store.workloads.list(namespace="team-a")).workloads
    return {each.workload.name: (each.state, sorted(one.count for one in each.workload.pod_sets)) for each in found}


async def held(cluster):
    """Return the CPUs of quota that workloads hold, by name."""
    found = (await cluster.store.workloads.list(namespace="team-a")).workloads
    return {
        each.workload.name: sum(one.usage["cpu"] for one in each.admission.pod_sets) // 1000
        for each in found
        if each.admission is not None
    }


async def change(cluster, kind, name, **spec):
    await cluster.user.patch(plural(kind), "team-a", name, {"spec": spec})


async def delete(cluster, kind, name):
    await cluster.user.delete(plural(kind), "team-a", name)
