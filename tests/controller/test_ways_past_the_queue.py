"""User changes to Jobs and pods, without a webhook: never more pods run than were admitted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing

import pytest
from job_examples import TOLERATION, cluster_queue, is_gated, job, local_queue, runs

ENDED = ("Succeeded", "Failed")


@pytest.fixture
async def sluice(world):
    """A running Sluice with one queue of 4 CPUs."""
    await world.begin()
    return world


class Pods:
    """An observer of pods alone: those that are alive, and their maximum number."""

    def __init__(self):
        self.alive = {}
        self.most = 0

    def see(self, change, pod):
        key = pod["metadata"]["uid"]
        if change == "DELETED" or pod["status"].get("phase") in ENDED:
            self.alive.pop(key, None)
        else:
            self.alive[key] = pod
        self.most = max(self.most, len(self.alive))


@asynccontextmanager
async def observed(world):
    """Context manager that observes the pods of the cluster."""
    pods = Pods()

    async def watch():
        with closing(world.user.watch("pods")) as changes:
            async for batch in changes:
                for _, change, pod, _ in batch:
                    pods.see(change, pod)

    task = asyncio.create_task(watch())
    try:
        yield pods
    finally:
        task.cancel()


def stubborn(name, **fields):
    """A Job whose pods run until they are deleted, and then terminate only by force."""
    manifest = job(name, **fields)
    manifest["spec"]["template"]["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    return manifest


def counts(ready, terminating=0):
    """Predicate: the Job's status has these numbers of ready and terminating pods."""

    def is_so(obj):
        status = obj.get("status", {})
        counted = [status.get(field) or 0 for field in ("active", "ready", "terminating")]
        return counted == [ready, ready, terminating]

    return is_so


async def kill_pods(world, prefix):
    """Delete terminating pods by force."""
    for pod in world.user.list("pods"):
        if pod["metadata"]["name"].startswith(prefix) and "deletionTimestamp" in pod["metadata"]:
            await world.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)


async def settled(world):
    """Wait until Sluice has processed all earlier events: a Job submitted now has finished."""
    name = f"probe-{len(world.user.list('jobs'))}"
    await world.submit(job(name, cpu="0", seconds=1))
    await world.record(name, "finished")


async def test_job_suspended_by_user_is_resumed_when_its_pods_are_gone(sluice):
    async with observed(sluice) as pods:
        await sluice.submit(stubborn("flip", pods=4))
        for flip in range(3):
            await sluice.job("flip", counts(4))
            await sluice.patch("flip", {"spec": {"suspend": True}})
            await sluice.job("flip", counts(0, 4))
            await settled(sluice)
            assert is_gated(sluice.user.get("jobs", "team-a", "flip")), flip
            await kill_pods(sluice, "flip")
        await sluice.job("flip", counts(4))
        assert pods.most == 5  # with the probe, which requests nothing
    assert [reason for reason, _ in await sluice.history("flip")] == ["Queued", "Admitted"]


async def test_job_suspended_before_its_pods_are_counted_stays_within_quota(sluice):
    """The status of the Job is from before its start, without active pods."""
    async with observed(sluice) as pods:
        manifest = stubborn("quick", pods=4)
        await sluice.submit(manifest)
        await sluice.job("quick", runs_by_spec)
        await sluice.patch("quick", {"spec": {"suspend": True}})
        for _ in range(3):
            await sluice.job("quick", runs_by_spec)
            await sluice.patch("quick", {"spec": {"suspend": True}})
            await kill_pods(sluice, "quick")
        await sluice.job("quick", counts(4))
        assert pods.most <= 4


def runs_by_spec(obj):
    return not is_gated(obj)


@pytest.mark.parametrize(
    "edit",
    [
        {"nodeSelector": {"type": "other"}},
        {"nodeSelector": {"disk": "fast"}},
        {"tolerations": [TOLERATION, {"key": "any", "operator": "Exists"}]},
        {"containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "3"}}}]},
    ],
    ids=["flavor-swapped", "selector-added", "tolerations", "resources"],
)
async def test_job_edited_while_suspended_is_evicted_and_requeued_with_its_new_spec(sluice, edit):
    await sluice.submit(stubborn("edited", cpu="2"))
    await sluice.job("edited", counts(1))
    await sluice.patch("edited", {"spec": {"suspend": True}})
    await sluice.job("edited", counts(0, 1))
    await sluice.patch("edited", {"spec": {"template": {"spec": edit}}})
    evicted = await sluice.record("edited", "evicting", reason="OutOfSync")
    assert evicted.admission is not None
    await kill_pods(sluice, "edited")

    await sluice.eventually(lambda: _was_requeued(sluice, "edited"))
    requeued = await sluice.eventually(lambda: _pending_or_admitted(sluice, "edited"))
    (pod_set,) = requeued.workload.pod_sets
    has = sluice.user.get("jobs", "team-a", "edited")["spec"]["template"]["spec"]
    if "nodeSelector" in edit:
        assert pod_set.node_selector == edit["nodeSelector"]
        assert edit["nodeSelector"].items() <= has["nodeSelector"].items()
    elif "tolerations" in edit:
        assert [each.key for each in pod_set.tolerations] == ["any"]
    else:
        assert pod_set.requests["cpu"] == 3000


async def _was_requeued(world, name):
    return "Requeued" in [reason for reason, _ in await world.history(name)]


async def _pending_or_admitted(world, name):
    record = await world.store.workloads.get("team-a", name)
    return record if record is not None and record.state in ("pending", "admitted") else None


async def test_job_unsuspended_and_edited_in_one_request_is_evicted(sluice):
    await sluice.submit(stubborn("both", cpu="2"))
    await sluice.job("both", counts(1))
    await sluice.patch("both", {"spec": {"suspend": True}})
    await sluice.job("both", counts(0, 1))
    await sluice.patch("both", {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"type": "free"}}}}})
    await sluice.record("both", "evicting", reason="OutOfSync")
    assert is_gated(await sluice.job("both", is_gated))


async def test_job_scaled_beyond_its_admission_is_requeued(sluice):
    await sluice.submit(job("grown", pods=2))
    await sluice.job("grown", counts(2))
    await sluice.patch("grown", {"spec": {"parallelism": 3, "completions": 2}})
    await sluice.job("grown", counts(2))
    elastic = job("elastic", pods=1)
    elastic["spec"]["completionMode"] = "Indexed"
    await sluice.submit(elastic)
    await sluice.job("elastic", counts(1))
    await sluice.patch("elastic", {"spec": {"parallelism": 2, "completions": 2}})
    await sluice.eventually(lambda: _was_requeued(sluice, "elastic"))
    await sluice.job("elastic", counts(2))
    assert (await sluice.record("elastic", "admitted")).admission.pod_sets[0].count == 2
    assert "OutOfSync" not in [reason for reason, _ in await sluice.history("grown")]


async def test_pods_deleted_by_user_are_replaced_when_terminated(sluice):
    async with observed(sluice) as pods:
        await sluice.submit(stubborn("replaced", pods=2))
        await sluice.job("replaced", counts(2))
        for pod in sluice.user.list("pods"):
            await sluice.user.delete("pods", "team-a", pod["metadata"]["name"])
        await sluice.job("replaced", counts(0, 2))
        await settled(sluice)
        assert pods.most == 3  # with the probe, which requests nothing
        await kill_pods(sluice, "replaced")
        await sluice.job("replaced", counts(2))
    await sluice.patch("replaced", {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}})
    await sluice.record("replaced", "evicting", reason="OutOfSync")


async def test_deleted_job_with_manual_selector_holds_quota_until_its_pods_are_gone(sluice):
    async with observed(sluice) as pods:
        for turn in range(3):
            manifest = stubborn(f"manual-{turn}", pods=4)
            manifest["spec"] |= {"manualSelector": True, "selector": {"matchLabels": {"app": f"own-{turn}"}}}
            manifest["spec"]["template"]["metadata"]["labels"] = {"app": f"own-{turn}"}
            await sluice.submit(manifest)
            if turn:
                waiting = await sluice.record(f"manual-{turn}", "pending", reason="WaitingForQuota")
                assert waiting.admission is None
                await kill_pods(sluice, "manual")
            await sluice.job(f"manual-{turn}", counts(4))
            await sluice.user.delete("jobs", "team-a", f"manual-{turn}", propagation="Background")
        assert pods.most == 4


@pytest.mark.parametrize("manual", [True, False])
async def test_orphaned_pods_adopted_by_another_job_keep_that_job_pending(sluice, manual):
    async with observed(sluice) as pods:
        first = stubborn("first", pods=4)
        if manual:
            first["spec"] |= {"manualSelector": True, "selector": {"matchLabels": {"app": "own"}}}
            first["spec"]["template"]["metadata"]["labels"] = {"app": "own"}
        first = await sluice.submit(first)
        await sluice.job("first", counts(4))
        second = stubborn("second", pods=4)
        labels = {"app": "own"} if manual else {"batch.kubernetes.io/controller-uid": first["metadata"]["uid"]}
        second["spec"] |= {"manualSelector": True, "selector": {"matchLabels": labels}}
        second["spec"]["template"]["metadata"]["labels"] = labels
        await sluice.submit(second)
        await sluice.user.delete("jobs", "team-a", "first", propagation="Orphan")
        await sluice.record("first", "evicting", reason="Deleted")
        await settled(sluice)
        assert is_gated(sluice.user.get("jobs", "team-a", "second"))
        assert pods.most <= 5


async def test_owner_reference_to_another_job_does_not_exempt_from_quota(sluice):
    owner = await sluice.submit(job("owner"))
    child = job("child", suspend=False)
    uid = owner["metadata"]["uid"]
    references = [{"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": uid, "controller": True}]
    child["metadata"]["ownerReferences"] = references
    await sluice.submit(child)
    assert (await sluice.record("child", "admitted")).admission is not None
    adopted = job("adopted", cpu="5")
    await sluice.submit(adopted)
    await sluice.record("adopted", "pending", reason="ExceedsMaxQuota")
    await sluice.patch("adopted", {"metadata": {"ownerReferences": references}, "spec": {"suspend": False}})
    await sluice.job("adopted", lambda obj: is_gated(obj) and obj["metadata"]["generation"] >= 3)


async def test_job_unlabelled_and_unsuspended_in_one_request_is_suspended_again(sluice):
    await sluice.submit(job("leaver", cpu="5", tolerations=[TOLERATION]))
    await sluice.record("leaver", "pending", reason="ExceedsMaxQuota")
    unlabelled = {"metadata": {"labels": {"sluice.dev/queue-name": None}}, "spec": {"suspend": False}}
    await sluice.patch("leaver", unlabelled)
    await sluice.job("leaver", lambda obj: is_gated(obj) and obj["metadata"]["generation"] == 3)
    assert (await sluice.record("leaver", "finished")).outcome == "Dequeued"
    await sluice.patch("leaver", unlabelled)
    await sluice.job("leaver", runs)  # Sluice does not manage it any more


@pytest.mark.parametrize("order", [{"held": True}, {"active": False}], ids=["held", "deactivated"])
async def test_held_or_deactivated_job_stays_suspended_without_its_queue_label(sluice, order):
    await sluice.submit(job("full", cpu="4"))
    await sluice.job("full", runs)
    await sluice.submit(job("held"))
    await sluice.record("held", "pending", reason="WaitingForQuota")
    await sluice.order("held", **order)
    await sluice.record("held", "pending", reason="OnHold" if "held" in order else "Deactivated")
    await sluice.patch("held", {"metadata": {"labels": {"sluice.dev/queue-name": None}}})
    await sluice.patch("held", {"spec": {"suspend": False}})
    await sluice.job("held", lambda obj: is_gated(obj) and obj["metadata"]["generation"] == 3)
    await sluice.record("held", "pending")
    await sluice.order("held", **{name: not value for name, value in order.items()})
    assert (await sluice.record("held", "finished")).outcome == "Dequeued"


@pytest.mark.costly
async def test_an_evicted_job_without_label_does_not_queue_again(sluice):
    await sluice.submit(job("gone"))
    await sluice.job("gone", counts(1))
    await sluice.patch("gone", {"metadata": {"labels": {"sluice.dev/queue-name": None, "sluice.dev/hold": "true"}}})
    assert (await sluice.record("gone", "finished")).outcome == "Dequeued"
    assert is_gated(sluice.user.get("jobs", "team-a", "gone"))


async def test_admitted_job_moves_when_its_queue_label_changes(sluice):
    await sluice.apply(cluster_queue("other", cpu="2"), local_queue("other", "other"))
    await sluice.submit(job("moved"))
    await sluice.job("moved", counts(1))
    await sluice.patch("moved", {"metadata": {"labels": {"sluice.dev/queue-name": "other"}}})
    await sluice.eventually(lambda: _is_in(sluice, "moved", "other"))
    assert "Moved" in [reason for reason, _ in await sluice.history("moved")]


async def _is_in(world, name, queue):
    record = await world.store.workloads.get("team-a", name)
    return record is not None and record.admission is not None and record.cluster_queue == queue


async def test_submitter_of_a_job_cannot_be_changed(sluice):
    manifest = job("mine", cpu="5")
    manifest["metadata"]["annotations"] = {"sluice.dev/submitted-by": "alice"}
    await sluice.submit(manifest)
    assert (await sluice.record("mine", "pending")).workload.user == "alice"
    await sluice.patch("mine", {"metadata": {"annotations": {"sluice.dev/submitted-by": "boss"}}})
    await sluice.patch("mine", {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}})
    await sluice.eventually(lambda: _has_selector(sluice, "mine"))
    assert (await sluice.record("mine", "pending")).workload.user == "alice"


async def _has_selector(world, name):
    record = await world.store.workloads.get("team-a", name)
    return record is not None and record.workload.pod_sets[0].node_selector == {"disk": "fast"}


async def test_labelled_job_in_excluded_namespace_is_not_queued(sluice):
    await sluice.submit(job("system", namespace="kube-system", suspend=False, tolerations=[TOLERATION]))
    await sluice.submit(job("queued"))
    await sluice.job("queued", runs)
    assert not is_gated(await sluice.job("system", runs, "kube-system"))
    assert await sluice.store.workloads.get("kube-system", "system") is None


@pytest.mark.parametrize("suspended", [False, True])
async def test_deleted_job_kept_by_finalizer_can_be_evicted(sluice, suspended):
    manifest = job("kept", cpu="4")
    manifest["metadata"]["finalizers"] = ["example.com/mine"]
    await sluice.submit(manifest)
    await sluice.job("kept", counts(1))
    await sluice.user.delete("jobs", "team-a", "kept", propagation="Background")
    if suspended:
        await sluice.patch("kept", {"spec": {"suspend": True}})
    await sluice.submit(job("next", cpu="4"))
    await sluice.record("next", "pending", reason="WaitingForQuota")
    await sluice.order("kept", held=True)
    await sluice.job("next", runs)
    assert (await sluice.record("kept", "finished")).outcome == "Failed"
    assert not [pod for pod in sluice.user.list("pods") if pod["metadata"]["name"].startswith("kept")]


async def test_job_with_parallelism_zero_releases_its_quota_and_is_requeued(sluice):
    await sluice.submit(job("paused", cpu="4"))
    await sluice.job("paused", counts(1))
    await sluice.submit(job("next", cpu="4"))
    await sluice.patch("paused", {"spec": {"parallelism": 0}})
    await sluice.job("next", runs)
    await sluice.eventually(lambda: _was_requeued(sluice, "paused"))


async def test_parallelism_edited_by_user_is_kept_when_partial_job_is_evicted(sluice):
    manifest = job("part", pods=6)
    manifest["metadata"]["annotations"] = {"sluice.dev/job-min-parallelism": "2"}
    await sluice.submit(manifest)
    await sluice.job("part", counts(4))
    await sluice.patch("part", {"spec": {"parallelism": 3}})
    await sluice.job("part", counts(3))
    await sluice.patch("part", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    held = await sluice.record("part", "pending", reason="OnHold")
    assert held.workload.pod_sets[0].count == 3
    assert sluice.user.get("jobs", "team-a", "part")["spec"]["parallelism"] == 3


async def test_partial_job_suspended_and_scaled_up_in_one_request_stays_within_quota(sluice):
    manifest = job("part", pods=6)
    manifest["metadata"]["annotations"] = {"sluice.dev/job-min-parallelism": "2"}
    await sluice.submit(manifest)
    await sluice.job("part", counts(4))
    async with observed(sluice) as pods:
        edited = await sluice.patch("part", {"spec": {"parallelism": 6, "suspend": True}})
        again = await sluice.job(
            "part", lambda obj: counts(4)(obj) and obj["metadata"]["generation"] > edited["metadata"]["generation"]
        )
    assert (again["spec"]["parallelism"], again["spec"]["completions"], pods.most) == (4, 6, 4)
    assert [reason for reason, _ in await sluice.history("part")].count("OutOfSync") == 1


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_deleted_job_kept_by_finalizer_holds_no_quota_without_pods(sluice, propagation):
    manifest = job("kept", cpu="4")
    manifest["metadata"]["finalizers"] = ["example.com/mine"]
    await sluice.submit(manifest)
    await sluice.job("kept", counts(1))
    await sluice.submit(job("next", cpu="4"))
    await sluice.user.delete("jobs", "team-a", "kept", propagation=propagation)
    if propagation == "Background":
        (pod,) = [pod for pod in sluice.user.list("pods") if pod["metadata"]["name"].startswith("kept")]
        await sluice.user.delete("pods", "team-a", pod["metadata"]["name"])
    await sluice.job("next", runs)
    await sluice.record("kept", "pending", reason="BeingDeleted")
    assert sluice.user.get("jobs", "team-a", "kept")["metadata"]["finalizers"]
