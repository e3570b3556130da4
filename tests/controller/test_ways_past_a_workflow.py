"""User changes to Argo Workflows and their pods: never more pods run than were admitted, and those hold quota."""

from __future__ import annotations

import copy

import pytest
from custom_kinds import pods_of, served, until
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs
from kind_manifests import document
from pod_examples import GATE, gated, pod

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod", "argoproj.io/workflow"))
WORKFLOW = KINDS.get("argoproj.io", "Workflow")
PLURAL, NAME = "workflows", "fan-out"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster with Argo and the webhook, and a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue("user-queue"))
    async with (
        served(world.sandbox, WORKFLOW, end_pods=False),
        gated(world.user, KINDS, tmp_path / "certificates"),
    ):
        await world.start(kinds=KINDS)
        yield world


@pytest.fixture
def mallory(cluster):
    """API client of an ordinary user."""
    return cluster.sandbox.local("mallory")


def workflow():
    """A Workflow of four pods of one CPU, which run until they are stopped."""
    obj = document("argo-workflow")
    obj["spec"] |= {"podMetadata": {"annotations": {"sandbox.sluice.dev/run-seconds": "1000000"}}}
    del obj["spec"]["templates"][1]["container"]["resources"]["requests"]["memory"]
    return obj


def kept_by_a_finalizer():
    obj = workflow()
    obj["metadata"]["finalizers"] = ["workflows.argoproj.io/artifact-gc"]
    return obj


def of_cpus(number):
    """Return the Workflow's templates with pods that request `number` CPUs."""
    templates = copy.deepcopy(workflow()["spec"]["templates"])
    templates[1]["container"]["resources"] = {"requests": {"cpu": str(number)}}
    return templates


async def started(cluster, mallory):
    """Create a Workflow and wait until its four pods run."""
    await mallory.create(PLURAL, "team-a", workflow())
    await pods_until(cluster.user, "team-a", four_run)
    return cluster.user.get(PLURAL, "team-a", NAME)


def four_run(found):
    return sum(each["status"].get("phase") == "Running" for each in found.values()) == 4


async def end_pods(cluster, obj):
    for each in pods_of(cluster.user, obj):
        body = {"status": {"phase": "Succeeded"}}
        await cluster.user.patch("pods", "team-a", each["metadata"]["name"], body, subresource="status")


def claimant(owner, made):
    """Add an owner reference to `owner` to an object, and return it."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    made["metadata"]["ownerReferences"] = [
        {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    ]
    return made


def pod_of(owner, name):
    """A pod that a user creates, with the labels of a Workflow's pods and a queue label."""
    made = pod(name, queue="user-queue", nodeSelector={"type": "kwok"})
    made["metadata"]["labels"] |= {
        "sluice.dev/workload-uid": owner["metadata"]["uid"],
        "sluice.dev/pod-set": "workflow",
    }
    made["metadata"]["labels"]["workflows.argoproj.io/workflow"] = NAME
    return claimant(owner, made)


PAST_THE_WEBHOOK = {"spec": {"suspend": False}, "metadata": {"annotations": {"past": "the webhook"}}}
"""Change that the webhook does not handle."""


def is_stopped_again(obj):
    return "past" in obj["metadata"].get("annotations", {}) and obj["spec"]["suspend"] is True


UNLABELLED = {"labels": {"kueue.x-k8s.io/queue-name": None}}


async def test_pending_workflow_cannot_be_unsuspended_by_users(cluster, mallory):
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await mallory.create(PLURAL, "team-a", workflow())
    for change in (
        {"spec": {"suspend": False}},
        {"spec": {"suspend": None}},
        {"spec": {"suspend": False, "parallelism": 1}},
        {"metadata": {"annotations": {"sluice.dev/submitted-by": "boss"}}},
    ):
        changed = await mallory.patch(PLURAL, "team-a", NAME, change)
        assert changed["spec"]["suspend"] is True, change
        assert changed["metadata"]["annotations"]["sluice.dev/submitted-by"] == "mallory"
    await cluster.sandbox.local("sluice").patch(PLURAL, "team-a", NAME, PAST_THE_WEBHOOK)
    await until(cluster.user, PLURAL, NAME, is_stopped_again)
    left = await mallory.patch(PLURAL, "team-a", NAME, {"spec": {"suspend": False}, "metadata": UNLABELLED})
    assert left["spec"]["suspend"] is True
    assert await cluster.held() == 0


@pytest.mark.costly
async def test_workflow_edited_to_larger_pods_is_suspended_and_holds_quota_until_pods_end(cluster, mallory):
    obj = await started(cluster, mallory)
    for change in (
        {"parallelism": None},
        {"podSpecPatch": "containers: []"},
    ):
        with pytest.raises(Exception, match=r"spec\."):
            await mallory.patch(PLURAL, "team-a", NAME, {"spec": change})
    kept = await mallory.patch(PLURAL, "team-a", NAME, {"spec": {"parallelism": 9}, "metadata": UNLABELLED})
    assert kept["spec"]["parallelism"] == 4
    assert WORKFLOW.queue_name(kept) == "user-queue"
    larger = await mallory.patch(PLURAL, "team-a", NAME, {"spec": {"templates": of_cpus(3)}})
    assert larger["spec"]["suspend"] is True
    await cluster.submit(job("after", queue="user-queue", cpu="1"))
    await cluster.record("after", "pending", reason="WaitingForQuota")
    assert await cluster.held() == 4000
    await end_pods(cluster, obj)
    waiting = await cluster.record(NAME, "pending")
    assert waiting.workload.pod_sets[0].requests["cpu"] == 3000
    await cluster.job("after", runs)


async def test_forged_children_of_workflow_need_quota_of_their_own(cluster, mallory):
    owner = await started(cluster, mallory)
    await mallory.create("jobs", "team-a", claimant(owner, job("forged", queue="user-queue", suspend=False)))
    waiting = await cluster.record("forged", "pending", reason="WaitingForQuota")
    assert waiting.admission is None
    assert is_gated(cluster.user.get("jobs", "team-a", "forged"))
    for name in ("one", "two"):
        made = await mallory.create("pods", "team-a", pod_of(owner, name))
        assert GATE in made["spec"]["schedulingGates"]
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    await mallory.patch("pods", "team-a", "one", {"spec": {"schedulingGates": None}})
    await pods_until(cluster.user, "team-a", lambda found: "one" not in found)
    found = {each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")}
    assert GATE in found["two"]["spec"]["schedulingGates"]
    assert four_run(found)
    assert await cluster.held() == 4000


async def test_orphaned_pods_of_workflow_hold_quota_until_they_end(cluster, mallory):
    obj = await started(cluster, mallory)
    await mallory.delete(PLURAL, "team-a", NAME, propagation="Orphan")
    await cluster.record(NAME, "evicting", reason="Deleted")
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    assert await cluster.held() == 4000
    await end_pods(cluster, obj)
    await cluster.record("later", "admitted")


async def test_pending_workflow_kept_by_finalizer_cannot_be_unsuspended(cluster, mallory):
    """Argo continues a Workflow that is being deleted, and the API server does not call the webhook for it."""
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await mallory.create(PLURAL, "team-a", kept_by_a_finalizer())
    await mallory.delete(PLURAL, "team-a", NAME)
    await mallory.patch(PLURAL, "team-a", NAME, PAST_THE_WEBHOOK)
    await until(cluster.user, PLURAL, NAME, is_stopped_again)
    assert await cluster.held() == 0


async def test_running_workflow_kept_by_finalizer_is_suspended_when_its_quota_is_free(cluster, mallory):
    await mallory.create(PLURAL, "team-a", kept_by_a_finalizer())
    await pods_until(cluster.user, "team-a", four_run)
    await mallory.delete(PLURAL, "team-a", NAME)
    for number in range(4):  # between two steps no pods exist
        await cluster.user.delete("pods", "team-a", f"{NAME}-workflow-{number}", grace=0)
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "admitted")
    assert cluster.user.get(PLURAL, "team-a", NAME)["spec"]["suspend"] is True


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 1}, {"suspend": True, "parallelism": 1}])
async def test_workflow_suspended_or_reduced_by_user_holds_quota_of_its_running_pods(cluster, mallory, change):
    obj = await started(cluster, mallory)
    await mallory.patch(PLURAL, "team-a", NAME, {"spec": change})
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    assert four_run({each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")})
    assert await cluster.held() == 4000
    await end_pods(cluster, obj)
    await cluster.record("later", "admitted")
