"""`Engine.settle`: after quota is freed it tries only workloads that may fit, with the decisions of full cycles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

NOBODY = {"withinClusterQueue": "Never"}
LOWER = {"withinClusterQueue": "LowerPriority"}
EQUAL = {"withinClusterQueue": "LowerOrNewerEqualPriority"}


def crowd(quota: Any, waiting: range, *, preemption: dict[str, str] = NOBODY, **fields: Any) -> World:
    """Return a ClusterQueue with all quota in use by workloads of 1 core, and one pending workload of each size."""
    world = World(cluster_queue("cq", quota, preemption=preemption, **fields), local_queue("cq"))
    world.tell(manifest("ResourceFlavor", "spot", {}))
    world.tell(manifest("ResourceFlavor", "tainted", {"nodeTaints": [{"key": "k", "effect": "NoSchedule"}]}))
    runners = [f"r{number:02}" for number in range(20)]
    world.submit(*(workload(name, "cq", created=-1.0) for name in runners))
    running = world.admitted()
    for name in runners[len(running) :]:
        world.gone(name)
    world.submit(*(workload(f"w{size}", "cq", size, created=float(size)) for size in waiting))
    assert not world.engine.settle(world.now).admitted
    return world


@pytest.mark.parametrize(
    "quota", [8, {"default": 4, "spot": 4}, {"default": 1, "spot": 7}, {"tainted": 9, "default": 8}]
)
@pytest.mark.parametrize("preemption", [NOBODY, LOWER])
def test_released_quota_that_is_too_small_is_settled_within_two_cycles(quota, preemption):
    """There is not a cycle for each pending size."""
    world = crowd(quota, range(2, 9), preemption=preemption)
    world.gone("r00")
    decisions = world.engine.settle(world.now)
    assert not decisions
    assert decisions.cycles <= 2


def test_workloads_that_could_preempt_are_tried_after_quota_is_released():
    """All workloads are tried, as the policy permits each to preempt those that were queued after it."""
    world = crowd(8, range(2, 9), preemption=EQUAL)
    world.gone("r00")
    assert world.engine.settle(world.now).cycles > 7


def test_released_quota_is_given_to_the_first_workload_that_fits():
    world = crowd({"default": 4, "spot": 4}, range(2, 9))
    for uid in ("r00", "r04"):  # one core of each flavor: not two of the same
        world.gone(uid)
        assert world.admitted() == []
    world.gone("r05")
    assert world.admitted() == ["w2"]
    for uid in ("r01", "r02"):
        world.gone(uid)
    assert world.admitted() == ["w3"], "in the other flavor"


def test_untolerated_flavor_does_not_prevent_use_of_the_next_flavor():
    world = crowd({"tainted": 9, "default": 4}, range(2, 4))
    world.gone("r00")
    assert world.admitted() == []
    world.gone("r01")
    assert world.admitted() == ["w2"]


@pytest.mark.parametrize("lowest", [0, -5])
def test_preemption_starts_when_released_quota_makes_the_targets_enough(lowest):
    """`high` was inadmissible because workloads of lower priority and free quota together were not enough."""
    world = World(cluster_queue("cq", 10, preemption=LOWER), local_queue("cq"))
    world.submit(
        workload("stays", "cq", 6, priority=5),
        workload("ends", "cq", 1, priority=5),
        workload("low", "cq", 3, priority=lowest),
    )
    assert len(world.admitted()) == 3
    world.submit(workload("high", "cq", 4, priority=lowest + 1, created=1))
    assert not world.engine.settle(world.now).evicted
    world.gone("ends")
    assert [evict.workload.uid for evict in world.engine.settle(world.now).evicted] == ["low"]


def test_stopped_queue_does_not_block_later_queues():
    world = World(
        *(cluster_queue(name, 2, cohort="all", stopPolicy="Hold" if name == "a" else "None") for name in "abc"),
        *map(local_queue, "abc"),
    )
    world.submit(*(workload(f"of-{name}", name) for name in "abc"))
    assert world.admitted() == ["of-b", "of-c"]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_added_flavor_is_used_by_a_pending_workload(strategy):
    world = World(cluster_queue("cq", {"default": 1}, queueingStrategy=strategy), local_queue("cq"))
    world.submit(workload("w", "cq", 3))
    assert world.admitted() == []
    world.tell(manifest("ResourceFlavor", "another", {}))
    world.tell(cluster_queue("cq", {"default": 1, "another": 3}, queueingStrategy=strategy))
    (admit,) = world.engine.settle(world.now).admitted
    assert [pod_set.flavors for pod_set in admit.admission.pod_sets] == [{"cpu": "another"}]
    assert world.engine.usage() == {"cq": {"another": {"cpu": 3000}}}
