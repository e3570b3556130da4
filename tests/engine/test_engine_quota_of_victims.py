"""Quota of preempted workloads is not used before they have stopped, also by others than their preemptor."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import Engine, Policy
from tests.engine.scenes import World, cluster_queue, local_queue, workload

RECLAIM = {"reclaimWithinCohort": "Any"}


def lent(*nominal: int, victim: int, policy: Policy | None = None) -> World:
    """Return a Cohort of ClusterQueues q0, q1 ... with these quotas, of which the workload `victim` uses an amount."""
    names = [f"q{number}" for number in range(len(nominal))]
    queues = (
        cluster_queue(name, of, cohort="all", preemption=RECLAIM) for name, of in zip(names, nominal, strict=True)
    )
    world = World(*queues, *map(local_queue, names), engine=Engine(policy))
    world.submit(workload("victim", "q0", victim))
    assert world.admitted() == ["victim"]
    return world


def used(world: World) -> float:
    """Return the CPUs that all ClusterQueues use."""
    return (
        sum(amounts.get("cpu", 0) for flavors in world.engine.usage().values() for amounts in flavors.values()) / 1000
    )


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_head_that_needs_the_quota_of_another_heads_target_waits_until_it_has_stopped(fair_sharing):
    # 34 of 40 are in use. `preemptor` makes the victim stop; of the two others only one fits beside the victim.
    world = lent(10, 10, 10, 10, victim=34, policy=Policy(fair_sharing=fair_sharing))
    world.submit(workload("preemptor", "q1", 8), workload("f1", "q2", 6, created=1), workload("f2", "q3", 6, created=2))
    decisions = world.engine.settle(world.now)
    assert [evict.workload.uid for evict in decisions.evicted] == ["victim"]
    assert [admit.workload.uid for admit in decisions.admitted] == ["f1"]
    assert used(world) == 40
    assert world.engine.explain("f2").reason == "WaitingForPreemptedWorkloads"
    assert world.admitted() == []
    world.gone("victim")
    assert sorted(world.admitted()) == ["f2", "preemptor"]


def test_comparison_with_kueue_admits_all_heads_at_once():
    world = lent(10, 10, 10, 10, victim=34, policy=Policy(as_kueue=True))
    world.submit(workload("preemptor", "q1", 8), workload("f1", "q2", 6, created=1), workload("f2", "q3", 6, created=2))
    assert sorted(world.admitted()) == ["f1", "f2"]
    assert used(world) == 46


_NOMINAL = st.lists(st.integers(1, 10), min_size=3, max_size=5)


@settings(max_examples=60)
@given(nominal=_NOMINAL, data=st.data(), fair_sharing=st.booleans())
def test_cohort_is_never_exceeded_while_its_quota_is_reclaimed(nominal, data, fair_sharing):
    total = sum(nominal)
    victim = data.draw(st.integers(1, total), "victim")
    world = lent(*nominal, victim=victim, policy=Policy(fair_sharing=fair_sharing))
    requests = [data.draw(st.integers(1, amount), f"q{number}") for number, amount in enumerate(nominal)]
    world.submit(*(workload(f"w{number}", f"q{number}", cpu, created=number) for number, cpu in enumerate(requests)))
    running = {"victim"} | set(world.admitted())
    assert used(world) <= total
    world.gone("victim")
    running |= set(world.admitted())
    assert used(world) <= total
    assert running == {"victim", *(f"w{number}" for number in range(len(nominal)))}, "each is within nominal quota"
