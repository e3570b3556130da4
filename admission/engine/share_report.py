"""The weighted share of each ClusterQueue and Cohort, from queue objects and what is in use, without any workload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from admission.engine.fair import share
from admission.engine.forest import Forest
from admission.engine.tree import add_usage
from admission.model.queues import ClusterQueue, Cohort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.engine.tree import FlavorResource
    from admission.model.queues import QueueObject

INFINITE: Final = 2**63 - 1
"""The weighted share of what borrows with a weight of 0, as in Kueue."""


class WeightedShares:
    """The shares in the trees of some queue objects, at any usage."""

    def __init__(self, queues: Iterable[QueueObject], cohorts: Iterable[QueueObject]) -> None:
        self._forest = Forest()
        self._forest.specs = {item.name: item.spec for item in queues if isinstance(item, ClusterQueue)}
        self._forest.cohorts = {item.name: item.spec for item in cohorts if isinstance(item, Cohort)}
        self._forest.refresh()

    def at(self, usage: Mapping[str, Mapping[FlavorResource, int]]) -> dict[tuple[str, str], int]:
        """By (kind, name), rounded up as in Kueue.

        `usage`: what is held of each ClusterQueue, by (flavor, resource).
        """
        found: dict[tuple[str, str], int] = {}
        for domain in self._forest.domains.values():
            tree = domain.tree
            for node in (*tree.queues.values(), *tree.cohorts.values()):
                node.usage = [0] * len(node.usage)
            for name, node in tree.queues.items():
                for fr, amount in usage.get(name, {}).items():
                    if fr in tree.index:
                        add_usage(node, tree.index[fr], amount)
            found.update(
                ((ClusterQueue.kind, name), _whole(share(node, tree).value)) for name, node in tree.queues.items()
            )
            found.update(((Cohort.kind, name), _whole(share(node, tree).value)) for name, node in tree.cohorts.items())
        return found


def _whole(value: float) -> int:
    return INFINITE if math.isinf(value) else math.ceil(value)
