"""Attempts to exceed the quota or to block other workloads with CompositePodGroups."""

from __future__ import annotations

import pytest
from composites import (
    AFTER,
    COMPOSITE,
    KINDS,
    NO_PARENT,
    POD_GROUP,
    composite,
    held,
    plural,
    pod_group,
    pods,
    running_cluster,
    runs,
    serve,
    started,
    tree,
    ungated,
)
from grouped_kinds import pods_until
from job_examples import cluster_queue, local_queue
from pod_groups import member

from admission.controller.auditing.audit_sources import AuditSources
from admission.controller.auditing.comparison import differences
from admission.kinds import all_kinds
from admission.model import child_sentences


@pytest.fixture
async def cluster(world, tmp_path):
    async with running_cluster(world, tmp_path) as running:
        yield running


async def test_groups_added_to_a_foreign_composite_delay_only_themselves(cluster):
    await tree(cluster, gpu=2)
    await pod_group(cluster, "z-late", "rc", gang=1)  # names decide between groups of the same second
    await composite(cluster, "z-tree", "rc", gang=9)
    await pod_group(cluster, "z-leaf", "z-tree", gang=1)
    await pods(cluster, "z-late", 0, queue="another")
    await pods(cluster, "z-leaf", 0)
    await cluster.says("z-late", AFTER)
    await cluster.says("z-tree", AFTER)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1")
    await cluster.record("z-late", "pending", reason="Misconfigured")
    await cluster.says("z-tree", "It starts as a whole, and 1 of the 9 groups of CompositePodGroup z-tree are there.")
    assert await held(cluster) == {"rc": 3}


async def test_composite_with_pods_of_several_queues_waits(cluster):
    await cluster.apply(local_queue("other"))
    await tree(cluster, gpu=1)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, queue="other")
    await cluster.says("rc", child_sentences.group_of_several_queues({"lq": ["rc-head-0"], "other": ["rc-gpu-0"]}))
    await cluster.user.delete("pods", "team-a", "rc-gpu-0")
    await pods(cluster, "rc-gpu", 1)
    await ungated(cluster, "rc-head-0", "rc-gpu-1")


async def test_pod_of_incomplete_composite_whose_gate_is_removed_is_deleted(cluster):
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0)
    await cluster.says("rc", "It starts as a whole, and 2 of its 3 pods are there.")
    await cluster.user.patch("pods", "team-a", "rc-head-0", {"spec": {"schedulingGates": None}})
    await pods_until(cluster.user, "team-a", lambda found: found.keys() == {"rc-gpu-0"})
    assert await held(cluster) == {}
    await pods(cluster, "rc-head", 1)
    await pods(cluster, "rc-gpu", 1)
    await ungated(cluster, "rc-head-1", "rc-gpu-0", "rc-gpu-1")


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulingPolicy": "x"},
        {"schedulingPolicy": {"gang": [2]}},
        {"schedulingPolicy": {"gang": {"minGroupCount": {"a": 1}, "minCount": {"a": 1}}}},
        {"priorityClassName": ["x"]},
        {"parentCompositePodGroupName": {"a": [1]}},
    ],
)
@pytest.mark.parametrize("kind", [COMPOSITE, POD_GROUP], ids=["composite", "pod group"])
async def test_group_with_fields_of_wrong_types_blocks_no_other_group(cluster, kind, spec):
    valid = {"schedulingPolicy": {"gang": {"minGroupCount": 1, "minCount": 1}}, "parentCompositePodGroupName": None}
    for each, name in ((COMPOSITE, "odd"), (POD_GROUP, "odd-leaf")):
        parent = {"parentCompositePodGroupName": "odd"} if each is POD_GROUP else {}
        obj = {"apiVersion": f"{each.group}/{each.versions[0]}", "kind": each.kind, "metadata": {"name": name}}
        obj["spec"] = valid | parent | (spec if each is kind else {})
        await cluster.user.create(plural(each), "team-a", obj)
    await pods(cluster, "odd-leaf", 0)
    await tree(cluster, gpu=2)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0, 1)
    await cluster.eventually(lambda: runs(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1"))
    assert cluster.controller.faults.count == 0


class OddComposite(type(COMPOSITE)):
    """Fails to read the PriorityClass of the CompositePodGroup `odd`, as a defect of the adapter would."""

    def priority_class(self, obj):
        if obj["metadata"]["name"] == "odd":
            raise RuntimeError("priority_class fails")
        return super().priority_class(obj)


async def test_group_whose_adapter_raises_blocks_no_other_group(world, tmp_path):
    kinds = all_kinds(frameworks=("batch/job", "pod"))
    kinds.sizes["scheduling.k8s.io", "CompositePodGroup"] = OddComposite(COMPOSITE.conventions)
    async with running_cluster(world, tmp_path, kinds=kinds) as cluster:
        await composite(cluster, "odd", gang=1)
        await pod_group(cluster, "odd-leaf", "odd", gang=1)
        await pods(cluster, "odd-leaf", 0)
        await cluster.eventually(lambda: _has_fault(cluster))
        await started(cluster)
        assert await held(cluster) == {"rc": 3}


async def _has_fault(cluster):
    return cluster.controller.faults.count > 0


async def test_composite_of_another_namespace_is_not_used_as_parent(cluster):
    await pod_group(cluster, "rc-head", "rc", gang=1)
    await pods(cluster, "rc-head", 0)
    await cluster.says("rc", NO_PARENT)
    obj = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "CompositePodGroup", "metadata": {"name": "rc"}}
    obj["spec"] = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
    await cluster.user.create(plural(COMPOSITE), "team-b", obj)
    await composite(cluster, "beside", gang=1)
    await pod_group(cluster, "beside-head", "beside", gang=1)
    await pods(cluster, "beside-head", 0)
    await ungated(cluster, "beside-head-0")
    await cluster.says("rc", NO_PARENT)


@pytest.mark.parametrize("parent", [3, "A_b", "x" * 300, ["rc"], {"name": "rc"}, ""])
async def test_invalid_parent_name_is_ignored(cluster, parent):
    await pod_group(cluster, "leaf", gang=1, parentCompositePodGroupName=parent)
    await pods(cluster, "leaf", 0)
    await ungated(cluster, "leaf-0")
    assert await held(cluster) == {"leaf": 1}


async def test_composite_with_invalid_min_group_count_is_no_gang(cluster):
    for number, wrong in enumerate((0, -1, "x", None, 100_000)):
        await composite(cluster, f"c-{number}", gang=wrong)
        await pod_group(cluster, f"leaf-{number}", f"c-{number}", gang=1)
    leaves = [f"leaf-{number}" for number in range(5)]
    for leaf in leaves:
        await pods(cluster, leaf, 0, cpu="500m")
    await ungated(cluster, *(f"{leaf}-0" for leaf in leaves))
    assert (await held(cluster)).keys() == set(leaves)


async def test_pod_group_label_with_name_of_composite_does_not_block_the_composite(cluster):
    await cluster.user.create("pods", "team-a", member("labelled-0", 3, "rc"))
    await cluster.record("rc", "pending")
    await tree(cluster, gpu=1)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0)
    await pods_until(cluster.user, "team-a", lambda found: sum(map(_is_running, found.values())) == 2)
    assert await held(cluster) == {"rc": 2}
    assert await runs(cluster, "rc-head-0", "rc-gpu-0")


def _is_running(obj):
    return obj["status"].get("phase") == "Running"


async def test_composite_and_pod_group_with_the_same_name_wait(cluster):
    await tree(cluster, gpu=1)
    await pod_group(cluster, "rc", gang=1)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc", 0)
    await cluster.says(
        "rc",
        "It starts as a whole, but PodGroup rc and CompositePodGroup rc must not have the same name.",
    )
    await cluster.user.delete("pods", "team-a", "rc-0")
    await pods(cluster, "rc-gpu", 0)
    await ungated(cluster, "rc-head-0", "rc-gpu-0")
    await composite(cluster, "same", gang=1)
    await pod_group(cluster, "same", "same", gang=1)
    await pods(cluster, "same", 0)
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "same-0")


@pytest.mark.costly
async def test_audit_finds_no_difference_for_composites_in_any_state(cluster):
    cluster.controller.auditor.grace = 0.0
    await tree(cluster, gpu=2)
    await pod_group(cluster, "z-late", "rc", gang=1)
    await pods(cluster, "rc-gpu", 0, 1, 2)
    await pods(cluster, "z-late", 0)
    await pods(cluster, "alone", 0)
    await cluster.says("z-late", AFTER)
    await cluster.says("rc", "It starts as a whole, and 2 of its 3 pods are there.")
    await cluster.record("alone", "pending")
    await audits_agree(cluster)
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await pods(cluster, "rc-head", 0)
    await cluster.record("rc", "pending", reason="Suspended")
    await audits_agree(cluster)
    await cluster.apply(cluster_queue(cpu="5"))
    await ungated(cluster, "rc-head-0", "rc-gpu-0", "rc-gpu-1", "rc-gpu-2", "z-late-0")
    await audits_agree(cluster)
    lists = {"user": "sluice", "verb": "list", "resource": "compositepodgroups"}
    cluster.sandbox.faults.install({"rules": [{"match": lists, "do": "error", "code": 500}]})
    await audits_agree(cluster)


async def audits_agree(cluster):
    """Check that an audit by the leader finds no difference, and one without the leader neither."""

    async def look():
        return await cluster.controller.audit(repair=False) == []

    await cluster.eventually(look, longest=0.4)
    sources = AuditSources(cluster.store, cluster.client, KINDS, clock=cluster.clock)
    assert differences(await sources.view()) == []


@pytest.fixture
async def no_composite_api(world, tmp_path):
    """A cluster without the alpha API of CompositePodGroups."""
    async with running_cluster(world, tmp_path, served=(POD_GROUP,)) as running:
        yield running


async def test_pod_groups_start_separately_without_the_api_of_composites(no_composite_api):
    await pod_group(no_composite_api, "rc-head", "rc", gang=1)
    await pod_group(no_composite_api, "rc-gpu", "rc", gang=2)
    await pods(no_composite_api, "rc-head", 0)
    await pods(no_composite_api, "rc-gpu", 0)
    await ungated(no_composite_api, "rc-head-0")
    await no_composite_api.says("rc-gpu", "It starts as a whole, and 1 of its 2 pods are there.")
    no_composite_api.controller.auditor.grace = 0.0
    await audits_agree(no_composite_api)
    assert not [key for key in no_composite_api.client.requests if "compositepodgroups" in key[1]]


async def test_pending_pod_group_follows_installation_and_removal_of_the_api(no_composite_api):
    await pod_group(no_composite_api, "rc-gpu", "rc", gang=2)
    await pods(no_composite_api, "rc-gpu", 0)
    await no_composite_api.says("rc-gpu", "It starts as a whole, and 1 of its 2 pods are there.")
    await serve(no_composite_api, COMPOSITE)
    await no_composite_api.says("rc", NO_PARENT)
    await no_composite_api.user.delete("customresourcedefinitions", "", f"{COMPOSITE.plural}.{COMPOSITE.group}")
    await no_composite_api.says("rc-gpu", "It starts as a whole, and 1 of its 2 pods are there.")
    await pods(no_composite_api, "rc-gpu", 1)
    await ungated(no_composite_api, "rc-gpu-0", "rc-gpu-1")


async def test_composite_does_not_wait_for_pod_group_that_ran_before_the_api(no_composite_api):
    await pod_group(no_composite_api, "rc-head", "rc", gang=2)
    await pods(no_composite_api, "rc-head", 0, 1)
    await ungated(no_composite_api, "rc-head-0", "rc-head-1")
    await serve(no_composite_api, COMPOSITE)
    await composite(no_composite_api, "rc", gang=2)
    await pod_group(no_composite_api, "rc-gpu", "rc", gang=2)
    await pods(no_composite_api, "rc-gpu", 0)
    await no_composite_api.says("rc", "It starts as a whole, and 1 of its 2 pods are there.")
    await no_composite_api.user.delete("pods", "team-a", "rc-head-0", grace=0)
    await pods(no_composite_api, "rc-head", 2)
    await ungated(no_composite_api, "rc-head-1", "rc-head-2")
    await pods(no_composite_api, "rc-gpu", 1)
    await ungated(no_composite_api, "rc-head-1", "rc-head-2", "rc-gpu-0", "rc-gpu-1")
    assert await held(no_composite_api) == {"rc-head": 2, "rc": 2}


@pytest.mark.long
@pytest.mark.parametrize("code", [403, 500])
async def test_only_groups_in_composites_wait_while_composites_cannot_be_listed(cluster, code):
    await cluster.end()
    match = {"user": "sluice", "resource": "compositepodgroups"}
    cluster.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": code}]})
    await cluster.start(kinds=KINDS)
    await tree(cluster, gpu=1)
    await pods(cluster, "rc-head", 0)
    await pods(cluster, "rc-gpu", 0)
    await pod_group(cluster, "plain", gang=1)
    await pods(cluster, "plain", 0)
    await ungated(cluster, "plain-0")
    await cluster.says("rc", NO_PARENT)
    cluster.sandbox.faults.remove()
    await ungated(cluster, "plain-0", "rc-head-0", "rc-gpu-0")
