"""The engine: is told what happens, and decides, cycle by cycle.

A function of what it was told, and in which order: no clock, no I/O, no randomness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from admission.engine.accounting import Accounting
from admission.engine.convergence import converge, deadline
from admission.engine.cycle import Cycle
from admission.engine.events import Admit, Decisions, Event, Evict, Flap, Park
from admission.engine.explain import Explanation, explain_held, explain_waiting
from admission.engine.fair import share
from admission.engine.fair_preemption import STRATEGIES, fair
from admission.engine.fair_standby import Standby
from admission.engine.flapping import Preemptions
from admission.engine.levels import cohort_levels, queue_levels
from admission.engine.over_quota import Overuse, overuse
from admission.engine.preemption import Search, classical
from admission.engine.queue_listing import Place, places
from admission.engine.registry import Registry
from admission.engine.remedies import remedies
from admission.engine.review import Review, unguarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from admission.engine.fair_standby import Aside
    from admission.engine.forest import Domain
    from admission.engine.levels import CohortLevels, QueueLevels
    from admission.engine.policies.contract import AdmissionPolicy, PastAdmission, PolicyConfig, PolicyEvent
    from admission.engine.remedies import Remedy
    from admission.model.queues import LocalQueueSpec
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Policy:
    """The configuration of an engine, for all quota trees."""

    fair_sharing: bool = False
    preemption_strategies: tuple[str, ...] = tuple(STRATEGIES)
    """Of fair sharing: LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order."""
    policies: tuple[PolicyConfig, ...] = ()
    """Rules beside quota, such as AdmissionFairSharing; the first that orders or refuses decides."""
    accounting: Accounting = field(default_factory=Accounting)
    ignore_undeclared: bool = False
    """Kueue's quotaCheckStrategy IgnoreUndeclared: resources that a ClusterQueue has no quota of do not count."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pending workloads of a ClusterQueue, in order."""

    active: tuple[Workload, ...]
    inadmissible: tuple[Workload, ...]
    """Not tried again before quota becomes free or something changes."""


class Engine:
    """Decides about admissions: tell it events by `observe`, then call `cycle` or `settle`."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._registry = Registry(self._policy.policies, self._policy.accounting)
        find = classical
        if self._policy.fair_sharing:
            strategies = [STRATEGIES[name] for name in self._policy.preemption_strategies]
            find = partial(fair, strategies=strategies)
        self._search = partial(Search, find)
        self._review = Review(self._registry, ignore_undeclared=self._policy.ignore_undeclared)
        self._preemptions = Preemptions(self._registry.items, self._registry.held)
        self._cycle = 0

    def observe(self, event: Event, *, now: float) -> None:
        """Apply an event at `now` (Unix time, s); nothing is decided before the next cycle."""
        self._registry.now = now
        self._registry.observe(event)

    def arrange(self, now: float) -> None:
        """Apply changes of queue objects without deciding anything: for an engine that only explains."""
        self._registry.now = now
        self._registry.refresh()

    def cycle(self, now: float) -> Decisions:
        """Run one scheduler cycle at `now` (Unix time, s): at most one head of each ClusterQueue is tried."""
        return self._run(now, lean=False)

    def _run(self, now: float, *, lean: bool) -> Decisions:
        registry = self._registry
        registry.now = now
        registry.wake()
        evicted = registry.refresh()
        registry.retry_refused()
        parked = registry.newly_outside()
        admitted: list[Admit] = []
        domains = registry.forest.domains.values()
        if any(domain.dirty or domain.waiting for domain in domains):
            self._cycle += 1
        for domain in domains:
            if domain.converging:
                evicted += converge(domain, now)
            if not domain.dirty:
                continue
            # With classical preemption no ClusterQueue is ever left out.
            aside = self._standby(domain, lean=lean) if self._policy.fair_sharing else None
            if domain.freed:
                domain.requeue_inadmissible(lean=lean)
            result = Cycle(
                domain,
                self._search,
                fair=self._policy.fair_sharing,
                now=now,
                number=self._cycle,
                lean=lean,
                ignore_undeclared=self._policy.ignore_undeclared,
                aside=aside,
                policies=registry.policies,
            ).run()
            # A further cycle without heads, and without usage over quota to bring down, would decide nothing.
            is_over = lean and not domain.converging and not any(queue.pending.by_uid for queue in domain.queues)
            domain.dirty = result.moved and not is_over
            domain.version += 1
            registry.unreviewed.update(dict.fromkeys(result.preempting))
            registry.changed_trees[id(domain.queues)] = domain.queues
            if domain.standby is not None and not domain.dirty:
                domain.standby.end()
            for admit, held in result.admitted:
                registry.admit(held)
                admitted.append(admit)
            evicted += result.evicted
            parked += result.parked
        if registry.policies.filtering and registry.policies.take_changes():
            registry.changed_trees[0] = registry.forest.queues.values()
        flaps = self._preemptions.note(admitted, evicted) if evicted or self._preemptions.watches else []
        if self._preemptions.watches and not self._moving():
            flaps += self._preemptions.in_vain()
        return Decisions(tuple(admitted), tuple(evicted), tuple(parked), flapping=tuple(flaps))

    def _standby(self, domain: Domain, *, lean: bool) -> Aside | None:
        """Decide which ClusterQueues the next cycle leaves out, and what they have to do with it."""
        if self._registry.policies.filtering:
            return None  # a head that it leaves out or lets in by quota alone may be one that a policy refuses
        if domain.standby is None:
            if not (lean and self._policy.fair_sharing and domain.flat):
                return None
            domain.standby = Standby(domain, ignore_undeclared=self._policy.ignore_undeclared)
        if lean:
            return domain.standby.sift()
        domain.standby.give_up()
        return None

    def _moving(self) -> bool:
        """Whether another cycle could decide more."""
        return any(domain.dirty for domain in self._registry.forest.domains.values())

    def settle(self, now: float, limit: int = 1000, *, until_admitted: bool = False) -> Decisions:
        """Run cycles until nothing changes, at most `limit`, or `until_admitted` a workload; all their decisions.

        Workloads that certainly do not fit are left out where that makes no difference to who is admitted; the numbers
        in their messages are not brought up to date then.
        """
        admitted: list[Admit] = []
        evicted: list[Evict] = []
        parked: dict[str, Park] = {}
        flapping: list[Flap] = []
        cycles = 0
        while cycles < limit:
            decisions = self._run(now, lean=True)
            cycles += 1
            admitted += decisions.admitted
            evicted += decisions.evicted
            parked.update((park.workload.uid, park) for park in decisions.parked)
            flapping += decisions.flapping
            if not self._moving() or (until_admitted and admitted):
                break
        for admit in admitted:
            parked.pop(admit.workload.uid, None)
        return Decisions(tuple(admitted), tuple(evicted), tuple(parked.values()), cycles, tuple(flapping))

    def reasons(
        self, limit: int, *, isolated: Callable[[str], AbstractContextManager[None]] = unguarded
    ) -> tuple[Park, ...]:
        """Waiting workloads with another reason or sentence than this returned for them last; looks at `limit` of them.

        The sentences are those of `admission.model.sentences`, where decisions speak in Kueue's words. Ask again while
        `reasons_are_due`, after a `settle`: none are looked at while queue objects have changed since then. `isolated`
        catches what is raised for the workload with the uid given.
        """
        if self._registry.has_news:  # what is remembered of shapes must not be of flavors that are half known
            return ()
        return tuple(self._review.take(limit, isolated))

    @property
    def reasons_are_due(self) -> bool:
        """Whether `reasons` has something left to look at."""
        return self._review.is_due

    def forget(self, admit: Admit) -> None:
        """Undo an admission that could not be committed: the workload is pending again."""
        held = self._registry.held.get(admit.workload.uid)
        if held is not None:
            self._registry.free(held)
            self._registry.requeue(held.workload)

    def wake_at(self) -> float | None:
        """Unix time (s) of the next cycle that is due without an event, as a backoff or delay ends; None: none."""
        delays = (deadline(domain) for domain in self._registry.forest.domains.values() if domain.converging)
        registry = self._registry
        woken = registry.wake_at() if registry.asleep or registry.policies.refused else None
        return min((at for at in (woken, *delays) if at is not None), default=None)

    @property
    def policies(self) -> tuple[AdmissionPolicy, ...]:
        """The policies at work, in the order of the configuration."""
        return self._registry.policies.all

    @property
    def history(self) -> float:
        """How many seconds of the ledger `seed` has to be given; 0: none."""
        return self._registry.policies.history

    def seed(self, admissions: list[PastAdmission], *, now: float) -> None:
        """Tell the policies what was held in the past: after queue objects, before workloads, in one or more calls."""
        self._registry.now = now
        self._registry.policies.seed(admissions)

    def policy_events(self) -> list[PolicyEvent]:
        """The policies' state as of the last event or cycle: `observe` of these has another engine go on from here."""
        return self._registry.policies.events()

    @property
    def waiting(self) -> int:
        """The number of pending workloads, those on hold or without a LocalQueue included."""
        return len(self._registry.items)

    def cluster_queues(self) -> list[str]:
        """The names of all ClusterQueues, sorted."""
        return sorted(self._registry.forest.specs)

    def pending(self, cluster_queue: str) -> Waiting:
        """The pending workloads of a ClusterQueue."""
        queue = self._registry.forest.queue(cluster_queue)
        if queue in self._registry.forest.domain_of:
            self._registry.forest.domain_of[queue].requeue_inadmissible(lean=False)
        pending = queue.pending
        return Waiting(
            tuple(item.workload for item in pending.active()), tuple(item.workload for item in pending.inadmissible())
        )

    def listing(
        self, cluster_queue: str, *, limit: int, offset: int = 0, local_queue: tuple[str, str] | None = None
    ) -> tuple[Place, ...]:
        """A page of the pending workloads of a ClusterQueue, or of a LocalQueue (namespace, name), with positions.

        In the order of priority and time, active or inadmissible. The sticky preemptor and the order of LocalQueues by
        usage, which may put others first, are left out.
        """
        ignore = self._policy.ignore_undeclared
        return places(self._registry, cluster_queue, local_queue, limit, offset, ignore_undeclared=ignore)

    def count_waiting(self, cluster_queue: str, local_queue: tuple[str, str] | None = None) -> int:
        """The number of workloads in that listing."""
        return len(self._registry.forest.queue(cluster_queue).pending.ranking(local_queue))

    def usage(self) -> dict[str, dict[str, dict[str, int]]]:
        """The quota in use, by ClusterQueue, flavor and resource. Amounts as in the model."""
        usage: dict[str, dict[str, dict[str, int]]] = {}
        for held in self._registry.held.values():
            flavors = usage.setdefault(held.admission.cluster_queue, {})
            for (flavor, resource), amount in held.usage:
                resources = flavors.setdefault(flavor, {})
                resources[resource] = resources.get(resource, 0) + amount
        return usage

    def cluster_queue_of(self, uid: str) -> str:
        """The name of the ClusterQueue in which a workload is pending or holds quota; empty: in none."""
        held, item = self._registry.held.get(uid), self._registry.items.get(uid)
        return held.admission.cluster_queue if held is not None else "" if item is None else item.cluster_queue

    def local_queues(self) -> Mapping[tuple[str, str], LocalQueueSpec]:
        """All LocalQueues that exist, by (namespace, name)."""
        return self._registry.local_queues

    def levels(self) -> tuple[list[QueueLevels], list[CohortLevels]]:
        """Quota, usage and numbers of pending workloads of each ClusterQueue and each Cohort, for metrics."""
        return list(queue_levels(self._registry.forest)), list(cohort_levels(self._registry.forest))

    def weighted_share(self) -> tuple[dict[str, float], dict[str, float]]:
        """The share in fair sharing of each ClusterQueue, and of each Cohort; infinite where the weight is 0."""
        queues: dict[str, float] = {}
        cohorts: dict[str, float] = {}
        for domain in self._registry.forest.domains.values():
            queues.update((name, share(node, domain.tree).value) for name, node in domain.tree.queues.items())
            cohorts.update((name, share(node, domain.tree).value) for name, node in domain.tree.cohorts.items())
        return queues, cohorts

    def overuse(self) -> tuple[Overuse, ...]:
        """The ClusterQueues and Cohorts that use more than their quota, as it was lowered."""
        domains = self._registry.forest.domains.values()
        return tuple(over for domain in domains for over in overuse(domain.tree))

    def explain(self, uid: str) -> Explanation | None:
        """State, position and obstacles of a workload; None if it is not known."""
        held = self._registry.held.get(uid)
        if held is not None:
            return explain_held(held)
        item = self._registry.items.get(uid)
        ignore = self._policy.ignore_undeclared
        return None if item is None else explain_waiting(self._registry, item, ignore_undeclared=ignore)

    def remedies(self, uid: str) -> tuple[Remedy, ...]:
        """Changes of a waiting workload with each of which it would be admitted now, as far as some were found."""
        item = self._registry.items.get(uid)
        if item is None:
            return ()
        # In fair sharing, shares decide about preemption, and a priority changes little.
        search = None if self._policy.fair_sharing else partial(self._search, excluded={})
        ignore = self._policy.ignore_undeclared
        return tuple(remedies(self._registry, item, ignore_undeclared=ignore, search=search))
