"""Preemption with fair sharing: targets are taken from the ClusterQueue with the highest share first.

Follows Kueue's KEP 1714, `fairPreemptions` (`pkg/scheduler/preemption/preemption.go`) and `preemption/fairsharing`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from admission.engine.fair import Share, Shares, share
from admission.engine.tree import add_usage, borrows_with, fits, remove_usage
from admission.engine.victims import Preemptor, Taking, Target, ordered, permitted, reason_in_own_queue
from admission.engine.vocabulary import IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.protection import Claim
    from admission.engine.tree import Node, Tree

Strategy = Callable[[Share, Share, Share], bool]
"""Whether a candidate may be preempted, given three shares: that of the preemptor with its workload added, and those of
the candidate's side before and after removing the candidate."""


def _at_most_final(preemptor: Share, _: Share, final: Share) -> bool:
    return preemptor <= final


def _below_initial(preemptor: Share, initial: Share, _: Share) -> bool:
    return preemptor < initial


STRATEGIES: dict[str, Strategy] = {
    "LessThanOrEqualToFinalShare": _at_most_final,
    "LessThanInitialShare": _below_initial,
}
"""Kueue's name of a preemption strategy to its function, in the order in which strategies are tried."""


def fair(domain: Domain, preemptor: Preemptor, strategies: Sequence[Strategy]) -> list[Target]:
    """Return the targets by fair sharing; empty if preemption cannot make the workload fit.

    The first strategy chooses among all candidates. If its targets do not suffice, the second strategy has a pass over
    the candidates that the first one refused.
    """
    search = _Search(domain, preemptor)
    for fr, amount in preemptor.requests.items():  # shares are compared with the incoming workload added
        add_usage(preemptor.node, fr, amount)
    found = search.first_pass(strategies[0]) or (len(strategies) > 1 and search.second_pass(strategies[1]))
    targets = search.taking.end(found=found)
    for fr, amount in preemptor.requests.items():
        remove_usage(preemptor.node, fr, amount)
    return targets


def _has_quota(preemptor: Preemptor) -> bool:
    node, requests = preemptor.node, preemptor.requests
    if not preemptor.may_borrow and any(borrows_with(node, fr, amount) for fr, amount in requests.items()):
        return False
    return fits(node, requests)


class _Search:
    """The targets chosen so far, which are removed from the tree's usage while the search runs."""

    def __init__(self, domain: Domain, preemptor: Preemptor) -> None:
        if domain.shares is None:
            domain.shares = Shares(domain.tree, domain.active_by_node)
        self._domain = domain
        self._preemptor = preemptor
        self._now = _CurrentShares(domain.shares, domain.tree, preemptor.node)
        self.taking = Taking(self._enough, preemptor.placing)
        self._within_quota = False
        """Whether the preemptor's ClusterQueue stays within its own quota: then no shares are compared."""
        self._candidates: dict[ClusterQueue, list[Held]] = {}
        """Candidates of the ClusterQueues visited so far, in the order in which they are taken."""

    def first_pass(self, strategy: Strategy) -> bool:
        """Take candidates until the workload fits, and return whether it does (`runFirstFsStrategy`)."""
        preemptor = self._preemptor
        self._within_quota = within_quota = not any(borrows_with(preemptor.node, fr, 0) for fr in preemptor.needed)
        ordering = _TargetOrdering(self._domain, preemptor, self._now, self._all, compared=not within_quota)
        for node in ordering:
            if node is preemptor.node or within_quota:
                held = ordering.pop(node)
                is_own = node is preemptor.node
                reason = reason_in_own_queue(preemptor, held) if is_own else IN_COHORT_RECLAMATION
                if self._take(Target(held, node, reason)):
                    return True
                continue
            own_child, target_child = _siblings(preemptor.node, node)
            own, initial = self._now.of(own_child), self._now.of(target_child)
            while ordering.left(node):
                held = ordering.pop(node)
                held.queue.uncount(held)
                final = share(target_child, self._domain.tree)
                held.queue.recount(held)
                if strategy(own, initial, final):
                    if self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                        return True
                    break  # shares have changed, and another ClusterQueue may have the highest one now
        return False

    def second_pass(self, strategy: Strategy) -> bool:
        """Take at most one more candidate of each ClusterQueue; return whether it fits then (`runSecondFsStrategy`)."""
        if self._within_quota:
            return False  # the first pass refused no candidate
        ordering = _TargetOrdering(self._domain, self._preemptor, self._now, self._left, compared=True)
        for node in ordering:
            own_child, target_child = _siblings(self._preemptor.node, node)
            initial = self._now.of(target_child)
            held = ordering.pop(node)
            # This strategy compares the share before the removal, so the result is the same for every candidate.
            may = strategy(self._now.of(own_child), initial, initial)
            if may and self._take(Target(held, node, IN_COHORT_FAIR_SHARING)):
                return True
            ordering.drop(node)
        return False

    def _all(self, queue: ClusterQueue) -> list[Held]:
        known = self._candidates.get(queue)
        if known is None:
            preemptor = self._preemptor
            known = self._candidates[queue] = ordered(
                self._permitted(queue), preemptor.queue, self._domain.usage_of, turns=preemptor.turns
            )
        return known

    def _left(self, queue: ClusterQueue) -> list[Held]:
        taken = {target.held.workload.uid for target in self.taking.targets if target.held.queue is queue}
        return [held for held in self._all(queue) if held.workload.uid not in taken]

    def _permitted(self, queue: ClusterQueue) -> Iterable[Held]:
        preemptor, preemption = self._preemptor, self._preemptor.queue.spec.preemption
        assert queue.node is not None
        if queue is preemptor.queue:
            return permitted(preemptor, queue, preemption.within_cluster_queue, "own")
        if any(borrows_with(queue.node, fr, 0) for fr in preemptor.needed):
            claim: Claim = "reclaim" if self._within_quota else "share"
            return permitted(preemptor, queue, preemption.reclaim_within_cohort, claim)
        return ()

    def _take(self, target: Target) -> bool:
        self._now.change(target.node)
        return self.taking.take(target)

    def _enough(self) -> bool:
        preemptor = self._preemptor
        for fr, amount in preemptor.requests.items():
            remove_usage(preemptor.node, fr, amount)
        enough = _has_quota(preemptor)
        for fr, amount in preemptor.requests.items():
            add_usage(preemptor.node, fr, amount)
        return enough


class _CurrentShares:
    """Shares at the current usage of a search. Few nodes change; all others keep their share from before the search."""

    def __init__(self, before: Shares, tree: Tree, preemptor_node: Node) -> None:
        self.before = before
        self._tree = tree
        self.changed = dict.fromkeys((preemptor_node, *preemptor_node.path))
        """Nodes whose usage has changed, so that their share in `before` is outdated; keys in order of the changes."""
        self._known: dict[Node, Share] = {}
        """Shares of changed nodes, until they change again."""

    def of(self, node: Node) -> Share:
        """Return the share of a node at the current usage."""
        if node not in self.changed:
            return self.before.of(node)
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = share(node, self._tree)
        return known

    def change(self, node: Node) -> None:
        """Note that the usage of a ClusterQueue has changed, and with it that of the Cohorts above."""
        for changed in (node, *node.path):
            self.changed[changed] = None
            self._known.pop(changed, None)


class _TargetOrdering:
    """Iterator over the ClusterQueues to take a candidate from, highest share first (`TargetClusterQueueOrdering`).

    Between two iterations the caller must either pop a candidate of the ClusterQueue or drop it. `compared`: candidates
    of other ClusterQueues may be taken only if their side's share is not below the preemptor's.
    """

    def __init__(
        self,
        domain: Domain,
        preemptor: Preemptor,
        now: _CurrentShares,
        candidates: Callable[[ClusterQueue], list[Held]],
        *,
        compared: bool,
    ) -> None:
        self._domain = domain
        self._preemptor = preemptor
        self._now = now
        self._compared = compared
        self._own_path = dict(zip(preemptor.node.path, (preemptor.node, *preemptor.node.path), strict=False))
        """Each Cohort above the preemptor to its child on the path to the preemptor's ClusterQueue."""
        self._make_candidates = candidates
        self._candidates: dict[Node, list[Held]] = {}
        """Candidates left in the ClusterQueues visited so far, in reverse order so that `pop` is cheap."""
        self._pruned: set[Node] = set()
        """Nodes that are not visited any more."""
        self._passed: dict[Node, int] = {}
        """Cohort to the number of leading entries of `Shares.borrowing` that need not be considered any more."""

    def __iter__(self) -> Iterator[Node]:
        root = self._domain.tree.root
        while root not in self._pruned:
            node = self._next(root)
            if node is not None:
                yield node

    def left(self, node: Node) -> list[Held]:
        """Return the candidates that the ClusterQueue has left, in reverse order."""
        known = self._candidates.get(node)
        if known is None:
            known = self._candidates[node] = self._make_candidates(self._domain.active_by_node[node])[::-1]
        return known

    def pop(self, node: Node) -> Held:
        """Remove and return the first candidate of a ClusterQueue."""
        return self._candidates[node].pop()

    def drop(self, node: Node) -> None:
        """Do not visit a ClusterQueue any more."""
        self._pruned.add(node)

    def _next(self, node: Node) -> Node | None:
        """Return the ClusterQueue reached from `node` by descending into the child with the highest share.

        None: nodes were pruned, and the caller has to try again from the root. Kueue's order between sibling Cohorts of
        equal share is arbitrary; here it is the one whose name comes last. (Kueue's `nextTarget`.)
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
        if queue_share is None or self._is_exhausted(node, queue_share):
            self._pruned.add(node)
            return None
        return queue if queue is not None or cohort is None else self._next(cohort)

    def _is_exhausted(self, node: Node, highest: Share) -> bool:
        """Whether no candidate under `node` can be taken any more: the share of the preemptor's side is the highest.

        That share does not fall again in this pass, as the preemptor's side has no candidates left.
        """
        own = self._own_path.get(node)
        return own is not None and self._compared and own in self._pruned and highest < self._now.of(own)

    def _highest_queue(self, node: Node) -> tuple[Node | None, Share | None]:
        best: list[Node] = []
        best_share: Share | None = None
        for queue in self._now.changed:
            if (
                queue.parent is not node
                or not queue.leaf
                or queue in self._pruned
                or queue not in self._domain.active_by_node
            ):
                continue
            own = self._now.of(queue)
            if (not own.borrowed and queue is not self._preemptor.node) or not self.left(queue):
                self._pruned.add(queue)
            elif best_share is None or own >= best_share:
                best, best_share = [*best, queue] if own == best_share else [queue], own
        others = self._unchanged(node, best_share)
        if others:
            own = self._now.of(others[0])
            best, best_share = best + others if own == best_share else others, own
        if len(best) < 2:
            return best[0] if best else None, best_share
        # Of ClusterQueues with equal shares the one whose first candidate comes first in the order of candidates.
        return ordered((self._candidates[queue][-1] for queue in best), self._preemptor.queue)[0].queue.node, best_share

    def _unchanged(self, node: Node, least: Share | None) -> list[Node]:
        """Return the ClusterQueues with the highest share of those under a Cohort whose share has not changed.

        Empty if that share is below `least`, or if no candidate can be taken from them.
        """
        queues, before = self._now.before.borrowing(node), self._now.before
        at = self._passed.get(node, 0)
        while at < len(queues) and not self._is_exhausted(node, before.of(queues[at])) and self._is_out(queues[at]):
            at += 1
        self._passed[node] = at
        if at == len(queues):
            return []
        highest = before.of(queues[at])
        if (least is not None and highest < least) or self._is_exhausted(node, highest):
            return []
        equal = takewhile(lambda queue: before.of(queue).rank == highest.rank, islice(queues, at, None))
        return [queue for queue in equal if not self._is_out(queue)]

    def _is_out(self, queue: Node) -> bool:
        """Whether `_unchanged` leaves the ClusterQueue out: share changed, pruned, or without candidates."""
        return queue in self._now.changed or queue in self._pruned or not self.left(queue)

    def _highest_cohort(self, node: Node) -> tuple[Node | None, Share | None]:
        best: Node | None = None
        best_share: Share | None = None
        for cohort in node.cohorts:
            if cohort in self._pruned:
                continue
            own = self._now.of(cohort)
            if not own.borrowed and cohort not in self._own_path:
                self._pruned.add(cohort)
            elif best_share is None or own >= best_share:
                best, best_share = cohort, own
        return best, best_share


def _siblings(one: Node, other: Node) -> tuple[Node, Node]:
    """Return the children of the lowest common ancestor that are above the two ClusterQueues (`getAlmostLCAs`)."""
    ancestors = [one, *one.path]
    at = other
    while at.parent not in ancestors:
        assert at.parent is not None
        at = at.parent
    return ancestors[ancestors.index(at.parent) - 1], at
