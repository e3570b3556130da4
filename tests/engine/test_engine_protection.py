"""Protection from preemption (`preemptionProtection`): since the admission, and after repeated preemptions."""

from __future__ import annotations

from typing import Any

import pytest

from admission.engine import (
    Engine,
    Policy,
    WorkloadAdmitted,
    WorkloadCleared,
    WorkloadEvicted,
    WorkloadPreempted,
)
from tests.engine.scenes import World, cluster_queue, local_queue, workload

FAIR = Policy(fair_sharing=True, preemption_strategies=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
POLICIES = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def one_queue(protection: dict[str, Any]) -> World:
    queue = cluster_queue("q", 1, preemption=POLICIES, preemptionProtection=protection)
    return World(queue, local_queue("q"))


def victims(world: World) -> list[str]:
    return [evict.workload.uid for evict in world.engine.settle(world.now).evicted]


def test_workload_is_preempted_as_soon_as_it_has_run_so_long():
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "20m"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.now += 300
    world.submit(workload("high", "q", priority=9))
    assert victims(world) == []
    assert world.engine.wake_at() == 1000 + 1200
    world.now = 2199
    assert victims(world) == [], "nothing has changed yet"
    world.now = 2200
    assert victims(world) == ["low"]
    world.gone("low", requeue=workload("low", "q"))
    assert world.admitted() == ["high"]


def test_explanations_say_until_when():
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "20m"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.submit(workload("high", "q", priority=9))
    world.admitted()
    found = world.engine.explain("high")
    assert found is not None
    assert [hint.next_at for hint in found.preemption_hints] == [2200]
    assert "others may be preempted later, the first at 1970-01-01T00:36:40Z" in found.preemption_hints[0].hint
    running = world.engine.explain("low")
    assert running is not None
    assert "until 1970-01-01T00:36:40Z" in running.protected
    world.engine.refresh(2200)
    over = world.engine.explain("low")
    assert over is not None
    assert over.protected == ""


def test_explanation_has_nothing_tried_again():
    """Only protection that keeps a workload pending wakes the engine: not that of workloads asked about."""
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "20m"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.submit(workload("same", "q"))
    world.admitted()
    before = world.engine.wake_at()
    world.engine.explain("same")
    world.engine.remedies("same")
    assert world.engine.wake_at() == before


@pytest.mark.parametrize(
    ("field", "policy", "kept"),
    [
        ("reclaimWithinCohort", Policy(), True),
        ("reclaimWithinCohort", FAIR, True),
        ("fairSharing", FAIR, False),
        ("withinClusterQueue", Policy(), False),
    ],
)
def test_claims_of_other_queues_have_their_own_time(field, policy, kept):
    """`a` reclaims what is its own: that is no matter of shares, nor of priority in `b`."""
    world = World(
        cluster_queue("a", 1, cohort="all", preemption=POLICIES),
        cluster_queue("b", 1, cohort="all", preemptionProtection={field: {"minAdmitDuration": "1h"}}),
        local_queue("a"),
        local_queue("b"),
        engine=Engine(policy),
    )
    world.submit(workload("b1", "b"), workload("b2", "b", created=1.0))
    assert len(world.admitted()) == 2
    world.submit(workload("mine", "a"))
    assert bool(victims(world)) is not kept
    assert (world.engine.wake_at() == 4600) is kept
    world.now = 4600
    assert bool(victims(world)) is kept


@pytest.mark.parametrize(("field", "kept"), [("fairSharing", True), ("reclaimWithinCohort", False)])
def test_fair_sharing_has_its_own_time(field, kept):
    """Both borrow from `lender`; `a` has the lower share."""
    world = World(
        cluster_queue("lender", 4, cohort="all"),
        cluster_queue("a", 0, cohort="all", preemption=POLICIES),
        cluster_queue("b", 0, cohort="all", preemptionProtection={field: {"minAdmitDuration": "1h"}}),
        *map(local_queue, "ab"),
        engine=Engine(FAIR),
    )
    world.submit(*(workload(f"b{number}", "b") for number in range(4)))
    assert len(world.admitted()) == 4
    world.submit(workload("a0", "a"))
    assert bool(victims(world)) is not kept
    found = world.engine.explain("a0")
    if kept:
        assert found is not None
        assert found.preemption_hints[0].next_at == 4600


def test_time_for_admission_checks_is_no_run_time():
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "10m"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.engine.observe(WorkloadCleared("low", 1500.0), now=1500.0)
    world.now = 1600
    world.submit(workload("high", "q", priority=9))
    assert victims(world) == []
    assert world.engine.wake_at() == 2100


def test_protection_follows_a_change_of_the_queue():
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "1h"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.submit(workload("high", "q", priority=9))
    assert victims(world) == []
    world.tell(cluster_queue("q", 1, preemption=POLICIES))
    assert victims(world) == ["low"]
    assert world.engine.wake_at() is None


def test_evicted_workload_is_not_protected():
    """It stops anyway: that it is counted on keeps others from being preempted."""
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "1h"}})
    world.submit(workload("low", "q"))
    world.admitted()
    world.engine.observe(WorkloadEvicted("low"), now=world.now)
    world.submit(workload("high", "q", priority=9))
    world.admitted()
    assert world.engine.wake_at() is None


AGAIN = {"afterPreemptions": {"times": 3, "within": "1h", "minAdmitDuration": "30m"}}


def preempt(world: World) -> None:
    """Have `low` preempted by a workload that finishes at once."""
    name = f"high{world.now}"
    world.submit(workload(name, "q", priority=9, created=world.now))
    assert victims(world) == ["low"]
    world.gone("low", requeue=workload("low", "q"))
    assert world.admitted() == [name]
    world.now += 60
    world.gone(name)
    assert world.admitted() == ["low"]


def test_workload_that_was_preempted_again_and_again_is_protected_for_a_while():
    world = one_queue(AGAIN)
    world.submit(workload("low", "q"))
    world.admitted()
    for _ in range(3):
        preempt(world)
    since = world.now
    found = world.engine.explain("low")
    assert found is not None
    assert "preempted repeatedly" in found.protected
    world.submit(workload("last", "q", priority=9, created=world.now))
    assert victims(world) == []
    assert world.engine.wake_at() == since + 1800
    world.now = since + 1800
    assert victims(world) == ["low"], "it has run for half an hour"


def test_preemptions_long_ago_protect_from_nothing():
    world = one_queue(AGAIN)
    world.submit(workload("low", "q"))
    world.admitted()
    for _ in range(3):
        preempt(world)
        world.now += 1801
    world.submit(workload("last", "q", priority=9, created=world.now))
    assert victims(world) == ["low"]


def test_preemptions_before_a_restart_count():
    world = one_queue(AGAIN)
    for at in (400.0, 500.0, 600.0):
        world.engine.observe(WorkloadPreempted("low", at), now=world.now)
    source = one_queue({})
    source.submit(workload("low", "q"))
    (admit,) = source.engine.settle(source.now).admitted
    world.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at=900.0), now=world.now)
    world.submit(workload("high", "q", priority=9))
    assert victims(world) == []
    assert world.engine.wake_at() == 900 + 1800


def test_none_starves_behind_protected_workloads():
    """A stream of protected workloads of low priority delays one of high priority by its protection at most."""
    world = one_queue({"withinClusterQueue": {"minAdmitDuration": "10m"}} | AGAIN)
    world.submit(*(workload(f"low{number}", "q", created=number) for number in range(20)))
    world.admitted()
    world.submit(workload("high", "q", priority=9))
    began = world.now
    while True:
        decisions = world.engine.settle(world.now)
        if any(admit.workload.uid == "high" for admit in decisions.admitted):
            break
        for evict in decisions.evicted:
            world.gone(evict.workload.uid, requeue=evict.workload)
        at = world.engine.wake_at()
        if not decisions.evicted:
            assert at is not None, "it is woken"
            world.now = at
    assert world.now - began <= 600
