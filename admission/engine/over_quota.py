"""Nodes of a tree that use more than they may, as happens when quota is lowered below usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Overuse:
    """One flavor and resource of which a ClusterQueue or Cohort uses `by` more than it may. Amounts as in the model."""

    kind: str
    name: str
    flavor: str
    resource: str
    by: int


def overuse(tree: Tree) -> Iterator[Overuse]:
    """Each node that is above its own quota, at the top of a tree, or above what it may borrow, further down."""
    for node in (*tree.queues.values(), *tree.cohorts.values()):
        for fr, used in enumerate(node.usage):
            most = _most(node, fr)
            if most is not None and used > most:
                flavor, resource = tree.frs[fr]
                yield Overuse("ClusterQueue" if node.leaf else "Cohort", node.name, flavor, resource, used - most)


def _most(node: Node, fr: int) -> int | None:
    if node.parent is None:
        return node.quota[fr]
    limit = node.borrowing[fr]
    return None if limit is None else node.quota[fr] + limit
