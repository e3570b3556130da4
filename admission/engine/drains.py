"""Drains: flavors and nodes on which nothing starts any more, and from which workloads are evicted by a deadline.

Sluice's own, off unless there is a Drain, or a Reservation of domains. A flavor is passed over in the search for
flavors, a node leaves the trees of topologies. Until the start of the maintenance both only concern workloads that may
not have ended by then, by their time limit: for these a drained node is excluded like by an affinity of their own.
Reserved nodes are that for all others than their holders (`reserved_domains`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.events import Evict
from admission.engine.reserved_domains import ReservedDomains
from admission.engine.vocabulary import DRAINED, RESERVED_FOR_OTHERS
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.engine.clusterqueue import Held
    from admission.engine.registry import Registry
    from admission.model.drains import DrainSpec
    from admission.model.reservations import ReservationSpec
    from admission.model.workload import Workload


class Drains:
    """The Drains of one registry, and what they keep from starting now."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._specs: dict[str, DrainSpec] = {}
        self.reserved = ReservedDomains(registry)
        self.changes_at: float | None = None
        """When a maintenance begins or a deadline passes next (Unix time, s); None: never."""
        self.differ = False
        """Whether it depends on the workload what it must not use: on its time limit, and whose it is."""
        self._is_due = False
        """Whether workloads may have to be evicted that have not been looked at."""

    def __bool__(self) -> bool:
        return bool(self._specs or self.reserved)

    def put(self, name: str, spec: DrainSpec | None) -> None:
        """Add, replace or remove (None) a Drain."""
        if spec is not None:
            self._specs[name] = spec
        elif self._specs.pop(name, None) is None:
            return
        self._apply()

    def reserve(self, name: str, spec: ReservationSpec | None) -> None:
        """Add, replace or remove (None) a Reservation."""
        if self.reserved.put(name, spec):
            self._apply()

    def wake(self) -> None:
        """Apply what has become due."""
        if self.changes_at is not None and self.changes_at <= self._registry.now:
            self._apply()

    def loaded(self) -> None:
        """Have the deadlines checked for workloads that were not known before."""
        self._is_due = bool(self)

    def _apply(self) -> None:
        registry, now = self._registry, self._registry.now
        times = [at for spec in self._specs.values() for at in (spec.starts_at, spec.ends_at) if at is not None]
        self.changes_at = min((at for at in (*times, *self.reserved.times()) if at > now), default=None)
        self._is_due = True
        if registry.placed is not None:
            begun = [spec for spec in self._specs.values() if spec.starts_at is None or spec.starts_at <= now]
            registry.placed.topologies.drain({(spec.cluster, name) for spec in begun for name in spec.nodes})
        self.differ = bool(self.reserved)
        self.differ |= any(spec.starts_at is not None and spec.starts_at > now for spec in self._specs.values())
        for domain in registry.forest.domains.values():
            domain.dirty = domain.freed = True
            for queue in domain.queues:
                queue.pending.reconsider(now)
        registry.changed_trees[0] = registry.forest.queues.values()
        registry.stale_reasons.update(dict.fromkeys(registry.items))

    def _against(self, workload: Workload) -> Iterator[DrainSpec]:
        """Yield the Drains in which a workload must not start now."""
        now, limit = self._registry.now, workload.max_seconds
        for spec in self._specs.values():
            if spec.starts_at is None or limit is None or now + limit > spec.starts_at:
                yield spec

    def against(self, workload: Workload) -> frozenset[str]:
        """Return what must not be used by a workload that starts now.

        Nodes as `CLUSTER/NODE`, flavors as `flavor/NAME`, and what is reserved as `reservation/NAME`.
        """
        drained = (
            name
            for spec in self._against(workload)
            for name in (
                *(f"{spec.cluster}/{node}" for node in spec.nodes),
                *(f"flavor/{flavor}" for flavor in spec.flavors),
            )
        )
        return frozenset((*drained, *self.reserved.names(workload)))

    def obstacle(self, workload: Workload) -> tuple[str, str] | None:
        """Return why a workload must not start on nodes now that have room for it, as reason and message."""
        if reserved := self.reserved.why(workload):
            return RESERVED_FOR_OTHERS, reserved
        found = [spec for spec in self._against(workload) if spec.nodes]
        nodes = [name for spec in found for name in spec.nodes]
        return (DRAINED, sentences.waits_for_nodes(nodes, found[0].reason)) if found else None

    def flavors(self, workload: Workload) -> dict[str, str]:
        """Return the flavors in which a workload must not start now, with the reasons in words."""
        return {
            name: sentences.drained_flavor(name, spec.start_time, spec.reason)
            for spec in self._against(workload)
            for name in spec.flavors
        }

    def hostnames(self, workload: Workload) -> dict[str, set[str]]:
        """Return the hostnames of the nodes on which a workload must not start now, by cluster."""
        found: dict[str, set[str]] = self.reserved.hosts(workload) if self.reserved else {}
        for spec in self._against(workload):
            if spec.nodes:
                found.setdefault(spec.cluster, set()).update(self._hostnames(spec))
        return found

    def _hostnames(self, spec: DrainSpec) -> Iterator[str]:
        placed = self._registry.placed
        known = {} if placed is None else placed.topologies.nodes_of(spec.cluster)
        return (known[name].hostname if name in known else name for name in spec.nodes)

    def evict(self) -> list[Evict]:
        """Mark workloads as evicting that run where a deadline has passed, and return their evictions."""
        if not self._is_due:
            return []
        self._is_due = False
        evicted = self.reserved.evict()
        for name, spec in self._specs.items():
            if spec.ends_at is None or spec.ends_at > self._registry.now:
                continue
            for held in self.running(spec):
                if held.evicting:
                    continue
                held.evicting = True
                held.queue.generation += 1
                self._registry.movers.forget(held)
                evicted.append(Evict(held.workload, DRAINED, sentences.evicted_by_drain(name, spec.reason)))
        return evicted

    def running(self, spec: DrainSpec) -> Iterator[Held]:
        """Yield the workloads that hold quota of drained flavors, or are placed on drained nodes."""
        flavors, uids = set(spec.flavors), self._placed_on(spec)
        if flavors or uids:
            yield from (held for held in self._registry.held.values() if _is_drained(held, flavors, uids))

    def of(self, held: Held) -> Iterator[tuple[str, DrainSpec]]:
        """Yield the Drains of what a workload holds or is placed on, with their names."""
        for name, spec in self._specs.items():
            if _is_drained(held, set(spec.flavors), self._placed_on(spec)):
                yield name, spec

    def _placed_on(self, spec: DrainSpec) -> set[str]:
        """Return the uids of the workloads that are placed on drained nodes."""
        placed = self._registry.placed
        if placed is None:
            return set()
        return {uid for host in self._hostnames(spec) for uid in placed.on(host, spec.cluster)}


def _is_drained(held: Held, flavors: set[str], uids: set[str]) -> bool:
    return held.workload.uid in uids or any(flavor in flavors for (flavor, _), amount in held.usage if amount)
