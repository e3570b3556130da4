"""Lifecycle of Argo Workflows: a suspended one starts no further steps, but its running steps finish."""

from __future__ import annotations

import pytest
from custom_kinds import pods_of, served, until
from job_examples import TOLERATION, cluster_queue, flavor, is_gated, job, local_queue, runs
from kind_manifests import document

from admission.kinds import all_kinds
from admission.kinds.limits import NamespaceContext

KINDS = all_kinds(frameworks=("batch/job", "argoproj.io/workflow"))
WORKFLOW = KINDS.get("argoproj.io", "Workflow")


@pytest.fixture
async def cluster(world):
    """A cluster with Argo, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("user-queue"))
    async with served(world.sandbox, WORKFLOW, end_pods=False):
        await world.start(kinds=KINDS)
        yield world


def workflow():
    """A Workflow whose pods run until they are stopped."""
    obj = document("argo-workflow")
    obj["spec"] |= {"suspend": True, "podMetadata": {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}}
    del obj["spec"]["templates"][1]["container"]["resources"]["requests"]["memory"]
    return obj


async def test_evicted_workflow_holds_quota_until_its_running_steps_have_ended(cluster):
    user = cluster.user
    created = await user.create("workflows", "team-a", workflow())
    started = await until(user, "workflows", "fan-out", lambda obj: not WORKFLOW.observe(obj).suspended)
    assert started["spec"]["nodeSelector"] == {"type": "kwok"}
    assert started["spec"]["tolerations"] == [TOLERATION]
    labels = started["spec"]["podMetadata"]["labels"]
    assert labels == {"sluice.dev/workload-uid": created["metadata"]["uid"], "sluice.dev/pod-set": "workflow"}
    while len(found := [each for each in pods_of(user, created) if each["status"].get("phase") == "Running"]) < 4:
        await until(user, "pods", "fan-out-workflow-3", lambda obj: obj["status"].get("phase") == "Running")
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await until(user, "workflows", "fan-out", lambda obj: WORKFLOW.observe(obj).suspended)
    for each in found[1:]:
        await user.patch(
            "pods", "team-a", each["metadata"]["name"], {"status": {"phase": "Succeeded"}}, subresource="status"
        )
    record = await cluster.record("fan-out", "evicting")
    assert sum(each.usage["cpu"] for each in record.admission.pod_sets) == 4000
    last = found[0]["metadata"]["name"]
    await user.patch("pods", "team-a", last, {"status": {"phase": "Succeeded"}}, subresource="status")
    assert (await cluster.record("fan-out", "pending")).admission is None
    assert user.get("workflows", "team-a", "fan-out")["spec"] == created["spec"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"parallelism": None}, "spec.parallelism: is missing"),
        ({"workflowTemplateRef": {"name": "other"}}, "spec.workflowTemplateRef: its pods are not in the Workflow"),
        ({"podSpecPatch": "containers: []"}, "spec.podSpecPatch: its pods are not in the Workflow"),
        (
            {"templates": [{"name": "main", "dag": {"tasks": [{"name": "a", "templateRef": {"name": "other"}}]}}]},
            "spec.templates[0].templateRef: its pods are not in the Workflow",
        ),
        (
            {"templates": [{"name": "main", "container": {}, "sidecars": [{"name": "side"}]}]},
            "spec.templates[0].sidecars: its requests cannot be counted",
        ),
        (
            {"templateDefaults": {"initContainers": [{"name": "first"}]}},
            "spec.templateDefaults.initContainers: its",
        ),
        ({"podResources": {"requests": {"cpu": "9"}}}, "spec.podResources: its pods are not in the Workflow itself"),
        ({"hooks": {"exit": {"templateRef": {"name": "other"}}}}, "spec.hooks[exit].templateRef: its pods are not"),
        (
            {"templates": [{"name": "main", "steps": [[{"name": "a", "inline": {"http": {"url": "u"}}}]]}]},
            "spec.templates[0].inline.http: its requests cannot be counted",
        ),
        (
            {"templates": [{"name": "main", "container": {}, "nodeSelector": {"type": "other"}}]},
            "spec.templates[0].nodeSelector: is to be the same for all pods",
        ),
        (
            {"templateDefaults": {"tolerations": [{"operator": "Exists"}]}},
            "spec.templateDefaults.tolerations: is to be the same for all pods",
        ),
        (
            {"templates": [{"container": {}, "metadata": {"labels": {"sluice.dev/workload-uid": "another"}}}]},
            "spec.templates[0].metadata.labels[sluice.dev/workload-uid]: is written by Sluice alone",
        ),
    ],
)
def test_workflow_whose_pods_cannot_be_counted_has_a_fault(spec, says):
    obj = workflow()
    obj["spec"] |= spec
    (found,) = [": ".join(fault) for fault in WORKFLOW.faults(obj)]
    assert found.startswith(says)


def test_pod_set_of_workflow_includes_inline_templates_affinity_and_priority():
    obj = workflow()
    large = {"container": {"resources": {"requests": {"cpu": "3"}}}}
    obj["spec"]["templates"][0]["steps"][0].append({"name": "large", "inline": large})
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    on_ssds = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    obj["spec"] |= {"affinity": {"nodeAffinity": on_ssds}, "podPriorityClassName": "high"}
    (pod_set,) = WORKFLOW.pod_sets(obj, NamespaceContext())
    assert (pod_set.count, pod_set.requests["cpu"]) == (4, 3000)
    assert pod_set.affinity is not None
    obj["metadata"] |= {"namespace": "team-a", "uid": "u-1", "resourceVersion": "7"}
    obj["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    assert WORKFLOW.observe(obj).pod_priority_class == "high"


@pytest.mark.costly
@pytest.mark.parametrize("change", [{"parallelism": 40}, {"podSpecPatch": "containers: []"}])
async def test_running_workflow_edited_beyond_its_quota_is_suspended_and_requeued(cluster, change):
    """Without the webhook, a raised parallelism suspends the running Workflow, which waits for more quota.

    The same applies to a change by which its pods cannot be counted any more.
    """
    await cluster.user.create("workflows", "team-a", workflow())
    await until(cluster.user, "workflows", "fan-out", lambda obj: not WORKFLOW.observe(obj).suspended)
    await cluster.submit(job("after", queue="user-queue", cpu="1"))
    await cluster.user.patch("workflows", "team-a", "fan-out", {"spec": change})
    stopped = await until(cluster.user, "workflows", "fan-out", lambda obj: WORKFLOW.observe(obj).suspended)
    assert change.items() <= stopped["spec"].items()
    assert is_gated(cluster.user.get("jobs", "team-a", "after"))
    for each in pods_of(cluster.user, stopped):
        name = each["metadata"]["name"]
        await cluster.user.patch("pods", "team-a", name, {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.record("fan-out", "pending")
    await cluster.job("after", runs)
