"""What a cycle of fair sharing would decide about a ClusterQueue, as far as that follows from what is known of it.

For a ClusterQueue right under the root of its tree: what it can use depends on itself and on what is free at the root.
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

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Plan
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node, Tree

Needs = tuple[tuple[int, float], ...]
"""For each flavor-resource (index in the tree) how much must be free at the root at least."""


class Bar(NamedTuple):
    """What a workload needs of a flavor-resource; with less free at the root it does not fit without preemption."""

    fr: int
    least: float
    in_vain: bool
    """Whether preemption cannot help: it would not fit if nothing else were in use, or may preempt nobody."""
    compared: bool
    """Whether shares decide about preemption: only other ClusterQueues have victims, and it would borrow."""
    share: tuple[bool, float]
    """The ClusterQueue's share, as `Share.rank`, if it used this much more and shares are `compared`."""


Parts = tuple[tuple[tuple[Bar, ...], ...], ...]
"""For each part of a workload, the bars of each flavor that it may have. All parts are needed, flavors alternatives."""


class Wish(NamedTuple):
    """The first pending workload of a shape in a ClusterQueue, with the flavors that it could get."""

    item: Item
    helpless: bool
    """Whether there is nobody whom it may preempt, whatever is in use."""
    parts: Parts
    usage: Mapping[int, int] | None
    """Flavor-resource (index in the tree) to the amount that it would use; None if that depends on the flavor."""
    needs: Needs | None
    """What must be free for it to fit; None if that depends on the flavor."""


class Contender(NamedTuple):
    """A ClusterQueue whose head fits and can get one flavor only."""

    rank: Rank
    queue: ClusterQueue
    node: Node
    usage: Mapping[int, int]
    """Flavor-resource (index in the tree) to the amount that the head would use."""
    needs: Needs
    """The head fits while so much is free."""


class Reservation(NamedTuple):
    """What a head that does not fit, and preempts nobody, keeps from those that come after it in the cycle."""

    rank: Rank
    node: Node
    usage: Mapping[int, int]


class Verdict(Enum):
    """How a ClusterQueue takes part in the next cycle."""

    BLOCKED = auto()
    """None of its workloads fits or can preempt."""
    PASSED_OVER = auto()
    """Its head neither fits nor can preempt; of those behind it, which have their turns in further cycles, some may."""
    CONTENDER = auto()
    OPEN = auto()
    """It takes part as usual."""


class Prospect:
    """What decides about the workloads of all ClusterQueues that are alike in it. Equal prospects are one object."""

    __slots__ = ("__weakref__", "_wishes")

    def __init__(self, wishes: tuple[tuple[Needs | None, Parts], ...] | None) -> None:
        self._wishes = wishes

    def verdict(self, tried: int, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> Verdict:
        """How a ClusterQueue takes part with its workloads but those of the first `tried` shapes.

        `free` is what is available at the root of each flavor-resource. `highest` is the highest share of all
        ClusterQueues, `strict` whether the share of each that has it falls with every workload that is taken from it.
        """
        if self._wishes is None:
            return Verdict.OPEN
        for number in range(tried, len(self._wishes)):
            needs, parts = self._wishes[number]
            if number == tried and needs is not None and all(free[fr] >= least for fr, least in needs):
                return Verdict.CONTENDER
            if not _is_blocked(parts, free, highest, strict=strict):
                return Verdict.OPEN if number == tried else Verdict.PASSED_OVER
        return Verdict.BLOCKED


class Prospects:
    """The prospects in use. Held weakly: one is forgotten with the last outlook that has it."""

    def __init__(self) -> None:
        self._by_value: WeakValueDictionary[Hashable, Prospect] = WeakValueDictionary()

    def of(self, wishes: tuple[Wish, ...] | None) -> Prospect:
        """The prospect of a ClusterQueue with these wishes."""
        value = None if wishes is None else tuple((wish.needs, wish.parts) for wish in wishes)
        prospect = self._by_value.get(value)
        if prospect is None:
            prospect = self._by_value[value] = Prospect(value)
        return prospect


class Outlook:
    """What a cycle would decide about the pending workloads of a ClusterQueue. Valid until they or its usage change."""

    __slots__ = ("_contenders", "_queue", "_tree", "node", "prospect", "reserves", "wishes")

    def __init__(
        self, queue: ClusterQueue, node: Node, tree: Tree, prospects: Prospects, *, ignore_undeclared: bool
    ) -> None:
        self._queue = queue
        self._tree = tree
        self._contenders: dict[int, Contender] = {}
        self.node = node
        self.reserves = queue.spec.preemption.reclaim_within_cohort != "Any"
        """Whether a head that does not fit may keep quota from others for the cycle."""
        firsts = _firsts(queue)
        self.wishes: tuple[Wish, ...] | None = None
        """In order; None if the decisions about them cannot be foreseen."""
        if firsts is not None:
            self.wishes = tuple(_wish(queue, node, tree, item, ignore_undeclared=ignore_undeclared) for item in firsts)
        self.prospect = prospects.of(self.wishes)

    def contender(self, tried: int) -> Contender:
        """The ClusterQueue as a contender with the first workload but for those of the first `tried` shapes."""
        contender = self._contenders.get(tried)
        if contender is None:
            assert self.wishes is not None
            wish, node = self.wishes[tried], self.node
            assert wish.usage is not None
            assert wish.needs is not None
            rank = tournament_rank(wish.item, wish.usage, node, node, self._tree)
            contender = self._contenders[tried] = Contender(rank, self._queue, node, wish.usage, wish.needs)
        return contender

    def foresees_reservation(self, tried: int) -> bool:
        """Whether `reservation` can tell what the head reserves if it is blocked: if it can preempt nobody."""
        if self.wishes is None or tried >= len(self.wishes):
            return False
        wish = self.wishes[tried]
        return wish.helpless and wish.usage is not None

    def reservation(self, tried: int, free: Sequence[int]) -> Reservation | None:
        """What the first workload but for those of the first `tried` shapes reserves, which is blocked; None: nothing.

        Only if `foresees_reservation`.
        """
        assert self.wishes is not None
        item, usage, node = self.wishes[tried].item, self.wishes[tried].usage, self.node
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
                return (
                    None  # with nothing to preempt and no right to borrow by it, it is refused, and waits for nothing
                )
        rank = tournament_rank(item, usage, node, node, self._tree)
        return Reservation(rank, node, reserved(node, usage, borrows=borrows))


def reserved(node: Node, usage: Mapping[int, int], *, borrows: bool) -> dict[int, int]:
    """The usage that a head without victims reserves for this cycle: up to its nominal quota or borrowing limit."""
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
    """Whether some part of the workload can get no flavor, neither free nor by preemption."""
    for flavors in parts:
        for bars in flavors:
            for fr, least, in_vain, compared, own in bars:
                if free[fr] >= least:
                    continue
                # With a share above all others, no other share is high enough to be preempted.
                if in_vain or (compared and (own > highest or (strict and own == highest))):
                    break
            else:
                break  # this flavor may do
        else:
            return True
    return False


def _firsts(queue: ClusterQueue) -> list[Item] | None:
    """The first waiting workload of each shape, in order; None if one of them needs a turn of its own."""
    pending = queue.pending
    if queue.spec.queueing_strategy != "BestEffortFIFO" or pending.sticky or pending.usage is not None:
        return None
    firsts = pending.firsts()
    for item in firsts or ():
        if item.fault or item.progress or item.shape.partial or item.workload.replaces:
            return None
    return firsts


def _wish(queue: ClusterQueue, node: Node, tree: Tree, item: Item, *, ignore_undeclared: bool) -> Wish:
    plan, preemption = queue.facts(item.shape).plan, queue.spec.preemption
    lowest = queue.lowest_priority()
    own = {
        "Never": False,
        "LowerPriority": lowest < item.shape.priority,
        "LowerOrNewerEqualPriority": lowest <= item.shape.priority,
        "Any": lowest < inf,
    }[preemption.within_cluster_queue]
    helpless = not own and preemption.reclaim_within_cohort == "Never"
    parts = []
    for group, totals in zip(plan.groups, plan.totals, strict=True):
        for part in group.parts:
            if part.group < 0 and (ignore_undeclared or not totals[part.resources[0]]):
                continue
            flavors = [
                # What the pods resource lacks is left to the cycle: like Kueue, preemption does not count it fully.
                tuple(
                    _bar(node, tree, option.frs[name], totals[name], helpless=helpless, own=own)
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
    return Wish(item, helpless, tuple(parts), usage, needs)


def _bar(node: Node, tree: Tree, fr: int, amount: int, *, helpless: bool, own: bool) -> Bar:
    least = least_free(node, fr, amount) if amount else -inf
    in_vain = helpless or amount > node.potential[fr]
    if in_vain or own:
        return Bar(fr, least, in_vain, compared=False, share=(False, 0.0))
    add_usage(node, fr, amount)
    rank, compared = share(node, tree).rank, borrows_with(node, fr, 0)
    remove_usage(node, fr, amount)
    return Bar(fr, least, in_vain, compared, rank)


def _only_usage(plan: Plan, *, ignore_undeclared: bool) -> dict[int, int] | None:
    """What a workload uses if it fits; None if that depends on which flavor it gets."""
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
