"""Weighted shares of ClusterQueues and Cohorts, and overuse, computed from queue objects and usage alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from admission.engine.fair import share
from admission.engine.forest import Forest
from admission.engine.over_quota import overuse
from admission.engine.tree import add_usage
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.engine.over_quota import Overuse
    from admission.engine.tree import FlavorResource, Node
    from admission.model.queues import QueueObject

INFINITE: Final = 2**63 - 1
"""The weighted share of a node that borrows with weight 0, as in Kueue's status."""


class WeightedShares:
    """Weighted shares in the trees of given queue objects, computed incrementally for changing usage."""

    def __init__(self, queues: Iterable[QueueObject], cohorts: Iterable[QueueObject]) -> None:
        self._forest = Forest()
        self._forest.specs = {item.name: item.spec for item in queues if isinstance(item, ClusterQueue)}
        self._forest.cohorts = {item.name: item.spec for item in cohorts if isinstance(item, Cohort)}
        self._forest.refresh()
        self._usage: dict[str, Mapping[FlavorResource, int]] = {}
        self._shares = {
            (kind, name): _whole(share(node, domain.tree).value)
            for domain in self._forest.domains.values()
            for kind, nodes in ((ClusterQueue.kind, domain.tree.queues), (Cohort.kind, domain.tree.cohorts))
            for name, node in nodes.items()
        }
        """(kind, name) to share, at the usage `_usage`, which the trees have."""

    def at(self, usage: Mapping[str, Mapping[FlavorResource, int]]) -> dict[tuple[str, str], int]:
        """Return the weighted shares at this usage by (kind, name), rounded up as in Kueue.

        `usage`: ClusterQueue to the amounts in use, by (flavor, resource).
        """
        for domain in self._forest.domains.values():
            tree = domain.tree
            changed: dict[Node, None] = {}
            for name, node in tree.queues.items():
                before, now = self._usage.get(name, {}), usage.get(name, {})
                if before == now:
                    continue
                for fr in before.keys() | now.keys():
                    if fr in tree.index:
                        add_usage(node, tree.index[fr], now.get(fr, 0) - before.get(fr, 0))
                changed.update(dict.fromkeys((node, *node.path)))
            for node in changed:
                kind = ClusterQueue.kind if node.leaf else Cohort.kind
                self._shares[kind, node.name] = _whole(share(node, tree).value)
        self._usage = dict(usage)
        return dict(self._shares)

    def most(self, cluster_queue: str, fr: FlavorResource) -> int:
        """Return what a ClusterQueue can use of a flavor's resource if nothing else is in use; 0: it has no quota."""
        for domain in self._forest.domains.values():
            node = domain.tree.queues.get(cluster_queue)
            if node is not None and fr in domain.tree.index:
                return node.potential[domain.tree.index[fr]]
        return 0

    def overuse(self, kind: str, name: str) -> Iterator[Overuse]:
        """Yield overuse of a ClusterQueue or Cohort and of the Cohorts above it, at the usage last passed to `at`."""
        for domain in self._forest.domains.values():
            nodes = domain.tree.queues if kind == ClusterQueue.kind else domain.tree.cohorts
            if (node := nodes.get(name)) is not None:
                above = {(each.leaf, each.name) for each in (node, *node.path)}
                for over in overuse(domain.tree):
                    if (over.kind == ClusterQueue.kind, over.name) in above:
                        yield over


def _whole(value: float) -> int:
    return INFINITE if math.isinf(value) else math.ceil(value)
