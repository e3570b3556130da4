"""Prediction of what a cycle with fair sharing decides about the heads of a ClusterQueue, without nominating them.

For a ClusterQueue that is a direct child of the root of its tree: the quota available to it depends only on its own
usage and on the quota that is free at the root. Used by `fair_skipping`.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from admission.engine.clusterqueue import PODS
from admission.engine.fair import share
from admission.engine.order import Rank, tournament_rank
from admission.engine.tree import add_usage, borrows_with, least_free, remove_usage
from admission.model.terms import NO_TERMS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Plan
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node, Tree

Needs = tuple[tuple[int, float], ...]
"""(index of the flavor-resource in the tree, amount that must be free at the root at least), of a whole workload."""


class Threshold(NamedTuple):
    """One flavor-resource that a workload requests, and the least amount free at the root with which it fits."""

    fr: int
    """Index of the flavor-resource in the tree."""
    least: float
    """With less than this free at the root the workload does not fit without preemption; infinite: it never does."""
    preemption_useless: bool
    """Whether preemption cannot help: the request exceeds `Node.potential`, or the policies permit no candidate."""
    compares_shares: bool
    """Whether shares decide about preemption: only other ClusterQueues have candidates, and it would borrow."""
    share: tuple[bool, float]
    """The ClusterQueue's share with the request, as `Share.rank`; only meaningful if `compares_shares`."""


Parts = tuple[tuple[tuple[Threshold, ...], ...], ...]
"""Thresholds by part and flavor: all parts must be satisfied, the flavors of a part are alternatives."""


class ShapeHead(NamedTuple):
    """The first pending workload of a shape in a ClusterQueue, with the thresholds of the flavors it could get."""

    item: Item
    cannot_preempt: bool
    """Whether the policies and priorities permit no preemption candidate, whatever the usage is."""
    parts: Parts
    usage: Mapping[int, int] | None
    """Flavor-resource (index in the tree) to the amount that it would use; None if that depends on the flavor."""
    needs: Needs | None
    """Amounts that must be free at the root for it to fit; None if they depend on the flavor."""


class Contender(NamedTuple):
    """A skipped ClusterQueue whose head fits and can get one flavor only."""

    rank: Rank
    """The rank of the head in the tournament."""
    queue: ClusterQueue
    node: Node
    usage: Mapping[int, int]
    """Flavor-resource (index in the tree) to the amount that the head would use."""
    needs: Needs
    """Amounts that must be free at the root for the head to fit."""


class ReservedUsage(NamedTuple):
    """Usage that a head without preemption targets adds to the tree for the rest of the cycle (see `reserved`)."""

    rank: Rank
    """The rank of the head in the tournament."""
    node: Node
    """The node of its ClusterQueue."""
    usage: Mapping[int, int]
    """Flavor-resource (index in the tree) to amount."""


class Participation(Enum):
    """How a ClusterQueue takes part in the next cycle."""

    BLOCKED = auto()
    """None of its workloads fits or can preempt."""
    PASSED_OVER = auto()
    """Its head neither fits nor can preempt, but a workload behind it may; that one has its turn in a later cycle."""
    CONTENDER = auto()
    """Its head fits and can get one flavor only."""
    OPEN = auto()
    """The outcome is not predictable: its head is nominated as in any other cycle."""


class Thresholds:
    """Thresholds of the shape heads of a ClusterQueue. ClusterQueues with equal ones share the object and the result.

    `heads`: `needs` and `parts` of each shape head, in queue order; None: the outcome is not predictable.
    """

    __slots__ = ("__weakref__", "_heads")

    def __init__(self, heads: tuple[tuple[Needs | None, Parts], ...] | None) -> None:
        self._heads = heads

    def participation(
        self, tried: int, free: Sequence[int], highest: tuple[bool, float], *, strict: bool
    ) -> Participation:
        """Return how a ClusterQueue takes part in a cycle, leaving out the workloads of its first `tried` shapes.

        `free` is the quota available at the root, by index of the flavor-resource. `highest` is the highest share of
        all active ClusterQueues; `strict`: removing any workload from a ClusterQueue with that share lowers it.
        """
        if self._heads is None:
            return Participation.OPEN
        for number in range(tried, len(self._heads)):
            needs, parts = self._heads[number]
            if number == tried and needs is not None and all(free[fr] >= least for fr, least in needs):
                return Participation.CONTENDER
            if not _is_blocked(parts, free, highest, strict=strict):
                return Participation.OPEN if number == tried else Participation.PASSED_OVER
        return Participation.BLOCKED


class ThresholdsCache:
    """The `Thresholds` in use, by value. References are weak: an entry goes with the last prediction that has it."""

    def __init__(self) -> None:
        self._by_value: WeakValueDictionary[Hashable, Thresholds] = WeakValueDictionary()

    def of(self, heads: tuple[ShapeHead, ...] | None) -> Thresholds:
        """Return the thresholds of a ClusterQueue with these shape heads, reusing an equal object."""
        value = None if heads is None else tuple((head.needs, head.parts) for head in heads)
        thresholds = self._by_value.get(value)
        if thresholds is None:
            thresholds = self._by_value[value] = Thresholds(value)
        return thresholds


class HeadPrediction:
    """Prediction for the pending workloads of one ClusterQueue, valid until these or its usage change."""

    __slots__ = ("_contenders", "_queue", "_tree", "heads", "node", "reserves", "thresholds")

    def __init__(
        self, queue: ClusterQueue, node: Node, tree: Tree, cache: ThresholdsCache, *, ignore_undeclared: bool
    ) -> None:
        self._queue = queue
        self._tree = tree
        self._contenders: dict[int, Contender] = {}
        self.node = node
        self.reserves = queue.spec.preemption.reclaim_within_cohort != "Any"
        """Whether a head that does not fit may reserve quota for the rest of the cycle (see `reserved`)."""
        firsts = _firsts(queue)
        self.heads: tuple[ShapeHead, ...] | None = None
        """First workload of each shape, in queue order; None if the decisions about them are not predictable."""
        if firsts is not None:
            self.heads = tuple(
                _shape_head(queue, node, tree, item, ignore_undeclared=ignore_undeclared) for item in firsts
            )
        self.thresholds = cache.of(self.heads)

    def contender(self, tried: int) -> Contender:
        """Return the ClusterQueue as a contender whose head is the first workload after the first `tried` shapes."""
        contender = self._contenders.get(tried)
        if contender is None:
            assert self.heads is not None
            head, node = self.heads[tried], self.node
            assert head.usage is not None
            assert head.needs is not None
            rank = tournament_rank(head.item, head.usage, node, node, self._tree)
            contender = self._contenders[tried] = Contender(rank, self._queue, node, head.usage, head.needs)
        return contender

    def predicts_reservation(self, tried: int) -> bool:
        """Whether `reservation` can compute what the blocked head reserves: only if it has no preemption candidates."""
        if self.heads is None or tried >= len(self.heads):
            return False
        head = self.heads[tried]
        return head.cannot_preempt and head.usage is not None

    def reservation(self, tried: int, free: Sequence[int]) -> ReservedUsage | None:
        """Return the reservation of the blocked head after the first `tried` shapes; None: it reserves nothing.

        Call it only if `predicts_reservation`.
        """
        assert self.heads is not None
        item, usage, node = self.heads[tried].item, self.heads[tried].usage, self.node
        assert usage is not None
        may_borrow = self._queue.spec.preemption.borrow_within_cohort.policy != "Never"
        borrows = False
        for fr, amount in usage.items():
            if amount > node.potential[fr]:
                return None
            over = borrows_with(node, fr, amount)
            borrows = borrows or over
            lacks = amount > 0 and free[fr] < least_free(node, fr, amount)
            if lacks and over and node.nominal[fr] < amount and not may_borrow:
                return None  # the flavor assigner does not consider preemption here: mode NoFit, which reserves nothing
        rank = tournament_rank(item, usage, node, node, self._tree)
        return ReservedUsage(rank, node, reserved(node, usage, borrows=borrows))


def reserved(node: Node, usage: Mapping[int, int], *, borrows: bool) -> dict[int, int]:
    """Return the usage that a head in mode Preempt without targets reserves for the rest of the cycle.

    Up to its nominal quota, or up to its borrowing limit if it `borrows` (Kueue's `quotaResourcesToReserve`).
    """
    kept = {}
    for fr, amount in usage.items():
        limit = node.borrowing[fr]
        if not borrows:
            kept[fr] = max(0, min(amount, node.nominal[fr] - node.usage[fr]))
        elif limit is None:
            kept[fr] = amount
        else:
            kept[fr] = max(0, min(amount, node.nominal[fr] + limit - node.usage[fr]))
    return kept


def _is_blocked(parts: Parts, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> bool:
    """Whether a part of the workload can get no flavor, neither from free quota nor by preemption."""
    for flavors in parts:
        for thresholds in flavors:
            for fr, least, preemption_useless, compares_shares, own in thresholds:
                if free[fr] >= least:
                    continue
                # With a share above all others, no other share is high enough to be preempted.
                if preemption_useless or (compares_shares and (own > highest or (strict and own == highest))):
                    break
            else:
                break  # this flavor may do
        else:
            return True
    return False


def _firsts(queue: ClusterQueue) -> list[Item] | None:
    """Return the first pending workload of each shape, in queue order; None if one of them has to be nominated."""
    pending = queue.pending
    best_effort = queue.spec.queueing_strategy == "BestEffortFIFO" and queue.strict_after is None
    if not best_effort or pending.sticky or pending.order is not None:
        return None
    firsts = pending.firsts()
    for item in firsts or ():
        if item.fault or item.progress or item.shape.partial or item.workload.replaces:
            return None
        if item.shape.terms != NO_TERMS or item.shape.clusters:
            return None
    return firsts


def _shape_head(queue: ClusterQueue, node: Node, tree: Tree, item: Item, *, ignore_undeclared: bool) -> ShapeHead:
    plan, preemption = queue.facts(item.shape).plan, queue.spec.preemption
    lowest = queue.lowest_priority()
    own = {
        "Never": False,
        "LowerPriority": lowest < item.shape.priority + (queue.time_slice is not None),
        "LowerOrNewerEqualPriority": lowest <= item.shape.priority,
        "Any": lowest < inf,
    }[preemption.within_cluster_queue]
    cannot_preempt = not own and preemption.reclaim_within_cohort == "Never"
    parts = []
    for group, totals in zip(plan.groups, plan.totals, strict=True):
        for part in group.parts:
            if part.group < 0 and (ignore_undeclared or not totals[part.resources[0]]):
                continue
            flavors = [
                # A shortage of the pods resource is left to the cycle: the target search ignores it, as in Kueue.
                tuple(
                    _threshold(node, tree, option.frs[name], totals[name], cannot_preempt=cannot_preempt, own=own)
                    for name in part.resources
                    if name != PODS
                )
                for option in part.options
                if not option.mismatch
            ]
            parts.append(tuple(flavors))
    usage = _only_usage(plan, ignore_undeclared=ignore_undeclared)
    needs = (
        None if usage is None else tuple((fr, least_free(node, fr, amount)) for fr, amount in usage.items() if amount)
    )
    return ShapeHead(item, cannot_preempt, tuple(parts), usage, needs)


def _threshold(node: Node, tree: Tree, fr: int, amount: int, *, cannot_preempt: bool, own: bool) -> Threshold:
    least = least_free(node, fr, amount) if amount else -inf
    preemption_useless = cannot_preempt or amount > node.potential[fr]
    if preemption_useless or own:
        return Threshold(fr, least, preemption_useless, compares_shares=False, share=(False, 0.0))
    add_usage(node, fr, amount)
    rank, compares_shares = share(node, tree).rank, borrows_with(node, fr, 0)
    remove_usage(node, fr, amount)
    return Threshold(fr, least, preemption_useless, compares_shares, rank)


def _only_usage(plan: Plan, *, ignore_undeclared: bool) -> dict[int, int] | None:
    """Return the usage of a workload if it fits; None if that depends on which flavor it gets."""
    usage: dict[int, int] = {}
    for group, totals in zip(plan.groups, plan.totals, strict=True):
        for part in group.parts:
            if part.group < 0 and (ignore_undeclared or not totals[part.resources[0]]):
                continue
            if len(part.options) != 1 or part.options[0].mismatch:
                return None
            for resource, fr in part.options[0].frs.items():
                usage[fr] = usage.get(fr, 0) + totals[resource]
    return usage
