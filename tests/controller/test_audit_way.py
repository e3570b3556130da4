"""Manual changes in the cluster and the database that the audit finds and repairs."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, is_done, is_gated, job, runs
from pod_examples import GATE, pod
from sqlalchemy import text

from admission.controller.auditing.comparison import AuditDifference, Problem
from admission.engine.events import WorkloadGone
from admission.store.store import Store

REOPEN = "UPDATE admissions SET to_at = NULL, to_revision = NULL, end_reason = NULL WHERE workload_uid = :uid"


@pytest.fixture
async def queues(world):
    await world.begin()
    world.controller.auditor.grace = 0.0
    return world


async def found(world, *problems: Problem) -> list[dict[str, str]]:
    """Wait until the audit reports all these problems, and return the differences."""

    async def look():
        documents = await world.controller.audit(repair=False)
        return documents if {document["problem"] for document in documents} >= {p.value for p in problems} else None

    return await world.eventually(look, longest=0.4)


async def repaired(world) -> None:
    async def look():
        return not await world.controller.audit(repair=True)

    await world.eventually(look, longest=0.4)


async def seen_last(world, name: str) -> None:
    """Wait until the Job controller has updated the suspended Job's status, and the leader has processed that."""

    async def look():
        job = world.user.get("jobs", "team-a", name)
        seen = world.controller._state.registry.get(job["metadata"]["uid"]).seen
        return "conditions" in job["status"] and seen.resource_version == job["metadata"]["resourceVersion"]

    await world.eventually(look)


async def sql(world, statement: str, name: str) -> None:
    """Change the rows of a workload directly in the database."""
    record = await world.store.workloads.get("team-a", name)
    async with world.store._database.write() as connection:
        await connection.execute(text(statement), {"uid": record.workload.uid})


async def test_audit_finds_no_difference_for_running_pending_and_finished_jobs(queues):
    await queues.submit(job("ends", cpu="4", seconds=60))
    await queues.job("ends", is_done)
    await queues.record("ends", "finished")
    await queues.submit(job("runs", cpu="3"))
    await queues.job("runs", runs)
    await queues.submit(job("waits", cpu="3"))
    await queues.record("waits", "pending", reason="WaitingForQuota")
    assert await queues.controller.audit(repair=False) == []


async def test_audit_finds_no_difference_for_a_gated_pod_with_the_label_of_a_waiting_job(queues):
    await queues.submit(job("runs", cpu="4"))
    await queues.job("runs", runs)
    waits = await queues.submit(job("waits", cpu="3"))
    await queues.record("waits", "pending", reason="WaitingForQuota")
    labels = {"batch.kubernetes.io/controller-uid": waits["metadata"]["uid"]}
    forged = pod("forged", queue=None, schedulingGates=[GATE])
    forged["metadata"]["labels"] = labels
    await queues.user.create("pods", "team-a", forged)
    assert await queues.controller.audit(repair=False) == []
    await queues.user.create("pods", "team-a", {**forged, "metadata": {**forged["metadata"], "name": "runs-too"},
                                                "spec": {**forged["spec"], "schedulingGates": []}})  # fmt: skip
    await found(queues, Problem.PODS_WITHOUT_ADMISSION)


async def test_audit_accepts_quota_of_deleted_job_with_terminating_pod(queues):
    ends = job("ends")
    ends["spec"]["template"]["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = "never"
    await queues.submit(ends)
    await queues.job("ends", runs)
    await queues.job("ends", lambda obj: (obj.get("status") or {}).get("ready") == 1)
    await queues.user.delete("jobs", "team-a", "ends", propagation="Background")
    await queues.record("ends", "evicting", reason="Deleted")
    (pod,) = queues.user.list("pods", "team-a")
    assert "deletionTimestamp" in pod["metadata"]
    assert await queues.controller.audit(repair=False) == []
    await queues.user.delete("pods", "team-a", pod["metadata"]["name"], grace=0)
    await queues.record("ends", "finished")


@pytest.mark.costly
async def test_manual_changes_of_jobs_and_of_their_records_are_reported_and_repaired(queues):
    await queues.apply(cluster_queue(cpu="9"))
    for name in ("evicted", "gone", "reopened"):
        await queues.submit(job(name))
        await queues.job(name, runs)
    for name in ("gone", "reopened"):
        await queues.user.delete("jobs", "team-a", name, propagation="Background")
        await queues.record(name, "finished")
    await queues.submit(job("ends", seconds=60))
    await queues.record("ends", "finished")
    for name in ("pushed", "forgotten"):
        await queues.submit(job(name, cpu="99"))
        await queues.record(name, "pending", reason="ExceedsMaxQuota")
    await queues.cut_off()
    await queues.submit(job("cut"))
    await queues.record("cut", "admitted")
    await queues.patch("pushed", {"spec": {"suspend": False}})
    await queues.patch("evicted", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await sql(queues, REOPEN, "reopened")
    states = {"ends": "pending", "gone": "pending", "reopened": "admitted", "forgotten": "finished"}
    for name, state in states.items():
        await sql(queues, f"UPDATE workloads SET state = '{state}' WHERE uid = :uid", name)
    expected = {
        ("pushed", Problem.RUNS_WITHOUT_ADMISSION),
        ("evicted", Problem.NOT_STOPPED),
        ("cut", Problem.NOT_STARTED),
        ("ends", Problem.NOT_FINISHED),
        ("gone", Problem.RECORD_OF_GONE),
        ("reopened", Problem.ADMISSION_OF_GONE),
        ("forgotten", Problem.NOT_ON_RECORD),
        *((name, Problem.MEMORY_DIFFERS) for name in ("ends", "gone", "reopened")),
    }

    async def all_told():
        documents = await queues.controller.audit(repair=False)
        return {(each["object"].rpartition("/")[2], each["problem"]) for each in documents} >= expected

    await queues.eventually(all_told, longest=0.4)
    await queues.reconnect()
    await repaired(queues)
    for name in ("pushed", "evicted"):
        assert is_gated(queues.user.get("jobs", "team-a", name))
    await queues.job("cut", runs)
    assert (await queues.record("ends", "finished")).outcome == "Succeeded"
    for name in ("gone", "reopened"):
        await queues.record(name, "finished")
    await queues.record("forgotten", "pending", reason="ExceedsMaxQuota")


@pytest.mark.costly
async def test_evicting_record_of_suspended_job_is_reported_and_job_starts(queues):
    await queues.cut_off()
    await queues.submit(job("cut"))
    await queues.record("cut", "admitted")
    await sql(queues, "UPDATE workloads SET state = 'evicting' WHERE uid = :uid", "cut")
    await found(queues, Problem.NOT_RELEASED, Problem.MEMORY_DIFFERS)
    await queues.reconnect()
    await repaired(queues)
    await queues.job("cut", runs)


async def test_job_missing_in_database_and_memory_is_reported_and_queued(queues):
    await queues.submit(job("waits", cpu="9"))
    record = await queues.record("waits", "pending", reason="ExceedsMaxQuota")
    await seen_last(queues, "waits")
    await sql(queues, "UPDATE workloads SET state = 'finished' WHERE uid = :uid", "waits")
    queues.controller._state.registry.remove(record.workload.uid)
    documents = await found(queues, Problem.NOT_ON_RECORD)
    assert [document["found"] for document in documents] == ["suspended in LocalQueue lq, but not in the database"]
    await repaired(queues)
    await queues.record("waits", "pending", reason="ExceedsMaxQuota")


async def test_repair_reads_object_from_api_server(queues):
    await queues.submit(job("runs"))
    await queues.job("runs", runs)
    record = await queues.record("runs", "admitted")

    def reads():
        return sum(number for (method, *_), number in queues.client.requests.items() if method == "GET")

    before = reads()
    difference = AuditDifference(Problem.NOT_STARTED, "Job team-a/runs", record.workload.uid, "", "")

    async def look():
        # Workloads with a request in progress are skipped, and the response to the start request may be pending.
        await queues.controller.auditor.repair([difference])
        return reads() > before

    await queues.eventually(look)


@pytest.mark.costly
async def test_wrong_usage_in_engine_is_reported_and_corrected(queues):
    await queues.submit(job("runs", cpu="3"))
    await queues.job("runs", runs)
    record = await queues.record("runs", "admitted")
    queues.controller.engine().observe(WorkloadGone(record.workload.uid), now=queues.clock())
    (document,) = await found(queues, Problem.USAGE_DIFFERS)
    assert document["expected"] == "3 cpu of flavor default in use"
    await repaired(queues)
    assert queues.controller.engine().usage()["cq"] == {"default": {"cpu": 3000}}


async def test_job_on_nodes_of_changed_flavor_is_reported_and_left_running(queues):
    await queues.submit(job("runs"))
    await queues.job("runs", runs)
    elsewhere = flavor()
    elsewhere["spec"]["nodeLabels"] = {"type": "real"}
    await queues.apply(elsewhere)
    (document,) = await found(queues, Problem.FLAVORS_DIFFER)
    assert document["remedy"].startswith("nothing;")
    (document,) = await queues.controller.audit(repair=True)
    assert document["left"] == "true"
    assert runs(queues.user.get("jobs", "team-a", "runs"))


async def test_usage_over_quota_in_database_is_reported(queues):
    await queues.submit(job("runs", cpu="3"))
    await queues.job("runs", runs)
    await sql(queues, "UPDATE admissions SET amount = 9000 WHERE workload_uid = :uid", "runs")
    documents = await found(queues, Problem.OVER_QUOTA, Problem.MEMORY_DIFFERS)
    over = [document for document in documents if document["problem"] == "OverQuota"]
    assert over[0]["object"] == "ClusterQueue cq"
    assert over[0]["found"].startswith("5 cpu of flavor default more than the quota")
    (memory,) = (document for document in documents if document["problem"] == "MemoryDiffers")
    assert memory["found"] == "the leader has it as admitted in cq with 3 cpu of default"
    assert memory["expected"] == "admitted in cq with 9 cpu of default"


async def test_live_pod_of_pending_job_is_reported(queues):
    await queues.submit(job("waits", cpu="9"))
    record = await queues.record("waits", "pending", reason="ExceedsMaxQuota")
    labels = {"batch.kubernetes.io/controller-uid": record.workload.uid, "batch.kubernetes.io/job-name": "waits"}
    pod = {"metadata": {"name": "alone", "namespace": "team-a", "labels": labels}}
    containers = [{"name": "main", "image": "pause"}]
    await queues.user.create("pods", "team-a", {**pod, "spec": {"containers": containers}})
    (document,) = await found(queues, Problem.PODS_WITHOUT_ADMISSION)
    assert (document["object"], document["found"]) == ("Job team-a/waits", "1 pods are alive")


@pytest.mark.costly
async def test_periodic_audit_repairs_differences(world):
    await world.begin(audit_interval=0.01)
    world.controller.auditor.grace = 0.0
    await world.submit(job("waits", cpu="9"))
    await world.record("waits", "pending", reason="ExceedsMaxQuota")
    await sql(world, "UPDATE workloads SET state = 'finished' WHERE uid = :uid", "waits")
    await world.record("waits", "pending", reason="ExceedsMaxQuota")
    assert world.controller.auditor.counts["NotOnRecord"] > 0


async def test_audit_of_stopped_controller_returns_none(queues):
    controller = queues.controller
    await queues.end()
    assert await controller.audit(repair=True) is None


@pytest.mark.parametrize("database_kind", ["postgresql"])  # on SQLite a lock prevents a second leader
async def test_audit_of_deposed_leader_returns_none(queues):
    assert await queues.controller.audit(repair=False) == []
    async with Store.open(queues.url) as other:
        await other.lead("another one", elected=True)
        await queues.submit(job("late"))
        with pytest.raises(ExceptionGroup):
            await queues.deposed()
        assert await queues.controller.audit(repair=True) is None
