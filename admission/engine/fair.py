"""Dominant resource share (DRS): how much a node of the tree borrows, by which fair sharing compares siblings.

share = the largest ratio, over resources, of the amount that the node borrows to the amount that the tree could lend
it, divided by the node's weight (Kueue's KEP 1714, `pkg/cache/scheduler/fair_sharing.go`). IEEE doubles, never rounded
in comparisons.
"""

from __future__ import annotations

from functools import total_ordering
from typing import TYPE_CHECKING

from admission.model.quantity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from admission.engine.tree import Node, Tree


@total_ordering
class Share:
    """The share of one node (Kueue's `DRS`). A node with weight 0 that borrows has a higher share than all others."""

    __slots__ = ("borrowed", "dominant", "rank", "unweighted", "weight")

    def __init__(
        self, weight: float, borrowed: tuple[int, ...] = (), unweighted: float = 0.0, dominant: str = ""
    ) -> None:
        self.weight = weight
        self.borrowed = borrowed
        """The flavor-resources that the node borrows."""
        self.unweighted = unweighted
        """The largest ratio over resources, times 1000."""
        self.dominant = dominant
        """The resource with the largest ratio."""
        infinite = weight == 0 and unweighted != 0
        self.rank = infinite, unweighted if infinite else self.value
        """The sort key of shares: (infinite, value)."""

    @property
    def value(self) -> float:
        """The weighted share; infinite for a node with weight 0 that borrows."""
        if self.unweighted == 0:
            return 0.0
        return self.unweighted / self.weight if self.weight else float("inf")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.rank == other.rank

    def __lt__(self, other: Share) -> bool:
        return self.rank < other.rank

    __hash__ = None  # type: ignore[assignment]  # equal shares are not the same share

    def borrows_any(self, requests: Mapping[int, int]) -> bool:
        """Whether any of the requested flavor-resources is borrowed (Kueue's `IsBorrowingOn`)."""
        return any(requests.get(fr, 0) > 0 for fr in self.borrowed)


def share(node: Node, tree: Tree) -> Share:
    """Return the share of a node at its current usage; that of a root is 0 (Kueue's `dominantResourceShare`)."""
    parent = node.parent
    if parent is None:
        return Share(node.weight)
    borrowed = [fr for fr in node.frs if node.usage[fr] > node.quota[fr]]
    if not borrowed:
        return Share(node.weight)
    amounts: dict[str, int] = {}
    for fr in borrowed:
        resource = tree.frs[fr][1]
        amounts[resource] = amounts.get(resource, 0) + node.usage[fr] - node.quota[fr]
    unweighted, dominant = 0.0, ""
    for resource in sorted(amounts):
        lendable = min(parent.lendable[resource], UNLIMITED)
        if lendable > 0:
            ratio = float(min(amounts[resource], UNLIMITED)) * 1000.0 / float(lendable)
            if ratio > unweighted:
                unweighted, dominant = ratio, resource
    return Share(node.weight, tuple(borrowed), unweighted, dominant)


class Shares:
    """The shares of all nodes of a tree, computed once for the current usage. `active`: the active ClusterQueues."""

    def __init__(self, tree: Tree, active: Container[Node]) -> None:
        self._shares = {node: share(node, tree) for node in (*tree.queues.values(), *tree.cohorts.values())}
        self._borrowing = {cohort: self._sorted(cohort, active) for cohort in tree.cohorts.values()}

    def _sorted(self, cohort: Node, active: Container[Node]) -> list[Node]:
        queues = [queue for queue in cohort.queues if queue in active and self.of(queue).borrowed]
        return sorted(queues, key=lambda queue: self.of(queue).rank, reverse=True)

    def of(self, node: Node) -> Share:
        """Return the share of a node."""
        return self._shares[node]

    def borrowing(self, cohort: Node) -> list[Node]:
        """Return the active ClusterQueues directly under a Cohort that borrow, highest share first."""
        return self._borrowing[cohort]
