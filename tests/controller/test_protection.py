"""Protection from preemption, and time slices, from the submission to the preemption, and across a restart."""

from __future__ import annotations

import pytest
from job_examples import admission_check, asks, cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest

LOWER = {"withinClusterQueue": "LowerPriority"}


def queue(**protection):
    return cluster_queue(cpu="1", preemption=LOWER, preemptionProtection=protection)


def urgent(name):
    return job(name, priorityClassName="urgent")


async def set_up(world, **protection):
    await world.user.create(
        "priorityclasses",
        "",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000},
    )
    await world.begin(flavor(), queue(**protection), local_queue())


@pytest.mark.costly
async def test_protected_job_is_preempted_when_it_has_run_so_long(world):
    await set_up(world, withinClusterQueue={"minAdmitDuration": "20m"})
    await world.submit(job("low"))
    await world.job("low", runs)
    await world.submit(urgent("high"))
    await world.record("high", "pending", reason="WaitingForQuota")
    world.pass_time(1190)
    assert (await world.record("low", "admitted")).reason == "Admitted"
    await world.end()
    await world.start()
    world.pass_time(11)
    await world.job("low", is_gated)
    await world.job("high", runs)
    assert any("Preempted" in reason for reason, _ in await world.history("low"))


async def test_jobs_of_the_same_priority_take_turns_also_after_a_restart(world):
    slices = {"withinClusterQueue": "LowerPriority", "timeSlice": "1h"}
    await world.begin(flavor(), cluster_queue(cpu="1", preemption=slices), local_queue())
    for name in ("one", "two", "three"):
        await world.submit(job(name))
        await world.record(name, "admitted" if name == "one" else "pending")
    for name, after in (("one", "two"), ("two", "three"), ("three", "one")):
        await world.job(name, runs)
        await world.end()
        await world.start()
        world.pass_time(3601)
        await world.job(name, is_gated)
        await world.job(after, runs)
    preempted = [message for reason, message in await world.history("one") if "Preempted" in reason]
    assert "due to the end of its time slice" in preempted[0]


@pytest.mark.costly
async def test_preemptions_before_a_restart_protect(world):
    await set_up(world, afterPreemptions={"times": 2, "within": "1h", "minAdmitDuration": "30m"})
    await world.submit(job("low"))
    for name in ("one", "two"):
        await world.job("low", runs)
        await world.submit(urgent(name))
        await world.job(name, runs)
        await world.user.delete("jobs", "team-a", name, propagation="Background")
    await world.job("low", runs)
    await world.end()
    await world.start()
    await world.submit(urgent("three"))
    waits = await world.record("three", "pending", reason="WaitingForQuota")
    engine = world.controller.engine()
    running = await world.record("low", "admitted")
    assert "It was preempted repeatedly" in engine.explain(running.workload.uid).protected
    (hint,) = engine.explain(waits.workload.uid).preemption_hints
    assert hint.next_at is not None
    world.pass_time(1801)
    await world.job("three", runs)


@pytest.mark.costly
async def test_time_until_the_checks_are_ready_does_not_count(world):
    await world.apply(admission_check("nodes"))
    await set_up(world, withinClusterQueue={"minAdmitDuration": "20m"})
    protection = {"withinClusterQueue": {"minAdmitDuration": "20m"}}
    checked = cluster_queue(
        cpu="1", preemption=LOWER, preemptionProtection=protection, admissionChecksStrategy=asks("nodes")
    )
    await world.apply(checked)
    await world.submit(job("low"))
    await world.record("low", "admitted", reason="QuotaReserved")
    world.pass_time(1000)
    await world.report("low", {"name": "nodes", "state": "Ready"})
    await world.job("low", runs)
    await world.submit(urgent("high"))
    await world.record("high", "pending", reason="WaitingForQuota")
    world.pass_time(1000)
    assert (await world.record("low", "admitted")).cleared_at is not None
    await world.end()
    await world.start()
    low = await world.record("low", "admitted")
    (hint,) = world.controller.engine().explain((await world.record("high", "pending")).workload.uid).preemption_hints
    assert hint.next_at == pytest.approx(low.cleared_at + 1200)
    world.pass_time(201)
    await world.record("high", "admitted")


@pytest.mark.parametrize(
    ("protection", "fault"),
    [
        (
            {"withinClusterQueue": {"minAdmitDuration": "20"}},
            r'withinClusterQueue.minAdmitDuration: "20" is not a duration; expected a duration such as 90s',
        ),
        (
            {"fairSharing": {"minAdmitDuration": "0s"}},
            r'fairSharing.minAdmitDuration: must be more than 0, but is "0s"',
        ),
        (
            {"afterPreemptions": {"times": 3, "within": "8d", "minAdmitDuration": "1h"}},
            r"afterPreemptions.within: 8d is longer than 7d",
        ),
        ({"afterPreemptions": {"times": 0, "within": "1d", "minAdmitDuration": "1h"}}, r"afterPreemptions.times: "),
    ],
)
def test_faults_are_named(protection, fault):
    with pytest.raises(InvalidObject, match=f"spec.preemptionProtection.{fault}"):
        parse_manifest(queue(**protection))
