"""Shapes: equivalence classes of workloads, so that what was computed for one of them is used for all.

A shape is what decides whether a workload fits: its pod sets and its priority (Kueue's scheduling hash), and whose
quota it takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Hashable

    from admission.engine.accounting import Accounting
    from admission.engine.clusterqueue import ClusterQueue, Facts
    from admission.model.workload import PodSet, Workload


class Shape:
    """Pod sets and priority that equal workloads have in common. Equal shapes are one object."""

    __slots__ = ("__weakref__", "facts", "partial", "pod_sets", "priority", "replaces", "written")

    def __init__(
        self, written: tuple[PodSet, ...], pod_sets: tuple[PodSet, ...], priority: int, replaces: str = ""
    ) -> None:
        self.written = written
        self.pod_sets = pod_sets
        """The pod sets as they count against quota (see `Accounting`); `written` are those of the workload."""
        self.priority = priority
        self.replaces = replaces
        """The uid of the workload whose quota it takes over: what it needs of each flavor is less by that."""
        self.facts: dict[ClusterQueue, Facts] = {}
        """By ClusterQueue."""
        self.partial = any(pod_set.min_count is not None for pod_set in pod_sets)


class Shapes:
    """The shapes in use. Held weakly: a shape is forgotten with its last workload."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self._by_value: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._by_identity: WeakValueDictionary[tuple[int, int], Shape] = WeakValueDictionary()

    def of(self, workload: Workload) -> Shape:
        """The shape of a workload."""
        identity = id(workload.pod_sets), workload.priority
        known = self._by_identity.get(identity)
        if known is not None and known.written is workload.pod_sets and known.replaces == workload.replaces:
            return known
        value = workload.priority, workload.replaces, *map(_value, workload.pod_sets)
        shape = self._by_value.get(value)
        if shape is None:
            counted = self._accounting.pod_sets(workload.pod_sets)
            shape = Shape(workload.pod_sets, counted, workload.priority, workload.replaces)
            self._by_value[value] = shape
            # The shape keeps the tuple alive, so that its id means the same as long as the entry exists.
            self._by_identity[identity] = shape
        return shape


def _value(pod_set: PodSet) -> Hashable:
    return (
        pod_set.name,
        pod_set.count,
        pod_set.min_count,
        tuple(sorted(pod_set.requests.items())),
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.tolerations,
        pod_set.affinity,
        pod_set.group,
    )
