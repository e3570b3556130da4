"""Skipping of ClusterQueues in cycles with fair sharing, where the outcome for their heads is known without nomination.

When quota is freed in a Cohort, every ClusterQueue under it may retry all of its pending workloads. Nominating 1,000
heads for each workload that finishes takes a third of a second, and searching preemption targets for each of them takes
longer than that, although most outcomes follow from values computed before:

- A ClusterQueue is *blocked* if none of its pending workloads fits or can preempt. Deciding its heads would change
  nothing except the quota that they reserve for the rest of the cycle; that *reservation* is made at their turn.
- It is *passed over* if its head neither fits nor can preempt, but a workload behind it may: that one has its turn in a
  later cycle.
- It is a *contender* if its head fits and can get one flavor only. The usage of the head, and so its rank in the
  tournament, depends on its own ClusterQueue alone; it is nominated only if it still fits when its turn comes.

All other ClusterQueues take part normally. So the decisions are those of a cycle in which all ClusterQueues take part
(`tests/engine/test_engine_skipping.py` compares the two), with one exception: an interrupted search for a flavor is
continued or restarted depending on its age in cycles. With skipping there may be fewer cycles, so that the search may
restart at the first flavor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admission.engine.fair import share
from admission.engine.head_prediction import HeadPrediction, Participation, ThresholdsCache
from admission.engine.tree import available

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.fair import Share
    from admission.engine.forest import Domain
    from admission.engine.head_prediction import Contender, ReservedUsage, Thresholds


@dataclass(slots=True)
class SkipPlan:
    """How the skipped ClusterQueues still affect one cycle."""

    contenders: list[list[Contender]] = field(default_factory=list)
    """Contenders, grouped by equal `needs`: while no preemption is decided, none of a group fits if one does not."""
    reservations: list[ReservedUsage] = field(default_factory=list)
    """Reservations of heads that do not fit, to be made when their turn in the tournament comes."""
    more_to_try: bool = False
    """Whether a skipped ClusterQueue has another head to decide in the next cycle."""


class SkippedQueues:
    """The skipped ClusterQueues of one tree, from a release of quota until the cycles that follow it decide nothing.

    Only for a tree whose ClusterQueues are all direct children of its root.
    """

    def __init__(self, domain: Domain, *, ignore_undeclared: bool) -> None:
        self._domain = domain
        self._ignore_undeclared = ignore_undeclared
        self._thresholds = ThresholdsCache()
        self._predictions: dict[ClusterQueue, HeadPrediction] = {}
        self._shares: dict[ClusterQueue, tuple[tuple[bool, float], bool]] = {}
        """ClusterQueue to its share (`Share.rank`), and whether removing any of its workloads lowers that share."""
        self._top: tuple[tuple[bool, float], bool] | None = None
        """Cached result of `_highest`; None: a share has changed since."""
        self._skipped: dict[ClusterQueue, int] = {}
        """Skipped ClusterQueue to the number of its shapes whose heads count as tried without success so far."""
        self._contending: set[ClusterQueue] = set()
        """Skipped ClusterQueues that were contenders in the last cycle and had no turn."""

    def invalidate(self, queue: ClusterQueue) -> None:
        """Drop what is cached of a ClusterQueue whose usage or pending workloads have changed."""
        self._predictions.pop(queue, None)
        self._shares.pop(queue, None)
        self._top = None

    def include(self, queue: ClusterQueue) -> None:
        """Stop skipping a ClusterQueue: requeue its inadmissible workloads, except the shapes that count as tried."""
        self._contending.discard(queue)
        tried = self._skipped.pop(queue)
        prediction = self._predictions.pop(queue, None)
        queue.pending.requeue_inadmissible()
        if prediction is not None and prediction.heads is not None:
            for head in prediction.heads[:tried]:
                queue.pending.make_shape_inadmissible(head.item.shape)

    def skip(self, queue: ClusterQueue) -> None:
        """Skip a contender again whose head was admitted, so that the workloads behind it are predicted, too.

        Not if it has inadmissible workloads: their shapes were tried without success, and must not be retried before
        quota is freed again.
        """
        if queue.pending.by_uid and not queue.pending.has_inadmissible:
            self._skipped[queue] = 0

    def participants(self) -> list[ClusterQueue]:
        """Return the ClusterQueues that are not skipped in the cycle."""
        skipped = self._skipped
        return [queue for queue in self._domain.queues if queue not in skipped]

    def include_all(self) -> None:
        """Stop skipping all ClusterQueues."""
        for queue in list(self._skipped):
            self.include(queue)

    def end(self) -> None:
        """Finish when a cycle decided nothing: workloads of blocked queues stay inadmissible until quota is freed."""
        for queue in list(self._contending):
            self.include(queue)
        self._skipped.clear()

    def plan_cycle(self) -> SkipPlan:
        """Decide which ClusterQueues the next cycle skips, and return their contenders and reservations."""
        if self._domain.freed:
            self._domain.freed = False
            self._skipped = {queue: 0 for queue in self._domain.active_by_node.values() if queue.pending.by_uid}
        plan = SkipPlan()
        if not self._skipped:
            return plan
        for queue in [queue for queue in self._skipped if queue not in self._predictions]:
            if self._skipped[queue]:  # it has changed since its first shapes were tried
                self.include(queue)
            else:
                self._make_inadmissible(queue)
        highest, strict = self._highest()
        free = self._free()
        self._contending.clear()
        included: list[ClusterQueue] = []
        reserving: list[ClusterQueue] = []
        participations: dict[tuple[Thresholds, int], Participation] = {}
        contenders: dict[tuple[Thresholds, int], list[Contender]] = {}
        for queue, tried in self._skipped.items():
            prediction = self._predictions[queue]
            alike = prediction.thresholds, tried
            participation = participations.get(alike)
            if participation is None:
                participation = participations[alike] = prediction.thresholds.participation(
                    tried, free, highest, strict=strict
                )
                contenders[alike] = []
            if participation is Participation.CONTENDER:
                contenders[alike].append(prediction.contender(tried))
                self._contending.add(queue)
            elif participation is Participation.OPEN:
                included.append(queue)
            else:
                self._skipped[queue] = tried + 1
                if prediction.reserves and prediction.heads is not None and tried < len(prediction.heads):
                    reserving.append(queue)
        plan.contenders = [group for group in contenders.values() if group]
        plan.more_to_try = Participation.PASSED_OVER in participations.values()
        if reserving and (
            plan.more_to_try or self._contending or included or self._others_may_gain(free, highest, strict=strict)
        ):
            included += self._reserve(reserving, free, plan)
        for queue in included:
            self.include(queue)
        return plan

    def _reserve(self, queues: list[ClusterQueue], free: Sequence[int], plan: SkipPlan) -> list[ClusterQueue]:
        """Add the reservations of the heads of `queues` to the plan; return the queues for which none is predictable.

        Those have to take part in the cycle.
        """
        unpredictable = []
        for queue in queues:
            prediction, tried = self._predictions[queue], self._skipped[queue] - 1
            if prediction.predicts_reservation(tried):
                reservation = prediction.reservation(tried, free)
                if reservation is not None:
                    plan.reservations.append(reservation)
                    plan.more_to_try = True
            else:
                self._skipped[queue] = tried
                unpredictable.append(queue)
        return unpredictable

    def _make_inadmissible(self, queue: ClusterQueue) -> None:
        """Mark all pending workloads of a ClusterQueue inadmissible if the decisions about them are predictable."""
        prediction = self._predictions[queue] = self._predict(queue)
        for head in prediction.heads or ():
            queue.pending.make_shape_inadmissible(head.item.shape)

    def _free(self) -> list[int]:
        root = self._domain.tree.root
        return [available(root, fr) for fr in range(len(self._domain.tree.frs))]

    def _predict(self, queue: ClusterQueue) -> HeadPrediction:
        assert queue.node is not None
        tree, ignore = self._domain.tree, self._ignore_undeclared
        return HeadPrediction(queue, queue.node, tree, self._thresholds, ignore_undeclared=ignore)

    def _highest(self) -> tuple[tuple[bool, float], bool]:
        """Return the highest share of any active ClusterQueue, and whether removing any workload always lowers it."""
        if self._top is None:
            shares, tree = self._shares, self._domain.tree
            for node, queue in [
                (node, queue) for node, queue in self._domain.active_by_node.items() if queue not in shares
            ]:
                own = share(node, tree)
                shares[queue] = own.rank, _falls(queue, own)
            highest = max([rank for rank, _ in shares.values()], default=(False, 0.0))
            self._top = highest, all(falls for rank, falls in shares.values() if rank == highest)
        return self._top

    def _others_may_gain(self, free: Sequence[int], highest: tuple[bool, float], *, strict: bool) -> bool:
        """Whether a ClusterQueue that is not skipped may admit or preempt, so that reservations could matter."""
        others = (
            queue
            for queue in self._domain.active_by_node.values()
            if queue not in self._skipped and queue.pending.by_uid
        )
        return any(
            self._predict(queue).thresholds.participation(0, free, highest, strict=strict) is not Participation.BLOCKED
            for queue in others
        )


def _falls(queue: ClusterQueue, own: Share) -> bool:
    """Whether removing any workload lowers the ClusterQueue's share: each uses all flavor-resources that it borrows."""
    borrowed = set(own.borrowed)
    return all(borrowed <= {fr for fr, amount in held.amounts if amount > 0} for held in queue.held.values())
