"""Which ClusterQueues a cycle of fair sharing can leave out, because it is certain what would become of their heads.

When quota is freed in a Cohort, every ClusterQueue under it may try all of its waiting workloads again. Judging 1,000
heads anew for each workload that ends takes a third of a second, although most verdicts follow from what is known:

- A ClusterQueue is *blocked* if none of its waiting workloads fits or can preempt. Its turns would change nothing.
- It is a *contender* if its head fits and can get one flavor only. What it would use, and so its rank in the
  tournament, depend on its own ClusterQueue alone; it has to be judged only if its turn comes while it still fits.

All others take part as ever. So the decisions are those of a cycle with everybody in it
(`tests/engine/test_engine_standby.py` compares the two), but for one thing: an interrupted search for a flavor goes on
by its age in cycles, of which there may be fewer, so that it may begin with the first flavor again.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.clusterqueue import PODS
from admission.engine.fair import share
from admission.engine.order import Rank, tournament_rank
from admission.engine.tree import add_usage, available, available_with, borrows_with, remove_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from admission.engine.clusterqueue import ClusterQueue, Plan
    from admission.engine.fair import Share
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node, Tree


class Bar(NamedTuple):
    """The amount of a flavor-resource that a workload needs; with less it does not fit without preemption."""

    fr: int
    amount: int
    possible: bool
    """Whether it would fit if nothing else were in use."""
    entitled: bool
    """Whether the ClusterQueue would stay within its own quota of it: then preemption compares no shares."""
    share: tuple[bool, float]
    """The ClusterQueue's share, as `Share.rank`, if it used this much more."""


class Wish(NamedTuple):
    """The first pending workload of a shape in a ClusterQueue, with the flavors that it could get."""

    item: Item
    may_preempt_own: bool
    """Whether its own ClusterQueue holds workloads that it may preempt."""
    parts: tuple[tuple[tuple[Bar, ...], ...], ...]
    """For each part, the bars of each flavor that it may have. All parts are needed, flavors are alternatives."""


class Contender(NamedTuple):
    """A ClusterQueue whose head fits and can get one flavor only."""

    rank: Rank
    queue: ClusterQueue
    node: Node
    usage: Mapping[int, int]
    """Flavor-resource (index in the tree) to the amount that the head would use."""


class Verdict(Enum):
    """How a ClusterQueue takes part in the next cycle."""

    BLOCKED = auto()
    CONTENDER = auto()
    OPEN = auto()
    """It takes part as usual."""


class Outlook:
    """What a cycle would decide about the pending workloads of a ClusterQueue. Valid until they or its usage change."""

    __slots__ = ("contender", "node", "reserves", "wishes")

    def __init__(self, queue: ClusterQueue, node: Node, tree: Tree, *, ignore_undeclared: bool) -> None:
        self.node = node
        self.reserves = queue.spec.preemption.reclaim_within_cohort != "Any"
        """Whether a head that does not fit may keep quota from others for the cycle."""
        self.contender: Contender | None = None
        """The ClusterQueue as a contender, if its head can get one flavor only."""
        self.wishes: tuple[Wish, ...] | None = None
        """In order; None if the decisions about them cannot be foreseen."""
        firsts = _firsts(queue)
        if firsts is None:
            return
        self.wishes = tuple(_wish(queue, node, tree, item, ignore_undeclared=ignore_undeclared) for item in firsts)
        usage = _only_usage(queue.facts(firsts[0].shape).plan, ignore_undeclared=ignore_undeclared) if firsts else None
        if usage is not None:
            self.contender = Contender(tournament_rank(firsts[0], usage, node, node, tree), queue, node, usage)

    def verdict(self, tried: int, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> Verdict:
        """How it takes part with its workloads but those of the first `tried` shapes.

        `free` is what is available at the root of each flavor-resource. `highest` is the highest share of all
        ClusterQueues, `strict` whether the share of each that has it falls with every workload that is taken from it.
        """
        if self.wishes is None:
            return Verdict.OPEN
        if not tried and self.contender is not None and self._fits(self.contender.usage, free):
            return Verdict.CONTENDER
        for wish in self.wishes[tried:] if tried else self.wishes:
            if not self._is_blocked(wish, free, highest, strict=strict):
                return Verdict.OPEN
        return Verdict.BLOCKED

    def _fits(self, usage: Mapping[int, int], free: Sequence[int]) -> bool:
        # Asked of each ClusterQueue in each cycle, where a generator for all() takes longer than the comparisons.
        for fr, amount in usage.items():  # noqa: SIM110
            if amount and amount > available_with(self.node, fr, free[fr]):
                return False
        return True

    def _is_blocked(self, wish: Wish, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> bool:
        """Whether some part of the workload can get no flavor, neither free nor by preemption."""
        for flavors in wish.parts:
            for bars in flavors:
                for bar in bars:
                    if not bar.amount or bar.amount <= available_with(self.node, bar.fr, free[bar.fr]):
                        continue
                    # With a share above all others, no other share is high enough to be preempted.
                    above = bar.share > highest or (strict and bar.share == highest)
                    if not bar.possible or (above and not bar.entitled and not wish.may_preempt_own):
                        break
                else:
                    break  # this flavor may do
            else:
                return True
        return False


class Standby:
    """The ClusterQueues of one tree that are left out, from one release of quota to the end of the cycles after it.

    For a tree whose ClusterQueues are all right under its root.
    """

    def __init__(self, domain: Domain, *, ignore_undeclared: bool) -> None:
        self._domain = domain
        self._ignore_undeclared = ignore_undeclared
        self._outlooks: dict[ClusterQueue, Outlook] = {}
        self._shares: dict[ClusterQueue, tuple[tuple[bool, float], bool]] = {}
        """The share (`Share.rank`), and whether it falls with every workload that is taken from the ClusterQueue."""
        self._top: tuple[tuple[bool, float], bool] | None = None
        """What `_highest` found last; None: a share has changed since."""
        self._kept: dict[ClusterQueue, int] = {}
        """Those left out, to the number of their shapes that the cycles so far would have have tried in vain."""
        self._contending: set[ClusterQueue] = set()
        """Those of them that were contenders in the last cycle and had no turn."""

    def forget(self, queue: ClusterQueue) -> None:
        """The usage of the ClusterQueue has changed, or its waiting workloads have."""
        self._outlooks.pop(queue, None)
        self._shares.pop(queue, None)
        self._top = None

    def take_part(self, queue: ClusterQueue) -> None:
        """Let a ClusterQueue that was left out take part again."""
        self._contending.discard(queue)
        tried = self._kept.pop(queue)
        outlook = self._outlooks.pop(queue, None)
        queue.pending.requeue_inadmissible()
        if outlook is not None and outlook.wishes is not None:
            for wish in outlook.wishes[:tried]:
                queue.pending.make_shape_inadmissible(wish.item.shape)

    def leave_out(self, queue: ClusterQueue) -> None:
        """The head of a contender was admitted: what waits behind it is judged like that of those left out."""
        if len(queue.pending):
            self._kept[queue] = 0

    def leaves_out(self, queue: ClusterQueue) -> bool:
        """Whether the ClusterQueue takes no part in the cycle."""
        return queue in self._kept

    def give_up(self) -> None:
        """Let all that were left out take part again."""
        for queue in list(self._kept):
            self.take_part(queue)

    def end(self) -> None:
        """Nothing moves any more: what is blocked stays inadmissible until quota is freed again."""
        for queue in list(self._contending):
            self.take_part(queue)
        self._kept.clear()

    def sift(self) -> list[Contender]:
        """Decide which ClusterQueues the next cycle leaves out; the contenders among them."""
        if self._domain.freed:
            self._domain.freed = False
            self._kept = {queue: 0 for queue in self._domain.at.values() if len(queue.pending)}
        if not self._kept:
            return []
        for queue in [queue for queue in self._kept if queue not in self._outlooks]:
            if self._kept[queue]:  # it has changed in the meantime
                self.take_part(queue)
            else:
                self._make_inadmissible(queue)
        highest, strict = self._highest()
        free = self._free()
        self._contending.clear()
        contenders: list[Contender] = []
        opened: list[ClusterQueue] = []
        reserving: list[ClusterQueue] = []
        for queue, tried in self._kept.items():
            outlook = self._outlooks[queue]
            verdict = outlook.verdict(tried, free, highest, strict=strict)
            if verdict is Verdict.BLOCKED:
                self._kept[queue] = tried + 1
                if outlook.reserves:
                    reserving.append(queue)
            elif verdict is Verdict.CONTENDER and outlook.contender is not None:
                contenders.append(outlook.contender)
                self._contending.add(queue)
            else:
                opened.append(queue)
        if reserving and (contenders or opened or self._others_may_gain(free, highest, strict=strict)):
            for queue in reserving:
                self._kept[queue] -= 1
            opened += reserving
        for queue in opened:
            self.take_part(queue)
        return contenders

    def _make_inadmissible(self, queue: ClusterQueue) -> None:
        """Mark all waiting workloads inadmissible if it can be told what becomes of them."""
        outlook = self._outlooks[queue] = self._outlook(queue)
        for wish in outlook.wishes or ():
            queue.pending.make_shape_inadmissible(wish.item.shape)

    def _free(self) -> list[int]:
        root = self._domain.tree.root
        return [available(root, fr) for fr in range(len(self._domain.tree.frs))]

    def _outlook(self, queue: ClusterQueue) -> Outlook:
        assert queue.node is not None
        return Outlook(queue, queue.node, self._domain.tree, ignore_undeclared=self._ignore_undeclared)

    def _highest(self) -> tuple[tuple[bool, float], bool]:
        """The highest share of an active ClusterQueue, and whether it falls with every workload that is taken."""
        if self._top is None:
            shares = self._shares
            for node, queue in self._domain.at.items():
                if queue not in shares:
                    own = share(node, self._domain.tree)
                    shares[queue] = own.rank, _falls(queue, own)
            highest = max((rank for rank, _ in shares.values()), default=(False, 0.0))
            self._top = highest, all(falls for rank, falls in shares.values() if rank == highest)
        return self._top

    def _others_may_gain(self, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> bool:
        """Whether a ClusterQueue that takes part may admit or preempt, so that reservations could make a difference."""
        others = (queue for queue in self._domain.at.values() if queue not in self._kept and len(queue.pending))
        return any(
            self._outlook(queue).verdict(0, free, highest, strict=strict) is not Verdict.BLOCKED for queue in others
        )


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


def _falls(queue: ClusterQueue, own: Share) -> bool:
    """Whether the share of a ClusterQueue falls with every workload that is taken from it: each uses all it borrows."""
    borrowed = set(own.borrowed)
    return all(borrowed <= {fr for fr, amount in held.amounts if amount > 0} for held in queue.held.values())


def _wish(queue: ClusterQueue, node: Node, tree: Tree, item: Item, *, ignore_undeclared: bool) -> Wish:
    plan, preemption = queue.facts(item.shape).plan, queue.spec.preemption
    lowest = queue.lowest_priority()
    own = {
        "Never": False,
        "LowerPriority": lowest < item.shape.priority,
        "LowerOrNewerEqualPriority": lowest <= item.shape.priority,
        "Any": lowest < inf,
    }[preemption.within_cluster_queue]
    parts = []
    for group, totals in zip(plan.groups, plan.totals, strict=True):
        for part in group.parts:
            if part.group < 0 and (ignore_undeclared or not totals[part.resources[0]]):
                continue
            flavors = [
                # What the pods resource lacks is left to the cycle: like Kueue, preemption does not count it fully.
                tuple(_bar(node, tree, option.frs[name], totals[name]) for name in part.resources if name != PODS)
                for option in part.options
                if not option.mismatch
            ]
            parts.append(tuple(flavors))
    return Wish(item, own, tuple(parts))


def _bar(node: Node, tree: Tree, fr: int, amount: int) -> Bar:
    add_usage(node, fr, amount)
    rank, entitled = share(node, tree).rank, not borrows_with(node, fr, 0)
    remove_usage(node, fr, amount)
    return Bar(fr, amount, amount <= node.potential[fr], entitled, rank)


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


def hopelessness(root: Node, contenders: Collection[Contender]) -> Callable[[], bool]:
    """Tells, at the usage of the moment, whether it is certain that none of the contenders fits.

    It is if there is less of a flavor-resource than any of them needs. A ClusterQueue has at most what is available at
    the root, and what it never lends.
    """
    usages = [contender.usage for contender in contenders]
    needed = set(usages[0]).intersection(*usages) if usages else set()
    least = {
        fr: min(contender.usage[fr] for contender in contenders)
        - max(contender.node.local[fr] for contender in contenders)
        for fr in needed
    }

    def hopeless() -> bool:
        return any(amount > max(0, available(root, fr)) for fr, amount in least.items())

    return hopeless
