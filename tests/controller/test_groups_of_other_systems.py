"""Pod groups by conventions of other systems: they start as a whole, and those systems' fields stay unchanged."""

from __future__ import annotations

import pytest
from custom_kinds import definition, served, until
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from kind_manifests import document
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds
from admission.kinds.foreign_groups import FOREIGN
from admission.model import child_sentences

KINDS = all_kinds(frameworks=("batch/job", "pod"), group_labels=FOREIGN)
PLUGINS = ("scheduling.x-k8s.io", "PodGroup")
NATIVE = ("scheduling.k8s.io", "PodGroup")
VOLCANO = ("scheduling.volcano.sh", "PodGroup")
SERVED = {PLUGINS: "v1alpha1", NATIVE: "v1alpha2", VOLCANO: "v1beta1"}
KOORDINATOR = "gang.scheduling.koordinator.sh/"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs, and PodGroups; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    for key, version in SERVED.items():
        await world.user.create("customresourcedefinitions", "", definition(KINDS.sizes[key], version))
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def of_plugins(name, **options):
    each = pod(name, schedulerName="scheduler-plugins-scheduler", **options)
    each["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "pg"
    return each


def of_volcano(name, **options):
    each = pod(name, schedulerName="volcano", **options)
    each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "vc"
    return each


def of_kubernetes(name, group, **options):
    return pod(name, schedulingGroup={"podGroupName": group}, **options)


def of_koordinator(name, **options):
    each = pod(name, **options)
    each["metadata"]["annotations"] |= {f"{KOORDINATOR}name": "gang", f"{KOORDINATOR}min-available": "2"}
    return each


async def create(cluster, *manifests):
    for each in manifests:
        await cluster.user.create("pods", "team-a", each)


async def size(cluster, key, name, spec):
    kind = KINDS.sizes[key]
    obj = {"apiVersion": f"{kind.group}/{SERVED[key]}", "kind": kind.kind, "metadata": {"name": name}}
    await cluster.user.create(f"{kind.plural}.{kind.group}", "team-a", {**obj, "spec": spec})


def ungated(*names):
    def until(found):
        return {name for name, obj in found.items() if GATE not in obj["spec"].get("schedulingGates", ())} == {*names}

    return until


@pytest.mark.costly
async def test_scheduler_plugins_pod_group_starts_when_min_member_pods_exist(cluster):
    await create(cluster, of_plugins("p-0"), of_plugins("p-1"))
    await cluster.says("pg", child_sentences.group_without_object("PodGroup", "pg", "scheduling.x-k8s.io"))
    await size(cluster, PLUGINS, "pg", {"minMember": 3})
    await cluster.says("pg", "It starts as a whole, and 2 of its 3 pods are there.")
    await create(cluster, of_plugins("p-2"))
    started = await pods_until(cluster.user, "team-a", ungated("p-0", "p-1", "p-2"))
    for obj in started.values():
        assert obj["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "pg"
        assert obj["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    await create(cluster, of_plugins("p-3"))  # pods beyond minMember are separate workloads
    assert (await cluster.record("p-3", "admitted")).workload.kind == "Pod"
    await create(cluster, of_plugins("p-4"))
    await cluster.record("p-4", "pending", reason="WaitingForQuota")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    for name in ("p-0", "p-1", "p-2"):
        await cluster.end_pods("Succeeded", name)
    over = await cluster.record("pg", "finished")
    assert (over.outcome, over.message) == ("Succeeded", "Pods succeeded: 3/3.")
    await pods_until(cluster.user, "team-a", ungated("p-0", "p-1", "p-2", "p-3", "p-4"))


@pytest.mark.costly
async def test_surplus_pod_of_koordinator_gang_queues_alone_after_gang_has_started(cluster):
    await create(cluster, pod("large", cpu="4"))
    await cluster.record("large", "admitted")
    await create(cluster, *(of_koordinator(f"k-{number}") for number in range(3)))
    await cluster.record("gang", "pending", reason="WaitingForQuota")
    await cluster.user.delete("pods", "team-a", "large")
    await pods_until(cluster.user, "team-a", ungated("k-0", "k-1", "k-2"))
    assert sum(each.count for each in (await cluster.record("gang", "admitted")).workload.pod_sets) == 2
    assert (await cluster.record("k-2", "admitted")).workload.kind == "Pod"
    events = (await cluster.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
    told = [each["note"] for each in events if each["regarding"]["name"] == "k-2"]
    assert not any("create the group anew" in note for note in told), told
    await cluster.end_pods("Succeeded", "k-0")
    await cluster.end_pods("Failed", "k-1")  # not replaced
    over = await cluster.record("gang", "finished")
    assert (over.outcome, over.message) == ("Failed", "Pods succeeded: 1/2.")


async def test_native_pod_group_is_read_in_the_served_version(cluster):
    await size(cluster, NATIVE, "gang", {"schedulingPolicy": {"gang": {"minCount": 2}}})
    await create(cluster, of_kubernetes("n-0", "gang"))
    await cluster.says("gang", "It starts as a whole, and 1 of its 2 pods are there.")
    await create(cluster, of_kubernetes("b-0", "any"))
    await cluster.record("any", "pending")
    await size(cluster, NATIVE, "any", {"schedulingPolicy": {"basic": {}}})
    assert (await cluster.record("b-0", "admitted")).workload.kind == "Pod"
    await create(cluster, of_kubernetes("n-1", "gang"))
    found = await pods_until(cluster.user, "team-a", ungated("n-0", "n-1", "b-0"))
    assert found["n-0"]["spec"]["schedulingGroup"] == {"podGroupName": "gang"}
    assert (await cluster.record("gang", "admitted")).workload.kind == "PodGroup"


@pytest.mark.costly
@pytest.mark.parametrize("system", [VOLCANO, NATIVE])
async def test_priority_class_of_pod_group_sets_priority_of_the_workload(cluster, system):
    for name, value in (("low", 3), ("high", 7)):
        await cluster.user.create("priorityclasses", "", {"metadata": {"name": name}, "value": value})
    await create(cluster, pod("large", cpu="4"))
    await cluster.record("large", "admitted")
    if system == VOLCANO:
        pods, name = [of_volcano(f"v-{number}", cpu="2") for number in range(2)], "vc"
        spec = {"minMember": 2, "queue": "of-volcano"}
    else:
        pods, name = [of_kubernetes(f"v-{number}", "gang", cpu="2") for number in range(2)], "gang"
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    await create(cluster, pod("elder", priorityClassName="low"), *pods)
    await size(cluster, system, name, {**spec, "priorityClassName": "high"})
    assert (await cluster.record(name, "pending", reason="WaitingForQuota")).workload.priority == 7
    await cluster.user.delete("pods", "team-a", "large")
    started = await pods_until(cluster.user, "team-a", ungated("v-0", "v-1"))
    assert (await cluster.record("elder", "pending")).workload.priority == 3
    assert all("priorityClassName" not in started[each]["spec"] for each in ("v-0", "v-1")), "nothing is written"
    kind = KINDS.sizes[system]
    await cluster.user.patch(f"{kind.plural}.{kind.group}", "team-a", name, {"spec": {"priorityClassName": "low"}})

    async def lowered():
        return (await cluster.record(name, "admitted")).workload.priority == 3

    await cluster.eventually(lowered)


async def test_volcano_pod_group_starts_when_min_member_pods_exist(cluster):
    await create(cluster, of_volcano("v-0"))
    await cluster.says("vc", child_sentences.group_without_object("PodGroup", "vc", "scheduling.volcano.sh"))
    await size(cluster, VOLCANO, "vc", {"minMember": 2})
    await cluster.says("vc", "It starts as a whole, and 1 of its 2 pods are there.")
    await create(cluster, of_volcano("v-1"), of_volcano("v-2"))
    found = await pods_until(cluster.user, "team-a", ungated("v-0", "v-1", "v-2"))
    assert {(await cluster.record(each, "admitted")).workload.kind for each in ("vc", "v-2")} == {"PodGroup", "Pod"}
    assert {obj["spec"]["schedulerName"] for obj in found.values()} == {"volcano"}


async def test_raycluster_with_too_many_groups_for_a_native_gang_is_admitted_with_warning(world):
    kinds = all_kinds(frameworks=("batch/job", "ray.io/raycluster"))
    kind = kinds.get("ray.io", "RayCluster")
    obj = document("raycluster")
    obj["metadata"] |= {"name": "wide", "namespace": "team-a"}
    obj["metadata"]["labels"] = {"sluice.dev/queue-name": "lq", "ray.io/gang-scheduling-enabled": "true"}
    template = pod("worker", cpu="100m")
    del template["metadata"]
    groups = [{"groupName": f"g-{number}", "replicas": 1, "template": template} for number in range(8)]
    obj["spec"] = {"suspend": True, "headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with served(world.sandbox, kind):
        await world.start(kinds=kinds)
        await world.user.create("rayclusters", "team-a", obj)
        ready = await until(world.user, "rayclusters", "wide", lambda each: kind.observe(each).ready)
        assert ready["metadata"]["labels"] == obj["metadata"]["labels"]

        async def warned():
            events = world.user.list("events", "team-a")
            return [each["message"] for each in events if (each["reason"], each["type"]) == ("Admitted", "Warning")]

        (note,) = await world.eventually(warned)
        assert child_sentences.native_gang_too_large(9, 8) in note
        await world.submit(job("after", cpu="2"))
        await world.job("after", runs)
