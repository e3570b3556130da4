"""Which ClusterQueues a cycle of fair sharing can leave out, because it is certain what would become of their heads.

When quota is freed in a Cohort, every ClusterQueue under it may try all of its waiting workloads again. Judging 1,000
heads anew for each workload that ends takes a third of a second, and each search for victims among them takes longer
than that, although most verdicts follow from what is known:

- A ClusterQueue is *blocked* if none of its waiting workloads fits or can preempt. Its turns would change nothing, but
  for what its heads keep from others in the cycle: that is a *reservation*, made when their turns would have come.
- It is *passed over* if that is so of its head, but not of all those behind it: they have their turns in later cycles.
- It is a *contender* if its head fits and can get one flavor only. What it would use, and so its rank in the
  tournament, depend on its own ClusterQueue alone; it has to be judged only if its turn comes while it still fits.

All others take part as ever. So the decisions are those of a cycle with everybody in it
(`tests/engine/test_engine_standby.py` compares the two), but for one thing: an interrupted search for a flavor goes on
by its age in cycles, of which there may be fewer, so that it may begin with the first flavor again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.engine.fair import share
from admission.engine.outlook import Outlook, Prospects, Verdict
from admission.engine.tree import available

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.fair import Share
    from admission.engine.forest import Domain
    from admission.engine.outlook import Contender, Prospect, Reservation


@dataclass(slots=True)
class Aside:
    """What those that a cycle leaves out have to do with it."""

    contenders: list[list[Contender]] = field(default_factory=list)
    """In groups that need the same to fit."""
    reservations: list[Reservation] = field(default_factory=list)
    """Of heads that do not fit, to be made at their turns."""
    goes_on: bool = False
    """Whether others of those that are left out have their turns in the next cycle."""


class Standby:
    """The ClusterQueues of one tree that are left out, from one release of quota to the end of the cycles after it.

    For a tree whose ClusterQueues are all right under its root.
    """

    def __init__(self, domain: Domain, *, ignore_undeclared: bool) -> None:
        self._domain = domain
        self._ignore_undeclared = ignore_undeclared
        self._prospects = Prospects()
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
        """The head of a contender was admitted: what waits behind it is judged like that of those left out.

        Not if another shape was tried in vain before: that has had its turn until quota is freed again.
        """
        if queue.pending.by_uid and not queue.pending.has_inadmissible:
            self._kept[queue] = 0

    def takers(self) -> list[ClusterQueue]:
        """The ClusterQueues that take part in the cycle."""
        kept = self._kept
        return [queue for queue in self._domain.queues if queue not in kept]

    def give_up(self) -> None:
        """Let all that were left out take part again."""
        for queue in list(self._kept):
            self.take_part(queue)

    def end(self) -> None:
        """Nothing moves any more: what is blocked stays inadmissible until quota is freed again."""
        for queue in list(self._contending):
            self.take_part(queue)
        self._kept.clear()

    def sift(self) -> Aside:
        """Decide which ClusterQueues the next cycle leaves out, and what they have to do with it."""
        if self._domain.freed:
            self._domain.freed = False
            self._kept = {queue: 0 for queue in self._domain.at.values() if queue.pending.by_uid}
        aside = Aside()
        if not self._kept:
            return aside
        for queue in [queue for queue in self._kept if queue not in self._outlooks]:
            if self._kept[queue]:  # it has changed in the meantime
                self.take_part(queue)
            else:
                self._make_inadmissible(queue)
        highest, strict = self._highest()
        free = self._free()
        self._contending.clear()
        opened: list[ClusterQueue] = []
        reserving: list[ClusterQueue] = []
        verdicts: dict[tuple[Prospect, int], Verdict] = {}
        contenders: dict[tuple[Prospect, int], list[Contender]] = {}
        for queue, tried in self._kept.items():
            outlook = self._outlooks[queue]
            alike = outlook.prospect, tried
            verdict = verdicts.get(alike)
            if verdict is None:
                verdict = verdicts[alike] = outlook.prospect.verdict(tried, free, highest, strict=strict)
                contenders[alike] = []
            if verdict is Verdict.CONTENDER:
                contenders[alike].append(outlook.contender(tried))
                self._contending.add(queue)
            elif verdict is Verdict.OPEN:
                opened.append(queue)
            else:
                self._kept[queue] = tried + 1
                if outlook.reserves and outlook.wishes is not None and tried < len(outlook.wishes):
                    reserving.append(queue)
        aside.contenders = [group for group in contenders.values() if group]
        aside.goes_on = Verdict.PASSED_OVER in verdicts.values()
        if reserving and (
            aside.goes_on or self._contending or opened or self._others_may_gain(free, highest, strict=strict)
        ):
            opened += self._reserve(reserving, free, aside)
        for queue in opened:
            self.take_part(queue)
        return aside

    def _reserve(self, queues: list[ClusterQueue], free: Sequence[int], aside: Aside) -> list[ClusterQueue]:
        """Note what the heads of these reserve; those that have to take part, because that is not foreseen."""
        unforeseen = []
        for queue in queues:
            outlook, tried = self._outlooks[queue], self._kept[queue] - 1
            if outlook.foresees_reservation(tried):
                reservation = outlook.reservation(tried, free)
                if reservation is not None:
                    aside.reservations.append(reservation)
                    aside.goes_on = True
            else:
                self._kept[queue] = tried
                unforeseen.append(queue)
        return unforeseen

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
        tree, ignore = self._domain.tree, self._ignore_undeclared
        return Outlook(queue, queue.node, tree, self._prospects, ignore_undeclared=ignore)

    def _highest(self) -> tuple[tuple[bool, float], bool]:
        """The highest share of an active ClusterQueue, and whether it falls with every workload that is taken."""
        if self._top is None:
            shares, tree = self._shares, self._domain.tree
            for node, queue in [(node, queue) for node, queue in self._domain.at.items() if queue not in shares]:
                own = share(node, tree)
                shares[queue] = own.rank, _falls(queue, own)
            highest = max([rank for rank, _ in shares.values()], default=(False, 0.0))
            self._top = highest, all(falls for rank, falls in shares.values() if rank == highest)
        return self._top

    def _others_may_gain(self, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> bool:
        """Whether a ClusterQueue that takes part may admit or preempt, so that reservations could make a difference."""
        others = (queue for queue in self._domain.at.values() if queue not in self._kept and queue.pending.by_uid)
        return any(
            self._outlook(queue).prospect.verdict(0, free, highest, strict=strict) is not Verdict.BLOCKED
            for queue in others
        )


def _falls(queue: ClusterQueue, own: Share) -> bool:
    """Whether the share of a ClusterQueue falls with every workload that is taken from it: each uses all it borrows."""
    borrowed = set(own.borrowed)
    return all(borrowed <= {fr for fr, amount in held.amounts if amount > 0} for held in queue.held.values())
