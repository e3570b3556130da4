"""Preemptions without effect are reported, and no others."""

from __future__ import annotations

from admission.engine import Decisions, Engine, Policy
from admission.engine.victims import preemptor_in
from admission.model import sentences
from tests.engine.scenes import World, cluster_queue, local_queue, workload

POLICY = {"withinClusterQueue": "LowerPriority"}


def preempting() -> World:
    """Return a full ClusterQueue in which `high` has preempted `low`, and `low` still holds its quota."""
    world = World(cluster_queue("cq", 2, preemption=POLICY), local_queue("cq"))
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=5, created=1))
    decisions = world.engine.settle(world.now)
    (evict,) = decisions.evicted
    assert (evict.preemptor, preemptor_in(sentences.taken_back(evict.message))) == ("high", "high")
    assert decisions.flapping == ()
    return world


def settle(world: World) -> Decisions:
    return world.engine.settle(world.now)


def test_preemptor_that_is_admitted_is_not_reported():
    world = preempting()
    world.gone("low", requeue=workload("low", "cq", 2))
    decisions = settle(world)
    assert [admit.workload.uid for admit in decisions.admitted] == ["high"]
    assert decisions.flapping == ()


def test_preemptor_not_admitted_because_of_lowered_quota_is_reported_once():
    world = preempting()
    world.tell(cluster_queue("cq", 1, preemption=POLICY))
    assert settle(world).flapping == (), "the victim is not gone yet"
    world.gone("low")
    (flap,) = settle(world).flapping
    assert (flap.preemptor.uid, flap.victims, flap.returned) == ("high", ("ns/low",), ())
    assert flap.message == "ns/low were preempted for ns/high, which was not admitted then"
    assert settle(world).flapping == (), "it is said once"


def test_preemptor_that_is_deleted_is_not_reported():
    world = preempting()
    world.gone("high")
    world.gone("low")
    assert settle(world).flapping == ()


def test_victim_that_is_admitted_before_its_preemptor_is_reported():
    """An admin has moved the victim before its preemptor in a StrictFIFO queue."""
    world = World(
        cluster_queue("cq", 2, preemption=POLICY, queueingStrategy="StrictFIFO"),
        local_queue("cq"),
        engine=Engine(Policy(as_kueue=True)),
    )
    world.submit(workload("low", "cq", 2))
    assert world.admitted() == ["low"]
    world.submit(workload("high", "cq", 2, priority=5, created=1))
    assert len(settle(world).evicted) == 1
    world.gone("low", requeue=workload("low", "cq", 2, rank_priority=5, rank_at=0.5))
    decisions = settle(world)
    assert [admit.workload.uid for admit in decisions.admitted] == ["low"]
    (flap,) = decisions.flapping
    assert flap.returned == ("ns/low",)
    assert flap.message.endswith(", and ns/low were admitted again")
