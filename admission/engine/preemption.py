"""Classical preemption: the search for victims, in trees of any depth (Kueue's `preemption.go`)."""

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
from admission.engine.victims import Claim, Target, fill_back, ordered, permitted
from admission.engine.vocabulary import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node


class Variant(Enum):
    """The grounds on which a candidate may be preempted."""

    OWN_QUEUE = auto()
    HIERARCHY = auto()
    """The claim comes from a subtree whose own quota holds it."""
    WITHOUT_BORROWING = auto()
    """Only if the claim's ClusterQueue will not borrow."""
    WHILE_BORROWING = auto()


_REASONS = {
    Variant.OWN_QUEUE: IN_CLUSTER_QUEUE,
    Variant.HIERARCHY: IN_COHORT_RECLAMATION,
    Variant.WITHOUT_BORROWING: IN_COHORT_RECLAMATION,
    Variant.WHILE_BORROWING: IN_COHORT_RECLAIM_WHILE_BORROWING,
}


class Candidate(NamedTuple):
    """A workload that may be preempted."""

    held: Held
    node: Node
    common: Node | None
    """The lowest common ancestor with the claim's ClusterQueue; None if that is its own."""
    variant: Variant


class Search:
    """The search for victims for one preemptor."""

    def __init__(
        self,
        find: Callable[[Domain, Claim], list[Target]],
        domain: Domain,
        queue: ClusterQueue,
        item: Item,
        excluded: Mapping[str, object],
    ) -> None:
        assert queue.node is not None
        self._find = find
        self._domain = domain
        self._claim = Claim(queue, queue.node, item.shape.priority, item.since, {}, frozenset(), excluded)
        self._found: dict[tuple[frozenset[tuple[int, int]], frozenset[int]], list[Target]] = {}

    def targets(self, assignment: Assignment) -> list[Target]:
        """The victims for a whole assignment; empty if preemption cannot make it fit."""
        # Like Kueue, which does not count the implicit resource here: victims are sought for what the pods request.
        frs = self._domain.tree.frs
        requests = {fr: amount for fr, amount in assignment.usage.items() if amount and frs[fr][1] != PODS}
        return self._victims(requests, assignment.needing_preemption())

    def _victims(self, requests: Mapping[int, int], needed: frozenset[int]) -> list[Target]:
        # Often the assignment asks for the one flavor-resource that was simulated before.
        key = frozenset(requests.items()), needed
        if key not in self._found:
            self._found[key] = self._find(self._domain, self._claim._replace(requests=requests, needed=needed))
        return self._found[key]

    def simulate(self, fr: int, amount: int) -> tuple[Possibility, int]:
        """What preemption could do for one flavor-resource alone, and the borrowing level after it."""
        node = self._claim.node
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


MakeSearch = Callable[["Domain", "ClusterQueue", "Item", Mapping[str, object]], Search]


def classical(domain: Domain, claim: Claim) -> list[Target]:
    """The victims by classical preemption; none if the claim cannot be met."""
    candidates = _candidates(domain, claim)
    if not candidates:
        return []
    others = any(candidate.variant is not Variant.OWN_QUEUE for candidate in candidates)
    hierarchical = any(candidate.variant is Variant.HIERARCHY for candidate in candidates)
    node = claim.node
    forbidden = claim.queue.spec.preemption.borrow_within_cohort.policy == "Never"
    below_nominal = all(node.usage[fr] < node.nominal[fr] for fr in claim.needed)
    if not others or (forbidden and not below_nominal):
        attempts = [True]
    elif forbidden and not hierarchical:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for may_borrow in attempts:
        targets = _attempt(claim, candidates, may_borrow=may_borrow)
        if targets:
            return targets
    return []


def _attempt(claim: Claim, candidates: list[Candidate], *, may_borrow: bool) -> list[Target]:
    node = claim.node

    def fit() -> bool:
        if not may_borrow and any(borrows_with(node, fr, amount) for fr, amount in claim.requests.items()):
            return False
        return fits(node, claim.requests)

    targets: list[Target] = []
    found = False
    for candidate in candidates:
        if not _valid(candidate, claim, may_borrow=may_borrow):
            continue
        candidate.held.queue.uncount(candidate.held)
        targets.append(Target(candidate.held, candidate.node, _REASONS[candidate.variant]))
        if fit():
            targets = fill_back(targets, fit)
            found = True
            break
    for target in targets:
        target.held.queue.recount(target.held)
    return targets if found else []


def _valid(candidate: Candidate, claim: Claim, *, may_borrow: bool) -> bool:
    """Whether a candidate may still be preempted when those before it are gone."""
    if candidate.common is None:
        return True
    if may_borrow and candidate.variant is Variant.WITHOUT_BORROWING:
        return False
    node: Node | None = candidate.node
    while node is not None and node is not candidate.common:
        if within_quota(node, claim.needed):
            return False
        node = node.parent
    return True


def _candidates(domain: Domain, claim: Claim) -> list[Candidate]:
    policy = claim.queue.spec.preemption.within_cluster_queue
    own = [Candidate(held, claim.node, None, Variant.OWN_QUEUE) for held in permitted(claim, claim.queue, policy)]
    elsewhere = list(_elsewhere(domain, claim))
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
        in_order = ordered((candidate.held for candidate in group), claim.queue, domain.usage_of)
        group[:] = [by_uid[held.workload.uid] for held in in_order]
    for evicting in (True, False):
        for group in groups:
            result += [candidate for candidate in group if candidate.held.evicting is evicting]
    return result


def _elsewhere(domain: Domain, claim: Claim) -> Iterator[Candidate]:
    """Candidates in other ClusterQueues of the tree, where these and all Cohorts on the way are above their quota."""
    policy = claim.queue.spec.preemption.reclaim_within_cohort
    if policy == "Never" or not claim.node.path:
        return
    advantage, remaining = _fits_in_own_quota(claim.node, claim.requests)
    below: Node = claim.node
    for common in claim.node.path:
        for node in _over_quota(common, below, claim.needed):
            queue = domain.at.get(node)
            if queue is None:
                continue
            for held in permitted(claim, queue, policy):
                yield Candidate(held, node, common, _variant(claim, held, advantage=advantage))
        fit, remaining = _fits_in_own_quota(common, remaining)
        advantage = advantage or fit
        below = common


def _over_quota(node: Node, skipped: Node, needed: frozenset[int]) -> Iterator[Node]:
    """The ClusterQueues under `node`, but not under `skipped`, that can be reached through nodes above their quota."""
    for cohort in node.cohorts:
        if cohort is not skipped and not within_quota(cohort, needed):
            yield from _over_quota(cohort, skipped, needed)
    for queue in node.queues:
        if queue is not skipped and not within_quota(queue, needed):
            yield queue


def _fits_in_own_quota(node: Node, requests: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
    """Whether the node's own quota holds the requests, and what of them goes beyond its local quota."""
    fit = not any(borrows_with(node, fr, amount) for fr, amount in requests.items())
    return fit, {fr: max(0, amount - local_available(node, fr)) for fr, amount in requests.items()}


def _variant(claim: Claim, held: Held, *, advantage: bool) -> Variant:
    if advantage:
        return Variant.HIERARCHY
    borrow = claim.queue.spec.preemption.borrow_within_cohort
    threshold = borrow.max_priority_threshold
    priority = held.workload.priority
    if borrow.policy == "Never" or priority >= claim.priority or (threshold is not None and priority > threshold):
        return Variant.WITHOUT_BORROWING
    return Variant.WHILE_BORROWING
