"""Lifecycle of plain pods with the webhook: queued, admitted, stopped by deletion, with exact quota at every step."""

from __future__ import annotations

from contextlib import closing

import pytest
from job_examples import TOLERATION, cluster_queue, flavor, job, local_queue
from pod_examples import GATE, MANAGED, gated, pod
from queue_objects import priority_class

from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod"))


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 4 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


async def seen(world, name, until):
    """Wait until a pod satisfies `until`, and return it; None if it was deleted."""
    with closing(world.user.watch("pods")) as changes:
        if until is is_gone and world.user.get("pods", "team-a", name) is None:
            return None
        async for batch in changes:
            for _, kind, obj, _ in batch:
                if obj["metadata"]["name"] == name and until(None if kind == "DELETED" else obj):
                    return None if kind == "DELETED" else obj
    raise AssertionError("the watch ended")


def is_gated(obj):
    return obj is not None and GATE in obj["spec"].get("schedulingGates", ())


def runs(obj):
    return obj is not None and obj["status"].get("phase") == "Running"


def is_gone(obj):
    return obj is None


async def usage(world):
    """Return the milli-CPU of quota that workloads hold, by name."""
    found = (await world.store.workloads.list(namespace="team-a")).workloads
    return {
        record.workload.name: record.admission.pod_sets[0].usage["cpu"]
        for record in found
        if record.admission is not None
    }


@pytest.mark.costly
async def test_lifecycle_of_a_pod_from_creation_to_success(cluster):
    created = await cluster.user.create("pods", "team-a", pod("first", cpu="3", seconds=300))
    assert created["spec"]["schedulingGates"] == [GATE]
    assert created["metadata"]["labels"][MANAGED] == "true"
    assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "admin"
    running = await seen(cluster, "first", runs)
    assert running["spec"]["nodeSelector"] == {"type": "kwok"}
    assert TOLERATION in running["spec"]["tolerations"]
    assert await usage(cluster) == {"first": 3000}

    await cluster.user.create("pods", "team-a", pod("second", cpu="2"))
    record = await cluster.record("second", "pending", reason="WaitingForQuota")
    assert (record.workload.kind, record.workload.api_version) == ("Pod", "v1")
    assert is_gated(cluster.user.get("pods", "team-a", "second"))

    done = await cluster.record("first", "finished")
    assert done.outcome == "Succeeded"
    await seen(cluster, "second", runs)
    assert await usage(cluster) == {"second": 2000}


@pytest.mark.costly
async def test_preempted_pod_holds_quota_during_its_termination_grace_period(cluster):
    await cluster.apply(cluster_queue(preemption={"withinClusterQueue": "LowerPriority"}), priority_class("high", 10))
    stubborn = pod("low", cpu="3", terminationGracePeriodSeconds=400)
    stubborn["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "300"
    await cluster.user.create("pods", "team-a", stubborn)
    await seen(cluster, "low", runs)
    urgent = pod("urgent", cpu="2")
    urgent["metadata"]["labels"]["sluice.dev/priority-class"] = "high"
    await cluster.user.create("pods", "team-a", urgent)
    ending = await seen(cluster, "low", lambda obj: obj is not None and "deletionTimestamp" in obj["metadata"])
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 400
    assert await usage(cluster) == {"low": 3000}
    assert is_gated(cluster.user.get("pods", "team-a", "urgent"))
    over = await cluster.record("low", "finished")
    assert over.outcome == "Evicted"
    assert "urgent" in over.message or "preempt" in over.message.lower()
    await seen(cluster, "urgent", runs)
    assert await usage(cluster) == {"urgent": 2000}
    assert [row.end_reason for row in await cluster.store.workloads.ledger(over.workload.uid)] == ["Evicted"]


async def test_pending_pod_whose_gate_is_removed_by_user_is_deleted(cluster):
    await cluster.user.create("pods", "team-a", pod("large", cpu="4"))
    await seen(cluster, "large", runs)
    await cluster.user.create("pods", "team-a", pod("cheat", cpu="2"))
    await cluster.record("cheat", "pending", reason="WaitingForQuota")
    await cluster.user.patch("pods", "team-a", "cheat", {"spec": {"schedulingGates": None}})
    await seen(cluster, "cheat", is_gone)
    over = await cluster.record("cheat", "finished")
    assert (over.outcome, over.message) == (
        "Deleted",
        "It ran without quota, and was deleted: only Sluice may remove its scheduling gate.",
    )
    assert await usage(cluster) == {"large": 4000}


async def test_removed_managed_label_is_restored_and_quota_is_kept(cluster):
    await cluster.user.create("pods", "team-a", pod("large", cpu="4"))
    await seen(cluster, "large", runs)
    await cluster.user.create("pods", "team-a", pod("cheat", cpu="2"))
    await cluster.record("cheat", "pending", reason="WaitingForQuota")
    unlabelled = {"metadata": {"labels": {MANAGED: None}}}
    for name in ("large", "cheat"):
        await cluster.user.patch("pods", "team-a", name, unlabelled)
        await seen(cluster, name, lambda obj: obj is not None and obj["metadata"]["labels"].get(MANAGED) == "true")
    assert await usage(cluster) == {"large": 4000}
    both = {"metadata": {"labels": {MANAGED: None}}, "spec": {"schedulingGates": None}}
    await cluster.user.patch("pods", "team-a", "cheat", both)
    await seen(cluster, "cheat", is_gone)


@pytest.mark.costly
async def test_managed_label_removed_during_downtime_is_restored_at_startup(cluster):
    await cluster.user.create("pods", "team-a", pod("large", cpu="4"))
    await seen(cluster, "large", runs)
    await cluster.user.create("pods", "team-a", pod("cheat", cpu="2"))
    await cluster.record("cheat", "pending", reason="WaitingForQuota")
    await cluster.end()
    await cluster.user.patch("pods", "team-a", "large", {"metadata": {"labels": {MANAGED: None}}})
    both = {"metadata": {"labels": {MANAGED: None}}, "spec": {"schedulingGates": None}}
    await cluster.user.patch("pods", "team-a", "cheat", both)
    await cluster.start(kinds=KINDS)
    await seen(cluster, "cheat", is_gone)
    await seen(cluster, "large", lambda obj: obj is not None and obj["metadata"]["labels"].get(MANAGED) == "true")
    assert await usage(cluster) == {"large": 4000}


async def test_dequeued_pod_keeps_its_gate_and_may_queue_again(cluster):
    """Without the admission policy that forbids this, as on API servers without policies."""
    await cluster.user.create("pods", "team-a", pod("first", cpu="4"))
    await seen(cluster, "first", runs)
    await cluster.user.create("pods", "team-a", pod("leaves"))
    await cluster.record("leaves", "pending", reason="WaitingForQuota")
    label = {"metadata": {"labels": {"sluice.dev/queue-name": None}}}
    await cluster.user.patch("pods", "team-a", "leaves", label)
    left = await cluster.record("leaves", "finished", reason="Dequeued")
    assert left.message.endswith("It keeps its scheduling gate: label it again, or recreate it without label.")

    async def told():
        events = (await cluster.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        return [each for each in events if each["regarding"]["name"] == "leaves" and each["note"] == left.message]

    (event,) = await cluster.eventually(told)
    assert (event["type"], event["reason"]) == ("Warning", "Dequeued")
    assert is_gated(cluster.user.get("pods", "team-a", "leaves"))
    label["metadata"]["labels"]["sluice.dev/queue-name"] = "lq"
    await cluster.user.patch("pods", "team-a", "leaves", label)
    await cluster.record("leaves", "pending", reason="WaitingForQuota")
    await cluster.user.delete("pods", "team-a", "first", grace=0)
    await seen(cluster, "leaves", runs)


async def test_forged_gates_and_managed_labels_do_not_bypass_the_queue(cluster):
    await cluster.user.create("pods", "team-a", pod("large", cpu="4"))
    await seen(cluster, "large", runs)
    own = pod("own-gate", schedulingGates=[{"name": "other/gate"}, GATE])
    forged = pod("forged-label")
    forged["metadata"]["labels"][MANAGED] = "false"
    for each in (own, forged):
        created = await cluster.user.create("pods", "team-a", each)
        assert created["spec"]["schedulingGates"].count(GATE) == 1
        assert created["metadata"]["labels"][MANAGED] == "true"
        await cluster.record(created["metadata"]["name"], "pending", reason="WaitingForQuota")
    assert await usage(cluster) == {"large": 4000}


async def test_other_scheduling_gates_remain_after_admission(cluster):
    await cluster.user.create("pods", "team-a", pod("two", schedulingGates=[{"name": "other/gate"}]))
    started = await seen(cluster, "two", lambda obj: obj is not None and not is_gated(obj))
    assert started["spec"]["schedulingGates"] == [{"name": "other/gate"}]
    assert await usage(cluster) == {"two": 1000}


@pytest.mark.costly
async def test_deleted_pending_and_running_pods_are_finished_without_quota(cluster):
    for name in ("runs", "waits"):
        await cluster.user.create("pods", "team-a", pod(name, cpu="4"))
        await (
            seen(cluster, name, runs) if name == "runs" else cluster.record(name, "pending", reason="WaitingForQuota")
        )
    await cluster.user.delete("pods", "team-a", "waits")
    assert (await cluster.record("waits", "finished")).outcome == "Deleted"
    assert await usage(cluster) == {"runs": 4000}
    await cluster.user.delete("pods", "team-a", "runs")
    assert (await cluster.record("runs", "finished")).outcome == "Deleted"
    assert await usage(cluster) == {}


async def test_pod_whose_start_is_watched_before_the_patch_response_stays_admitted(cluster):
    match = {"user": "sluice", "verb": "patch", "resource": "pods"}
    cluster.sandbox.faults.install({"rules": [{"match": match, "do": "delay", "when": "after", "seconds": 600}]})
    for name in ("first", "second"):
        await cluster.user.create("pods", "team-a", pod(name))
        await seen(cluster, name, runs)
    assert {each.state for each in (await cluster.store.workloads.list()).workloads} == {"admitted"}


async def test_pod_deleted_during_downtime_is_finished_at_startup(cluster):
    await cluster.user.create("pods", "team-a", pod("p", cpu="4"))
    await seen(cluster, "p", runs)
    await cluster.end()
    await cluster.user.delete("pods", "team-a", "p")
    await seen(cluster, "p", is_gone)
    await cluster.start(kinds=KINDS)
    assert (await cluster.record("p", "finished")).outcome == "Deleted"


async def test_bound_pod_is_rejected_and_pod_without_queue_is_unchanged(cluster):
    with pytest.raises(Exception, match=r"spec\.nodeName: a pod in a queue is not bound"):
        await cluster.user.create("pods", "team-a", pod("bound", nodeName="node-0"))
    free = await cluster.user.create("pods", "team-a", pod("free", queue=None))
    assert "labels" not in free["metadata"]
    assert "schedulingGates" not in free["spec"]


@pytest.mark.costly
async def test_each_admission_takes_one_patch(cluster):
    for number in range(4):
        await cluster.user.create("pods", "team-a", pod(f"p-{number}"))
    for number in range(4):
        await seen(cluster, f"p-{number}", runs)
    sent = {key: count for key, count in cluster.client.requests.items() if key[0] in ("PATCH", "DELETE")}
    assert sent == {("PATCH", "pods", "200"): 4}


def owned(name, owner, **options):
    """A pod with a Job as controller, and with the node selector that Sluice injected into the Job's template."""
    each = pod(name, nodeSelector={"type": "kwok"}, **options)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["metadata"]["name"], "controller": True}
    each["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return each


def labelled(name, **options):
    """A Job with a queue label on its template, too."""
    manifest = job(name, **options)
    manifest["spec"]["template"]["metadata"]["labels"] = {"sluice.dev/queue-name": "lq"}
    return manifest


async def started_job(cluster, **options):
    """Create a Job and wait until it runs."""
    created = await cluster.submit(labelled("train", **options))
    await cluster.job("train", lambda obj: (obj.get("status") or {}).get("ready") == options["pods"])
    return created


@pytest.mark.costly
async def test_pods_of_queued_job_need_no_quota_beside_that_of_the_job(cluster):
    await started_job(cluster, pods=3, cpu="1")
    assert await usage(cluster) == {"train": 3000}
    assert {each.workload.kind for each in (await cluster.store.workloads.list(namespace="team-a")).workloads} == {
        "Job"
    }
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("train", "pending")
    await cluster.apply(cluster_queue())
    back = await cluster.job("train", lambda obj: (obj.get("status") or {}).get("ready") == 3)
    assert "failed" not in back["status"]


@pytest.mark.costly
@pytest.mark.parametrize("controllers", [False])
async def test_pods_with_forged_owner_reference_gain_no_quota(cluster):
    """No controllers run: the test creates the pods as the Job controller would."""
    train = await cluster.submit(labelled("train", pods=2))
    await cluster.record("train", "admitted")
    for name in ("train-0", "train-1"):
        await cluster.user.create("pods", "team-a", owned(name, train))
        await seen(cluster, name, lambda obj: obj is not None and not is_gated(obj))
    assert is_gated(await cluster.user.create("pods", "team-a", owned("one-more", train)))
    await cluster.user.create("pods", "team-a", owned("large", train, cpu="3"))  # larger than a pod of the Job
    await cluster.record("large", "pending", reason="WaitingForQuota")
    nobody = {"metadata": {"name": "nobody", "uid": "0b1d"}}
    await cluster.user.create("pods", "team-a", owned("orphan", nobody))
    for name in ("one-more", "orphan", "large"):  # deleted if their gate is removed
        await cluster.user.patch("pods", "team-a", name, {"spec": {"schedulingGates": None}})
        await seen(cluster, name, is_gone)
    # A recreated pod takes the place of a deleted one.
    assert is_gated(await cluster.user.create("pods", "team-a", owned("train-2", train)))
    await cluster.user.patch("pods", "team-a", "train-0", {"metadata": {"labels": {MANAGED: None}}})
    await seen(cluster, "train-0", lambda obj: obj is not None and obj["metadata"]["labels"].get(MANAGED) == "true")
    assert is_gated(cluster.user.get("pods", "team-a", "train-2"))
    await cluster.user.delete("pods", "team-a", "train-0")
    await seen(cluster, "train-2", lambda obj: obj is not None and not is_gated(obj))
    assert await usage(cluster) == {"train": 2000}
    await cluster.apply(cluster_queue(stopPolicy="HoldAndDrain"))
    await cluster.record("train", "pending")
    for name in ("train-1", "train-2"):
        await seen(cluster, name, is_gone)


@pytest.mark.parametrize("controllers", [False])
async def test_gated_pod_deleted_together_with_running_pod_takes_no_place(cluster):
    """Both deletions are observed at once: the first one triggers a check of the second pod, which is gone by then."""
    train = await cluster.submit(labelled("train", pods=1))
    await cluster.record("train", "admitted")
    await cluster.user.create("pods", "team-a", owned("first", train))
    await seen(cluster, "first", lambda obj: obj is not None and not is_gated(obj))
    await cluster.user.create("pods", "team-a", owned("second", train))
    await cluster.user.create("pods", "team-a", pod("after"))
    await cluster.record("after", "admitted")  # Sluice has processed the second pod by now
    assert is_gated(cluster.user.get("pods", "team-a", "second"))
    for name in ("first", "second"):
        await cluster.user.delete("pods", "team-a", name, grace=0)
    await cluster.user.create("pods", "team-a", pod("later"))
    await cluster.record("later", "admitted")
    await cluster.user.create("pods", "team-a", owned("third", train))
    await seen(cluster, "third", lambda obj: obj is not None and not is_gated(obj))


@pytest.mark.parametrize("controllers", [False])
async def test_pod_with_start_request_in_progress_keeps_its_place(cluster):
    """The pod is observed again with its gate while the API server delays its response."""
    train = await cluster.submit(labelled("train", pods=1))
    await cluster.record("train", "admitted")
    match = {"user": "sluice", "verb": "patch", "resource": "pods", "name": "first"}
    cluster.sandbox.faults.install({"rules": [{"match": match, "do": "delay", "seconds": 600}]})
    await cluster.user.create("pods", "team-a", owned("first", train))

    async def is_under_way():
        return cluster.sandbox.faults.describe()["rules"][0]["struck"] == 1

    await cluster.eventually(is_under_way)
    await cluster.user.patch("pods", "team-a", "first", {"metadata": {"annotations": {"seen": "again"}}})
    await cluster.user.create("pods", "team-a", owned("second", train))
    await cluster.user.create("pods", "team-a", pod("after"))
    await seen(cluster, "after", lambda obj: not is_gated(obj))
    assert is_gated(cluster.user.get("pods", "team-a", "second"))
