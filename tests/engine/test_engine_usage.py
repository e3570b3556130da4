"""Admission fair sharing: who used less comes first, and a restart forgets nothing of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import (
    AdmissionFairSharing,
    Engine,
    LocalQueueUsed,
    Policy,
    WorkloadAdmitted,
    WorkloadPending,
)
from tests.engine.scenes import World, cluster_queue, local_queue, workload

QUEUES = ("a", "b", "c")


def new_world(half_life: float = 60.0) -> World:
    policy = Policy(admission_fair_sharing=AdmissionFairSharing(half_life=half_life, sampling_interval=10.0))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    return World(
        cluster_queue("cq", 4, admissionScope=scope),
        *(local_queue(name, to="cq", fairSharing={"weight": str(1 + at)}) for at, name in enumerate(QUEUES)),
        engine=Engine(policy),
    )


def test_who_used_less_comes_first_whatever_the_priority():
    world = new_world()
    world.submit(workload("first", "a", 4))
    assert world.admitted() == ["first"]
    world.now += 30
    world.submit(workload("greedy", "a", 4, priority=9, created=1), workload("modest", "b", 4, created=2))
    world.gone("first")
    assert world.admitted() == ["modest"]


def test_usage_fades():
    world = new_world(half_life=10.0)
    world.engine.observe(LocalQueueUsed("ns", "a", {"cpu": 8.0}, world.now), now=world.now)
    world.now += 20
    world.engine.settle(world.now)
    assert world.engine.consumption()["ns", "a"].consumed == {"cpu": pytest.approx(2.0)}


@pytest.mark.parametrize("told_first", [True, False])
def test_what_was_used_before_counts_in_whichever_order_it_is_told(told_first):
    """What is held now is told as well, before or after it; both count."""
    world = new_world(half_life=10.0)
    scout = new_world()
    scout.submit(workload("held", "a", 3))
    (admit,) = scout.engine.settle(0.0).admitted
    events = [
        LocalQueueUsed("ns", "a", {"cpu": 8.0}, world.now - 10),
        WorkloadAdmitted(admit.workload, admit.admission, at=0.0),
    ]
    for event in events if told_first else reversed(events):
        world.engine.observe(event, now=world.now)
    used = world.engine.consumption()["ns", "a"]
    assert (used.consumed, used.current) == ({"cpu": pytest.approx(4.0)}, {"cpu": 3000})


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 17.0, 100.0])),
    ),
    min_size=4,
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(_steps, st.floats(0, 1))
def test_an_engine_that_is_told_what_was_written_down_decides_the_same(steps, part):
    world, restarted = new_world(), None
    waiting, running = {}, {}
    for number, step in enumerate(steps):
        if restarted is None and number >= part * len(steps):
            restarted = new_world()
            restarted.now = world.now
            for (namespace, name), used in world.engine.consumption().items():
                event = LocalQueueUsed(namespace, name, used.consumed, used.updated, used.penalties)
                restarted.engine.observe(event, now=world.now)
            # In another order than it happened: a database gives it so.
            for admit, at in reversed(running.values()):
                restarted.engine.observe(WorkloadAdmitted(admit.workload, admit.admission, at), now=world.now)
            for item in waiting.values():
                restarted.engine.observe(WorkloadPending(item), now=world.now)
        worlds = [world] if restarted is None else [world, restarted]
        match step:
            case ("arrive", queue, cpu, priority):
                item = workload(f"w{number}", queue, cpu, priority=priority, created=float(number))
                waiting[item.uid] = item
                for each in worlds:
                    each.submit(item)
            case ("end", pick) if running:
                uid = list(running)[pick % len(running)]
                del running[uid]
                for each in worlds:
                    each.gone(uid)
            case ("wait", seconds):
                for each in worlds:
                    each.now += seconds
        decisions = [each.engine.settle(each.now) for each in worlds]
        assert all(decided.admitted == decisions[0].admitted for decided in decisions)
        for admit in decisions[0].admitted:
            running[admit.workload.uid] = admit, world.now
            del waiting[admit.workload.uid]
