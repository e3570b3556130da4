"""Stateful property test: invariants of the engine for random trees and sequences of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admission.engine import (
    AdmissionFairSharing,
    Engine,
    Policy,
    SharerUsed,
    WorkloadAdmitted,
    WorkloadEvicted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.registry import Registry
from admission.engine.tree import Node, available
from admission.model.workload import Workload
from tests.engine.scenes import World, cluster_queue, consumption, local_queue, manifest, workload

_reclaim = st.sampled_from(["Never", "LowerPriority", "Any"])
_preemption = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": _reclaim,
    }
) | st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": _reclaim,
        "timeSlice": st.just("5s"),
    }
)
_fungibility = st.fixed_dictionaries(
    {
        "whenCanBorrow": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        "whenCanPreempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
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
        "fungibility": _fungibility,
        "weight": st.sampled_from([0, 1, 2]),
        "converges": st.booleans(),
    }
)
_PARENTS = {"left": "root", "right": "root", "deep": "left"}
_DELAY = 7


def _object(name: str, shape: dict[str, Any], change: int = 0) -> Any:
    quota = {flavor: max(0, amount + change) for flavor, amount in sorted(shape["quota"].items())}
    limits = {}
    if shape["cohort"] and shape["borrowing"] is not None:
        limits["borrowingLimit"] = shape["borrowing"]
    if shape["cohort"] and shape["lending"] is not None:
        limits["lendingLimit"] = min(shape["lending"], *quota.values())
    return cluster_queue(
        name,
        quota,
        cohort=shape["cohort"],
        limits=limits,
        queueingStrategy=shape["strategy"],
        preemption=shape["preemption"],
        flavorFungibility=shape["fungibility"],
        fairSharing={"weight": str(shape["weight"])},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},  # for AdmissionFairSharing only
        **({"overQuota": {"evictAfterSeconds": _DELAY}} if shape["converges"] else {}),
    )


class Machine(RuleBasedStateMachine):
    """State machine: a random tree, two engines that receive the same events, and the expected state of workloads."""

    policy = Policy()

    @initialize(shapes=st.lists(_queue, min_size=1, max_size=4), as_kueue=st.booleans())
    def start(self, shapes, as_kueue):
        self.policy = replace(self.policy, as_kueue=as_kueue)
        self.shapes = dict(enumerate(shapes))
        self.change = dict.fromkeys(self.shapes, 0)
        self.worlds = [World(engine=Engine(self.policy)) for _ in range(2)]
        self.waiting: dict[str, WorkloadPending] = {}
        self.running: dict[str, WorkloadAdmitted] = {}
        self.evicting: set[str] = set()
        self.preempting: dict[str, set[str]] = {}
        """Uid of a preemptor to its targets that have not stopped yet."""
        self.debts: dict[tuple[str, ...], int] = {}
        """Amount by which the usage of each node may exceed its limits, because these were lowered."""
        self.count = 0
        for world in self.worlds:
            self._tell_objects(world)

    @property
    def now(self) -> float:
        return self.worlds[0].now

    def tell(self, event: Any) -> None:
        for world in self.worlds:
            world.engine.observe(event, now=world.now)

    def _tell_objects(self, world: World) -> None:
        world.tell(*(manifest("ResourceFlavor", name, {}) for name in ("f0", "f1")))
        world.tell(*(manifest("Cohort", name, {"parentName": parent}) for name, parent in _PARENTS.items()))
        for number, shape in self.shapes.items():
            name = f"q{number}"
            world.tell(_object(name, shape, self.change[number]))
            world.tell(local_queue(name), local_queue(f"{name}-too", to=name))

    def settle(self):
        engine, other = (world.engine for world in self.worlds)
        first = engine.settle(self.now)
        assert engine.wake_at() is None or engine.wake_at() > self.now  # otherwise it decides without a pause
        if self.policy.as_kueue:
            # The other engine runs full cycles, which skip nothing.
            cycles = [other.cycle(self.now) for _ in range(60)]
            assert first.admitted == tuple(admit for cycle in cycles for admit in cycle.admitted)
            assert first.evicted == tuple(evict for cycle in cycles for evict in cycle.evicted)
            assert first.flapping == tuple(flap for cycle in cycles for flap in cycle.flapping)
            # A head of a StrictFIFO queue is tried again in each cycle, with another flavor while its search continues:
            # its message may change in every cycle, and nothing else may.
            assert not replace(cycles[-1], parked=())
        else:  # only a round takes admissions back that it preempts
            assert other.settle(self.now) == first
        assert len({admit.workload.uid for admit in first.admitted}) == len(first.admitted)
        for admit in first.admitted:
            uid = admit.workload.uid
            assert self.waiting.pop(uid).not_before <= self.now
            self.running[uid] = WorkloadAdmitted(admit.workload, admit.admission, self.now)
            self.preempting.pop(uid, None)
        preempted: dict[str, set[str]] = {}
        for evict in first.evicted:
            uid = evict.workload.uid
            assert uid in self.running
            assert uid not in self.evicting
            self.evicting.add(uid)
            if evict.reason == "Preempted":
                preempted.setdefault(evict.preemptor, set()).add(uid)
            else:
                assert evict.reason == "OverQuota"
                assert self.shapes[int(self.running[uid].admission.cluster_queue[1:])]["converges"]
        # A preemptor that is still pending after its targets have released their quota is reported.
        in_vain = {uid for uid, victims in self.preempting.items() if not victims}
        assert {flap.preemptor.uid for flap in first.flapping} == in_vain
        for uid in in_vain:
            del self.preempting[uid]
        for uid, victims in preempted.items():
            self.preempting.setdefault(uid, set()).update(victims)

    def _stop(self, uid: str) -> Workload:
        self.evicting.discard(uid)
        for victims in self.preempting.values():
            victims.discard(uid)
        return self.running.pop(uid).workload

    @rule(
        queue=st.integers(0, 3),
        suffix=st.sampled_from(["", "-too"]),
        cpu=st.integers(1, 6),
        count=st.integers(1, 3),
        fewest=st.none() | st.integers(1, 3),
        priority=st.integers(0, 2),
        settle=st.booleans(),
    )
    def arrive(self, queue, suffix, cpu, count, fewest, priority, settle):
        self.count += 1
        name = f"w{self.count}"
        item = workload(
            name,
            f"q{queue % len(self.shapes)}{suffix}",
            cpu,
            count=count,
            priority=priority,
            created=float(self.count),
            pods={"min_count": None if fewest is None else min(fewest, count)},
        )
        self._wait(WorkloadPending(item))
        if settle:
            self.settle()

    def _wait(self, event: WorkloadPending) -> None:
        self.waiting[event.workload.uid] = event
        self.tell(event)

    def _some(self, among: dict[str, Any], pick: int) -> str:
        return sorted(among)[pick % len(among)]

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0), requeue=st.booleans())
    def end(self, pick, requeue):
        """A running workload finishes, or was evicted and is requeued."""
        uid = self._some(self.running, pick)
        requeue = requeue or uid in self.evicting
        item = self._stop(uid)
        self.tell(WorkloadGone(uid, requeue=item if requeue else None))
        if requeue:
            self.waiting[uid] = WorkloadPending(item)
        self.settle()

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0), seconds=st.integers(1, 20))
    def retry(self, pick, seconds):
        """An admission check reports Retry: the workload stops and is requeued with a backoff."""
        uid = self._some(self.running, pick)
        self.tell(WorkloadEvicted(uid))
        self.settle()
        item = replace(self._stop(uid), queued_at=self.now)
        self.tell(WorkloadGone(uid, requeue=item, not_before=self.now + seconds))
        self.waiting[uid] = WorkloadPending(item, not_before=self.now + seconds)
        self.settle()

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0))
    def reclaim(self, pick):
        """Some pods of a workload are not needed any more: their quota is released immediately."""
        uid = self._some(self.running, pick)
        told = self.running[uid]
        (pods,) = told.admission.pod_sets
        if pods.count > 1 and uid not in self.evicting:
            usage = {resource: amount // pods.count for resource, amount in pods.usage.items()}
            less = replace(pods, count=1, usage=usage)
            smaller = replace(told, admission=replace(told.admission, pod_sets=(less,)))
            self.running[uid] = smaller
            self.tell(smaller)
            self.settle()

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0))
    def withdraw(self, pick):
        uid = self._some(self.waiting, pick)
        del self.waiting[uid]
        self.preempting.pop(uid, None)
        self.tell(WorkloadGone(uid))
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0), to_top=st.booleans())
    def move(self, pick, to_top):
        """An admin moves a pending workload up, or to the first position."""
        uid = self._some(self.waiting, pick)
        queue = self.waiting[uid].workload.queue.removesuffix("-too")
        engine = self.worlds[0].engine
        other = engine.listing(queue, limit=1)[0].workload if to_top else self.waiting[uid].workload
        priority = other.priority if other.rank_priority is None else other.rank_priority
        since = other.since if other.rank_at is None else other.rank_at
        ranked = replace(self.waiting[uid].workload, rank_priority=priority, rank_at=since - 0.5)
        self._wait(replace(self.waiting[uid], workload=ranked))
        if to_top:
            assert engine.listing(queue, limit=1)[0].workload.uid == uid
        self.settle()

    @rule(number=st.integers(0, 3), change=st.integers(-4, 4))
    def change_quota(self, number, change):
        number %= len(self.shapes)
        self.change[number] += change
        for world in self.worlds:
            world.tell(_object(f"q{number}", self.shapes[number], self.change[number]))
        _registry(self.worlds[0].engine).refresh()
        self.debts = _debts(self.worlds[0].engine)
        self.settle()

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds):
        for world in self.worlds:
            world.now += seconds
        self.settle()

    @rule()
    def restart(self):
        """Replace the engines by new ones that load the stored state; all invariants must still hold."""
        self.settle()
        self.worlds = [self._rebuilt() for _ in self.worlds]
        self.preempting.clear()
        self.settle()

    def _rebuilt(self) -> World:
        world = World(engine=Engine(self.policy))
        world.now = self.now
        self._tell_objects(world)
        engine = world.engine
        for (namespace, name), used in consumption(self.worlds[0].engine).items():
            engine.observe(SharerUsed((namespace, name), used.consumed, used.updated, used.penalties), now=self.now)
        for uid, told in self.running.items():
            engine.observe(replace(told, evicting=uid in self.evicting), now=self.now)
        for event in self.waiting.values():
            engine.observe(event, now=self.now)
        return world

    @invariant()
    def no_workload_is_lost(self):
        engine = self.worlds[0].engine
        waiting = [
            item.uid
            for name in engine.cluster_queues()
            for item in (*engine.pending(name).active, *engine.pending(name).inadmissible)
        ]
        assert sorted(waiting) == sorted(self.waiting)
        listed = [place for name in engine.cluster_queues() for place in engine.listing(name, limit=1000)]
        assert sorted(place.workload.uid for place in listed) == sorted(self.waiting)
        for uid in (*self.waiting, *self.running):
            explanation = engine.explain(uid)
            assert explanation is not None
            assert (explanation.state == "Pending") == (uid in self.waiting)

    @invariant()
    def usage_equals_admissions(self):
        expected: dict[str, dict[str, dict[str, int]]] = {}
        for told in self.running.values():
            for pod_set in told.admission.pod_sets:
                for resource, flavor in pod_set.flavors.items():
                    amounts = expected.setdefault(told.admission.cluster_queue, {}).setdefault(flavor, {})
                    amounts[resource] = amounts.get(resource, 0) + pod_set.usage[resource]
        assert self.worlds[0].engine.usage() == expected

    @invariant()
    def nodes_exceed_limits_only_after_lowered_quota(self):
        engine = self.worlds[0].engine
        assert all(used >= 0 for node in _nodes(engine) for used in node.usage)
        debts = _debts(engine)
        for where, debt in debts.items():
            assert debt <= self.debts.get(where, 0), f"{where} owes {debt}"
        self.debts = debts

    @invariant()
    def trees_equal_those_of_a_new_engine(self):
        rebuilt = self._rebuilt()
        _registry(rebuilt.engine).refresh()
        _registry(self.worlds[0].engine).refresh()
        assert _state(self.worlds[0].engine) == _state(rebuilt.engine)


class FairMachine(Machine):
    policy = Policy(fair_sharing=True)


class UsageMachine(Machine):
    policy = Policy(policies=(AdmissionFairSharing(half_life=10.0, sampling_interval=5.0),))


def _registry(engine: Engine) -> Registry:
    return engine._registry


def _nodes(engine: Engine) -> list[Node]:
    trees = [domain.tree for domain in _registry(engine).forest.domains.values()]
    return [node for tree in trees for node in (*tree.queues.values(), *tree.cohorts.values())]


def _debts(engine: Engine) -> dict[tuple[str, ...], int]:
    """Return the amount by which the usage of each node exceeds its limits."""
    debts = {}
    for domain in _registry(engine).forest.domains.values():
        for node in (*domain.tree.queues.values(), *domain.tree.cohorts.values()):
            for fr, used in enumerate(node.usage):
                limit = node.borrowing[fr]
                beyond = 0 if limit is None or node.parent is None else used - node.quota[fr] - limit
                debt = max(-available(node, fr), beyond)
                if debt > 0:
                    debts[node.name, *domain.tree.frs[fr]] = debt
    return debts


def _state(engine: Engine) -> Any:
    ledger = {
        key: (used.updated, used.consumed, used.penalty(), {name: at for name, at in used.current.items() if at})
        for key, used in consumption(engine).items()
    }
    nodes = {(node.leaf, node.name): (node.quota, node.local, node.potential, node.usage) for node in _nodes(engine)}
    return nodes, ledger


_SETTINGS = settings(max_examples=30, stateful_step_count=25)
TestClassical = Machine.TestCase
TestClassical.settings = _SETTINGS
TestFair = FairMachine.TestCase
TestFair.settings = _SETTINGS
TestUsage = UsageMachine.TestCase
TestUsage.settings = _SETTINGS
