"""Classical preemption: the search for preemption targets, in quota trees of any depth.

Follows Kueue's `classicalPreemptions` (`pkg/scheduler/preemption/preemption.go`) and `preemption/classical`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.assignment import Possibility
from admission.engine.clusterqueue import PODS
from admission.engine.tree import (
    borrows_with,
    fits,
    local_available,
    lowest_subtree,
    within_quota,
)
from admission.engine.victims import Placing, Preemptor, Taking, Target, ordered, permitted, reason_in_own_queue
from admission.engine.vocabulary import IN_COHORT_RECLAIM_WHILE_BORROWING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.engine.protection import Guard
    from admission.engine.tree import Node


class Variant(Enum):
    """The rule by which a candidate may be preempted (Kueue's `preemptionVariant`)."""

    OWN_QUEUE = auto()
    """It is in the preemptor's ClusterQueue (`withinClusterQueue`)."""
    HIERARCHY = auto()
    """A subtree below the common ancestor holds the preemptor's requests in its own quota."""
    WITHOUT_BORROWING = auto()
    """`reclaimWithinCohort`, only while the preemptor's ClusterQueue does not borrow."""
    WHILE_BORROWING = auto()
    """`borrowWithinCohort`: also while the preemptor's ClusterQueue borrows."""


_REASONS = {
    Variant.HIERARCHY: IN_COHORT_RECLAMATION,
    Variant.WITHOUT_BORROWING: IN_COHORT_RECLAMATION,
    Variant.WHILE_BORROWING: IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class Candidate(NamedTuple):
    """A workload that may be preempted, with the rule that permits it."""

    held: Held
    node: Node
    """The node of its ClusterQueue."""
    common: Node | None
    """The lowest common ancestor with the preemptor's ClusterQueue; None if it is in that ClusterQueue."""
    variant: Variant


class TargetSearch:
    """The search for preemption targets for one head of a cycle; `find` is `classical`, or `fair_preemption.fair`.

    `excluded`: uids of workloads that are preempted for other heads of the cycle. `guard`: the tree's one, so that it
    is tried again when protection ends. Results are cached by request.
    """

    def __init__(
        self,
        find: Callable[[Domain, Preemptor], list[Target]],
        domain: Domain,
        queue: ClusterQueue,
        item: Item,
        excluded: Mapping[str, object],
        guard: Guard | None = None,
    ) -> None:
        assert queue.node is not None
        self._find = find
        self._domain = domain
        self._preemptor = Preemptor(
            queue,
            queue.node,
            item.shape.priority,
            item.since,
            {},
            frozenset(),
            excluded,
            may_borrow=item.shape.terms.may_borrow,
            guard=guard,
            put_back_at=item.workload.queued_at,
        )
        self._preempts = item.shape.terms.preempts
        self._found: dict[tuple[frozenset[tuple[int, int]], frozenset[int]], list[Target]] = {}

    def targets(self, assignment: Assignment, placing: Placing | None = None) -> list[Target]:
        """Return the targets for a whole assignment; empty if preemption cannot make it fit (Kueue's `GetTargets`).

        `placing`: None if it is not placed by topology.
        """
        # As in Kueue the implicit resource `pods` does not count here, only what the pods request themselves.
        if not self._preempts:
            return []
        frs = self._domain.tree.frs
        requests = {fr: amount for fr, amount in assignment.usage.items() if amount and frs[fr][1] != PODS}
        needed = assignment.needing_preemption()
        if placing is not None:
            preemptor = self._preemptor._replace(requests=requests, needed=needed, placing=placing)
            return self._find(self._domain, preemptor)
        return self._victims(requests, needed)

    def _victims(self, requests: Mapping[int, int], needed: frozenset[int]) -> list[Target]:
        if not self._preempts:
            return []
        # Often the assignment needs just the flavor-resource that was simulated before.
        key = frozenset(requests.items()), needed
        if key not in self._found:
            self._found[key] = self._find(self._domain, self._preemptor._replace(requests=requests, needed=needed))
        return self._found[key]

    def simulate(self, fr: int, amount: int) -> tuple[Possibility, int]:
        """Return what preemption could do for one flavor-resource alone, and the borrowing level after it.

        Kueue's `SimulatePreemption`.
        """
        node = self._preemptor.node
        targets = self._victims({fr: amount}, frozenset((fr,)))
        for target in targets:
            target.held.queue.uncount(target.held)
        borrow, _ = lowest_subtree(node, fr, amount)
        for target in targets:
            target.held.queue.recount(target.held)
        if not targets:
            return Possibility.NO_CANDIDATES, borrow
        if any(target.node is node for target in targets):
            return Possibility.PREEMPT, borrow
        return Possibility.RECLAIM, borrow


MakeSearch = Callable[["Domain", "ClusterQueue", "Item", Mapping[str, object], "Guard | None"], TargetSearch]


def classical(domain: Domain, preemptor: Preemptor) -> list[Target]:
    """Return the targets by classical preemption; empty if preemption cannot make the workload fit."""
    candidates = _candidates(domain, preemptor)
    if not candidates:
        return []
    others = any(candidate.variant is not Variant.OWN_QUEUE for candidate in candidates)
    hierarchical = any(candidate.variant is Variant.HIERARCHY for candidate in candidates)
    node = preemptor.node
    forbidden = preemptor.queue.spec.preemption.borrow_within_cohort.policy == "Never"
    below_nominal = all(node.usage[fr] < node.nominal[fr] for fr in preemptor.needed)
    if not others or (forbidden and not below_nominal):
        attempts = [True]
    elif forbidden and not hierarchical:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for may_borrow in attempts if preemptor.may_borrow else [False]:
        targets = _attempt(preemptor, candidates, may_borrow=may_borrow)
        if targets:
            return targets
    return []


def _attempt(preemptor: Preemptor, candidates: list[Candidate], *, may_borrow: bool) -> list[Target]:
    """Return the targets of one pass over the candidates, with or without borrowing; empty if it does not fit."""
    node = preemptor.node

    def enough() -> bool:
        if not may_borrow and any(borrows_with(node, fr, amount) for fr, amount in preemptor.requests.items()):
            return False
        return fits(node, preemptor.requests)

    taking = Taking(enough, preemptor.placing)
    found = any(
        taking.take(Target(candidate.held, candidate.node, _reason(candidate, preemptor)))
        for candidate in candidates
        if _valid(candidate, preemptor, may_borrow=may_borrow)
    )
    return taking.end(found=found)


def _valid(candidate: Candidate, preemptor: Preemptor, *, may_borrow: bool) -> bool:
    """Whether a candidate may still be preempted after the removal of those before it (Kueue's `candidateIsValid`)."""
    if candidate.common is None:
        return True
    if may_borrow and candidate.variant is Variant.WITHOUT_BORROWING:
        return False
    node: Node | None = candidate.node
    while node is not None and node is not candidate.common:
        if within_quota(node, preemptor.needed):
            return False
        node = node.parent
    return True


def _reason(candidate: Candidate, preemptor: Preemptor) -> str:
    own = candidate.variant is Variant.OWN_QUEUE
    return reason_in_own_queue(preemptor, candidate.held) if own else _REASONS[candidate.variant]


def _candidates(domain: Domain, preemptor: Preemptor) -> list[Candidate]:
    """Return all candidates in order: evicted ones first, and in each half hierarchical, other, own ClusterQueue."""
    policy = preemptor.queue.spec.preemption.within_cluster_queue
    own = [
        Candidate(held, preemptor.node, None, Variant.OWN_QUEUE)
        for held in permitted(preemptor, preemptor.queue, policy, "own")
    ]
    elsewhere = list(_elsewhere(domain, preemptor))
    if not own and not elsewhere:
        return []
    groups = [
        [candidate for candidate in elsewhere if candidate.variant is Variant.HIERARCHY],
        [candidate for candidate in elsewhere if candidate.variant is not Variant.HIERARCHY],
        own,
    ]
    result: list[Candidate] = []
    for group in groups:
        by_uid = {candidate.held.workload.uid: candidate for candidate in group}
        held = (candidate.held for candidate in group)
        in_order = ordered(held, preemptor.queue, domain.usage_of, turns=preemptor.turns)
        group[:] = [by_uid[held.workload.uid] for held in in_order]
    for evicting in (True, False):
        for group in groups:
            result += [candidate for candidate in group if candidate.held.evicting is evicting]
    return result


def _elsewhere(domain: Domain, preemptor: Preemptor) -> Iterator[Candidate]:
    """Return the candidates in other ClusterQueues, where these and all Cohorts on the path exceed their quota.

    Kueue's `collectCandidatesForHierarchicalReclaim`.
    """
    policy = preemptor.queue.spec.preemption.reclaim_within_cohort
    if policy == "Never" or not preemptor.node.path:
        return
    advantage, remaining = _fits_in_own_quota(preemptor.node, preemptor.requests)
    below: Node = preemptor.node
    for common in preemptor.node.path:
        for node in _over_quota(common, below, preemptor.needed):
            queue = domain.active_by_node.get(node)
            if queue is None:
                continue
            for held in permitted(preemptor, queue, policy, "reclaim"):
                yield Candidate(held, node, common, _variant(preemptor, held, advantage=advantage))
        fit, remaining = _fits_in_own_quota(common, remaining)
        advantage = advantage or fit
        below = common


def _over_quota(node: Node, skipped: Node, needed: frozenset[int]) -> Iterator[Node]:
    """Return the ClusterQueues under `node`, but not `skipped`, that are reached through nodes above their quota."""
    for cohort in node.cohorts:
        if cohort is not skipped and not within_quota(cohort, needed):
            yield from _over_quota(cohort, skipped, needed)
    for queue in node.queues:
        if queue is not skipped and not within_quota(queue, needed):
            yield queue


def _fits_in_own_quota(node: Node, requests: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
    """Return whether the node's own quota holds the requests, and the part of them beyond its local quota.

    Kueue's `QuantitiesFitInQuota`.
    """
    fit = not any(borrows_with(node, fr, amount) for fr, amount in requests.items())
    return fit, {fr: max(0, amount - local_available(node, fr)) for fr, amount in requests.items()}


def _variant(preemptor: Preemptor, held: Held, *, advantage: bool) -> Variant:
    """Return the rule for a candidate of another ClusterQueue (Kueue's `classifyPreemptionVariant`).

    `advantage`: a subtree of the preemptor below the common ancestor holds its requests.
    """
    if advantage:
        return Variant.HIERARCHY
    borrow = preemptor.queue.spec.preemption.borrow_within_cohort
    threshold = borrow.max_priority_threshold
    priority = held.priority
    if borrow.policy == "Never" or priority >= preemptor.priority or (threshold is not None and priority > threshold):
        return Variant.WITHOUT_BORROWING
    return Variant.WHILE_BORROWING
