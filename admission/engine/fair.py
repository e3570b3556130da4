"""Dominant resource shares: how far a node of the tree is above its quota, compared with its siblings.

share = the largest ratio, over resources, of what the node borrows to what the tree could lend it, divided by the
node's weight (Kueue's KEP 1714). IEEE doubles, never rounded in comparisons.
"""

from __future__ import annotations

from functools import total_ordering
from typing import TYPE_CHECKING

from admission.model.quantity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.tree import Node, Tree


@total_ordering
class Share:
    """The share of a node. A node of weight 0 that borrows is above all others."""

    __slots__ = ("borrowed", "dominant", "unweighted", "weight")

    def __init__(
        self, weight: float, borrowed: tuple[int, ...] = (), unweighted: float = 0.0, dominant: str = ""
    ) -> None:
        self.weight = weight
        self.borrowed = borrowed
        """The flavor-resources that it borrows."""
        self.unweighted = unweighted
        self.dominant = dominant
        """The resource whose ratio is the largest."""

    @property
    def value(self) -> float:
        """The weighted share; infinite for a node of weight 0 that borrows."""
        if self.unweighted == 0:
            return 0.0
        return self.unweighted / self.weight if self.weight else float("inf")

    def _rank(self) -> tuple[bool, float]:
        infinite = self.weight == 0 and self.unweighted != 0
        return infinite, self.unweighted if infinite else self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self._rank() == other._rank()

    def __lt__(self, other: Share) -> bool:
        return self._rank() < other._rank()

    __hash__ = None  # type: ignore[assignment]  # equal shares are not the same share

    def borrows_any(self, requests: Mapping[int, int]) -> bool:
        """Whether something of what is requested is borrowed."""
        return any(requests.get(fr, 0) > 0 for fr in self.borrowed)


def share(node: Node, tree: Tree) -> Share:
    """The share of a node at its usage now; the root has none."""
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
