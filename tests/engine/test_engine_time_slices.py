"""Time slices (`preemption.timeSlice`): workloads of the same priority take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.engine import Engine, Policy
from admission.model.errors import InvalidObject
from tests.engine.scenes import World, cluster_queue, local_queue, workload

SLICE = 3600
FAIR = Policy(fair_sharing=True, preemption_strategies=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))


def queue(cpu, policy="LowerPriority", time_slice="1h", **fields):
    preemption = {"withinClusterQueue": policy, "timeSlice": time_slice}
    return cluster_queue("q", cpu, preemption=preemption, **fields)


def step(world):
    """Decide, and let what is evicted be gone at once. Return the uids of what is admitted, and of what is evicted."""
    admitted, evicted = [], []
    while True:
        decisions = world.engine.settle(world.now)
        admitted += [each.workload.uid for each in decisions.admitted]
        evicted += [each.workload.uid for each in decisions.evicted]
        if not decisions.evicted:
            return admitted, evicted
        for each in decisions.evicted:
            again = replace(each.workload, queued_at=world.now if each.to_queue_end else None)
            world.gone(each.workload.uid, requeue=again)


@pytest.mark.parametrize("policy", ["LowerPriority", "LowerOrNewerEqualPriority"])
@pytest.mark.parametrize("engine", [Policy(), FAIR])
def test_three_workloads_take_turns_of_a_time_slice(policy, engine):
    world = World(queue(1, policy), local_queue("q"), engine=Engine(engine))
    world.submit(*(workload(name, "q", created=number) for number, name in enumerate("abc")))
    turns = []
    for _ in range(7):
        turns += step(world)[0]
        assert world.engine.wake_at() == world.now + SLICE
        world.now += SLICE
    assert turns == [*"abcabca"]


def test_two_that_take_short_turns_are_not_made_to_rest():
    """As workloads are that preempt each other again and again."""
    world = World(queue(1, time_slice="20s"), local_queue("q"))
    world.submit(workload("a", "q"), workload("b", "q", created=1))
    turns = []
    for _ in range(8):
        turns += step(world)[0]
        world.now += 20
    assert turns == [*"abababab"]


def test_one_that_comes_has_one_stopped_not_each_in_turn():
    world = World(queue(3), local_queue("q"))
    world.submit(*(workload(name, "q") for name in "abc"))
    step(world)
    world.now += 5 * SLICE
    world.submit(workload("new", "q", created=world.now))
    assert step(world) == (["new"], ["a"])
    for stopped, started in (("b", "a"), ("c", "b"), ("new", "c")):
        assert world.engine.wake_at() == world.now + SLICE
        world.now += SLICE
        assert step(world) == ([started], [stopped])


def test_nobody_gives_way_to_lower_priority_or_while_there_is_room():
    world = World(queue(2), local_queue("q"))
    world.submit(workload("a", "q", priority=5), workload("b", "q", priority=5), workload("low", "q"))
    assert step(world) == (["a", "b"], [])
    world.submit(workload("urgent", "q", priority=9))
    assert step(world) == (["urgent"], ["a"]), "also within its time slice"
    world.gone("urgent")
    assert step(world) == (["a"], [])
    world.now += 2 * SLICE
    assert step(world) == ([], [])


def test_other_queues_of_the_cohort_have_no_turn():
    world = World(
        queue(1, cohort="all"), cluster_queue("other", 0, cohort="all"), local_queue("q"), local_queue("other")
    )
    world.submit(workload("a", "q"))
    assert step(world)[0] == ["a"]
    world.submit(workload("b", "other"))
    world.now += 2 * SLICE
    assert step(world) == ([], [])


def test_both_sides_are_told_when_the_turn_ends():
    world = World(queue(1), local_queue("q"))
    world.submit(workload("a", "q"), workload("b", "q", created=1))
    step(world)
    running, waiting = world.engine.explain("a"), world.engine.explain("b")
    assert running is not None
    assert waiting is not None
    assert "From 1970-01-01T01:16:40Z on" in running.protected
    assert [hint.next_at for hint in waiting.preemption_hints] == [1000 + SLICE]
    world.now += SLICE
    (evict,) = world.engine.settle(world.now).evicted
    assert (evict.reason, evict.preemption_reason) == ("Preempted", "TimeSlice")


@given(
    quota=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    strategy=st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
)
def test_each_of_many_gets_its_turn_in_bounded_time(quota, sizes, strategy):
    """With sizes that differ only in a queue in which nobody overtakes: small ones could use what a large one needs."""
    sizes = [min(size, quota) if strategy == "StrictFIFO" else 1 for size in sizes]
    world = World(queue(quota, queueingStrategy=strategy), local_queue("q"))
    world.submit(*(workload(f"w{number}", "q", size, created=number) for number, size in enumerate(sizes)))
    last = {f"w{number}": world.now for number in range(len(sizes))}
    running = set()
    for _ in range(40):
        admitted, evicted = step(world)
        running = running - set(evicted) | set(admitted)
        last |= dict.fromkeys(running, world.now)
        assert max(world.now - at for at in last.values()) <= (len(sizes) + 1) * SLICE
        if (wake := world.engine.wake_at()) is None:
            assert len(running) == len(sizes)
            break
        world.now = wake


def test_time_slice_needs_preemption_within_the_queue():
    with pytest.raises(InvalidObject, match=r"spec.preemption.timeSlice: withinClusterQueue must not be Never with it"):
        queue(1, "Never")
