"""Nothing is admitted that is preempted at once, in virtual time, while preempted workloads stop slowly."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from heapq import heappop, heappush

import pytest

from admission.engine import Engine, Policy
from admission.model import sentences
from admission.model.queues import QueueObject
from admission.model.workload import Workload
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload

STOPS = 20.0
"""Seconds that the pods of a preempted workload take to stop."""
STARTS = 1.0
"""Seconds from an admission to its first pod; preempted before, it releases its quota in the next round."""
ROUND = 0.025
ROUNDS = 3000
"""More than any scene needs that ends: a workload that is admitted and preempted without end stops there."""


def teams() -> list[QueueObject]:
    """Return a tree of two levels in which all ClusterQueues borrow and reclaim."""
    policies = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    parents = {"vision": "ai", "nlp": "ai", "research": "labs", "platform": "labs"}
    queues = [cluster_queue(name, 20, cohort=parent, preemption=policies) for name, parent in parents.items()]
    return [cohort("ai"), cohort("labs", parent="ai"), *queues, *map(local_queue, parents)]


def jobs(seed: int, seconds: float) -> list[tuple[Workload, float]]:
    """Return workloads that arrive over this time, with the seconds that each runs."""
    drawn = random.Random(seed)
    found: list[tuple[Workload, float]] = []
    at = 0.0
    while at < seconds:
        queue = drawn.choices(["vision", "nlp", "research", "platform"], [3, 3, 2, 2])[0]
        cpu, priority = drawn.choice([1, 2, 4, 4, 8]), drawn.choice([0] * 6 + [-10, 1000])
        job = workload(f"w{len(found)}", queue, cpu, priority=priority, created=at)
        found.append((job, drawn.choice([20.0, 40.0, 80.0])))
        at += drawn.uniform(0.4, 1.6)
    return found


class SlowPods:
    """An engine whose workloads run for their time, and stop slowly when they are preempted."""

    def __init__(self, objects: list[QueueObject], workloads: list[tuple[Workload, float]], policy: Policy) -> None:
        self._world = World(*objects, engine=Engine(policy))
        self._seconds = {job.uid: seconds for job, seconds in workloads}
        self._due: list[tuple[float, int, str, Workload, int]] = []
        self.admissions: Counter[str] = Counter()
        self.preemptors: defaultdict[str, set[str]] = defaultdict(set)
        self.taken_back: list[str] = []
        """Workloads that a round has both admitted and preempted."""
        self.idle: list[str] = []
        """Workloads that waited for a preemptor while no workload was being stopped."""
        self.pending: set[str] = set()
        self.stopping: set[str] = set()
        self.rounds = 0
        self._running: dict[str, float] = {}
        for job, _ in workloads:
            self._at(job.created, "arrives", job)

    def _at(self, at: float, what: str, job: Workload) -> None:
        heappush(self._due, (at, len(self._due) + self.rounds * ROUNDS, what, job, self.admissions[job.uid]))

    def run(self) -> None:
        """Play until all workloads have finished, or for `ROUNDS` rounds."""
        while self._due and self.rounds < ROUNDS:
            now = self._world.now = self._due[0][0]
            while self._due and self._due[0][0] == now:
                self._happen(*heappop(self._due)[2:])
            self._decide(now)
            self.rounds += 1

    def _happen(self, what: str, job: Workload, admission: int) -> None:
        if what == "arrives":
            self.pending.add(job.uid)
            self._world.submit(job)
        elif what == "stops":
            self.stopping.remove(job.uid)
            self.pending.add(job.uid)
            self._world.gone(job.uid, requeue=job)
        elif job.uid not in self.stopping and admission == self.admissions[job.uid] and job.uid not in self.pending:
            self._world.gone(job.uid)

    def _decide(self, now: float) -> None:
        decisions = self._world.engine.settle(now)
        for admit in decisions.admitted:
            uid = admit.workload.uid
            self.admissions[uid] += 1
            self.pending.remove(uid)
            self._running[uid] = now
            self._at(now + self._seconds[uid], "finishes", admit.workload)
        for evict in decisions.evicted:
            uid = evict.workload.uid
            assert evict.preemptor is not None
            self.preemptors[uid].add(evict.preemptor)
            self.stopping.add(uid)
            if self._running[uid] == now:
                self.taken_back.append(uid)
            self._at(now + (STOPS if now - self._running[uid] >= STARTS else ROUND), "stops", evict.workload)

        if not self.stopping:
            explained = {uid: self._world.engine.explain(uid) for uid in self.pending}
            self.idle += [uid for uid, found in explained.items() if found and found.message == sentences.YIELDS]

    @property
    def unfinished(self) -> set[str]:
        return self.pending | self.stopping


@pytest.mark.costly
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
@pytest.mark.parametrize("fair_sharing", [False, True])
def test_admissions_are_bounded_by_the_preemptors(fair_sharing, seed):
    scene = SlowPods(teams(), jobs(seed, 150.0), Policy(fair_sharing=fair_sharing))
    scene.run()
    assert scene.taken_back == []
    assert scene.idle == []
    assert scene.unfinished == set(), scene.admissions.most_common(3)
    bound = {uid: 1 + 2 * len(scene.preemptors[uid]) for uid in scene.admissions}
    assert {uid: times for uid, times in scene.admissions.items() if times > bound[uid]} == {}


def one_queue() -> World:
    return World(cluster_queue("cq", 2, preemption={"withinClusterQueue": "LowerPriority"}), local_queue("cq"))


def test_workload_that_a_waiting_one_would_preempt_at_once_is_not_admitted():
    world = one_queue()
    world.submit(workload("victim", "cq", 2))
    assert world.admitted() == ["victim"]
    world.submit(workload("high", "cq", 2, priority=5, created=1))
    assert world.admitted() == []
    world.submit(workload("higher", "cq", 2, priority=9, created=2))
    world.gone("victim")
    decisions = world.engine.settle(world.now)
    assert [admit.workload.uid for admit in decisions.admitted] == ["higher"]
    assert (decisions.evicted, decisions.flapping) == ((), ())


def waiting_for_both() -> World:
    """Return a ClusterQueue in which `both` has preempted `first`, and would preempt `high` if it was admitted."""
    world = one_queue()
    world.submit(workload("first", "cq", 1))
    assert world.admitted() == ["first"]
    world.now += 1
    world.submit(workload("second", "cq", 1, created=1))
    assert world.admitted() == ["second"]
    world.submit(workload("high", "cq", 1, priority=5, created=2))
    (evict,) = world.engine.settle(world.now).evicted
    assert evict.workload.uid == "second"
    world.submit(workload("both", "cq", 2, priority=9, created=3))
    world.gone("second")
    decisions = world.engine.settle(world.now)
    assert decisions.admitted == ()
    assert [evict.workload.uid for evict in decisions.evicted] == ["first"]
    return world


def test_reason_says_that_it_would_be_preempted():
    world = waiting_for_both()
    found = world.engine.explain("high")
    assert found is not None
    assert (found.reason, found.message) == ("WaitingForQuota", sentences.YIELDS)
    world.gone("first")
    assert world.admitted() == ["both"]
    found = world.engine.explain("high")
    assert found is not None
    assert found.message != sentences.YIELDS


def test_it_is_admitted_when_the_other_one_leaves():
    world = waiting_for_both()
    world.gone("both")
    assert world.admitted() == ["high"]
    assert world.engine.usage()["cq"]["default"]["cpu"] == 2000


def test_workload_preempted_again_for_the_same_one_rests_longer_each_time():
    world = one_queue()
    low, high = workload("low", "cq", 2), workload("high", "cq", 2, priority=5, created=1)
    world.submit(low)
    rests = []
    for _ in range(4):
        assert world.admitted() == ["low"]
        world.submit(high)
        assert len(world.engine.settle(world.now).evicted) == 1
        began = world.now
        world.gone("low", requeue=low)
        assert world.admitted() == ["high"]
        world.gone("high")
        again = world.engine.wake_at()
        if again is not None:
            assert world.admitted() == []
            world.now = again
        rests.append(world.now - began)
    assert rests == [0, 30, 60, 120]


def test_workload_that_has_run_for_long_does_not_rest():
    world = one_queue()
    low, high = workload("low", "cq", 2), workload("high", "cq", 2, priority=5, created=1)
    world.submit(low)
    for _ in range(3):
        assert world.admitted() == ["low"]
        world.now += 600
        world.submit(high)
        assert len(world.engine.settle(world.now).evicted) == 1
        world.gone("low", requeue=low)
        assert world.admitted() == ["high"]
        world.gone("high")
