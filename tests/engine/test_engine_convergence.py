"""Quota lowered below usage: running workloads stay, or are evicted after a delay with `overQuota`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.engine import WorkloadAdmitted, WorkloadEvicted
from admission.engine.tree import add_usage, available, remove_usage
from admission.model.errors import InvalidObject
from admission.model.workload import Admission, PodSetAssignment
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload

DELAY = 300


def converging(name: str, quota: int, **fields: Any) -> Any:
    return cluster_queue(name, quota, overQuota={"evictAfterSeconds": DELAY}, **fields)


def evicted(world: World) -> list[str]:
    """Return the uids of the workloads evicted now, all with the reason OverQuota."""
    decisions = world.engine.settle(world.now)
    assert {evict.reason for evict in decisions.evicted} <= {"OverQuota"}
    return [evict.workload.uid for evict in decisions.evicted]


@pytest.fixture
def world():
    """A ClusterQueue with 6 of 6 cores in use, by workloads of different priority and age."""
    world = World(converging("cq", 6), local_queue("cq"))
    for number, (name, cpu, priority) in enumerate([("old", 2, 0), ("new", 2, 0), ("urgent", 2, 9)]):
        world.submit(workload(name, "cq", cpu, priority=priority, created=number))
        world.now += 1
        assert world.admitted() == [name]
    return world


def test_over_quota_evicts_newest_of_lowest_priority_after_the_delay(world):
    world.tell(converging("cq", 3))
    assert evicted(world) == []
    assert world.engine.wake_at() == world.now + DELAY
    world.now += DELAY - 1
    assert evicted(world) == []
    world.now += 1
    decisions = world.engine.settle(world.now)
    assert [evict.workload.uid for evict in decisions.evicted] == ["new", "old"]
    assert decisions.evicted[0].message == (
        "ClusterQueue cq has used more than it may for 300 s: 6 of cpu in flavor default, "
        "3 more than the nominalQuota of ClusterQueue cq allows"
    )
    assert decisions.evicted[0].preemptor is None
    assert world.engine.wake_at() is None
    assert evicted(world) == []


def test_over_quota_evicts_no_workload_unnecessarily(world):
    world.submit(workload("small", "cq", 1))
    world.tell(converging("cq", 7))
    world.now += 1
    assert world.admitted() == ["small"]
    world.tell(converging("cq", 5))
    assert evicted(world) == []
    world.now += DELAY
    assert evicted(world) == ["new"], "small is newer, but with new gone it may stay"


def test_lowered_quota_evicts_nothing_without_the_over_quota_field(world):
    world.tell(cluster_queue("cq", 3))
    assert world.engine.settle(world.now).evicted == ()
    assert world.engine.wake_at() is None
    world.now += 10 * DELAY
    assert world.engine.settle(world.now).evicted == ()


def test_workload_that_ends_within_the_delay_prevents_evictions(world):
    world.tell(converging("cq", 4))
    assert evicted(world) == []
    world.now += 1
    world.gone("urgent")
    assert evicted(world) == []
    assert world.engine.wake_at() is None
    world.tell(converging("cq", 3))
    world.now += DELAY
    assert evicted(world) == [], "it was over anew, and the delay began anew"
    assert world.engine.wake_at() == world.now + DELAY


def test_usage_of_evicted_workloads_does_not_count_as_over_quota(world):
    world.engine.observe(WorkloadEvicted("urgent"), now=world.now)
    world.tell(converging("cq", 4))
    assert evicted(world) == []
    world.now += DELAY
    assert evicted(world) == []


def test_over_quota_evicts_nothing_more_while_the_evicted_workload_stops(world):
    world.tell(converging("cq", 4))
    evicted(world)
    world.now += DELAY
    assert evicted(world) == ["new"]
    world.tell(converging("cq", 4, queueingStrategy="StrictFIFO"))
    assert evicted(world) == []
    world.now += DELAY
    assert evicted(world) == []
    world.gone("new")
    assert world.engine.usage() == {"cq": {"default": {"cpu": 4000}}}


def test_over_quota_message_has_no_more_than_the_borrowed_amount():
    """A Cohort may exceed its quota by more than the ClusterQueue borrows."""
    world = World(
        cohort("all", 6), converging("a", 2, cohort="all"), cluster_queue("b", 0, cohort="all"), *map(local_queue, "ab")
    )
    world.submit(workload("a1", "a", 3), workload("b1", "b", 5, created=1))
    assert len(world.admitted()) == 2
    world.tell(cohort("all", 1))
    evicted(world)
    world.now += DELAY
    (evict,) = world.engine.settle(world.now).evicted
    assert evict.workload.uid == "a1"
    assert "3 of cpu in flavor default, 1 more than the nominalQuota of Cohort all allows" in evict.message


def test_over_quota_delay_starts_at_the_load_after_a_restart():
    again = World(converging("cq", 2), local_queue("cq"))
    for uid, at in (("a", 10.0), ("b", 20.0)):
        admission = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 1),))
        again.engine.observe(WorkloadAdmitted(workload(uid, "cq", 2), admission, at=at), now=again.now)
    assert evicted(again) == []
    again.now += DELAY
    assert evicted(again) == ["b"], "the later admitted"


def test_cohort_over_quota_evicts_only_from_queues_that_borrow():
    world = World(
        cohort("all", 4), converging("a", 2, cohort="all"), converging("b", 2, cohort="all"), *map(local_queue, "ab")
    )
    world.submit(*(workload(f"a{number}", "a", created=number) for number in range(2)))
    world.submit(*(workload(f"b{number}", "b", created=number) for number in range(6)))
    assert len(world.admitted()) == 8
    world.tell(cohort("all", 1))
    assert evicted(world) == []
    world.now += DELAY
    decisions = world.engine.settle(world.now)
    assert {evict.workload.queue for evict in decisions.evicted} == {"b"}
    assert len(decisions.evicted) == 3
    assert "3 more than the nominalQuota of Cohort all allows" in decisions.evicted[0].message


def test_lowered_borrowing_limit_evicts_after_the_delay():
    world = World(cohort("all", 9), converging("a", 1, cohort="all", limits={"borrowingLimit": 5}), local_queue("a"))
    world.submit(*(workload(f"a{number}", "a", created=number) for number in range(6)))
    assert len(world.admitted()) == 6
    world.tell(converging("a", 1, cohort="all", limits={"borrowingLimit": 2}))
    evicted(world)
    world.now += DELAY
    assert len(evicted(world)) == 3


def test_negative_over_quota_delay_is_rejected():
    with pytest.raises(InvalidObject, match=r"spec\.overQuota\.evictAfterSeconds"):
        cluster_queue("cq", 1, overQuota={"evictAfterSeconds": -1})


_load = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=25, unique=False
)


@pytest.mark.costly
@settings(max_examples=150)
@given(_load, st.lists(st.integers(0, 6), min_size=3, max_size=3), st.integers(0, 10), st.sets(st.sampled_from("abc")))
def test_over_quota_evictions_restore_limits_and_spare_nominal_quota(load, lowered, shared, asking):
    world = World(cohort("all", 10), *(converging(name, 6, cohort="all") for name in "abc"), *map(local_queue, "abc"))
    for number, (queue, cpu, priority) in enumerate(load):
        world.submit(workload(f"w{number}", queue, cpu, priority=priority, created=number))
        world.now += 1
        world.engine.settle(world.now)
    world.tell(cohort("all", shared))
    for name, quota in zip("abc", lowered, strict=True):
        world.tell((converging if name in asking else cluster_queue)(name, quota, cohort="all"))
    assert evicted(world) == []
    before = world.engine.usage()
    world.now += DELAY
    gone = evicted(world)
    assert {load[int(uid[1:])][0] for uid in gone} <= asking
    nominal = dict(zip("abc", lowered, strict=True))
    for uid in gone:
        used = before[load[int(uid[1:])][0]]["default"]["cpu"]
        assert used > 1000 * nominal[load[int(uid[1:])][0]], "what is within nominal quota stays"
    for uid in gone:
        world.gone(uid)
    (domain,) = world.engine._registry.forest.domains.values()
    for name in asking:
        node = domain.tree.queues[name]
        assert node.usage[0] <= node.nominal[0] or available(node, 0) >= 0
    for uid in gone:
        queue, cpu, _ = load[int(uid[1:])]
        add_usage(domain.tree.queues[queue], 0, cpu * 1000)
        nodes = [domain.tree.queues[name] for name in asking]
        over = [node for node in nodes if node.usage[0] > node.nominal[0] and available(node, 0) < 0]
        assert over, f"{uid} could have stayed"
        remove_usage(domain.tree.queues[queue], 0, cpu * 1000)
