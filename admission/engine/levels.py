"""Quota, usage and pending workloads of each ClusterQueue and Cohort, for metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.model.quantity import UNLIMITED, add, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.clusterqueue import ClusterQueue
    from admission.engine.forest import Forest
    from admission.engine.tree import FlavorResource, Node, Tree


@dataclass(frozen=True, slots=True)
class Level:
    """Quota and usage of one flavor-resource of a ClusterQueue or Cohort. Amounts as in the model; None: no limit."""

    nominal: int
    borrowing: int | None
    lending: int | None
    subtree: int
    """The nominal quota plus the quota that the children lend."""
    used: int


@dataclass(frozen=True, slots=True)
class QueueLevels:
    """Figures of one existing ClusterQueue."""

    name: str
    cohort: str
    """Name of its parent; empty: none."""
    root: str
    """Name of the root Cohort; empty: none."""
    fault: str
    """Why it admits nothing, to follow its name: `is stopped`; empty while it is active."""
    pending: int
    """The number of pending workloads, inadmissible ones included."""
    inadmissible: int
    """The number of inadmissible workloads."""
    active: Mapping[tuple[str, str], int]
    """LocalQueue (namespace, name) to the number of its active workloads."""
    requested: Mapping[str, int]
    """Resource to the amount that all pending workloads request together."""
    levels: Mapping[FlavorResource, Level]


@dataclass(frozen=True, slots=True)
class CohortLevels:
    """Figures of one Cohort, which may have no object of its own but only be named by others."""

    name: str
    parent: str
    root: str
    levels: Mapping[FlavorResource, Level]


def queue_levels(forest: Forest) -> Iterator[QueueLevels]:
    """Yield the figures of all existing ClusterQueues."""
    for name, spec in forest.specs.items():
        queue = forest.queue(name)
        node = queue.node
        yield QueueLevels(
            name,
            spec.cohort_name,
            "" if node is None or node.parent is None else node.root.name,
            queue.inactive,
            len(queue.pending),
            queue.pending.count_inadmissible(),
            queue.pending.count_active(),
            _requested(queue),
            {} if node is None or queue.tree is None else _levels(node, queue.tree),
        )


def cohort_levels(forest: Forest) -> Iterator[CohortLevels]:
    """Yield the figures of all Cohorts."""
    for domain in forest.domains.values():
        for name, node in domain.tree.cohorts.items():
            parent = "" if node.parent is None else node.parent.name
            yield CohortLevels(name, parent, node.root.name, _levels(node, domain.tree))


def _requested(queue: ClusterQueue) -> dict[str, int]:
    total: dict[str, int] = {}
    for shape, number in queue.pending.count_by_shape():
        for pod_set in shape.pod_sets:
            add(total, times(pod_set.total(pod_set.count), number))
    return total


def _levels(node: Node, tree: Tree) -> dict[FlavorResource, Level]:
    return {
        tree.frs[fr]: Level(
            min(node.nominal[fr], UNLIMITED),
            _limit(node.borrowing[fr]),
            _limit(_lending(node, fr)),
            min(node.quota[fr], UNLIMITED),
            node.usage[fr],
        )
        for fr in node.frs
    }


def _lending(node: Node, fr: int) -> int | None:
    """Return the lending limit: the quota beyond the local quota; None: there is no local quota, so no limit."""
    return None if node.local[fr] == 0 else node.quota[fr] - node.local[fr]


def _limit(amount: int | None) -> int | None:
    return None if amount is None or amount >= UNLIMITED else amount
