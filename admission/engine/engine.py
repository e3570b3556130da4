"""Engine: receives events, and decides about admissions, evictions and pending reasons in scheduling cycles.

Deterministic: decisions follow from the sequence of events and the times passed in. No clock, no I/O, no randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from admission.engine.configuration import Policy
from admission.engine.cycle import Cycle
from admission.engine.events import Admit, Decisions, Event, Evict, Flap, Park, Reassign, WorkloadEvicted
from admission.engine.explain import Explanation, explain_held, explain_waiting
from admission.engine.fair import share
from admission.engine.fair_preemption import STRATEGIES, fair
from admission.engine.fair_skipping import SkippedQueues
from admission.engine.flapping import PreemptionTracker
from admission.engine.levels import cohort_levels, queue_levels
from admission.engine.order import classical as in_order
from admission.engine.over_quota import Overuse, converge, deadline, overuse
from admission.engine.pending_item import Item
from admission.engine.preemption import TargetSearch, classical
from admission.engine.queue_listing import ListedWorkload, pending_workloads
from admission.engine.reason_refresh import ReasonRefresh, unguarded
from admission.engine.registry import Registry
from admission.engine.remedies import remedies
from admission.engine.topology.occupancy import located, occupancy
from admission.engine.topology.second_pass import SecondPass
from admission.engine.topology.state import Topologies

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.entry import Result
    from admission.engine.fair_skipping import SkipPlan
    from admission.engine.forest import Domain
    from admission.engine.levels import CohortLevels, QueueLevels
    from admission.engine.policies.contract import AdmissionPolicy, PastAdmission, PolicyEvent
    from admission.engine.remedies import Remedy
    from admission.engine.reserved_domains import ReservedDomains
    from admission.engine.topology.occupancy import Occupancy
    from admission.engine.topology.second_pass import Due
    from admission.engine.topology.trial import Trial
    from admission.engine.victims import Target
    from admission.model.queues import LocalQueueSpec
    from admission.model.workload import Admission, Workload


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """The pending workloads of a ClusterQueue, in queue order."""

    active: tuple[Workload, ...]
    inadmissible: tuple[Workload, ...]
    """Workloads that are not tried again before quota becomes free or a queue object changes."""


class Engine:
    """Decides about admissions: pass events to `observe`, then call `cycle` or `settle` for decisions."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        placing = self._policy.topology
        topologies = Topologies(placing.placement) if placing is not None else None
        self._registry = Registry(self._policy.policies, self._policy.accounting, topologies)
        find = classical
        if self._policy.fair_sharing:
            strategies = [STRATEGIES[name] for name in self._policy.preemption_strategies]
            find = partial(fair, strategies=strategies)
        self._search = partial(TargetSearch, find)
        self._reason_refresh = ReasonRefresh(self._registry, ignore_undeclared=self._policy.ignore_undeclared)
        self._preemptions = PreemptionTracker(self._registry.items, self._registry.held)
        self._cycle = 0

    def observe(self, event: Event, *, now: float) -> None:
        """Apply an event at `now` (Unix time, s). Decisions follow with the next cycle."""
        self._registry.now = now
        self._registry.observe(event)

    def note_time(self, now: float) -> None:
        """Note the time (Unix time, s), for questions when nothing has happened for a while."""
        self._registry.now = now

    def refresh(self, now: float) -> None:
        """Apply observed changes of queue objects without a cycle, for an engine that only explains."""
        self._registry.now = now
        self._registry.refresh()
        self._registry.lower()

    def cycle(self, now: float) -> Decisions:
        """Run one scheduling cycle at `now` (Unix time, s): at most one head of each ClusterQueue is tried."""
        return self._run(now, lean=False)

    def _run(self, now: float, *, lean: bool) -> Decisions:
        registry = self._registry
        registry.now = now
        registry.wake()
        evicted = registry.refresh()
        registry.lower()
        evicted += registry.drains.evict()
        if registry.policies.evicting:
            evicted += registry.evict_for_policies()
        registry.retry_refused()
        parked = registry.newly_outside()
        admitted: list[Admit] = []
        domains = registry.forest.domains.values()
        victims: dict[str, Held] = {}
        again = self._second_pass(now, victims)
        if again is not None or any(domain.dirty or domain.waiting for domain in domains):
            self._cycle += 1
        cycles: list[tuple[Domain, Cycle]] = []
        for domain in domains:
            if domain.converging:
                evicted += converge(domain, now)
            if not domain.dirty:
                continue
            # With classical preemption no ClusterQueue is skipped.
            skip_plan = self._plan_skips(domain, lean=lean) if self._policy.fair_sharing else None
            if domain.freed:
                domain.requeue_inadmissible(lean=lean)
            cycle = Cycle(
                domain,
                self._search,
                policy=self._policy,
                now=now,
                number=self._cycle,
                lean=lean,
                skip_plan=skip_plan,
                policies=registry.policies,
                victims=victims if domain.placing else None,
                drains=registry.drains or None,
            )
            cycles.append((domain, cycle))
        for domain, result in self._results(cycles, again):
            # Another cycle without heads, and without usage over a lowered quota, would decide nothing.
            is_over = lean and not any(queue.pending.by_uid for queue in domain.queues)
            is_over = is_over and not domain.converging and not domain.concurrent
            domain.dirty = result.moved and not is_over
            domain.version += 1
            registry.stale_reasons.update(dict.fromkeys(result.preempting))
            registry.changed_trees[id(domain.queues)] = domain.queues
            if domain.skipped is not None and not domain.dirty:
                domain.skipped.end()
            for admit, held in result.admitted:
                registry.admit(held)
                admitted.append(admit)
            evicted += result.evicted
            parked += result.parked
        if registry.policies.filtering and registry.policies.take_changes():
            registry.changed_trees[0] = registry.forest.queues.values()
        flaps = self._preemptions.record(admitted, evicted) if evicted or self._preemptions.watches else []
        if self._preemptions.watches and not self._moving():
            flaps += self._preemptions.without_effect()
        reassigned, unplaced = self._take_second_pass(again, evicted)
        return Decisions(
            tuple(admitted),
            tuple(evicted),
            tuple(parked),
            flapping=tuple(flaps),
            reassigned=reassigned,
            unplaced=unplaced,
        )

    def _take_second_pass(
        self, again: SecondPass | None, evicted: list[Evict]
    ) -> tuple[tuple[Reassign, ...], tuple[Park, ...]]:
        """Apply the result of a second pass; its evictions are added to `evicted`."""
        if again is None:
            return (), ()
        assert self._registry.placed is not None
        for held, reassign in again.reassigned:
            self._registry.placed.reassign(held, reassign.admission)
        for held, evict in again.evicted:
            evicted.append(evict)
            self._registry.observe(WorkloadEvicted(held.workload.uid))
        return tuple(reassign for _, reassign in again.reassigned), tuple(again.failed)

    def _second_pass(self, now: float, victims: dict[str, Held]) -> SecondPass | None:
        """Return the search for places of workloads that hold quota; None: none is due."""
        placed, rules = self._registry.placed, self._policy.topology
        if placed is None or rules is None:
            return None
        placed.mark_changed()
        due = placed.due(now)
        if not due:
            return None
        return SecondPass(
            placed.topologies, due, now, fail_fast=rules.fail_fast, search=self._targets_of, victims=victims,
            kept_from=self._registry.drains.hostnames,
        )  # fmt: skip

    def _targets_of(self, due: Due, assignment: Assignment, placing: Trial) -> list[Target]:
        """Return whom a workload may preempt that holds quota, and has no room."""
        held = due.held
        domain = self._registry.forest.domain_of.get(held.queue)
        if domain is None or held.queue.node is None:
            return []
        item = Item(held.workload, due.shape)
        search = self._search(domain, held.queue, item, {item.uid: held}, domain.guard)
        return search.targets(assignment, placing)

    def _results(self, cycles: list[tuple[Domain, Cycle]], again: SecondPass | None) -> Iterator[tuple[Domain, Result]]:
        """Yield the results of the cycles of these trees.

        Trees whose workloads share nodes are decided together: all of their heads are nominated first.
        """
        for domain, cycle in cycles:
            if not domain.placing:
                yield domain, cycle.run()
        together = [cycle for domain, cycle in cycles if domain.placing]
        of = {entry: cycle for cycle in together for entry in cycle.begin()}
        if again is not None:
            again.decide()
        if self._policy.fair_sharing:  # trees have no order among each other
            for cycle in together:
                for entry in cycle.in_order():
                    cycle.decide(entry)
        else:
            for entry in in_order(list(of)):
                of[entry].decide(entry)
        for domain, cycle in cycles:
            if domain.placing:
                yield domain, cycle.end()
        if again is not None:
            again.end()

    def _plan_skips(self, domain: Domain, *, lean: bool) -> SkipPlan | None:
        """Decide which ClusterQueues the next cycle skips; None: none."""
        if (
            self._registry.drains
            or domain.placing
            or domain.concurrent
            or domain.guard is not None
            or self._registry.policies.filtering
        ):
            return None  # predictions consider quota alone, no protection, and no policy that may refuse the head
        if domain.skipped is None:
            if not (lean and self._policy.fair_sharing and domain.flat):
                return None
            domain.skipped = SkippedQueues(domain, ignore_undeclared=self._policy.ignore_undeclared)
        if lean:
            return domain.skipped.plan_cycle()
        domain.skipped.include_all()
        return None

    def _moving(self) -> bool:
        """Whether another cycle could decide more."""
        return any(domain.dirty for domain in self._registry.forest.domains.values())

    def settle(self, now: float, limit: int = 1000, *, until_admitted: bool = False) -> Decisions:
        """Run up to `limit` cycles, until they decide nothing more: a decision round. Return all their decisions.

        A workload that a later cycle of the round preempts is not admitted (docs/semantics.md 2).
        `until_admitted`: return after the first cycle that admits a workload. Workloads that certainly do not fit are
        skipped where that does not change which workloads are admitted; the numbers in their messages are not updated
        then.
        """
        admitted: dict[str, Admit] = {}
        evicted: list[Evict] = []
        parked: dict[str, Park] = {}
        flapping: list[Flap] = []
        reassigned: list[Reassign] = []
        unplaced: list[Park] = []
        cycles = 0
        while cycles < limit:
            decisions = self._run(now, lean=True)
            cycles += 1
            evicted += self._take_back(decisions.evicted, admitted)
            admitted.update((admit.workload.uid, admit) for admit in decisions.admitted)
            parked.update((park.workload.uid, park) for park in decisions.parked)
            flapping += decisions.flapping
            reassigned += decisions.reassigned
            unplaced += decisions.unplaced
            if not self._moving() or (until_admitted and admitted):
                break
        for uid in admitted:
            parked.pop(uid, None)
        return Decisions(
            tuple(admitted.values()),
            tuple(evicted),
            tuple(parked.values()),
            cycles,
            tuple(flapping),
            tuple(reassigned),
            tuple(unplaced),
        )

    def _take_back(self, evicted: tuple[Evict, ...], admitted: dict[str, Admit]) -> list[Evict]:
        """Take back admissions of this round whose quota a preemption of this round takes; return the other evictions.

        `admitted`: what the round has admitted so far, by uid. Nobody has acted on it yet, so that such a workload
        has neither been admitted nor preempted, and its quota is free for the preemptor. Not taken back are workloads
        that have replaced another one, whose quota they have. The other preemptions are counted (see `rests`).
        """
        if self._policy.as_kueue:
            return list(evicted)
        effective = []
        for evict in evicted:
            uid = evict.workload.uid
            if not evict.preemption_reason or evict.preemptor is None:
                effective.append(evict)
                continue
            held = self._registry.held[uid]
            if uid in admitted and not evict.workload.replaces:
                del admitted[uid]
                self._preemptions.forget(evict.preemptor, uid)
                self._registry.withdraw(held, evict.preemptor)
            else:
                if not evict.to_queue_end:
                    self._registry.rests.preempted(held, evict.preemptor, self._registry.now)
                self._registry.forest.preemptions.add(uid, self._registry.now)
                effective.append(evict)
        return effective

    def reasons(
        self, limit: int, *, isolated: Callable[[str], AbstractContextManager[None]] = unguarded
    ) -> tuple[Park, ...]:
        """Return pending workloads whose reason or message differs from the last one returned; checks at most `limit`.

        The messages are those of `admission.model.sentences`, while those of decisions are Kueue's. Call it after
        `settle`, again while `reasons_are_due`: it returns nothing while changes of queue objects are not applied.
        `isolated` returns a context manager that handles exceptions raised for the workload with the given uid.
        """
        if self._registry.has_changes:  # results cached for shapes must not be computed from half of the changes
            return ()
        return tuple(self._reason_refresh.refresh(limit, isolated))

    @property
    def reasons_are_due(self) -> bool:
        """Whether `reasons` has workloads left to check."""
        return self._reason_refresh.is_due

    def forget(self, admit: Admit) -> None:
        """Undo an admission that could not be committed: its quota is free and the workload is pending again."""
        held = self._registry.held.get(admit.workload.uid)
        if held is not None:
            self._registry.undo(held)

    def wake_at(self) -> float | None:
        """Return when the next cycle is due without an event (Unix time, s): a backoff or delay ends; None: never."""
        delays = (deadline(domain) for domain in self._registry.forest.domains.values() if domain.converging)
        registry = self._registry
        timed = registry.forest.guarded or registry.forest.aging or registry.drains
        woken = registry.wake_at() if registry.asleep or registry.policies.refused or timed else None
        again = registry.placed.due_at() if registry.placed is not None else None
        evicts = registry.policies.evicts_at() if registry.policies.evicting else None
        return min((at for at in (woken, again, evicts, *delays) if at is not None), default=None)

    def placed_on(self, hostname: str, cluster: str) -> Collection[str]:
        """Return the uids of the workloads that hold quota for pods on this node."""
        placed = self._registry.placed
        return () if placed is None else placed.on(hostname, cluster)

    def failed_nodes(self, uid: str) -> tuple[str, ...]:
        """Return the failed nodes that the last `NodesFailed` of a workload has named, until there are other ones."""
        placed = self._registry.placed
        return () if placed is None else placed.failed_nodes(uid)

    @property
    def is_placing_again(self) -> bool:
        """Whether workloads that hold quota wait for other domains."""
        return self._registry.placed is not None and self._registry.placed.due_at() is not None

    @property
    def policies(self) -> tuple[AdmissionPolicy, ...]:
        """The active policies, in the order of the configuration."""
        return self._registry.policies.all

    @property
    def history(self) -> float:
        """Seconds of the ledger's past that `seed` needs; 0: none."""
        return self._registry.policies.history

    @property
    def reserved_domains(self) -> ReservedDomains:
        """The Reservations of domains of topologies, such as racks."""
        return self._registry.drains.reserved

    @property
    def lacks_history(self) -> bool:
        """Whether a policy needs past admissions since a queue object has changed (see `policy_events`)."""
        return any(policy.lacking for policy in self._registry.policies.all)

    @property
    def lacking(self) -> set[tuple[str, str]]:
        """The queue objects (kind, name) with which another engine is seeded if this one `lacks_history`."""
        return {each for policy in self._registry.policies.all for each in policy.lacking}

    def seed(self, admissions: list[PastAdmission], *, now: float) -> None:
        """Pass past admissions to the policies, in one or more calls: after queue objects, before workloads."""
        self._registry.now = now
        self._registry.policies.seed(admissions)

    def policy_events(self) -> list[PolicyEvent]:
        """Return the policies' state as events, by which another engine can `observe` it and continue from there."""
        return self._registry.policies.events()

    @property
    def waiting(self) -> int:
        """The number of pending workloads, including those on hold or without a LocalQueue."""
        return len(self._registry.items)

    def cluster_queues(self) -> list[str]:
        """Return the names of all ClusterQueues, sorted."""
        return sorted(self._registry.forest.specs)

    def pending(self, cluster_queue: str) -> WaitingLine:
        """Return the pending workloads of a ClusterQueue."""
        queue = self._registry.forest.queue(cluster_queue)
        if queue in self._registry.forest.domain_of:
            self._registry.forest.domain_of[queue].requeue_inadmissible(lean=False)
        pending = queue.pending
        return WaitingLine(
            tuple(item.workload for item in pending.active()), tuple(item.workload for item in pending.inadmissible())
        )

    def listing(
        self, cluster_queue: str, *, limit: int, offset: int = 0, local_queue: tuple[str, str] | None = None
    ) -> tuple[ListedWorkload, ...]:
        """Return a page of the pending workloads of a ClusterQueue, or of one LocalQueue (namespace, name) in it.

        Active and inadmissible ones in the order of priority and time. The sticky preemptor and the order of
        LocalQueues by usage, which may put other workloads first, are not considered.
        """
        ignore = self._policy.ignore_undeclared
        return pending_workloads(self._registry, cluster_queue, local_queue, limit, offset, ignore_undeclared=ignore)

    def count_waiting(self, cluster_queue: str, local_queue: tuple[str, str] | None = None) -> int:
        """Return the number of workloads in `listing` without limit."""
        return len(self._registry.forest.queue(cluster_queue).pending.ranking(local_queue))

    def usage(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the quota in use, by ClusterQueue, flavor and resource. Amounts as in the model."""
        usage: dict[str, dict[str, dict[str, int]]] = {}
        for held in self._registry.held.values():
            flavors = usage.setdefault(held.admission.cluster_queue, {})
            for (flavor, resource), amount in held.usage:
                resources = flavors.setdefault(flavor, {})
                resources[resource] = resources.get(resource, 0) + amount
        return usage

    def due_by(self, at: float) -> list[str]:
        """Return the uids of workloads that hold quota and whose time limit, since they do, is over at an instant."""
        return [uid for uid, held in self._registry.held.items() if held.ends_by <= at]

    def cluster_queue_of(self, uid: str) -> str:
        """Return the name of the ClusterQueue in which a workload is pending or holds quota; empty: in none."""
        held, item = self._registry.held.get(uid), self._registry.items.get(uid)
        return held.admission.cluster_queue if held is not None else "" if item is None else item.cluster_queue

    def local_queues(self) -> Mapping[tuple[str, str], LocalQueueSpec]:
        """Return all existing LocalQueues by (namespace, name)."""
        return self._registry.local_queues

    def levels(self) -> tuple[list[QueueLevels], list[CohortLevels]]:
        """Return quota, usage and numbers of pending workloads of each ClusterQueue and each Cohort, for metrics."""
        return list(queue_levels(self._registry.forest)), list(cohort_levels(self._registry.forest))

    def weighted_share(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the dominant resource shares of ClusterQueues, and of Cohorts, by name.

        Infinite for a node that borrows with a weight of 0.
        """
        queues: dict[str, float] = {}
        cohorts: dict[str, float] = {}
        for domain in self._registry.forest.domains.values():
            queues.update((name, share(node, domain.tree).value) for name, node in domain.tree.queues.items())
            cohorts.update((name, share(node, domain.tree).value) for name, node in domain.tree.cohorts.items())
        return queues, cohorts

    def overuse(self) -> tuple[Overuse, ...]:
        """Return the flavor-resources of ClusterQueues and Cohorts whose usage exceeds their (lowered) quota."""
        domains = self._registry.forest.domains.values()
        return tuple(over for domain in domains for over in overuse(domain.tree))

    def is_admitted(self, uid: str) -> bool:
        """Whether a workload holds quota and is not being evicted."""
        held = self._registry.held.get(uid)
        return held is not None and not held.evicting

    def placing_flavors(self) -> list[str]:
        """Return the names of the flavors with a topology whose nodes are known here, sorted."""
        placed = self._registry.placed
        return [] if placed is None else sorted(placed.topologies.trees)

    def occupancy(self, flavor: str) -> Callable[[], Occupancy] | None:
        """Return what computes, also in a thread, what the domains of a flavor's topology hold now.

        None: the flavor has no topology, or nodes are not known here.
        """
        return occupancy(self._registry, flavor)

    def located(self, admission: Admission) -> Admission:
        """Return an admission with all levels of the domains in which its pods are placed, as the ledger has them."""
        return located(self._registry, admission)

    def explain(self, uid: str) -> Explanation | None:
        """Return state, position and obstacles of a workload; None: the uid is not known."""
        held = self._registry.held.get(uid)
        if held is not None:
            return explain_held(self._registry, held)
        item = self._registry.items.get(uid)
        ignore = self._policy.ignore_undeclared
        if item is None:
            return None
        fair_sharing = self._policy.fair_sharing
        return explain_waiting(self._registry, item, ignore_undeclared=ignore, fair_sharing=fair_sharing)

    def dependents(self, workload: Workload) -> list[Workload]:
        """Return the pending workloads that start after this one has ended or succeeded, oldest first."""
        return self._registry.dependents(workload.namespace, workload.kind.lower(), workload.name)

    def _search_aside(self, domain: Domain, queue: ClusterQueue, item: Item) -> TargetSearch:
        """Return a search for preemption targets that is no decision: it has nothing tried again."""
        return self._search(domain, queue, item, {}, self._registry.guard_aside(domain))

    def remedies(self, uid: str) -> tuple[Remedy, ...]:
        """Return changes of a pending workload, each of which alone would let it be admitted now; empty: none found."""
        item = self._registry.items.get(uid)
        if item is None:
            return ()
        # With fair sharing, shares decide about preemption, so that a higher priority helps little.
        search = None if self._policy.fair_sharing else self._search_aside
        ignore = self._policy.ignore_undeclared
        return tuple(remedies(self._registry, item, ignore_undeclared=ignore, search=search))
