"""PodGroups in CompositePodGroups of Kubernetes: they start as one workload, in any order of creation."""

from __future__ import annotations

import pytest
from composites import (
    COMPOSITE,
    KINDS,
    POD_GROUP,
    change,
    composite,
    held,
    pod_group,
    pods,
    running_cluster,
    runs,
    serve,
    tree,
    ungated,
    workloads,
)
from job_examples import cluster_queue
from pod_examples import pod

from admission.controller.workloads import pod_groups
from admission.model import child_sentences


@pytest.fixture
async def cluster(world, tmp_path):
    async with running_cluster(world, tmp_path) as running:
        yield running


@pytest.mark.costly
async def test_pod_groups_of_a_composite_start_together_as_one_workload(cluster):
    await tree(cluster, gpu=3)
    await pods(cluster, "rc-gpu", 0, 1, 2, 3)  # enough pods, but none of the head
    await cluster.says("rc", "It starts as a whole, and 3 of its 4 pods are there.")
    await pods(cluster, "rc-head", 0)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1", "rc-gpu-2")
    await cluster.record("rc-gpu-3", "pending", reason="WaitingForQuota")  # pods beyond minCount are separate workloads
    assert await workloads(cluster) == {"rc": ("admitted", [1, 3]), "rc-gpu-3": ("pending", [1])}
    assert await held(cluster) == {"rc": 4}
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await cluster.end_pods("Succeeded", "rc-head-0", "rc-gpu-0", "rc-gpu-1", "rc-gpu-2")
    over = await cluster.record("rc", "finished")
    assert (over.outcome, over.message) == ("Succeeded", "Pods succeeded: 4/4.")
    await cluster.record("rc-gpu-3", "admitted")


async def test_no_pod_of_a_composite_starts_if_the_whole_exceeds_the_quota(cluster):
    await tree(cluster, gpu=4)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1, 2, 3)
    await cluster.record("rc", "pending", reason="ExceedsMaxQuota")
    assert await held(cluster) == {}
    await cluster.apply(cluster_queue(cpu="5"))
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1", "rc-gpu-2", "rc-gpu-3")


async def test_composite_is_evicted_as_a_whole(cluster):
    await tree(cluster, gpu=3)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1, 2)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1", "rc-gpu-2")
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("rc", "finished")
    assert cluster.user.list("pods", "team-a") == []
    assert await held(cluster) == {}


@pytest.mark.costly
async def test_pods_created_before_their_groups_start_once_the_tree_is_complete(cluster):
    await pods(cluster, "rc-head", 0)
    await cluster.says("rc-head", child_sentences.group_without_object("PodGroup", "rc-head", "scheduling.k8s.io"))
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await cluster.says("rc", "It starts as a whole, but its parent CompositePodGroup rc does not exist.")
    left = await cluster.record("rc-head", "finished")
    assert left.message == (
        "It is part of CompositePodGroup rc, which is queued as a whole: it does not queue by itself."
    )
    await composite(cluster, "rc", gang=2)
    await cluster.says("rc", "It starts as a whole, and 1 of the 2 groups of CompositePodGroup rc are there.")
    await pod_group(cluster, "rc-gpu", "rc", gang=2)
    await cluster.says("rc", "It starts as a whole, and 1 of its 3 pods are there.")
    await pods(cluster, "rc-gpu", 0, 1)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await held(cluster) == {"rc": 3}


async def test_groups_created_within_max_wait_are_recorded_as_one_workload_only(cluster, monkeypatch):
    monkeypatch.setattr(pod_groups, "MAX_WAIT", 3600.0)
    await pods(cluster, "rc-gpu", 0, 1)
    await pods(cluster, "rc-head", 0)
    await pods_processed(cluster, "rc-gpu-0", "rc-gpu-1", "rc-head-0")
    await pod_group(cluster, "rc-gpu", "rc", gang=2)
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await composite(cluster, "rc", gang=2)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await workloads(cluster) == {"rc": ("admitted", [1, 2])}


async def pods_processed(cluster, *names):
    """Wait until Sluice has processed these pods and their groups."""
    groups = cluster.controller._leader.groups

    async def look():
        uids = [cluster.user.get("pods", "team-a", name)["metadata"]["uid"] for name in names]
        return all(map(groups.has, uids))  # groups are updated with the messages about their pods

    await cluster.eventually(look)


@pytest.mark.costly
async def test_decisions_after_startup_wait_for_slow_lists_of_groups(cluster, monkeypatch):
    monkeypatch.setattr(pod_groups, "MAX_WAIT", 0.0)
    lists = {"user": "sluice", "verb": "list", "resource": ["podgroups", "compositepodgroups"]}
    cluster.sandbox.faults.install({"rules": [{"match": lists, "do": "delay", "seconds": 0.3}]})
    await cluster.end()
    await pods(cluster, "rc-gpu", 0, 1)
    await pods(cluster, "rc-head", 0)
    await composite(cluster, "rc", gang=2)
    await pod_group(cluster, "rc-gpu", "rc", gang=2)
    await cluster.start(kinds=KINDS)
    await cluster.says("rc", "It starts as a whole, and 1 of the 2 groups of CompositePodGroup rc are there.")
    waits = await cluster.record("rc", "pending")
    await cluster.end()
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await cluster.start(kinds=KINDS)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert (await cluster.record("rc", "admitted")).workload.uid == waits.workload.uid
    assert await workloads(cluster) == {"rc": ("admitted", [1, 2]), "rc-head": ("finished", [1])}


@pytest.mark.costly
async def test_tree_of_four_levels_starts_and_group_on_fifth_level_waits(cluster):
    await composite(cluster, "root", gang=2)
    await pod_group(cluster, "lead", "root", gang=1)
    await composite(cluster, "half", "root", gang=1)
    await composite(cluster, "part", "half", gang=2)
    for leaf in ("part-a", "part-b"):
        await pod_group(cluster, leaf, "part", gang=1)
    await pods(cluster, "part-a", 0)
    await pods(cluster, "lead", 0)
    await cluster.says("root", "It starts as a whole, and 2 of its 3 pods are there.")
    await pods(cluster, "part-b", 0)
    await ungated(cluster, "lead-0", "part-a-0", "part-b-0")
    assert await held(cluster) == {"root": 3}
    await composite(cluster, "deep", "part", gang=1)
    await pod_group(cluster, "deep-a", "deep", gang=1)
    await pods(cluster, "deep-a", 0)
    await cluster.says(
        "deep-a",
        "It starts as a whole, but PodGroup deep-a has more than 3 CompositePodGroups above it, or these form a "
        "cycle: Kubernetes schedules trees of at most 4 levels.",
    )


async def test_tree_with_a_branch_of_more_than_four_levels_waits(cluster):
    for name, parent in (("root", ""), ("a", "root"), ("b", "a"), ("c", "b")):
        await composite(cluster, name, parent, gang=1 if parent else 2)
    await pod_group(cluster, "lead", "root", gang=1)
    await pods(cluster, "lead", 0)
    await cluster.says(
        "root",
        "It starts as a whole, but CompositePodGroup c has more than 3 CompositePodGroups above it, or these form a "
        "cycle: Kubernetes schedules trees of at most 4 levels.",
    )


@pytest.mark.parametrize("cycle", [("a",), ("a", "b")], ids=["itself", "two"])
async def test_pod_group_below_cyclic_composites_waits_until_cycle_is_removed(cluster, cycle):
    for name, parent in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        await composite(cluster, name, parent, gang=1)
    await pod_group(cluster, "leaf", "a", gang=1)
    await pods(cluster, "leaf", 0)
    await cluster.says(
        "leaf",
        "It starts as a whole, but PodGroup leaf has more than 3 CompositePodGroups above it, or these form a "
        "cycle: Kubernetes schedules trees of at most 4 levels.",
    )
    await pods(cluster, "other", 0)
    await pod_group(cluster, "other", gang=1)
    await ungated(cluster, "other-0")
    await change(cluster, COMPOSITE, cycle[-1], parentCompositePodGroupName=None)
    await ungated(cluster, "other-0", "leaf-0")
    assert await held(cluster) == {"other": 1, cycle[-1]: 1}
    assert cluster.controller.faults.count == 0


async def test_composite_with_basic_policy_admits_its_groups_separately(cluster):
    await composite(cluster, "set", basic=True)
    await pod_group(cluster, "set-a", "set", gang=2)
    await pod_group(cluster, "set-b", "set", basic=True)
    await pods(cluster, "set-a", 0)
    await pods(cluster, "set-b", 0, 1)
    await ungated(cluster, "set-b-0", "set-b-1")  # one by one
    await cluster.says("set-a", "It starts as a whole, and 1 of its 2 pods are there.")
    await pods(cluster, "set-a", 1)
    await ungated(cluster, "set-b-0", "set-b-1", "set-a-0", "set-a-1")
    assert await held(cluster) == {"set-a": 2, "set-b-0": 1, "set-b-1": 1}


async def test_gang_needs_one_member_of_each_child_with_basic_policy(cluster):
    await cluster.apply(cluster_queue(cpu="5"))
    await composite(cluster, "rc", gang=3)
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await pod_group(cluster, "rc-any", "rc", basic=True)
    await composite(cluster, "rc-more", "rc", basic=True)
    for leaf in ("rc-more-a", "rc-more-b"):
        await pod_group(cluster, leaf, "rc-more", gang=1)
    await pods(cluster, "rc-any", 0, 1)
    await pods(cluster, "rc-more-b", 0)
    await pods(cluster, "rc-head", 0)
    await cluster.says("rc", "It starts as a whole, and 2 of its 3 pods are there.")
    await cluster.says("rc-more-b", child_sentences.starts_after("rc", 3))
    await pods(cluster, "rc-more-a", 0)
    await ungated(cluster, "rc-head-0", "rc-any-0", "rc-any-1", "rc-more-a-0", "rc-more-b-0")
    assert await held(cluster) == {"rc": 3, "rc-more-b": 1, "rc-any-1": 1}


@pytest.mark.costly
async def test_groups_beyond_min_group_count_wait_until_the_oldest_have_started(cluster):
    await cluster.apply(cluster_queue(cpu="6"))
    await composite(cluster, "set", gang=2)
    for leaf in ("set-a", "set-b"):
        await pod_group(cluster, leaf, "set", gang=1)
    await composite(cluster, "set-c", "set", gang=2)
    for leaf in ("set-c-a", "set-c-b"):
        await pod_group(cluster, leaf, "set-c", gang=1)
    await pods(cluster, "set-c-a", 0)
    await pods(cluster, "set-c-b", 0)
    await cluster.says("set-c", child_sentences.starts_after("set", 2))
    await pods(cluster, "set-a", 0)
    await cluster.says("set", "It starts as a whole, and 1 of its 2 pods are there.")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await cluster.says("set-c", child_sentences.starts_after("set", 2))
    await pods(cluster, "set-b", 0)
    await ungated(cluster, "set-a-0", "set-b-0", "set-c-a-0", "set-c-b-0")
    assert await workloads(cluster) == {"set": ("admitted", [1, 1]), "set-c": ("admitted", [1, 1])}
    await pod_group(cluster, "set-d", "set", gang=2)  # the same for a group that is created later
    await pods(cluster, "set-d", 0)
    await cluster.says("set-d", "It starts as a whole, and 1 of its 2 pods are there.")
    await cluster.end_pods("Succeeded", "set-a-0", "set-b-0")
    await cluster.record("set", "finished")
    await pods(cluster, "set-d", 1)
    await cluster.record("set-d", "admitted")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert await held(cluster) == {"set-c": 2, "set-d": 2}


@pytest.mark.costly
async def test_replacement_pods_reuse_quota_of_deleted_and_failed_pods(cluster):
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    await cluster.user.delete("pods", "team-a", "rc-head-0", grace=0)
    await pods(cluster, "rc-head", 1)
    await ungated(cluster, "rc-head-1", "rc-gpu-0", "rc-gpu-1")
    await cluster.end_pods("Failed", "rc-gpu-1")
    await cluster.end()
    await cluster.user.delete("pods", "team-a", "rc-gpu-0", grace=0)
    await pods(cluster, "rc-gpu", 2, 3)
    await cluster.start(kinds=KINDS)
    await cluster.eventually(lambda: runs(cluster, "rc-head-1", "rc-gpu-2", "rc-gpu-3"))
    assert await held(cluster) == {"rc": 3}
    assert (await workloads(cluster)).keys() == {"rc"}


async def test_priority_class_of_root_composite_overrides_that_of_pod_groups(cluster):
    for name, value in (("low", 3), ("high", 7)):
        await cluster.user.create("priorityclasses", "", {"metadata": {"name": name}, "value": value})
    await cluster.user.create("pods", "team-a", pod("large", cpu="4"))
    await cluster.record("large", "admitted")
    await composite(cluster, "rc", gang=1, priorityClassName="high")
    await composite(cluster, "rc-part", "rc", gang=1)
    await pod_group(cluster, "rc-head", "rc-part", gang=1, priorityClassName="low")
    await pods(cluster, "rc-head", 0)
    await composite(cluster, "plain", gang=1)
    await pod_group(cluster, "plain-head", "plain", gang=1, priorityClassName="low")
    await pods(cluster, "plain-head", 0)
    assert (await cluster.record("rc", "pending", reason="WaitingForQuota")).workload.priority == 7
    assert (await cluster.record("plain", "pending", reason="WaitingForQuota")).workload.priority == 3
    await change(cluster, COMPOSITE, "plain", priorityClassName="high")

    async def raised():
        return (await cluster.record("plain", "pending")).workload.priority == 7

    await cluster.eventually(raised)


async def test_pod_groups_are_read_in_v1alpha3_if_no_other_version_is_served(world, tmp_path):
    async with running_cluster(world, tmp_path, served=(COMPOSITE,)) as cluster:
        await serve(cluster, POD_GROUP, "v1alpha3")
        await composite(cluster, "rc", gang=1)
        await pod_group(cluster, "rc-head", "rc", gang=1, version="v1alpha3")
        await pods(cluster, "rc-head", 0)
        await ungated(cluster, "rc-head-0")
        assert await held(cluster) == {"rc": 1}
