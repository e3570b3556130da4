"""Targets of fair sharing, compared with a direct implementation of the rule: highest share first."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from admission.engine import Engine, Policy
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload

Candidate = tuple[int, float, str]
"""(priority, negated time of admission, uid): the smallest is preempted first; each candidate has one core."""


class Rule:
    """Direct implementation of the rule: ClusterQueues of one Cohort, candidates in order, and targets taken."""

    def __init__(self, weights: dict[str, int], candidates: dict[str, list[Candidate]]) -> None:
        self.weights = weights
        self.used = {name: len(found) for name, found in candidates.items()}
        self.left = {name: sorted(found) for name, found in candidates.items()}
        self.taken: list[str] = []

    def share(self, name: str, less: int = 0) -> float:
        return (self.used[name] - less) / self.weights[name]

    def take(self, wanted: int, may: Callable[[float, float], bool], *, once: bool) -> None:
        """Try candidates until `wanted` are taken; `once`: at most one of each ClusterQueue."""
        offered = {name: list(left) for name, left in self.left.items()}
        while len(self.taken) < wanted and any(offered.values()):
            name = min((name for name in offered if offered[name]), key=lambda name: (-self.share(name), offered[name]))
            candidate = offered[name].pop(0)
            if may(self.share(name), self.share(name, 1)):
                self.left[name].remove(candidate)
                self.taken.append(candidate[2])
                self.used[name] -= 1
            if once:
                offered[name] = []


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("entitled", [True, False])
def test_targets_are_taken_from_the_cluster_queue_with_the_highest_share(seed, entitled):
    """The preemptor reclaims its nominal quota, or borrows as much as the others do."""
    draw = random.Random(seed)
    names = ["q0", "q1", "q2", "q3"]
    weights = {name: draw.choice([1, 1, 2]) for name in ["claimant", *names]}
    counts = {name: draw.randint(0, 6) for name in names}
    counts["q0"] += 2
    total, wanted = sum(counts.values()), draw.randint(1, 9)
    wanted = min(wanted, total)
    world = World(
        cohort("all", 0 if entitled else total),
        *(
            cluster_queue(
                name,
                total if entitled and name == "claimant" else 0,
                cohort="all",
                preemption={"reclaimWithinCohort": "LowerPriority"},
                fairSharing={"weight": str(weight)},
            )
            for name, weight in weights.items()
        ),
        *map(local_queue, weights),
        engine=Engine(Policy(fair_sharing=True)),
    )
    candidates: dict[str, list[Candidate]] = {name: [] for name in names}
    of = draw.sample([name for name in names for _ in range(counts[name])], total)
    for number, name in enumerate(of):
        world.now += draw.randint(0, 1)
        uid, priority = f"w{number:02}", draw.randint(0, 1)
        world.submit(workload(uid, name, priority=priority))
        assert world.admitted() == [uid]
        candidates[name].append((priority, -world.now, uid))
    rule = Rule(weights, candidates)
    own = wanted / weights["claimant"]
    rule.take(wanted, lambda _, final: entitled or own <= final, once=False)
    rule.take(wanted, lambda initial, _: own < initial, once=True)
    world.submit(workload("claim", "claimant", wanted, priority=5))
    found = {evict.workload.uid for evict in world.engine.settle(world.now).evicted}
    assert found == (set(rule.taken) if len(rule.taken) == wanted else set())
