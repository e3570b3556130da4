"""Migration from Kueue in a busy cluster: running workloads keep their pods and hold their quota."""

from __future__ import annotations

import pytest
from job_examples import is_gated, runs
from kueue_cluster import ADMITTED, ADMITTED_AT, installed, pods, until_pods

from admission.model.topology import DomainCount, TopologyAssignment


@pytest.fixture
async def kueue(request, world, tmp_path):
    return await installed(world, tmp_path, getattr(request, "param", "v1beta2"))


@pytest.mark.costly
@pytest.mark.parametrize("kueue", ["v1beta2", "v1beta1"], indirect=True)
async def test_import_keeps_running_jobs_admitted_and_pending_jobs_pending(kueue):
    world = kueue.world
    await kueue.queues()
    for number in range(3):
        await kueue.job(f"run-{number}", admitted=True)
        await kueue.job(f"wait-{number}", admitted=False)
    before = await until_pods(world, 3)

    plan = await kueue.migrate()
    assert plan.exit_code == 0, plan.output
    assert "take over  job/team-a/run-0" in plan.output
    assert "queue      job/team-a/wait-0" in plan.output
    assert "create     topology/racks" in plan.output
    assert plan.output.endswith("nothing was written; use --yes to write\n")
    assert await world.store.queues.list("ClusterQueue") == ()

    done = await kueue.migrate("--yes")
    assert done.exit_code == 0, done.output
    again = await kueue.migrate("--yes")
    assert "same    job/team-a/run-0" in again.output
    assert again.output.endswith("there is nothing to do\n")

    await world.start()
    for number in range(3):
        record = await world.record(f"run-{number}", "admitted")
        assert record.admitted_at == ADMITTED
        await world.record(f"wait-{number}", "pending", reason="WaitingForQuota")
    status = await world.store.workloads.cluster_queue_status()
    assert status["cq"].usage == {("default", "cpu"): 3000}
    assert pods(world) == before
    (row, *_) = await world.store.workloads.ledger((await world.record("run-1", "admitted")).workload.uid)
    assert row.from_at == ADMITTED

    await world.user.delete("jobs", "team-a", "run-0", propagation="Background")
    await world.job(await world.eventually(lambda: _let_in(world)), runs)


async def _let_in(world):
    """Return which of the pending Jobs was admitted; the oldest is not known, if all are from the same second."""
    records = [await world.store.workloads.get("team-a", f"wait-{number}") for number in range(3)]
    return next((record.workload.name for record in records if record.state == "admitted"), None)


@pytest.mark.costly
async def test_imported_job_is_restored_without_fields_of_kueue_at_eviction(kueue):
    world = kueue.world
    await kueue.queues(cpu="1")
    await kueue.job("run", admitted=True)
    await until_pods(world, 1)
    await kueue.migrate("--yes")
    await world.start()
    await world.order("run", held=True)
    await world.record("run", "pending", reason="OnHold")
    restored = await world.job("run", is_gated)
    assert "nodeSelector" not in restored["spec"]["template"]["spec"]
    assert "tolerations" not in restored["spec"]["template"]["spec"]
    assert "kueue.x-k8s.io/podset" not in restored["spec"]["template"]["metadata"]["labels"]
    await world.order("run", held=False)
    again = await world.job("run", runs)
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}


@pytest.mark.costly
async def test_repeated_import_leaves_what_sluice_has_decided_since(kueue):
    """Kueue's Workloads say forever that the Jobs are admitted."""
    world = kueue.world
    await kueue.queues(cpu="3")
    names = ("held", "over", "run")
    for name in names:
        await kueue.job(name, admitted=True)
    await until_pods(world, 3)
    await kueue.migrate("--yes")
    await world.start()
    await world.order("held", held=True)
    await world.record("held", "pending", reason="OnHold")
    (pod,) = [pod for pod in world.user.list("pods", "team-a") if pod["metadata"]["name"].startswith("over-")]
    done = {"status": {"phase": "Succeeded"}}
    await world.user.patch("pods", "team-a", pod["metadata"]["name"], done, subresource="status")
    await world.record("over", "finished")
    await world.end()
    before = await _ledger(world)

    again = await kueue.migrate("--yes")
    lines = again.output.splitlines()
    assert [line for line in lines if "job/" in line] == [f"same    job/team-a/{name}" for name in names]
    assert lines[-1].endswith("there is nothing to do")
    assert await _ledger(world) == before
    assert {uid: len(rows) for uid, rows in before.items()} == dict.fromkeys(before, 1)


@pytest.mark.costly
async def test_import_plan_names_a_running_job_that_sluice_will_stop(kueue):
    world = kueue.world
    await kueue.queues()
    await kueue.job("run", admitted=True)
    await kueue.migrate("--yes")
    await world.start()
    await world.order("run", held=True)
    await world.record("run", "pending", reason="OnHold")
    await world.end()
    await world.patch("run", {"spec": {"suspend": False}})
    lines = (await kueue.migrate()).output.splitlines()
    note = lines[lines.index("same    job/team-a/run") + 1]
    assert note.strip() == "it is running, but holds no quota in Sluice, which will stop it"


async def _ledger(world):
    """Return the rows of the ledger by uid of the workload."""
    records = (await world.store.workloads.list()).workloads
    return {each.workload.uid: await world.store.workloads.ledger(each.workload.uid) for each in records}


@pytest.mark.costly
async def test_imported_job_loses_the_scheduling_gate_of_a_topology_at_eviction(kueue):
    world = kueue.world
    await kueue.queues(cpu="1")
    await kueue.job("placed", admitted=True, gates=("kueue.x-k8s.io/topology",))
    (pod,) = await world.eventually(lambda: _pods(world))
    await world.user.patch("pods", "team-a", pod["metadata"]["name"], {"spec": {"schedulingGates": None}})  # by Kueue
    await until_pods(world, 1)
    lines = (await kueue.migrate("--yes")).output.splitlines()
    assert lines[lines.index("take over  job/team-a/placed") + 1].strip() == (
        "spec.template.spec.schedulingGates: only Kueue removes kueue.x-k8s.io/topology from new pods, which would "
        "never start: sluice hold and sluice release restart the Job without it"
    )
    await world.start()
    await world.record("placed", "admitted")
    await world.order("placed", held=True)
    await world.record("placed", "pending", reason="OnHold")
    await world.order("placed", held=False)
    again = await world.job("placed", runs)
    assert "schedulingGates" not in again["spec"]["template"]["spec"]
    await until_pods(world, 1)


@pytest.mark.parametrize(
    ("kueue", "placed"),
    [
        (
            "v1beta2",
            {
                "levels": ["rack"],
                "slices": [
                    {
                        "domainCount": 2,
                        "podCounts": {"universal": 1},
                        "valuesPerLevel": [{"individual": {"prefix": "r", "roots": ["1", "2"]}}],
                    }
                ],
            },
        ),
        (
            "v1beta1",
            {"levels": ["rack"], "domains": [{"values": ["r1"], "count": 1}, {"values": ["r2"], "count": 1}]},
        ),
    ],
    indirect=["kueue"],
)
async def test_domains_that_kueue_assigned_are_taken_over(kueue, placed):
    """Sluice then counts the room that these pods take."""
    await kueue.queues()
    await kueue.job("placed", admitted=True, pods=2, given=2, placed=placed)
    await kueue.migrate("--yes")
    record = await kueue.world.record("placed", "admitted")
    assert record.admission.pod_sets[0].topology == TopologyAssignment(
        ("rack",), (DomainCount(("r1",), 1), DomainCount(("r2",), 1))
    )


async def _pods(world):
    return world.user.list("pods", "team-a")


async def test_eviction_begun_by_kueue_is_completed_after_import(kueue):
    world = kueue.world
    await kueue.queues(cpu="1")
    await kueue.job("run", admitted=True, evicted=True)
    await until_pods(world, 1)
    await kueue.migrate("--yes")
    await world.start()
    await world.job("run", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
    assert ("Admitted", "taken over from Kueue") in await world.history("run")


async def test_imported_jobs_have_held_nominal_quota_since_their_admission_by_kueue(kueue):
    store = kueue.world.store
    await kueue.queues(cpu="2")
    for name in ("one", "two"):
        await kueue.job(name, admitted=True)
    await kueue.migrate("--yes")
    assert await store.reports.violations() == ()
    (row,) = (await store.reports.usage(["clusterqueue"], start=0, end=ADMITTED + 3600)).rows
    assert (row.nominal_seconds, row.borrowed_seconds) == (2_000 * 3600, 0)


@pytest.mark.costly
async def test_job_deactivated_in_kueue_stays_deactivated_after_import(kueue):
    await kueue.queues()
    await kueue.job("off", admitted=False, active=False)
    await kueue.migrate("--yes")
    again = await kueue.migrate("--yes")
    assert again.output.endswith("there is nothing to do\n")
    await kueue.world.start()
    record = await kueue.world.record("off", "pending", reason="Deactivated")
    assert not record.active
    await kueue.world.order("off", active=True)
    await kueue.world.job("off", runs)


async def test_job_with_two_workloads_is_imported_once(kueue):
    """As left by Kueue if it is stopped while an elastic Job is scaled."""
    await kueue.queues()
    await kueue.job("run", admitted=True)
    workload = kueue.world.user.get("workloads", "team-a", "job-run")
    await kueue.create(
        "Workload",
        "job-run-2",
        namespace="team-a",
        owners=workload["metadata"]["ownerReferences"],
        spec=workload["spec"],
        status=workload["status"],
    )
    done = await kueue.migrate("--yes")
    assert done.exit_code == 0, done.output
    assert "a newer Workload of the same Job is taken over instead" in done.output
    await kueue.world.start()
    await kueue.world.record("run", "admitted")
    assert (await kueue.world.store.workloads.cluster_queue_status())["cq"].usage == {("default", "cpu"): 1000}


async def test_import_is_refused_while_sluice_leads(kueue):
    await kueue.queues()
    await kueue.job("run", admitted=True)
    await kueue.world.start()
    refused = await kueue.migrate("--yes")
    assert refused.exit_code == 1
    assert "another Sluice" in refused.output
    assert await kueue.world.store.queues.list("ClusterQueue") == ()


async def test_import_plan_skips_job_of_missing_cluster_queue(kueue):
    await kueue.job("run", admitted=True)
    plan = await kueue.migrate()
    assert "skip    job/team-a/run" in plan.output
    assert "status.admission.clusterQueue: cq does not exist" in plan.output


async def test_import_plan_skips_running_jobs_without_an_unfinished_workload(kueue):
    world = kueue.world
    await kueue.queues()
    for name in ("fine", "bare", "ended", "waits"):
        await kueue.job(name, admitted=name != "waits")
    await world.user.delete("workloads", "team-a", "job-bare")
    await world.user.delete("workloads", "team-a", "job-waits")
    ended = {"conditions": [{"type": "Finished", "status": "True", "lastTransitionTime": ADMITTED_AT}]}
    await world.user.patch("workloads", "team-a", "job-ended", {"status": ended})
    done = await kueue.migrate("--yes")
    lines = [line.strip() for line in done.output.splitlines()]
    assert lines[lines.index("skip       job/team-a/bare") + 1] == (
        "it is running, but it has no Workload: Sluice will stop and queue it"
    )
    assert lines[lines.index("skip       job/team-a/ended") + 1] == (
        "it is running, but its Workload has finished: Sluice will stop and queue it"
    )
    assert "job/team-a/waits" not in done.output

    await world.user.delete("workloads", "team-a", "job-fine")
    again = await kueue.migrate()
    assert "job/team-a/bare" in again.output
    assert "job/team-a/fine" not in again.output, "it holds quota in Sluice"


MIN_PARALLELISM = {"kueue.x-k8s.io/job-min-parallelism": "2"}


@pytest.mark.costly
async def test_imported_job_keeps_its_partial_admission(kueue):
    world = kueue.world
    await kueue.queues(cpu="3")
    await kueue.job("part", admitted=True, pods=4, given=3, annotations=MIN_PARALLELISM)
    before = await until_pods(world, 3)
    assert (await kueue.migrate("--yes")).exit_code == 0
    await world.start()
    record = await world.record("part", "admitted")
    assert [(given.count, given.usage) for given in record.admission.pod_sets] == [(3, {"cpu": 3000})]
    assert pods(world) == before

    await world.order("part", held=True)
    await world.record("part", "pending", reason="OnHold")
    stopped = await world.job("part", is_gated)
    assert stopped["spec"]["parallelism"] == 4
    await world.order("part", held=False)
    again = await world.job("part", runs)
    assert again["spec"]["parallelism"] == 3


@pytest.mark.costly
async def test_imported_partial_admission_is_started_with_its_pods_and_restored(kueue):
    """Kueue was stopped between admission and start: the Job still has the number of pods that its user wrote."""
    world = kueue.world
    await kueue.queues(cpu="3")
    await kueue.job("part", admitted=True, started=False, pods=4, given=2, annotations=MIN_PARALLELISM)
    assert (await kueue.migrate("--yes")).exit_code == 0
    await world.start()
    started = await world.job("part", runs)
    assert started["spec"]["parallelism"] == 2
    assert "OutOfSync" not in [reason for reason, _ in await world.history("part")]

    await world.order("part", held=True)
    await world.record("part", "pending", reason="OnHold")
    stopped = await world.job("part", is_gated)
    assert stopped["spec"]["parallelism"] == 4


def said(name, state, **more):
    return {"name": name, "state": state, "message": "", "lastTransitionTime": "2025-06-15T15:06:41Z", **more}


@pytest.mark.costly
async def test_states_of_admission_checks_are_imported(kueue):
    world = kueue.world
    await kueue.queues()
    for name in ("nodes", "budget"):
        await kueue.create("AdmissionCheck", name, spec={"controllerName": "example.com/checks"})
    placed = {"name": "main", "nodeSelector": {"kubernetes.io/hostname": "node-2"}}
    ready = said("nodes", "Ready", retryCount=2, podSetUpdates=[placed])
    await kueue.job("all", admitted=True, admissionChecks=[ready, said("budget", "Ready")])
    await kueue.job("some", admitted=False, reserved=True, admissionChecks=[ready, said("budget", "Pending")])
    plan = await kueue.migrate("--yes")
    assert plan.exit_code == 0, plan.output
    lines = plan.output.splitlines()
    note = lines[lines.index("take over  job/team-a/some") + 1]
    assert note.strip().startswith('status.admissionChecks: "budget" is Pending; its controller must answer')

    await world.start()
    await world.record("all", "admitted", reason="Admitted")
    waiting = await world.record("some", "admitted", reason="QuotaReserved")
    assert waiting.checks_pending
    assert waiting.admitted_at == ADMITTED
    checks = (await world.store.orders.of([waiting.workload.uid])).checks
    assert [(check.name, check.state, check.retries) for check in checks] == [
        ("budget", "Pending", 0), ("nodes", "Ready", 2),
    ]  # fmt: skip
    assert is_gated(world.user.get("jobs", "team-a", "some"))
    await world.report("some", {"name": "budget", "state": "Ready"})
    started = await world.job("some", runs)
    assert started["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "node-2"


async def test_import_plan_notes_fields_that_cannot_be_imported(kueue):
    await kueue.queues()
    await kueue.job("two", admitted=True, more_sets=[{"name": "more", "count": 1, "template": {}}])
    await kueue.job("again", admitted=False, requeueState={"count": 3, "requeueAt": "2025-06-15T16:00:00Z"})
    await kueue.job("limit", admitted=False, accumulatedPastExecutionTimeSeconds=60)
    await kueue.job("elastic", admitted=False)
    gates = {"template": {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}, {"name": "a.b/c"}]}}}
    await kueue.world.patch("elastic", {"spec": gates})
    lines = (await kueue.migrate()).output.splitlines()
    assert lines[lines.index("queue   job/team-a/elastic") + 1].strip() == (
        "spec.template.spec.schedulingGates: only Kueue removes kueue.x-k8s.io/elastic-job from new pods, which would "
        "never start: recreate the Job without the annotation kueue.x-k8s.io/elastic-job"
    )
    assert "a.b/c" not in str(lines)
    assert "spec.podSets: a Job must have exactly one" in lines[lines.index("skip    job/team-a/two") + 1]
    assert "status.requeueState: the backoff is not imported" in lines[lines.index("queue   job/team-a/again") + 1]
    assert "its maximum execution time starts again" in lines[lines.index("queue   job/team-a/limit") + 1]
