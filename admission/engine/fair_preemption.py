"""Whose quota is taken back so that a workload fits, under fair sharing: from those furthest above their share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from admission.engine.fair import Share, share
from admission.engine.tree import add_usage, borrows_with, fits, remove_usage
from admission.engine.victims import Claim, Target, fill_back, ordered, permitted
from admission.engine.vocabulary import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.engine.clusterqueue import Held
    from admission.engine.forest import Domain
    from admission.engine.tree import Node

Strategy = Callable[[Share, Share, Share], bool]
"""(preemptor's share with the workload, target's share now, target's share without the candidate): may it be taken?"""


def _at_most_final(preemptor: Share, _: Share, final: Share) -> bool:
    return preemptor <= final


def _below_initial(preemptor: Share, initial: Share, _: Share) -> bool:
    return preemptor < initial


STRATEGIES: dict[str, Strategy] = {
    "LessThanOrEqualToFinalShare": _at_most_final,
    "LessThanInitialShare": _below_initial,
}
"""By Kueue's name, in the order in which they are tried."""


def fair(domain: Domain, claim: Claim, strategies: Sequence[Strategy]) -> list[Target]:
    """The victims by fair sharing; none if the claim cannot be met.

    The first strategy chooses among all candidates; if that does not suffice, the second one has a pass over those that
    the first refused.
    """
    candidates = _candidates(domain, claim)
    if not candidates:
        return []
    search = _Search(domain, claim)
    for fr, amount in claim.requests.items():  # shares are those with the workload
        add_usage(claim.node, fr, amount)
    found = search.first_pass(candidates, strategies[0])
    if not found and len(strategies) > 1:
        found = search.second_pass(search.refused, strategies[1])
    for fr, amount in claim.requests.items():
        remove_usage(claim.node, fr, amount)
    targets = search.targets
    if found:
        targets = fill_back(targets, lambda: fits(claim.node, claim.requests))
    for target in targets:
        target.held.queue.recount(target.held)
    return targets if found else []


def _candidates(domain: Domain, claim: Claim) -> list[Held]:
    preemption = claim.queue.spec.preemption
    candidates: list[Held] = []
    for node, queue in domain.at.items():
        if node is claim.node:
            candidates += permitted(claim, queue, preemption.within_cluster_queue)
        elif any(borrows_with(node, fr, 0) for fr in claim.needed):
            candidates += permitted(claim, queue, preemption.reclaim_within_cohort)
    return ordered(candidates, claim.queue, domain.usage_of)


class _Search:
    """The victims so far. Candidates are offered queue by queue, always from where the share is the highest."""

    def __init__(self, domain: Domain, claim: Claim) -> None:
        self._domain = domain
        self._claim = claim
        self.targets: list[Target] = []
        self.refused: list[Held] = []

    def first_pass(self, candidates: list[Held], strategy: Strategy) -> bool:
        """Take candidates until the claim fits; whether it does."""
        claim = self._claim
        entitled = not any(borrows_with(claim.node, fr, 0) for fr in claim.needed)
        offers = _Offers(self._domain, claim, candidates)
        for node in offers:
            if node is claim.node or entitled:
                reason = IN_CLUSTER_QUEUE if node is claim.node else IN_COHORT_RECLAMATION
                if self._take(Target(offers.pop(node), node, reason)):
                    return True
                continue
            preemptor, target = _siblings(claim.node, node)
            own, initial = self._share(preemptor), self._share(target)
            while offers.left(node):
                held = offers.pop(node)
                held.queue.uncount(held)
                final = self._share(target)
                held.queue.recount(held)
                if strategy(own, initial, final):
                    if self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                        return True
                    break  # shares have changed, and another queue may be the highest now
                self.refused.append(held)
        return False

    def second_pass(self, candidates: list[Held], strategy: Strategy) -> bool:
        """Take at most one more of each queue; whether the claim fits then."""
        offers = _Offers(self._domain, self._claim, candidates)
        for node in offers:
            preemptor, target = _siblings(self._claim.node, node)
            initial = self._share(target)
            held = offers.pop(node)
            # The strategy looks at the share before the removal, so that any candidate is as good as the first.
            may = strategy(self._share(preemptor), initial, initial)
            if may and self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                return True
            offers.drop(node)
        return False

    def _take(self, target: Target) -> bool:
        target.held.queue.uncount(target.held)
        self.targets.append(target)
        claim = self._claim
        for fr, amount in claim.requests.items():
            remove_usage(claim.node, fr, amount)
        fit = fits(claim.node, claim.requests)
        for fr, amount in claim.requests.items():
            add_usage(claim.node, fr, amount)
        return fit

    def _share(self, node: Node) -> Share:
        return share(node, self._domain.tree)


class _Offers:
    """Iterates over ClusterQueues with candidates left; between two steps one must be popped or the queue dropped."""

    def __init__(self, domain: Domain, claim: Claim, candidates: list[Held]) -> None:
        self._domain = domain
        self._claim = claim
        self._path = {claim.node, *claim.node.path}
        self._candidates: dict[Node, list[Held]] = {}
        for held in reversed(candidates):
            assert held.queue.node is not None
            self._candidates.setdefault(held.queue.node, []).append(held)
        self._pruned: set[Node] = set()

    def __iter__(self) -> Iterator[Node]:
        root = self._domain.tree.root
        while root not in self._pruned:
            node = self._next(root)
            if node is not None:
                yield node

    def left(self, node: Node) -> bool:
        """Whether the queue has candidates left."""
        return bool(self._candidates.get(node))

    def pop(self, node: Node) -> Held:
        """The queue's first candidate, which is gone from here."""
        return self._candidates[node].pop()

    def drop(self, node: Node) -> None:
        """Offer the queue no more."""
        self._pruned.add(node)

    def _next(self, node: Node) -> Node | None:
        """The queue under `node` that is reached by always taking the child with the highest share.

        None: nothing was found but children were pruned; look again. Between sibling Cohorts of equal share the one
        whose name comes last is taken.
        """
        if node.leaf:
            if self.left(node):
                return node
            self._pruned.add(node)
            return None
        queue, queue_share = self._highest_queue(node)
        cohort, cohort_share = self._highest_cohort(node)
        if cohort is not None and (queue_share is None or cohort_share is None or cohort_share >= queue_share):
            return self._next(cohort)
        if queue is None:
            self._pruned.add(node)
        return queue

    def _highest_queue(self, node: Node) -> tuple[Node | None, Share | None]:
        best: Node | None = None
        best_share: Share | None = None
        for queue in node.queues:
            if queue in self._pruned or queue not in self._domain.at:
                continue
            own = share(queue, self._domain.tree)
            if (not own.borrowed and queue is not self._claim.node) or not self.left(queue):
                self._pruned.add(queue)
            elif best is None or best_share is None or own > best_share:
                best, best_share = queue, own
            elif own == best_share:
                first = ordered([self._candidates[queue][-1], self._candidates[best][-1]], self._claim.queue)[0]
                best = first.queue.node
        return best, best_share

    def _highest_cohort(self, node: Node) -> tuple[Node | None, Share | None]:
        best: Node | None = None
        best_share: Share | None = None
        for cohort in node.cohorts:
            if cohort in self._pruned:
                continue
            own = share(cohort, self._domain.tree)
            if not own.borrowed and cohort not in self._path:
                self._pruned.add(cohort)
            elif best_share is None or own >= best_share:
                best, best_share = cohort, own
        return best, best_share


def _siblings(one: Node, other: Node) -> tuple[Node, Node]:
    """The children of the lowest common ancestor under which the two queues are."""
    ancestors = [one, *one.path]
    at = other
    while at.parent not in ancestors:
        assert at.parent is not None
        at = at.parent
    return ancestors[ancestors.index(at.parent) - 1], at
