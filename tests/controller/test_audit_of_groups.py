"""Pod groups that differ from the database after manual changes: the audit reports them, and a restart repairs them."""

from __future__ import annotations

import pytest
from grouped_kinds import pods_until
from job_examples import cluster_queue, flavor, local_queue
from pod_examples import gated, pod
from sqlalchemy import text

from admission.controller.auditing.audit_sources import AuditSources
from admission.controller.auditing.comparison import Problem, differences
from admission.kinds import all_kinds

KINDS = all_kinds(frameworks=("batch/job", "pod"))
MORE = "UPDATE admissions SET count = count + 1, amount = amount + 1000 WHERE workload_uid = :uid"
FORGOTTEN = (
    "UPDATE workloads SET state = 'finished' WHERE uid = :uid",
    "UPDATE admissions SET to_at = from_at, end_reason = 'Finished' WHERE workload_uid = :uid",
)


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose pods are gated, with a queue of 10 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(cpu="10"), local_queue(), local_queue("closed", "none"))
    async with gated(world.user, KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        world.controller.auditor.grace = 0.0
        yield world


async def add(cluster, group, number, queue="lq"):
    obj = pod(f"{group}-{number}", queue=queue)
    obj["metadata"]["labels"]["sluice.dev/pod-group-name"] = group
    obj["metadata"]["annotations"]["sluice.dev/pod-group-total-count"] = "2"
    await cluster.user.create("pods", "team-a", obj)


async def remove_gate(cluster, name):
    await cluster.user.patch("pods", "team-a", name, {"spec": {"schedulingGates": None}})


async def sql(cluster, name, *statements):
    """Change the rows of a workload directly in the database."""
    record = await cluster.store.workloads.get("team-a", name)
    async with cluster.store._database.write() as connection:
        for statement in statements:
            await connection.execute(text(statement), {"uid": record.workload.uid})


async def found(cluster):
    """Return the differences by group: (problem, what was found). Sluice does not run."""
    sources = AuditSources(cluster.store, cluster.client, KINDS, clock=cluster.clock)
    return {each.object: (each.problem, each.found) for each in differences(await sources.view())}


@pytest.mark.costly
async def test_audit_reports_and_repairs_each_difference_of_pod_groups(cluster):
    for group in ("fine", "gone", "grown", "surplus", "forgotten"):
        for number in range(2):
            await add(cluster, group, number)
    for number in range(2):
        await add(cluster, "waits", number, queue="closed")
        await add(cluster, "left", number, queue="closed")
    await cluster.record("waits", "pending", reason="Misconfigured")
    await cluster.record("left", "pending", reason="Misconfigured")
    await pods_until(
        cluster.user,
        "team-a",
        lambda pods: sum(each["status"].get("phase") == "Running" for each in pods.values()) == 10,
    )
    await cluster.eventually(lambda: has_no_differences(cluster), longest=0.4)
    await cluster.end()
    assert await found(cluster) == {}

    for name in ("gone-0", "gone-1", "left-0", "left-1"):
        await cluster.user.delete("pods", "team-a", name, grace=0)
    await add(cluster, "grown", 2)
    await remove_gate(cluster, "grown-2")
    await remove_gate(cluster, "waits-0")
    await sql(cluster, "surplus", MORE)
    await sql(cluster, "forgotten", *FORGOTTEN)
    assert await found(cluster) == {
        "PodGroup team-a/gone": (Problem.ADMISSION_OF_GONE, "admitted, but neither it nor a pod of it exists"),
        "PodGroup team-a/left": (Problem.RECORD_OF_GONE, "pending, but it does not exist"),
        "PodGroup team-a/grown": (Problem.PODS_BEYOND_QUOTA, "1 pods run beyond its quota"),
        "PodGroup team-a/waits": (Problem.RUNS_WITHOUT_ADMISSION, "it runs and holds no quota"),
        "PodGroup team-a/surplus": (Problem.QUOTA_BEYOND_PODS, "it holds quota for 1 pods that do not exist"),
        "PodGroup team-a/forgotten": (Problem.NOT_ON_RECORD, "running in LocalQueue lq, but not in the database"),
    }

    await cluster.start(kinds=KINDS)
    cluster.controller.auditor.grace = 0.0
    await cluster.eventually(lambda: repaired(cluster), longest=0.4)
    await cluster.record("gone", "finished")
    await cluster.record("left", "finished")
    await pods_until(
        cluster.user, "team-a", lambda pods: not pods.keys() & {"grown-2", "waits-0", "forgotten-0", "forgotten-1"}
    )
    left = {each["metadata"]["name"] for each in cluster.user.list("pods", "team-a")}
    assert {"fine-0", "fine-1", "grown-0", "grown-1", "surplus-0", "surplus-1", "waits-1"} == left


@pytest.mark.costly
async def test_audit_restores_pod_group_missing_in_memory_of_leader(cluster):
    for number in range(2):
        await add(cluster, "waits", number, queue="closed")
    record = await cluster.record("waits", "pending", reason="Misconfigured")  # Sluice has observed both pods
    await cluster.eventually(lambda: has_no_differences(cluster), longest=0.4)
    state = cluster.controller._state
    await sql(cluster, "waits", FORGOTTEN[0])
    state.drop(state.registry.get(record.workload.uid))
    state.ended.add(record.workload.uid, "")
    (told,) = await cluster.controller.audit(repair=False)
    assert (told["problem"], told["object"]) == (Problem.NOT_ON_RECORD, "PodGroup team-a/waits")
    await cluster.eventually(lambda: repaired(cluster), longest=0.4)
    assert (await cluster.record("waits", "pending")).workload.uid == record.workload.uid


async def repaired(cluster):
    return await cluster.controller.audit(repair=True) == []


async def has_no_differences(cluster):
    return await cluster.controller.audit(repair=False) == []
