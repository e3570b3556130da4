"""Lifecycle of a Job: queued, admitted, running, finished, and everything that may happen in between."""

from __future__ import annotations

from collections import Counter

import pytest
from job_examples import TOLERATION, cluster_queue, cron_job, flavor, is_done, is_gated, job, local_queue, runs
from postgresql_databases import on_both_databases

pytestmark = on_both_databases


@pytest.fixture
async def sluice(world):
    """A running Sluice with one queue of 4 CPUs, used by two namespaces."""
    await world.begin()
    return world


async def test_job_is_started_by_one_patch_and_finishes_with_one_event(sluice):
    await sluice.submit(job("a", seconds=60))

    started = await sluice.job("a", runs)
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert started["spec"]["template"]["spec"]["tolerations"] == [TOLERATION]
    admitted = await sluice.record("a", "admitted")
    assert admitted.admission.pod_sets[0].usage == {"cpu": 1000}

    await sluice.job("a", is_done)
    finished = await sluice.record("a", "finished")
    assert finished.outcome == "Succeeded"
    assert sluice.controller.writer.outcomes == {"ok": 1}
    await sluice.controller.events.idle()
    assert sluice.controller.events.outcomes == {"ok": 1}
    assert finished.admission is None
    await sluice.submit(job("next", cpu="4"))  # all of the quota
    await sluice.job("next", runs)


async def test_job_that_does_not_fit_reports_amounts_and_starts_when_quota_is_free(sluice):
    await sluice.submit(job("first", cpu="3", seconds=120))
    await sluice.job("first", runs)
    await sluice.submit(job("second", cpu="2"))

    waiting = await sluice.record("second", "pending", reason="WaitingForQuota")
    assert "Needs 2 CPU (default): less is free." in waiting.message
    await sluice.job("second", runs)
    first = await sluice.record("first", "finished")
    second = await sluice.record("second", "admitted")
    assert second.admitted_at >= first.finished_at


async def test_job_larger_than_maximum_quota_reports_both_amounts(sluice):
    await sluice.submit(job("huge", cpu="5"))
    waiting = await sluice.record("huge", "pending", reason="ExceedsMaxQuota")
    assert "5" in waiting.message
    assert "4" in waiting.message


async def test_a_job_without_queue_is_left_alone(sluice):
    await sluice.submit(job("free", queue=None, suspend=False, tolerations=[TOLERATION]))
    await sluice.submit(job("queued"))
    await sluice.job("queued", runs)
    free = await sluice.job("free", runs)
    assert free["spec"]["suspend"] is False
    assert await sluice.store.workloads.get("team-a", "free") is None


async def test_job_with_queue_label_of_kueue_is_started(sluice):
    manifest = job("moved-over")
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
    await sluice.submit(manifest)
    await sluice.job("moved-over", runs)


@pytest.mark.costly
async def test_job_put_on_hold_is_stopped_and_restored_before_its_quota_is_released(sluice):
    before = await sluice.submit(job("held", cpu="3", tolerations=[{"key": "own"}]))
    await sluice.job("held", runs)
    await sluice.submit(job("next", cpu="3"))
    await sluice.record("next", "pending", reason="WaitingForQuota")

    await sluice.patch("held", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})

    await sluice.job("next", runs)
    stopped = await sluice.job("held", is_gated)
    assert not stopped["status"].get("active")
    assert not stopped["status"].get("terminating")
    assert stopped["spec"] == before["spec"] | {"suspend": True}
    await sluice.record("held", "pending", reason="OnHold")

    await sluice.user.delete("jobs", "team-a", "next", propagation="Background")
    await sluice.patch("held", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    await sluice.job("held", runs)


async def test_pending_job_moved_to_another_queue_is_admitted_there(sluice):
    await sluice.apply(cluster_queue("wide", cpu="20"), local_queue("wide", "wide"))
    await sluice.submit(job("big", cpu="8"))
    await sluice.record("big", "pending", reason="ExceedsMaxQuota")
    await sluice.patch("big", {"metadata": {"labels": {"sluice.dev/queue-name": "wide"}}})
    await sluice.job("big", runs)
    assert (await sluice.record("big", "admitted")).cluster_queue == "wide"


async def test_edited_pending_job_is_admitted_with_its_new_requests(sluice):
    await sluice.submit(job("edited", cpu="2", pods=3))
    await sluice.record("edited", "pending", reason="ExceedsMaxQuota")
    await sluice.patch("edited", {"spec": {"parallelism": 2}})
    await sluice.job("edited", runs)
    assert (await sluice.record("edited", "admitted")).admission.pod_sets[0].usage == {"cpu": 4000}


async def test_running_job_with_reduced_parallelism_releases_quota_without_restart(sluice):
    await sluice.submit(job("resized", pods=2))
    await sluice.job("resized", lambda obj: obj.get("status", {}).get("active") == 2)
    await sluice.patch("resized", {"spec": {"parallelism": 1}})
    await sluice.eventually(lambda: _held_cpu(sluice, 1000))
    assert runs(await sluice.job("resized", lambda obj: obj["status"].get("active") == 1))
    assert sluice.controller.writer.outcomes == {"ok": 1}


@pytest.mark.costly
async def test_pending_job_unsuspended_by_user_is_suspended_again(sluice):
    await sluice.submit(job("full", cpu="4"))
    await sluice.job("full", runs)
    await sluice.submit(job("pushy"))
    await sluice.record("pushy", "pending", reason="WaitingForQuota")
    await sluice.patch("pushy", {"spec": {"suspend": False}})
    await sluice.job("pushy", lambda obj: is_gated(obj) and obj["metadata"]["generation"] >= 3)
    await sluice.record("pushy", "pending", reason="WaitingForQuota")


async def test_admitted_job_suspended_by_user_is_resumed(sluice):
    await sluice.submit(job("paused"))
    await sluice.job("paused", runs)
    await sluice.patch("paused", {"spec": {"suspend": True}})
    again = await sluice.job("paused", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
    assert again["spec"]["template"]["spec"]["tolerations"] == [TOLERATION]
    record = await sluice.record("paused", "admitted")
    assert record.original.keys() == {"nodeSelector", "tolerations", "podReplacementPolicy", "given"}
    assert record.original["nodeSelector"] is record.original["tolerations"] is None


async def test_a_deleted_pending_job_leaves_the_queue(sluice):
    await sluice.submit(job("huge", cpu="5"))
    await sluice.record("huge", "pending")
    await sluice.user.delete("jobs", "team-a", "huge", propagation="Background")
    assert (await sluice.record("huge", "finished")).outcome == "Deleted"


@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
async def test_the_quota_of_a_deleted_job_is_free_when_its_pods_are_gone(sluice, propagation):
    await sluice.submit(job("deleted", cpu="4", terminationGracePeriodSeconds=30))
    await sluice.job("deleted", runs)
    await sluice.eventually(lambda: _bound_pods(sluice, 1))
    await sluice.submit(job("next", cpu="4"))
    await sluice.user.delete("jobs", "team-a", "deleted", propagation=propagation)
    if propagation == "Orphan":
        await sluice.record("deleted", "evicting", reason="Deleted")
        (pod,) = [pod for pod in sluice.user.list("pods") if pod["metadata"]["name"].startswith("deleted")]
        await sluice.user.delete("pods", "team-a", pod["metadata"]["name"])

    await sluice.job("next", runs)
    assert not [pod for pod in sluice.user.list("pods") if pod["metadata"]["name"].startswith("deleted")]
    assert (await sluice.record("deleted", "finished")).outcome == "Deleted"


async def test_job_with_the_name_of_a_deleted_job_is_a_new_workload(sluice):
    first = await sluice.submit(job("name", cpu="5"))
    await sluice.record("name", "pending")
    await sluice.user.delete("jobs", "team-a", "name", propagation="Background")
    second = await sluice.submit(job("name"))
    await sluice.job("name", runs)
    record = await sluice.record("name", "admitted")
    assert record.workload.uid == second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_misconfigured_job_names_the_field_and_blocks_no_other_job(sluice):
    broken = job("broken")
    broken["spec"]["template"]["spec"]["priorityClassName"] = "nowhere"
    await sluice.submit(broken)
    await sluice.submit(job("fine"))
    await sluice.job("fine", runs)
    waiting = await sluice.record("broken", "pending", reason="Misconfigured")
    assert 'priorityClassName: PriorityClass "nowhere" does not exist' in waiting.message
    await sluice.user.create("priorityclasses", "", {"metadata": {"name": "nowhere"}, "value": 7})
    await sluice.job("broken", runs)
    assert (await sluice.record("broken", "admitted")).workload.priority == 7


async def test_lowest_of_several_default_priority_classes_applies(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    for name, value in (("some", 7), ("low", 3), ("high", 9)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": True}
        await world.user.create("priorityclasses", "", body)
    await world.start()
    await world.submit(job("plain"))
    assert (await world.record("plain", "admitted")).workload.priority == 3


async def test_changed_value_of_priority_class_applies_only_to_later_jobs(sluice):
    def priority_class(value):
        return {
            "apiVersion": "sluice.dev/v1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "p"},
            "value": value,
        }

    def with_class(manifest):
        manifest["metadata"]["labels"]["sluice.dev/priority-class"] = "p"
        return manifest

    await sluice.submit(with_class(job("early", cpu="5")))
    assert "WorkloadPriorityClass" in (await sluice.record("early", "pending", reason="Misconfigured")).message
    await sluice.apply(priority_class(1))
    await sluice.record("early", "pending", reason="ExceedsMaxQuota")
    await sluice.apply(priority_class(9))
    await sluice.submit(with_class(job("late", cpu="5")))
    await sluice.patch("early", {"metadata": {"labels": {"touched": "yes"}}})
    assert (await sluice.record("late", "pending", reason="ExceedsMaxQuota")).workload.priority == 9
    assert (await sluice.record("early", "pending")).workload.priority == 1


async def test_job_created_by_a_cronjob_is_queued_and_started(sluice):
    manifest = job("nightly-29")
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "1", "controller": True}
    ]
    await sluice.user.create("cronjobs", "team-a", cron_job("nightly"))
    manifest["metadata"]["ownerReferences"][0]["uid"] = sluice.user.get("cronjobs", "team-a", "nightly")["metadata"][
        "uid"
    ]
    await sluice.submit(manifest)
    await sluice.job("nightly-29", runs)


async def test_job_with_missing_local_queue_starts_when_queue_is_created(sluice):
    await sluice.submit(job("early", queue="later"))
    await sluice.record("early", "pending")
    await sluice.apply(local_queue("later"))
    await sluice.job("early", runs)


@pytest.mark.costly
async def test_burst_of_200_jobs_takes_two_requests_each_and_at_most_10_transactions(world):
    """They are there when Sluice begins, so that their batches do not depend on the speed of the machine."""
    await world.apply(flavor(), cluster_queue(cpu="1000"), local_queue())
    for number in range(200):
        await world.submit(job(f"j{number}", cpu="1m"))
    await world.start()
    await world.job("j199", runs)
    for number in range(200):
        await world.record(f"j{number}", "admitted")
    await world.controller.events.idle()
    assert world.controller.writer.outcomes == {"ok": 200}
    written = (await world.client.get("/apis/events.k8s.io/v1/namespaces/team-a/events"))["items"]
    reasons = Counter(each["reason"] for each in written if each["reportingController"] == "sluice.dev/sluice")
    assert reasons["Admitted"] == 200  # and on a slow machine, those of Jobs whose pods are late
    assert set(world.controller.events.outcomes) == {"ok"}
    assert world.leading.statistics.write_transactions <= 10


async def _held_cpu(world, amount: int) -> bool:
    status = (await world.store.workloads.cluster_queue_status())["cq"]
    return (status.usage or {}).get(("default", "cpu"), 0) == amount


async def _bound_pods(world, count: int) -> bool:
    return sum("nodeName" in pod["spec"] for pod in world.user.list("pods")) == count
