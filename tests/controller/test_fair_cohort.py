"""A cohort with fair sharing: Jobs are evicted for others and start again, completely, and quota is never exceeded."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.controller.state.policy import ControllerPolicy
from admission.engine import AdmissionFairSharing
from admission.engine import Policy as EnginePolicy

FAIR = ControllerPolicy(engine=EnginePolicy(fair_sharing=True))


def sharing(name, cpu="4", **spec):
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    return cluster_queue(name, cpu, cohortName="all", preemption=preemption, **spec)


@pytest.fixture
async def cohort(world):
    """Two teams with 4 CPUs each in one cohort, which lend each other idle quota."""
    await world.apply(
        flavor(), sharing("cq-a"), sharing("cq-b"), local_queue("lq", "cq-a"), local_queue("lq", "cq-b", "team-b")
    )
    return world


async def running(world, namespace):
    """Names of the running Jobs of a team that hold quota."""
    found = (await world.store.workloads.list(namespace=namespace)).workloads
    return {record.workload.name for record in found if record.state == "admitted"}


@pytest.mark.costly
async def test_borrowed_quota_is_reclaimed_and_evicted_jobs_start_again_unchanged(cohort):
    await cohort.start(FAIR)
    most = 0.0

    async def watch_quota():
        nonlocal most
        used = {}
        with closing(cohort.user.watch("pods")) as changes:
            async for batch in changes:
                for _, kind, pod, _ in batch:
                    lives = kind != "DELETED" and pod["status"].get("phase") in ("Pending", "Running")
                    cpu = float(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
                    used[pod["metadata"]["uid"]] = cpu if lives else 0.0
                    most = max(most, sum(used.values()))

    observer = asyncio.create_task(watch_quota())
    before = {}
    for number in range(8):
        name = f"a-{number}"
        before[name] = await cohort.submit(job(name))
        await cohort.job(name, runs)
    assert len(await running(cohort, "team-a")) == 8

    for number in range(4):
        await cohort.submit(job(f"b-{number}", namespace="team-b"))
    await cohort.eventually(lambda: _count(cohort, team_a=4, team_b=4))
    evicted = before.keys() - await running(cohort, "team-a")
    for name in evicted:
        await cohort.record(name, "pending")
        assert cohort.user.get("jobs", "team-a", name)["spec"] == before[name]["spec"]
        story = dict(await cohort.history(name))
        assert "reclamation within the cohort" in story["Preempted"] or "Fair Sharing" in story["Preempted"]

    for number in range(4):
        await cohort.user.delete("jobs", "team-b", f"b-{number}", propagation="Background")
    await cohort.eventually(lambda: _count(cohort, team_a=8, team_b=0))
    for name in evicted:
        await cohort.job(name, runs)
    observer.cancel()
    with suppress(asyncio.CancelledError):
        await observer
    assert 4 <= most <= 8
    assert cohort.controller.metrics.flapping == 0


async def _count(world, *, team_a, team_b):
    return (len(await running(world, "team-a")), len(await running(world, "team-b"))) == (team_a, team_b)


@pytest.mark.costly
async def test_changed_fair_sharing_weight_rebalances_running_jobs(cohort):
    await cohort.apply(sharing("cq-a", "0"), sharing("cq-b", "0"), sharing("cq-c", "8"))
    await cohort.start(FAIR)
    for number in range(8):
        await cohort.submit(job(f"a-{number}"))
        await cohort.submit(job(f"b-{number}", namespace="team-b"))
    await cohort.eventually(lambda: _count(cohort, team_a=4, team_b=4))
    await cohort.apply(sharing("cq-b", "0", fairSharing={"weight": "3"}))
    await cohort.eventually(lambda: _count(cohort, team_a=2, team_b=6))


async def test_newest_jobs_over_lowered_quota_are_evicted_after_configured_delay(world):
    await world.begin(flavor(), cluster_queue(overQuota={"evictAfterSeconds": 60}), local_queue())
    for number in range(4):
        await world.submit(job(f"job-{number}"))
        await world.job(f"job-{number}", runs)
    await world.apply(cluster_queue(cpu="2", overQuota={"evictAfterSeconds": 60}))
    await world.submit(job("late"))
    await world.record("late", "pending")
    assert len(await running(world, "team-a")) == 4
    world.pass_time(61)
    await world.eventually(lambda: _count(world, team_a=2, team_b=0))
    assert {"job-0", "job-1"} == await running(world, "team-a")  # the newest Jobs are evicted first
    assert "OverQuota" in dict(await world.history("job-3"))


@pytest.mark.costly
async def test_local_queue_with_less_recent_usage_is_admitted_first_after_restart(world):
    policy = ControllerPolicy(engine=EnginePolicy(policies=(AdmissionFairSharing(half_life=3600.0),)))
    await world.apply(
        flavor(),
        cluster_queue(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}),
        *(local_queue(name) for name in ("heavy", "light", "other")),
    )
    await world.start(policy)
    await world.submit(job("hog", queue="heavy", cpu="4"))
    await world.job("hog", runs)
    world.pass_time(3600)
    await world.user.delete("jobs", "team-a", "hog", propagation="Background")
    await world.submit(job("blocker", queue="other", cpu="4"))
    await world.job("blocker", runs)
    for name, queue in (("heavy-1", "heavy"), ("light-1", "light")):
        await world.submit(job(name, queue=queue, cpu="4"))
        await world.record(name, "pending", reason="WaitingForQuota")
    await world.end()
    await world.start(policy)
    await world.user.delete("jobs", "team-a", "blocker", propagation="Background")
    await world.job("light-1", runs)
    await world.record("heavy-1", "pending")
