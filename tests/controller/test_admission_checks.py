"""Admission checks: a workload holds its quota until external controllers report, and follows their reports."""

from __future__ import annotations

import pytest
from job_examples import admission_check, asks, cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.model import sentences
from admission.store.errors import Conflict

READY = {"name": "nodes", "state": "Ready"}


@pytest.fixture
async def sluice(world):
    """A running Sluice with a queue of 4 CPUs that requires an admission check."""
    await world.apply(
        flavor(), admission_check("nodes"), cluster_queue(admissionChecksStrategy=asks("nodes")), local_queue()
    )
    await world.start()
    return world


async def reserved(world, name):
    """Wait until a workload holds quota and its checks are requested, and return its record."""
    return await world.record(name, "admitted", reason="QuotaReserved")


async def states(world, name):
    record = await world.store.workloads.get("team-a", name)
    return {check.name: check.state for check in (await world.store.orders.of([record.workload.uid])).checks}


@pytest.mark.costly
async def test_job_holds_quota_but_does_not_start_until_its_check_is_ready(sluice):
    await sluice.submit(job("checked", cpu="3"))
    await reserved(sluice, "checked")
    assert await states(sluice, "checked") == {"nodes": "Pending"}
    await sluice.submit(job("next", cpu="3"))
    await sluice.record("next", "pending", reason="WaitingForQuota")
    assert is_gated(sluice.user.get("jobs", "team-a", "checked"))

    sluice.pass_time(600)
    await sluice.report("checked", READY)
    await sluice.job("checked", runs)
    record = await sluice.record("checked", "admitted", reason="Admitted")
    assert not record.checks_pending
    assert record.cleared_at >= record.admitted_at + 600
    reasons = [reason for reason, _ in await sluice.history("checked")]
    assert reasons == ["Queued", "QuotaReserved", "Admitted"]

    async def told() -> bool:
        events = (await sluice.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
        notes = [each["note"] for each in events if each["reason"] == "Admitted"]
        return len(notes) == 1 and notes[0].endswith(" It waited for 10m.")

    await sluice.eventually(told)


async def test_pod_set_updates_of_check_are_applied_at_start_and_reverted_at_eviction(sluice):
    before = await sluice.submit(job("placed"))
    await reserved(sluice, "placed")
    update = {
        "name": "main",
        "nodeSelector": {"kubernetes.io/hostname": "node-2"},
        "labels": {"reservation": "r-1"},
        "annotations": {"example.com/why": "because"},
        "tolerations": [{"key": "reserved", "operator": "Exists"}],
    }
    await sluice.report("placed", READY | {"podSetUpdates": [update]})
    started = await sluice.job("placed", runs)
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"type": "kwok", "kubernetes.io/hostname": "node-2"}
    assert template["spec"]["tolerations"][-1] == {"key": "reserved", "operator": "Exists"}
    assert template["metadata"]["labels"]["reservation"] == "r-1"
    assert template["metadata"]["annotations"]["example.com/why"] == "because"

    await sluice.order("placed", held=True)
    await sluice.record("placed", "pending", reason="OnHold")
    stopped = sluice.user.get("jobs", "team-a", "placed")
    assert stopped["spec"] == before["spec"] | {"suspend": True}


@pytest.mark.costly
async def test_check_state_retry_releases_quota_until_the_requeue_time(sluice):
    await sluice.submit(job("unlucky", cpu="3"))
    await reserved(sluice, "unlucky")
    await sluice.report(
        "unlucky", {"name": "nodes", "state": "Retry", "message": "no nodes", "requeueAfterSeconds": 600}
    )
    waiting = await sluice.record("unlucky", "pending")
    story = await sluice.history("unlucky")
    assert ("AdmissionCheck", sentences.retried([("nodes", "no nodes")])) in story
    assert waiting.not_before > sluice.clock() + 500
    assert waiting.workload.queued_at is not None
    assert await states(sluice, "unlucky") == {"nodes": "Pending"}
    with pytest.raises(Conflict, match="holds no quota"):
        await sluice.report("unlucky", READY)

    await sluice.submit(job("other", cpu="3"))
    await reserved(sluice, "other")
    await sluice.report("other", READY)
    await sluice.job("other", runs)
    await sluice.user.delete("jobs", "team-a", "other", propagation="Background")
    await sluice.record("other", "finished")

    sluice.pass_time(601)
    await reserved(sluice, "unlucky")
    (check,) = (await sluice.store.orders.of([waiting.workload.uid])).checks
    assert (check.state, check.retries) == ("Pending", 1)
    await sluice.report("unlucky", READY)
    await sluice.job("unlucky", runs)


@pytest.mark.costly
async def test_rejected_check_deactivates_workload_until_activation_by_an_admin(sluice):
    await sluice.submit(job("refused", cpu="3"))
    await reserved(sluice, "refused")
    await sluice.report("refused", {"name": "nodes", "state": "Rejected", "message": "too much"})
    out = await sluice.record("refused", "pending", reason="DeactivatedDueToAdmissionCheck")
    assert not out.active
    assert out.message == sentences.deactivated("the admission check nodes (too much) rejected it")
    await sluice.submit(job("next", cpu="3"))
    await reserved(sluice, "next")

    await sluice.end()
    await sluice.start()
    assert (await sluice.record("refused", "pending")).reason == "DeactivatedDueToAdmissionCheck"
    await sluice.order("refused", active=True)
    await sluice.record("refused", "pending", reason="WaitingForQuota")


async def test_running_workload_is_evicted_when_its_ready_check_changes_to_retry(sluice):
    await sluice.submit(job("running"))
    await reserved(sluice, "running")
    await sluice.report("running", READY)
    await sluice.job("running", runs)
    await sluice.report("running", {"name": "nodes", "state": "Retry"})
    await sluice.job("running", lambda obj: is_gated(obj) and not obj["status"].get("active"))
    await reserved(sluice, "running")


async def test_conflicting_node_selector_of_check_makes_workload_misconfigured(sluice):
    await sluice.submit(job("clash", nodeSelector={"zone": "a"}))
    await reserved(sluice, "clash")
    await sluice.report("clash", READY | {"podSetUpdates": [{"name": "main", "nodeSelector": {"zone": "b"}}]})
    waiting = await sluice.record("clash", "pending", reason="Misconfigured")
    assert waiting.admission is None
    await sluice.submit(job("next", cpu="4"))  # all of the quota
    await reserved(sluice, "next")
    assert "spec.template.spec.nodeSelector[zone]: is a, but an admission check needs b" in waiting.message


async def test_unsuspending_job_by_hand_does_not_bypass_a_pending_check(sluice):
    await sluice.submit(job("pushy"))
    await reserved(sluice, "pushy")
    await sluice.patch("pushy", {"spec": {"suspend": False}})
    await sluice.job("pushy", lambda obj: is_gated(obj) and obj["metadata"]["generation"] >= 3)
    await sluice.report("pushy", READY)
    await sluice.job("pushy", lambda obj: runs(obj) and obj["spec"]["template"]["spec"].get("nodeSelector"))


async def test_only_checks_for_the_assigned_flavor_are_requested(world):
    await world.apply(
        flavor(),
        flavor("spot"),
        *map(admission_check, ("always", "budget", "nodes")),
        cluster_queue(admissionChecksStrategy=asks("always", nodes=["spot"], budget=["default"])),
        local_queue(),
    )
    await world.start()
    await world.submit(job("checked"))
    await reserved(world, "checked")
    assert await states(world, "checked") == {"always": "Pending", "budget": "Pending"}
    await world.report("checked", {"name": "always", "state": "Ready"})
    assert is_gated(world.user.get("jobs", "team-a", "checked"))
    await world.report("checked", {"name": "budget", "state": "Ready"})
    await world.job("checked", runs)


async def test_added_check_stops_no_running_job_and_removed_checks_start_waiting_job(sluice):
    await sluice.submit(job("running"))
    await reserved(sluice, "running")
    await sluice.report("running", READY)
    await sluice.job("running", runs)
    await sluice.submit(job("waiting"))
    await reserved(sluice, "waiting")

    await sluice.apply(admission_check("budget"), cluster_queue(admissionChecksStrategy=asks("nodes", "budget")))
    await sluice.eventually(lambda: _asked(sluice, "waiting", {"nodes": "Pending", "budget": "Pending"}))
    await sluice.eventually(lambda: _asked(sluice, "running", {"nodes": "Ready", "budget": "Pending"}))
    assert (await sluice.record("running", "admitted")).reason == "Admitted"
    assert runs(sluice.user.get("jobs", "team-a", "running"))

    await sluice.apply(cluster_queue())
    await sluice.job("waiting", runs)
    await sluice.eventually(lambda: _asked(sluice, "waiting", {}))


async def _asked(world, name, expected):
    return await states(world, name) == expected


@pytest.mark.costly
async def test_check_reports_during_downtime_take_effect_at_startup(sluice):
    await sluice.submit(job("ready"))
    await sluice.submit(job("rejected"))
    await reserved(sluice, "ready")
    await reserved(sluice, "rejected")
    await sluice.end()
    await sluice.report("ready", READY)
    await sluice.report("rejected", {"name": "nodes", "state": "Rejected"})
    await sluice.start()
    await sluice.job("ready", runs)
    await sluice.record("rejected", "pending", reason="DeactivatedDueToAdmissionCheck")


async def test_missing_admission_check_suspends_its_cluster_queue(world):
    await world.begin(flavor(), cluster_queue(admissionChecksStrategy=asks("nodes")), local_queue())
    await world.submit(job("early"))
    waiting = await world.record("early", "pending", reason="Suspended")
    assert waiting.message == (
        "ClusterQueue cq names AdmissionCheck nodes, which does not exist, so that it admits nothing. "
        "An admin has to correct that."
    )
    await world.apply(admission_check("nodes"))
    await reserved(world, "early")
