"""What holds for all trees and all sequences of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admission.engine import Engine, Policy, WorkloadAdmitted
from admission.engine.tree import Node, available
from tests.engine.scenes import World, cluster_queue, local_queue, manifest, workload

if TYPE_CHECKING:
    from admission.engine.registry import Registry
    from admission.model.workload import Admission, Workload

_preemption = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
    }
)
_limit = st.none() | st.integers(0, 6)
_queue = st.fixed_dictionaries(
    {
        "quota": st.dictionaries(st.sampled_from(["f0", "f1"]), st.integers(0, 8), min_size=1),
        "cohort": st.sampled_from(["", "root", "left", "right", "deep"]),
        "borrowing": _limit,
        "lending": _limit,
        "strategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "preemption": _preemption,
        "weight": st.sampled_from([0, 1, 2]),
    }
)
_PARENTS = {"left": "root", "right": "root", "deep": "left"}


def _object(name: str, shape: dict[str, Any], raised: int = 0) -> Any:
    limits = {}
    if shape["cohort"] and shape["borrowing"] is not None:
        limits["borrowingLimit"] = shape["borrowing"]
    if shape["cohort"] and shape["lending"] is not None:
        limits["lendingLimit"] = min(shape["lending"], *shape["quota"].values())
    return cluster_queue(
        name,
        {flavor: amount + raised for flavor, amount in sorted(shape["quota"].items())},
        cohort=shape["cohort"],
        limits=limits,
        queueingStrategy=shape["strategy"],
        preemption=shape["preemption"],
        fairSharing={"weight": str(shape["weight"])},
    )


class Machine(RuleBasedStateMachine):
    """A tree of random shape, two engines that are told the same, and what a bookkeeper knows of it."""

    fair = False

    @initialize(shapes=st.lists(_queue, min_size=1, max_size=4))
    def start(self, shapes):
        self.shapes = dict(enumerate(shapes))
        self.raised = dict.fromkeys(self.shapes, 0)
        policy = Policy(fair_sharing=self.fair)
        self.worlds = [World(engine=Engine(policy)) for _ in range(2)]
        self.waiting: dict[str, Workload] = {}
        self.running: dict[str, tuple[Workload, Admission]] = {}
        self.evicting: set[str] = set()
        self.count = 0
        for world in self.worlds:
            self._tell_objects(world)

    def _tell_objects(self, world: World) -> None:
        world.tell(*(manifest("ResourceFlavor", name, {}) for name in ("f0", "f1")))
        world.tell(*(manifest("Cohort", name, {"parentName": parent}) for name, parent in _PARENTS.items()))
        for number, shape in self.shapes.items():
            world.tell(_object(f"q{number}", shape, self.raised[number]), local_queue(f"q{number}"))

    def settle(self):
        engine, other = (world.engine for world in self.worlds)
        first = engine.settle(self.worlds[0].now)
        # The other one is not allowed to leave anything out.
        cycles = [other.cycle(self.worlds[1].now) for _ in range(60)]
        assert first.admitted == tuple(admit for cycle in cycles for admit in cycle.admitted)
        assert first.evicted == tuple(evict for cycle in cycles for evict in cycle.evicted)
        assert not cycles[-1]
        assert len({admit.workload.uid for admit in first.admitted}) == len(first.admitted)
        for admit in first.admitted:
            self.running[admit.workload.uid] = self.waiting.pop(admit.workload.uid), admit.admission
        for evict in first.evicted:
            assert evict.workload.uid in self.running
            assert evict.workload.uid not in self.evicting
            self.evicting.add(evict.workload.uid)

    @rule(
        queue=st.integers(0, 3),
        cpu=st.integers(1, 6),
        count=st.integers(1, 2),
        priority=st.integers(0, 2),
        settle=st.booleans(),
    )
    def arrive(self, queue, cpu, count, priority, settle):
        self.count += 1
        name = f"w{self.count}"
        item = workload(
            name, f"q{queue % len(self.shapes)}", cpu, count=count, priority=priority, created=float(self.count)
        )
        self.waiting[name] = item
        for world in self.worlds:
            world.submit(item)
        if settle:
            self.settle()

    @rule(pick=st.integers(0), requeue=st.booleans())
    def end(self, pick, requeue):
        """One that runs finishes, or has been stopped and waits again."""
        if not self.running:
            return
        uid = sorted(self.running)[pick % len(self.running)]
        item, _ = self.running.pop(uid)
        requeue = requeue or uid in self.evicting
        self.evicting.discard(uid)
        for world in self.worlds:
            world.gone(uid, requeue=item if requeue else None)
        if requeue:
            self.waiting[uid] = item
        self.settle()

    @rule(pick=st.integers(0))
    def withdraw(self, pick):
        if self.waiting:
            uid = sorted(self.waiting)[pick % len(self.waiting)]
            del self.waiting[uid]
            for world in self.worlds:
                world.gone(uid)
            self.settle()

    @rule(number=st.integers(0, 3), more=st.integers(1, 3))
    def raise_quota(self, number, more):
        number %= len(self.shapes)
        self.raised[number] += more
        for world in self.worlds:
            world.tell(_object(f"q{number}", self.shapes[number], self.raised[number]))
        self.settle()

    @rule()
    def restart(self):
        """A new engine is told what is written down; it must decide as well as the one before."""
        self.settle()
        self.worlds = [self._rebuilt() for _ in self.worlds]
        self.settle()

    def _rebuilt(self) -> World:
        world = World(engine=Engine(Policy(fair_sharing=self.fair)))
        self._tell_objects(world)
        for uid, (item, admission) in self.running.items():
            world.engine.observe(
                WorkloadAdmitted(item, admission, at=world.now, evicting=uid in self.evicting), now=world.now
            )
        world.submit(*self.waiting.values())
        return world

    @invariant()
    def nobody_is_lost(self):
        engine = self.worlds[0].engine
        waiting = {
            item.uid
            for name in engine.cluster_queues()
            for item in (*engine.pending(name).active, *engine.pending(name).inadmissible)
        }
        assert waiting == set(self.waiting)
        for uid in (*self.waiting, *self.running):
            explanation = engine.explain(uid)
            assert explanation is not None
            assert (explanation.state == "Pending") == (uid in self.waiting)

    @invariant()
    def usage_is_what_was_admitted(self):
        expected: dict[str, dict[str, dict[str, int]]] = {}
        for _, admission in self.running.values():
            for pod_set in admission.pod_sets:
                for resource, flavor in pod_set.flavors.items():
                    amounts = expected.setdefault(admission.cluster_queue, {}).setdefault(flavor, {})
                    amounts[resource] = amounts.get(resource, 0) + pod_set.usage[resource]
        assert self.worlds[0].engine.usage() == expected

    @invariant()
    def no_node_is_over_its_limit(self):
        for node in _nodes(self.worlds[0].engine):
            for fr, used in enumerate(node.usage):
                assert used >= 0
                assert available(node, fr) >= 0, f"{node.name} owes {-available(node, fr)}"
                limit = node.borrowing[fr]
                assert limit is None or node.parent is None or used <= node.quota[fr] + limit

    @invariant()
    def the_trees_are_as_if_built_anew(self):
        rebuilt = self._rebuilt()
        _registry(rebuilt.engine).refresh()
        _registry(self.worlds[0].engine).refresh()
        assert _state(self.worlds[0].engine) == _state(rebuilt.engine)


class FairMachine(Machine):
    fair = True


def _registry(engine: Engine) -> Registry:
    return engine._registry


def _nodes(engine: Engine) -> list[Node]:
    trees = [domain.tree for domain in _registry(engine).forest.domains.values()]
    return [node for tree in trees for node in (*tree.queues.values(), *tree.cohorts.values())]


def _state(engine: Engine) -> Any:
    return {(node.leaf, node.name): (node.quota, node.local, node.potential, node.usage) for node in _nodes(engine)}


_SETTINGS = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestClassical = Machine.TestCase
TestClassical.settings = _SETTINGS
TestFair = FairMachine.TestCase
TestFair.settings = _SETTINGS


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
