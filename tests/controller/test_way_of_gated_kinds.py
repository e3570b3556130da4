"""Lifecycle of kinds that are queued by gates on their pods: a table like that of test_way_of_each_kind.py."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import pytest
import yaml
from custom_kinds import definition
from grouped_kinds import GATE, grouped_served, lasting, pods_until
from job_examples import TOLERATION, flavor, job, local_queue, runs
from kind_manifests import FOLDER, GI, GPU, MI
from pod_examples import gated
from test_way_of_each_kind import RESOURCES, node, queue_of

from admission.kinds import GROUPED, LABELLED, all_kinds

FRAMEWORKS = ("batch/job", "pod", *GROUPED, *LABELLED)
KINDS = all_kinds(frameworks=FRAMEWORKS)
CONTROLLED = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


@dataclass(frozen=True)
class Case:
    """A manifest of gated pods, and the workloads that it becomes."""

    kind: str
    name: str
    workloads: int
    pod_sets: tuple[tuple[int, dict[str, int]], ...]
    """Pod count and requests per pod of each pod set of a workload, computed by hand."""
    scales: bool = False
    """Whether it has replicas."""
    off: tuple[str, ...] = ()
    """Kinds that are excluded."""

    @property
    def pods(self):
        return self.workloads * sum(count for count, _ in self.pod_sets)

    def amounts(self):
        found = dict.fromkeys(RESOURCES, 0) | {"pods": self.pods}
        for count, requests in self.pod_sets:
            for resource, amount in requests.items():
                found[resource] += self.workloads * count * amount
        return found


ONE_CPU = {"cpu": 1000}
SMALL = {"cpu": 500, "memory": 128 * MI}
CASES = [
    Case("Pod v1", "pod", 1, ((1, {"cpu": 1000, "memory": 256 * MI}),)),
    Case("PodGroup of pods", "pod-group-kueue", 1, ((1, {"cpu": 2000}), (1, {"cpu": 1000}))),
    Case("Deployment v1", "deployment", 3, ((1, SMALL),), scales=True),
    Case("StatefulSet v1", "statefulset", 1, ((3, SMALL),), scales=True),
    Case(
        "LeaderWorkerSet v1",
        "leaderworkerset",
        2,
        ((1, {"cpu": 1000, "memory": GI}), (3, {"cpu": 2000, "memory": 4 * GI, GPU: 1})),
        scales=True,
    ),
    Case(
        "LeaderWorkerSet v1, StatefulSets excluded",
        "leaderworkerset",
        2,
        ((1, {"cpu": 1000, "memory": GI}), (3, {"cpu": 2000, "memory": 4 * GI, GPU: 1})),
        scales=True,
        off=("statefulset",),
    ),
    Case("Workload of Kubernetes 1.35", "native-1.35-v1alpha1", 1, ((2, ONE_CPU),)),
    Case("PodGroup of Kubernetes 1.36", "native-1.36-v1alpha2", 1, ((2, ONE_CPU),)),
    Case("CompositePodGroup of Kubernetes 1.37", "native-1.37-v1beta1", 1, ((1, ONE_CPU), (4, ONE_CPU))),
    Case("Job v1alpha1 of Volcano", "volcano-torchx-ddp", 1, ((2, {"cpu": 15900, "memory": 64512 * 10**6, GPU: 4}),)),
]


def native(name):
    """Return the objects of a manifest of Kubernetes' own gangs that give the numbers of pods, and its pods.

    The manifest has one pod for all pods of a gang. That of 1.37 has none: its PodGroups' pods are as in 1.36.
    """
    found = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    sizes = [obj for obj in found if _size_kind(obj)]
    if name == "native-1.37-v1beta1":
        _, (like, *_) = native("native-1.36-v1alpha2")
        gangs = {
            obj["metadata"]["name"]: obj["spec"]["schedulingPolicy"]["gang"]["minCount"]
            for obj in sizes
            if obj["kind"] == "PodGroup"
        }
        pods = [
            {**like, "metadata": {**like["metadata"], "name": f"{gang}-{number}"},
             "spec": {**like["spec"], "schedulingGroup": {"podGroupName": gang}}}
            for gang, count in gangs.items()
            for number in range(count)
        ]  # fmt: skip
        return sizes, pods
    (like,) = (obj for obj in found if obj["kind"] == "Pod")
    name = like["metadata"]["name"].removesuffix("-0")
    return sizes, [{**like, "metadata": {**like["metadata"], "name": f"{name}-{number}"}} for number in range(2)]


def _size_kind(obj):
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = KINDS.sizes.get((group, obj["kind"]))
    return kind if kind is not None and version in kind.versions else None


async def sized(user, name, namespace="team-a"):
    """Create the objects that give the numbers of pods of gangs, in the API versions of the manifest."""
    found = native(name)[0]
    for kind, version in {_size_kind(obj): obj["apiVersion"].rpartition("/")[2] for obj in found}.items():
        await user.create("customresourcedefinitions", "", definition(kind, version))
    for obj in found:
        kind = _size_kind(obj)
        obj["metadata"]["namespace"] = namespace
        await user.create(f"{kind.plural}.{kind.group}", namespace, obj)


def is_native(name):
    """Whether it is a manifest of Kubernetes' own gangs."""
    return name.startswith("native")


def manifests(name, namespace="team-a"):
    """Return the manifest's objects, with pods that run until they are stopped, and terminate quickly."""
    found = native(name)[1] if is_native(name) else list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    found = deepcopy(found)
    for obj in found:
        obj["metadata"]["namespace"] = namespace
        template = obj if obj["kind"] == "Pod" else obj["spec"].get("template")
        if template is None:
            lasting(obj)
            continue
        template["metadata"].setdefault("annotations", {})["sandbox.sluice.dev/run-seconds"] = "1000000"
        template["spec"]["terminationGracePeriodSeconds"] = 1
    return found


def plural_of(obj):
    kind = KINDS.get(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    return CONTROLLED.get(obj["kind"]) or ("jobs.batch.volcano.sh" if kind.group == "batch.volcano.sh" else kind.plural)


def are(running, waiting=0):
    """Predicate: `running` pods are ready with their flavor's fields, and `waiting` pods are gated."""

    def until(found):
        found = [each for name, each in found.items() if not name.startswith(("before", "after"))]
        ready = [
            each
            for each in found
            if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
            if each["spec"]["nodeSelector"] == {"type": "kwok"} and TOLERATION in each["spec"]["tolerations"]
            if any(one["type"] == "Ready" and one["status"] == "True" for one in each["status"]["conditions"])
        ]
        gated_ones = [each for each in found if GATE in each["spec"].get("schedulingGates", ())]
        return (len(ready), len(gated_ones)) == (running, waiting)

    return until


async def holds(cluster, amounts):
    """Wait until the manifest's workloads hold exactly these amounts."""

    async def look():
        records = [
            each
            for each in (await cluster.store.workloads.list(namespace="team-a")).workloads
            if each.admission and each.workload.name not in ("before", "after")
        ]
        held = dict.fromkeys(RESOURCES, 0)
        for record in records:
            for each in record.admission.pod_sets:
                for resource, amount in each.usage.items():
                    held[resource] += amount
        return held == amounts

    await cluster.eventually(look)


async def scaled_down_and_up(world, case, obj, pods):
    user, plural, name, replicas = world.user, plural_of(obj), obj["metadata"]["name"], obj["spec"]["replicas"]
    await user.patch(plural, "team-a", name, {"spec": {"replicas": replicas - 1}})
    await pods(case.pods - case.pods // replicas)
    await holds(world, {resource: amount - amount // replicas for resource, amount in case.amounts().items()})
    await user.patch(plural, "team-a", name, {"spec": {"replicas": replicas}})
    await pods(case.pods)
    await holds(world, case.amounts())


async def finished(world):
    """Let the pods succeed, and wait until the workloads have released their quota."""
    for each in world.user.list("pods", "team-a"):
        ended = {"status": {"phase": "Succeeded"}}
        await world.user.patch("pods", "team-a", each["metadata"]["name"], ended, subresource="status")
    await holds(world, dict.fromkeys(RESOURCES, 0))
    outcomes = [each.outcome for each in (await world.store.workloads.list(namespace="team-a")).workloads]
    assert "Succeeded" in outcomes


async def wait_for_quota(world, case):
    """Check the pod sets and messages of the pending workloads."""

    async def waiting():
        found = (await world.store.workloads.list(namespace="team-a")).workloads
        found = [each for each in found if each.workload.name != "before"]
        return found if [each.reason for each in found] == ["WaitingForQuota"] * case.workloads else None

    records = await world.eventually(waiting)
    assert all("less is free" in record.message for record in records)
    counts = [sorted(each.count for each in record.workload.pod_sets) for record in records]
    assert counts == [sorted(count for count, _ in case.pod_sets)] * case.workloads


@pytest.mark.costly
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-without-".join((case.name, *case.off)))
async def test_lifecycle_of_manifest_with_gated_pods(world, tmp_path, case):
    user, amounts = world.user, case.amounts()
    whole, none = queue_of(amounts), dict.fromkeys(RESOURCES, 0)
    kinds = all_kinds(frameworks=[each for each in FRAMEWORKS if each not in case.off]) if case.off else KINDS
    for number in range(2):
        await user.create("nodes", "", node(number))
    await world.apply(flavor(), whole, local_queue("user-queue"), local_queue("test"))
    async with grouped_served(world.sandbox), gated(world.sandbox.local("admin"), kinds, tmp_path / "certificates"):
        if is_native(case.name):
            await sized(user, case.name)
        await world.start(kinds=kinds)

        async def pods(*numbers):
            return await pods_until(user, "team-a", are(*numbers))

        await world.submit(job("before", queue="user-queue", cpu=f"{amounts['cpu']}m"))
        await world.job("before", runs)
        objects = manifests(case.name)
        for obj in objects:
            await world.sandbox.local("alice").create(plural_of(obj), "team-a", obj)
        await wait_for_quota(world, case)

        await user.delete("jobs", "team-a", "before", propagation="Background")
        await pods(case.pods)
        await holds(world, amounts)
        await world.apply({**whole, "spec": {**whole["spec"], "stopPolicy": "HoldAndDrain"}})
        await holds(world, none)
        await world.apply(whole)
        if objects[0]["kind"] == "Pod":
            for obj in objects:
                await world.sandbox.local("alice").create("pods", "team-a", obj)
        await pods(case.pods)
        await holds(world, amounts)

        if case.scales:
            await scaled_down_and_up(world, case, objects[0], pods)
        else:
            await finished(world)
        for obj in objects:
            await user.delete(plural_of(obj), "team-a", obj["metadata"]["name"], propagation="Background")
        await holds(world, none)
        await world.submit(job("after", queue="user-queue", cpu=f"{amounts['cpu']}m"))
        await world.job("after", runs)
