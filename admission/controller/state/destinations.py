"""Clusters that the workloads of the hub may be dispatched to, as ClusterQueues and annotations order them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from admission.engine.matching import elsewhere, mismatch
from admission.kinds.base import CLUSTER_AFFINITY, affinity_of
from admission.model import sentences
from admission.model.cluster_order import ClusterAffinity, ClusterOrder, candidates, open_at
from admission.model.errors import Misconfigured
from admission.model.queues import Cluster, ClusterQueue, PriceBook
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from admission.model.queues import ClusterQueueSpec, Dispatch, QueueObject, ResourceFlavor
    from admission.model.workload import PodSet

_ANY: Final = ClusterAffinity()


@dataclass(frozen=True, slots=True)
class Found:
    """Where a workload may be dispatched to now."""

    clusters: tuple[tuple[str, ...], ...] = ()
    """As in `Workload`."""
    passed_over: tuple[tuple[str, str], ...] = ()
    """As in `Workload`."""
    closed: tuple[tuple[str, str], ...] = ()
    """The part of `passed_over` that is not open now."""
    until: float | None = None
    """When this changes by itself (Unix time, s); None: never."""


class Destinations:
    """What the order of clusters depends on."""

    def __init__(self, flavors: Mapping[str, ResourceFlavor]) -> None:
        """`flavors`: the ResourceFlavors by name, as they are at any time."""
        self.open: tuple[str, ...] = ()
        """Names of the clusters that workloads can be dispatched to now, in order."""
        self.closed: dict[str, str] = {}
        """Why they cannot be dispatched to the others, to follow `Cluster b has room, but`; in order of the names."""
        self._flavors = flavors
        self._queues: dict[str, ClusterQueueSpec] = {}
        """Specs of the ClusterQueues that dispatch, by name."""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._books: dict[str, PriceBook] = {}
        self._prices: dict[tuple[str, str, str, date], float] = {}
        """Cache of prices of one amount, by (PriceBook, flavor, resource, day)."""

    def update(self, obj: QueueObject) -> None:
        """Store a queue object that is new or has changed."""
        match obj:
            case ClusterQueue() if obj.spec.dispatch is not None:
                self._queues[obj.name] = obj.spec
            case ClusterQueue():
                self._queues.pop(obj.name, None)
            case Cluster():
                self._labels[obj.name] = obj.metadata.labels
            case PriceBook():
                self._books[obj.name] = obj
                self._prices.clear()
            case _:
                pass

    def forget(self, kind: str, name: str) -> None:
        """Remove a deleted queue object."""
        match kind:
            case ClusterQueue.kind:
                self._queues.pop(name, None)
            case Cluster.kind:
                self._labels.pop(name, None)
            case PriceBook.kind:
                self._books.pop(name, None)
                self._prices.clear()
            case _:
                pass

    def clear(self) -> None:
        """Remove all queue objects."""
        for each in (self._queues, self._labels, self._books, self._prices):
            each.clear()

    @property
    def any(self) -> bool:
        """Whether there is a ClusterQueue that dispatches."""
        return bool(self._queues)

    def rule(self, cluster_queue: str) -> tuple[Dispatch, tuple[str, ...]] | None:
        """Return how a ClusterQueue dispatches, with the flavors that matter for that; None: it does not."""
        spec = self._queues.get(cluster_queue)
        if spec is None or spec.dispatch is None:
            return None
        return spec.dispatch, tuple(quotas.name for group in spec.resource_groups for quotas in group.flavors)

    def covered(self, cluster_queue: str) -> frozenset[str]:
        """Return the resources that a ClusterQueue which dispatches has quota for."""
        spec = self._queues.get(cluster_queue)
        groups = () if spec is None else spec.resource_groups
        return frozenset(resource for group in groups for resource in group.covered_resources)

    def find(
        self,
        cluster_queue: str,
        annotations: Mapping[str, str],
        pod_sets: Sequence[PodSet],
        barred: Mapping[str, tuple[float, str]],
        *,
        former: str,
        since: float,
        now: float,
        or_here: bool = False,
    ) -> Found:
        """Return where a workload of a ClusterQueue that dispatches may run.

        `barred`: clusters that it is not dispatched to now, with the messages why. `former`: where it ran before;
        empty: nowhere. `since`, `now`: Unix time (s). `or_here`: it may run in the hub as well. Raises Misconfigured
        for a wrong annotation.
        """
        spec = self._queues[cluster_queue]
        dispatch = spec.dispatch
        assert dispatch is not None, cluster_queue
        here = [LOCAL] if or_here and self._flavors_in(spec, LOCAL) else []
        names = [*here, *(name for name in self.open if name not in barred)]
        affinity, fault = affinity_of(text) if (text := annotations.get(CLUSTER_AFFINITY, "")) else (_ANY, "")
        if fault:
            raise Misconfigured(f"metadata.annotations[{CLUSTER_AFFINITY}]: {fault}")
        required = affinity.required
        closed = tuple(
            (name, why)
            for name, why in self.closed.items()
            if (required is None or required.matches(name, self._labels.get(name, {}))) and self._flavors_in(spec, name)
        )
        is_plain = dispatch.order == "Name" and not (dispatch.clusters or dispatch.spillover_after_seconds)
        if is_plain and not text and not former:
            return Found(tuple((name,) for name in names), closed, closed)
        order = ClusterOrder(dispatch.order, dispatch.clusters, dispatch.spillover_after_seconds)
        useful = [name for name in names if self._flavors_in(spec, name)] if order.spillover else names
        found, passed = candidates(
            order,
            {name: self._labels.get(name, {}) for name in useful or names},
            affinity,
            former=former,
            since=since,
            cost=lambda name: self._cost(spec, name, pod_sets, now),
        )
        clusters, until = open_at(found, now)
        later = [(name, _from(each.not_before)) for each in found if each.not_before > now for name in each.clusters]
        return Found(clusters, (*passed, *later, *closed), closed, until)

    def _flavors_in(self, spec: ClusterQueueSpec, cluster: str) -> set[str]:
        """Return the flavors of a ClusterQueue that are in a cluster."""
        names = {quotas.name for group in spec.resource_groups for quotas in group.flavors}
        known = (self._flavors[name] for name in names if name in self._flavors)
        return {flavor.name for flavor in known if not elsewhere(flavor, cluster, self._labels)}

    def _cost(self, spec: ClusterQueueSpec, cluster: str, pod_sets: Sequence[PodSet], now: float) -> float:
        """Return the cost of an hour of a workload in the cheapest flavors of a cluster; infinite: it has none."""
        assert spec.dispatch is not None, cluster
        book, day = spec.dispatch.price_book or "", datetime.fromtimestamp(now, UTC).date()
        here = self._flavors_in(spec, cluster)
        total = 0.0
        for pod_set in pod_sets:
            amounts = pod_set.total(pod_set.count)
            for group in spec.resource_groups:
                wanted = [resource for resource in group.covered_resources if amounts.get(resource)]
                if not wanted:
                    continue
                names = [each.name for each in group.flavors if each.name in here]
                costs = (
                    sum(amounts[resource] * self._price(book, name, resource, day) for resource in wanted)
                    for name in names
                    if not mismatch(self._flavors[name], pod_set)
                )
                total += min(costs, default=float("inf"))
        return total

    def _price(self, book: str, flavor: str, resource: str, day: date) -> float:
        """Return the price of an hour of one amount (a thousandth of a core, a byte, a device); 0: it has none."""
        key = book, flavor, resource, day
        price = self._prices.get(key)
        if price is None:
            if any(each[3] != day for each in self._prices):
                self._prices.clear()
            known = self._books.get(book)
            price = 0.0 if known is None else float(known.spec.per_amount(flavor, resource, day))
            self._prices[key] = price
        return price


@lru_cache(maxsize=1000)
def _from(at: float) -> str:
    return sentences.tried_from(sentences.minute(at))
