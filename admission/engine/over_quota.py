"""Overuse: nodes of a tree whose usage exceeds their quota, as happens when quota is lowered below usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Overuse:
    """A flavor-resource in which the usage of a ClusterQueue or Cohort exceeds its quota. Amounts as in the model."""

    kind: str
    """ClusterQueue or Cohort."""
    name: str
    flavor: str
    resource: str
    by: int
    """The amount by which usage exceeds the quota."""


def overuse(tree: Tree) -> Iterator[Overuse]:
    """Yield overuse of all nodes: of a root above its quota, of other nodes above quota plus borrowing limit."""
    for node in (*tree.queues.values(), *tree.cohorts.values()):
        for fr, used in enumerate(node.usage):
            most = _most(node, fr)
            if most is not None and used > most:
                flavor, resource = tree.frs[fr]
                yield Overuse("ClusterQueue" if node.leaf else "Cohort", node.name, flavor, resource, used - most)


def _most(node: Node, fr: int) -> int | None:
    """Return the most usage that the node's own limits permit; None: no limit."""
    if node.parent is None:
        return node.quota[fr]
    limit = node.borrowing[fr]
    return None if limit is None else node.quota[fr] + limit
