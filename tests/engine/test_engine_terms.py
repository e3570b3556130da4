"""Workloads that neither borrow nor preempt, by their terms."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from admission.engine import Engine, Policy, WorkloadGone
from admission.model.terms import Terms
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload

FAIR = Policy(fair_sharing=True, preemption_strategies=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
POLICIES = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
OWN = Terms(may_borrow=False)
PEACEFUL = Terms(preempts=False)


def world(policy: Policy, **preemption: object) -> World:
    return World(
        cluster_queue("a", 2, cohort="all", preemption={**POLICIES, **preemption}),
        cluster_queue("b", 2, cohort="all"),
        *map(local_queue, "ab"),
        engine=Engine(policy),
    )


def victims(scene: World) -> list[str]:
    return [evict.workload.uid for evict in scene.engine.settle(scene.now).evicted]


@pytest.mark.parametrize("policy", [Policy(), FAIR])
def test_workload_that_cannot_borrow_waits_for_nominal_quota(policy):
    scene = world(policy)
    scene.submit(
        workload("first", "a"), workload("own", "a", 2, created=1.0, terms=OWN), workload("more", "a", 2, created=2.0)
    )
    assert scene.admitted() == ["first", "more"], "the others may use what is free in b"
    found = scene.engine.explain("own")
    assert found is not None
    (lack,) = found.lacks
    assert (lack.free, lack.borrowable, lack.maximum) == (0, 0, 2000)
    assert lack.refused_by == "ClusterQueue a: nominalQuota"
    scene.gone("more")
    assert scene.admitted() == [], "one of two is in use"
    assert "Borrowing" in [one.change for one in scene.engine.remedies("own")]
    scene.gone("first")
    assert scene.admitted() == ["own"]


def test_request_above_nominal_quota_that_cannot_borrow_never_fits():
    scene = world(Policy())
    scene.submit(workload("own", "a", 3, terms=OWN), workload("same", "a", 3, created=1.0))
    assert scene.admitted() == ["same"]
    found = scene.engine.explain("own")
    assert found is not None
    assert found.reason == "ExceedsMaxQuota"
    assert "nominalQuota of ClusterQueue a by 1 CPU" in found.message


@pytest.mark.parametrize("policy", [Policy(), FAIR])
def test_workload_that_cannot_preempt_waits_for_free_quota(policy):
    scene = world(policy)
    scene.submit(*(workload(f"low{number}", "b") for number in range(4)))
    assert len(scene.admitted()) == 4
    scene.submit(workload("calm", "a", priority=9, terms=PEACEFUL))
    assert victims(scene) == []
    scene.submit(workload("other", "a", priority=9, created=1.0))
    assert len(victims(scene)) == 1


@pytest.mark.parametrize("policy", [Policy(), FAIR])
def test_workload_that_cannot_borrow_preempts_until_nominal_quota_is_free(policy):
    """Three of `a` run, one of them borrows: to use one of the nominal two it needs two victims."""
    scene = world(policy, borrowWithinCohort={"policy": "LowerPriority"})
    scene.submit(*(workload(f"low{number}", "a") for number in range(3)))
    assert len(scene.admitted()) == 3
    scene.submit(workload("own", "a", priority=9, terms=OWN))
    assert len(victims(scene)) == 2


@pytest.mark.parametrize("policy", [Policy(), FAIR])
@pytest.mark.parametrize("seed", range(3))
def test_no_such_workload_borrows_and_none_starves(policy, seed):
    """At its admission the usage of its ClusterQueue is within nominal quota; all workloads end in finite time."""
    drawn = random.Random(seed)
    queues = [cluster_queue(name, 4, cohort="all", preemption=POLICIES) for name in "abc"]
    scene = World(cohort("all"), *queues, *map(local_queue, "abc"), engine=Engine(policy))
    left = {}
    for number in range(40):
        terms = Terms(drawn.random() < 0.5, drawn.random() < 0.5)
        cpu = drawn.choice([1, 2, 4])
        job = workload(
            f"w{number}", drawn.choice("abc"), cpu, priority=drawn.choice([0, 5]), created=number, terms=terms
        )
        left[job.uid] = job
        scene.submit(job)
    held: dict[str, int] = {}
    for _ in range(1000):
        decisions = scene.engine.settle(scene.now)
        for evict in decisions.evicted:
            held.pop(evict.workload.uid)
            scene.gone(evict.workload.uid, requeue=evict.workload)
            assert evict.preemptor is not None
            assert left[evict.preemptor].terms.preempts
        for admit in decisions.admitted:
            held[admit.workload.uid] = admit.workload.pod_sets[0].requests["cpu"]
        for queue in "abc":
            used = {uid: held[uid] for uid in held if left[uid].queue == queue}
            new = [one.workload for one in decisions.admitted if one.workload.queue == queue]
            if new and all(not one.terms.may_borrow for one in new):
                assert sum(used.values()) <= 4000
        assert sum(held.values()) <= 12000
        if not held:
            break
        ended = drawn.choice(sorted(held))
        held.pop(ended)
        left.pop(ended)
        scene.now += 700
        scene.engine.observe(WorkloadGone(ended), now=scene.now)
    assert not left


def test_terms_make_another_shape():
    scene = world(Policy())
    job = workload("one", "a", 3)
    scene.submit(job, replace(job, uid="two", name="two", terms=OWN, created=1.0))
    scene.admitted()
    found = scene.engine.explain("two")
    assert found is not None
    assert found.reason == "ExceedsMaxQuota"
