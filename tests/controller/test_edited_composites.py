"""Trees of CompositePodGroups that are edited or deleted while they wait or run."""

from __future__ import annotations

import pytest
from composites import (
    COMPOSITE,
    KINDS,
    NO_PARENT,
    POD_GROUP,
    change,
    composite,
    delete,
    held,
    pod_group,
    pods,
    running_cluster,
    runs,
    started,
    tree,
    ungated,
    workloads,
)
from grouped_kinds import pods_until
from job_examples import cluster_queue
from pod_examples import pod

from admission.model import child_sentences


@pytest.fixture
async def cluster(world, tmp_path):
    async with running_cluster(world, tmp_path) as running:
        yield running


async def test_pending_pod_group_moves_to_its_new_parent(cluster):
    await composite(cluster, "rc", gang=1)
    await composite(cluster, "other", gang=2)
    await pod_group(cluster, "other-head", "other", gang=1)
    await pod_group(cluster, "rc-gpu", "rc", gang=2)
    await pods(cluster, "rc-gpu", 0)
    await pods(cluster, "other-head", 0)
    await cluster.says("rc", "It starts as a whole, and 1 of its 2 pods are there.")
    await change(cluster, POD_GROUP, "rc-gpu", parentCompositePodGroupName="other")
    await cluster.says("other", "It starts as a whole, and 2 of its 3 pods are there.")
    assert (await cluster.record("rc", "finished")).message == (
        "It is part of CompositePodGroup other, which is queued as a whole: it does not queue by itself."
    )
    await pods(cluster, "rc-gpu", 1)
    await ungated(cluster, "rc-gpu-0", "rc-gpu-1", "other-head-0")
    assert await held(cluster) == {"other": 3}


@pytest.mark.costly
async def test_running_pods_stay_in_their_workload_when_parents_change(cluster):
    before = await started(cluster)
    await composite(cluster, "other", gang=1)
    await change(cluster, POD_GROUP, "rc-gpu", parentCompositePodGroupName="other")
    await change(cluster, POD_GROUP, "rc-head", parentCompositePodGroupName=None)
    await change(cluster, COMPOSITE, "rc", parentCompositePodGroupName="other")
    await cluster.user.create("pods", "team-a", pod("beside", cpu="2"))
    await cluster.record("beside", "pending", reason="WaitingForQuota")
    await cluster.user.delete("pods", "team-a", "rc-gpu-1", grace=0)
    await pods(cluster, "rc-gpu", 2)  # belongs to the new parent of its PodGroup, unlike the older pods
    await cluster.says("rc-gpu", child_sentences.starts_after("other", 1))
    for _ in range(2):
        assert await held(cluster) == {"rc": 3}
        found = {each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")}
        assert all(
            found[name]["metadata"]["uid"] == before[name]["metadata"]["uid"] for name in ("rc-head-0", "rc-gpu-0")
        )
        assert await runs(cluster, "rc-head-0", "rc-gpu-0")
        await cluster.end()
        await cluster.start(kinds=KINDS)
    await cluster.end_pods("Succeeded", "rc-head-0", "rc-gpu-0")
    await cluster.record("beside", "admitted")


@pytest.mark.costly
async def test_a_waiting_group_gets_no_quota_by_naming_an_admitted_parent(cluster):
    await started(cluster)
    await pod_group(cluster, "late", gang=2)
    await pods(cluster, "late", 0, 1)
    await cluster.record("late", "pending", reason="WaitingForQuota")
    await change(cluster, POD_GROUP, "late", parentCompositePodGroupName="rc")
    await cluster.user.delete("pods", "team-a", "rc-gpu-1", grace=0)
    await cluster.user.create("pods", "team-a", pod("beside", cpu="9"))
    await cluster.record("beside", "pending")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await pods(cluster, "rc-gpu", 2)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-2")
    assert await held(cluster) == {"rc": 3}


@pytest.mark.costly
async def test_admitted_tree_that_becomes_a_cycle_runs_on_and_can_be_evicted(cluster):
    await started(cluster)
    await change(cluster, COMPOSITE, "rc", parentCompositePodGroupName="rc")
    await cluster.user.delete("pods", "team-a", "rc-gpu-1", grace=0)
    await pods(cluster, "rc-gpu", 2)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-2")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert await held(cluster) == {"rc": 3}
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("rc", "finished")
    assert cluster.user.list("pods", "team-a") == []
    assert cluster.controller.faults.count == 0


@pytest.mark.costly
async def test_pending_groups_can_exchange_their_parents(cluster):
    await cluster.apply(cluster_queue(cpu="6", stopPolicy="Hold"))
    for name, gpu in (("a", 1), ("b", 2)):
        await tree(cluster, name, gpu=gpu)
        await pods(cluster, f"{name}-head", 0)
        await pods(cluster, f"{name}-gpu", *range(gpu))
        await cluster.record(name, "pending", reason="Suspended")
    await change(cluster, POD_GROUP, "a-gpu", parentCompositePodGroupName="b")
    await change(cluster, POD_GROUP, "b-gpu", parentCompositePodGroupName="a")
    await cluster.apply(cluster_queue(cpu="6"))
    await ungated(cluster, "a-head-0", "a-gpu-0", "b-head-0", "b-gpu-0", "b-gpu-1")
    assert await held(cluster) == {"a": 3, "b": 2}


@pytest.mark.costly
async def test_pending_groups_wait_until_deleted_composite_is_recreated(cluster):
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0)
    await cluster.says("rc", "It starts as a whole, and 2 of its 3 pods are there.")
    await delete(cluster, COMPOSITE, "rc")
    await cluster.says("rc", NO_PARENT)
    await pods(cluster, "rc-gpu", 1)
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await cluster.says("rc", NO_PARENT)
    assert (await workloads(cluster)).keys() == {"rc"}
    await composite(cluster, "rc", gang=2)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")


@pytest.mark.costly
async def test_pending_composite_waits_until_its_deleted_pod_group_is_recreated(cluster):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    await cluster.record("rc", "pending", reason="Suspended")
    await delete(cluster, POD_GROUP, "rc-head")
    await cluster.says("rc", "It starts as a whole, and 1 of the 2 groups of CompositePodGroup rc are there.")
    await cluster.says("rc-head", child_sentences.group_without_object("PodGroup", "rc-head", "scheduling.k8s.io"))
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await cluster.record("rc", "pending", reason="Suspended")
    await cluster.apply(cluster_queue())
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await held(cluster) == {"rc": 3}


@pytest.mark.costly
async def test_running_pods_keep_their_quota_after_deletion_of_their_groups(cluster):
    await started(cluster)
    for kind, name in ((COMPOSITE, "rc"), (POD_GROUP, "rc-head"), (POD_GROUP, "rc-gpu")):
        await delete(cluster, kind, name)
    await cluster.user.create("pods", "team-a", pod("beside", cpu="2"))
    await cluster.record("beside", "pending", reason="WaitingForQuota")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    assert await runs(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await held(cluster) == {"rc": 3}
    await pods(cluster, "rc-gpu", 2)  # its PodGroup does not exist any more
    await cluster.record("rc-gpu", "pending")
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("rc", "finished")
    await pods_until(cluster.user, "team-a", lambda found: found.keys() == {"beside", "rc-gpu-2"})
    assert await held(cluster) == {}


async def interrupted_start(cluster):
    """Create the tree `rc` of a head and two workers, of which one gets no answer."""
    match = {"user": "sluice", "verb": "patch", "name": "rc-gpu-1"}
    cluster.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 503}]})
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    await ungated(cluster, "rc-head-0", "rc-gpu-0")


@pytest.mark.costly
async def test_interrupted_start_is_completed_after_deletion_of_the_groups(cluster):
    await interrupted_start(cluster)
    for kind, name in ((COMPOSITE, "rc"), (POD_GROUP, "rc-head"), (POD_GROUP, "rc-gpu")):
        await delete(cluster, kind, name)
    await pods(cluster, "rc-head", 1)
    await cluster.record("rc-head", "pending")  # the deletions have been processed
    cluster.sandbox.faults.remove()
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await held(cluster) == {"rc": 3}


@pytest.mark.costly
@pytest.mark.parametrize("how", ["edited", "deleted"])
async def test_interrupted_start_of_a_changed_tree_is_completed_by_the_next_leader(cluster, how):
    await interrupted_start(cluster)
    await cluster.end()
    cluster.sandbox.faults.remove()
    await delete(cluster, COMPOSITE, "rc")
    if how == "edited":
        await change(cluster, POD_GROUP, "rc-head", parentCompositePodGroupName="elsewhere")
    else:
        for name in ("rc-head", "rc-gpu"):
            await delete(cluster, POD_GROUP, name)
    await cluster.start(kinds=KINDS)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    assert await held(cluster) == {"rc": 3}
