"""What holds for whole runs: who gets what is his own, what preemption comes to, how shares even out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from admission.engine import Engine, Policy
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

if TYPE_CHECKING:
    from admission.model.workload import Workload


@pytest.mark.parametrize("seed", range(5))
def test_within_nominal_work_gets_its_quota_back(seed):
    """In a cohort where all may be reclaimed, nobody waits for what is his own, and evictions come to an end."""
    names = ["a", "b", "c"]
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    world = World(
        *(cluster_queue(name, 5, cohort="all", preemption=preemption) for name in names),
        *(local_queue(name) for name in names),
    )
    items = {}
    for number in range(60):
        queue = names[(number * 7 + seed) % 3] if number % 4 else "a"
        cpu, priority = 1 + (number * 3 + seed) % 3, (number * 5 + seed) % 3
        item = items[f"w{number}"] = workload(f"w{number}", queue, cpu, priority=priority, created=float(number))
        world.submit(item)
        _settle_with_evictions(world, items)
        usage = world.engine.usage()
        for name in names:
            waiting = world.engine.pending(name)
            for first in sorted((*waiting.active, *waiting.inadmissible), key=lambda w: (-w.priority, w.created))[:1]:
                used = usage.get(name, {}).get("default", {}).get("cpu", 0)
                assert used + first.pod_sets[0].requests["cpu"] > 5000, f"{first.name} could run within nominal quota"


@pytest.mark.parametrize("seed", range(5))
def test_no_preemption_is_in_vain(seed):
    """In one queue, whoever preempts gets the room that was made."""
    world = World(cluster_queue("q", 7, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("q"))
    items = {}
    for number in range(60):
        cpu, priority = 1 + (number * 3 + seed) % 4, (number * 7 + seed) % 5
        item = items[f"w{number}"] = workload(f"w{number}", "q", cpu, priority=priority, created=float(number))
        world.submit(item)
        decisions = world.engine.settle(world.now)
        for evict in decisions.evicted:
            world.gone(evict.workload.uid, requeue=items[evict.workload.uid])
        got = {admit.workload.uid for admit in world.engine.settle(world.now).admitted}
        assert {evict.preemptor for evict in decisions.evicted} <= got


def _settle_with_evictions(world: World, items: dict[str, Workload]) -> None:
    for _ in range(50):
        decisions = world.engine.settle(world.now)
        if not decisions.evicted:
            return
        for evict in decisions.evicted:
            world.gone(evict.workload.uid, requeue=items[evict.workload.uid])
    pytest.fail("evictions never end")


def test_fair_shares_follow_the_weights_under_saturation():
    weights = {"a": 1, "b": 2, "c": 3}
    world = World(
        manifest(
            "Cohort",
            "all",
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": 60}]}],
                    }
                ]
            },
        ),
        *(
            cluster_queue(name, 0, cohort="all", fairSharing={"weight": str(weight)})
            for name, weight in weights.items()
        ),
        *(local_queue(name) for name in weights),
        engine=Engine(Policy(fair_sharing=True)),
    )
    for number in range(200):
        world.submit(*(workload(f"{name}-{number}", name, created=float(number)) for name in weights))
    running = world.admitted()
    for _ in range(200):
        world.gone(running.pop(0))
        running += world.admitted()
    usage = {name: flavors["default"]["cpu"] for name, flavors in world.engine.usage().items()}
    assert usage == {"a": 10_000, "b": 20_000, "c": 30_000}
    queues, _ = world.engine.weighted_share()
    assert len(set(queues.values())) == 1
