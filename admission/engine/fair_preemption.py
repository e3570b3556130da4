"""Preemption under fair sharing: victims are taken from the ClusterQueues with the highest share first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from admission.engine.fair import Share, Shares, share
from admission.engine.tree import add_usage, borrows_with, fits, remove_usage
from admission.engine.victims import Claim, Target, fill_back, ordered, permitted
from admission.engine.vocabulary import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.tree import Node, Tree

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
    search = _Search(domain, claim)
    for fr, amount in claim.requests.items():  # shares are those with the workload
        add_usage(claim.node, fr, amount)
    found = search.first_pass(strategies[0]) or (len(strategies) > 1 and search.second_pass(strategies[1]))
    for fr, amount in claim.requests.items():
        remove_usage(claim.node, fr, amount)
    targets = search.targets
    if found:
        targets = fill_back(targets, lambda: fits(claim.node, claim.requests))
    for target in targets:
        target.held.queue.recount(target.held)
    return targets if found else []


class _Search:
    """The victims so far. Candidates are offered queue by queue, always from where the share is the highest."""

    def __init__(self, domain: Domain, claim: Claim) -> None:
        if domain.shares is None:
            domain.shares = Shares(domain.tree, domain.at)
        self._domain = domain
        self._claim = claim
        self._now = _SharesNow(domain.shares, domain.tree, claim.node)
        self.targets: list[Target] = []
        self._entitled = False
        self._candidates: dict[ClusterQueue, list[Held]] = {}
        """Those of the queues that were looked at, in order."""

    def first_pass(self, strategy: Strategy) -> bool:
        """Take candidates until the claim fits; False: it does not even then."""
        claim = self._claim
        # Whether it stays within its own quota: then no shares are compared.
        self._entitled = entitled = not any(borrows_with(claim.node, fr, 0) for fr in claim.needed)
        offers = _Offers(self._domain, claim, self._now, self._all, compared=not entitled)
        for node in offers:
            if node is claim.node or entitled:
                reason = IN_CLUSTER_QUEUE if node is claim.node else IN_COHORT_RECLAMATION
                if self._take(Target(offers.pop(node), node, reason)):
                    return True
                continue
            preemptor, target = _siblings(claim.node, node)
            own, initial = self._now.of(preemptor), self._now.of(target)
            while offers.left(node):
                held = offers.pop(node)
                held.queue.uncount(held)
                final = share(target, self._domain.tree)
                held.queue.recount(held)
                if strategy(own, initial, final):
                    if self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                        return True
                    break  # shares have changed, and another queue may be the highest now
        return False

    def second_pass(self, strategy: Strategy) -> bool:
        """Take at most one more of each queue; whether the claim fits then."""
        if self._entitled:
            return False  # the first pass refused nobody
        offers = _Offers(self._domain, self._claim, self._now, self._left, compared=True)
        for node in offers:
            preemptor, target = _siblings(self._claim.node, node)
            initial = self._now.of(target)
            held = offers.pop(node)
            # The strategy looks at the share before the removal, so that any candidate is as good as the first.
            may = strategy(self._now.of(preemptor), initial, initial)
            if may and self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                return True
            offers.drop(node)
        return False

    def _all(self, queue: ClusterQueue) -> list[Held]:
        known = self._candidates.get(queue)
        if known is None:
            known = self._candidates[queue] = ordered(self._permitted(queue), self._claim.queue, self._domain.usage_of)
        return known

    def _left(self, queue: ClusterQueue) -> list[Held]:
        taken = {target.held.workload.uid for target in self.targets if target.held.queue is queue}
        return [held for held in self._all(queue) if held.workload.uid not in taken]

    def _permitted(self, queue: ClusterQueue) -> Iterable[Held]:
        claim, preemption = self._claim, self._claim.queue.spec.preemption
        assert queue.node is not None
        if queue is claim.queue:
            return permitted(claim, queue, preemption.within_cluster_queue)
        if any(borrows_with(queue.node, fr, 0) for fr in claim.needed):
            return permitted(claim, queue, preemption.reclaim_within_cohort)
        return ()

    def _take(self, target: Target) -> bool:
        target.held.queue.uncount(target.held)
        self.targets.append(target)
        self._now.changed.update(dict.fromkeys((target.node, *target.node.path)))
        claim = self._claim
        for fr, amount in claim.requests.items():
            remove_usage(claim.node, fr, amount)
        fit = fits(claim.node, claim.requests)
        for fr, amount in claim.requests.items():
            add_usage(claim.node, fr, amount)
        return fit


class _SharesNow:
    """The shares as they have become during a search, in which few nodes change."""

    def __init__(self, before: Shares, tree: Tree, claimant: Node) -> None:
        self.before = before
        self._tree = tree
        self.changed = dict.fromkeys((claimant, *claimant.path))
        """The nodes of which `before` does not hold any more."""

    def of(self, node: Node) -> Share:
        """The share of a node."""
        return share(node, self._tree) if node in self.changed else self.before.of(node)


class _Offers:
    """Iterates over ClusterQueues with candidates left; between two steps one must be popped or the queue dropped.

    `compared`: a candidate elsewhere may be taken only if its share is not below that of the claimant.
    """

    def __init__(
        self,
        domain: Domain,
        claim: Claim,
        now: _SharesNow,
        candidates: Callable[[ClusterQueue], list[Held]],
        *,
        compared: bool,
    ) -> None:
        self._domain = domain
        self._claim = claim
        self._now = now
        self._compared = compared
        self._own_side = dict(zip(claim.node.path, (claim.node, *claim.node.path), strict=False))
        """Each Cohort above the claimant to its child on the way to it."""
        self._make_candidates = candidates
        self._candidates: dict[Node, list[Held]] = {}
        """Of the queues that were looked at; the first is last."""
        self._pruned: set[Node] = set()
        self._passed: dict[Node, int] = {}
        """How many of the queues under a Cohort that borrowed before are out of the question."""

    def __iter__(self) -> Iterator[Node]:
        root = self._domain.tree.root
        while root not in self._pruned:
            node = self._next(root)
            if node is not None:
                yield node

    def left(self, node: Node) -> list[Held]:
        """What candidates the queue has left, the first one last."""
        known = self._candidates.get(node)
        if known is None:
            known = self._candidates[node] = self._make_candidates(self._domain.at[node])[::-1]
        return known

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
        if cohort_share is not None and (queue_share is None or cohort_share >= queue_share):
            queue, queue_share = None, cohort_share
        if queue_share is None or self._in_vain(node, queue_share):
            self._pruned.add(node)
            return None
        return queue if queue is not None or cohort is None else self._next(cohort)

    def _in_vain(self, node: Node, highest: Share) -> bool:
        """Whether nothing under `node` can be taken any more, as the claimant's share there is above all others.

        It does not go down again in this pass: nobody is left to take on the claimant's side.
        """
        own = self._own_side.get(node)
        return own is not None and self._compared and own in self._pruned and highest < self._now.of(own)

    def _highest_queue(self, node: Node) -> tuple[Node | None, Share | None]:
        best: list[Node] = []
        best_share: Share | None = None
        for queue in self._now.changed:
            if queue.parent is not node or not queue.leaf or queue in self._pruned or queue not in self._domain.at:
                continue
            own = self._now.of(queue)
            if (not own.borrowed and queue is not self._claim.node) or not self.left(queue):
                self._pruned.add(queue)
            elif best_share is None or own >= best_share:
                best, best_share = [*best, queue] if own == best_share else [queue], own
        others = self._unchanged(node, best_share)
        if others:
            own = self._now.of(others[0])
            best, best_share = best + others if own == best_share else others, own
        if len(best) < 2:
            return best[0] if best else None, best_share
        # Of equals the one whose first candidate is the first of all.
        return ordered((self._candidates[queue][-1] for queue in best), self._claim.queue)[0].queue.node, best_share

    def _unchanged(self, node: Node, least: Share | None) -> list[Node]:
        """Of the queues under a Cohort whose share is as it was before, those with the highest one, if `least` or more.

        None if nothing can be taken from them.
        """
        queues, before = self._now.before.borrowing(node), self._now.before
        at = self._passed.get(node, 0)
        while at < len(queues) and not self._in_vain(node, before.of(queues[at])) and self._is_out(queues[at]):
            at += 1
        self._passed[node] = at
        if at == len(queues):
            return []
        highest = before.of(queues[at])
        if (least is not None and highest < least) or self._in_vain(node, highest):
            return []
        equal = takewhile(lambda queue: before.of(queue).rank == highest.rank, islice(queues, at, None))
        return [queue for queue in equal if not self._is_out(queue)]

    def _is_out(self, queue: Node) -> bool:
        return queue in self._now.changed or queue in self._pruned or not self.left(queue)

    def _highest_cohort(self, node: Node) -> tuple[Node | None, Share | None]:
        best: Node | None = None
        best_share: Share | None = None
        for cohort in node.cohorts:
            if cohort in self._pruned:
                continue
            own = self._now.of(cohort)
            if not own.borrowed and cohort not in self._own_side:
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
