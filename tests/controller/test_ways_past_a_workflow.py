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
    """Return the Workflow's templates with pods that request so many CPUs."""
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


async def held(cluster):
    """Return the quota in use, in milli-CPU."""
    found = (await cluster.store.workloads.list(namespace="team-a")).workloads
    return sum(each.usage["cpu"] for record in found if record.admission for each in record.admission.pod_sets)


PAST_THE_WEBHOOK = {"spec": {"suspend": False}, "metadata": {"annotations": {"past": "the webhook"}}}
"""What a user changes whom the webhook does not judge."""


def is_stopped_again(obj):
    return "past" in obj["metadata"].get("annotations", {}) and obj["spec"]["suspend"] is True


UNLABELLED = {"labels": {"kueue.x-k8s.io/queue-name": None}}


async def test_one_that_waits_is_let_in_by_nobody_but_sluice(cluster, mallory):
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
    assert await held(cluster) == 0


async def test_what_runs_and_is_to_have_larger_pods_is_stopped_and_charged_until_those_that_run_have_ended(
    cluster, mallory
):
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
    assert await held(cluster) == 4000
    await end_pods(cluster, obj)
    waiting = await cluster.record(NAME, "pending")
    assert waiting.workload.pod_sets[0].requests["cpu"] == 3000
    await cluster.job("after", runs)


async def test_whoever_claims_to_be_its_child_is_charged_beside_it(cluster, mallory):
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
    assert await held(cluster) == 4000


async def test_its_pods_that_are_orphaned_hold_their_quota_until_they_end(cluster, mallory):
    obj = await started(cluster, mallory)
    await mallory.delete(PLURAL, "team-a", NAME, propagation="Orphan")
    await cluster.record(NAME, "evicting", reason="Deleted")
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    assert await held(cluster) == 4000
    await end_pods(cluster, obj)
    await cluster.record("later", "admitted")


async def test_one_that_is_being_deleted_and_is_kept_by_a_finalizer_is_let_in_by_nobody(cluster, mallory):
    """Argo goes on with what is being deleted, and the webhook is not asked about it."""
    await cluster.apply(cluster_queue(stopPolicy="Hold"))
    await mallory.create(PLURAL, "team-a", kept_by_a_finalizer())
    await mallory.delete(PLURAL, "team-a", NAME)
    await mallory.patch(PLURAL, "team-a", NAME, PAST_THE_WEBHOOK)
    await until(cluster.user, PLURAL, NAME, is_stopped_again)
    assert await held(cluster) == 0


async def test_one_that_runs_while_it_is_being_deleted_is_stopped_before_its_quota_is_free(cluster, mallory):
    await mallory.create(PLURAL, "team-a", kept_by_a_finalizer())
    await pods_until(cluster.user, "team-a", four_run)
    await mallory.delete(PLURAL, "team-a", NAME)
    for number in range(4):  # a step is over; Argo makes the next one when it likes
        await cluster.user.delete("pods", "team-a", f"{NAME}-workflow-{number}", grace=0)
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "admitted")
    assert cluster.user.get(PLURAL, "team-a", NAME)["spec"]["suspend"] is True


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 1}, {"suspend": True, "parallelism": 1}])
async def test_suspended_or_lowered_by_its_user_it_is_charged_for_the_pods_that_run_on(cluster, mallory, change):
    obj = await started(cluster, mallory)
    await mallory.patch(PLURAL, "team-a", NAME, {"spec": change})
    await mallory.create("pods", "team-a", pod("later", queue="user-queue"))
    await cluster.record("later", "pending", reason="WaitingForQuota")
    assert four_run({each["metadata"]["name"]: each for each in cluster.user.list("pods", "team-a")})
    assert await held(cluster) == 4000
    await end_pods(cluster, obj)
