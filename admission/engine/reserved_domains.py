"""Domains of topologies that Reservations keep: whose pods get no node there, what is in the way, which are chosen.

Off unless a Reservation has a topology. Its domains, such as racks, are chosen once and written to its spec. From then
on their nodes are excluded, like by an affinity of their own, for workloads that it is not for and that may not have
ended at its start, by their time limit. The amounts of a Reservation are the matter of `policies.reservations`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.events import Evict
from admission.engine.vocabulary import RESERVATION_STARTED
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.engine.clusterqueue import Held
    from admission.engine.registry import Registry
    from admission.engine.topology.tree import Domain, Tree
    from admission.model.reservations import ReservationSpec
    from admission.model.workload import Workload


class _Kept(NamedTuple):
    """A Reservation with domains. Times in seconds since the epoch."""

    name: str
    spec: ReservationSpec
    begins: float
    ends: float

    @staticmethod
    def of(name: str, spec: ReservationSpec) -> _Kept:
        """Return the Reservation with this spec."""
        return _Kept(name, spec, spec.begins, spec.ends)

    @property
    def text(self) -> str:
        """What it keeps, as a sentence."""
        assert self.spec.topology is not None
        window = self.spec.start, self.spec.end, self.spec.time_zone
        return sentences.reserved_domains(self.name, self.spec.topology.level, self.spec.topology.domains, window)


class ReservedDomains:
    """The Reservations with a topology of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: dict[str, _Kept] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def put(self, name: str, spec: ReservationSpec | None) -> bool:
        """Add, replace or remove (None) a Reservation; return whether it keeps domains, or did."""
        before = self._kept.pop(name, None)
        if spec is None or spec.topology is None or spec.released_at:
            return before is not None
        self._kept[name] = _Kept.of(name, spec)
        return True

    def times(self) -> Iterator[float]:
        """Yield when Reservations begin and end (Unix times, s)."""
        for kept in self._kept.values():
            yield from (kept.begins, kept.ends)

    # --- what workloads must not use

    def _is_for(self, kept: _Kept, workload: Workload, cluster_queue: str) -> bool:
        holders = kept.spec.holders
        return kept.spec.cluster_queue == cluster_queue and holders.match(
            workload.user, workload.namespace, workload.queue
        )

    def against(self, workload: Workload) -> Iterator[_Kept]:
        """Yield the Reservations whose domains a workload must not use if it starts now."""
        now, limit = self._registry.now, workload.max_seconds
        leads_to = self._registry.local_queues.get((workload.namespace, workload.queue))
        for kept in self._kept.values() if self._registry.placed is not None else ():
            assert kept.spec.topology is not None
            if not kept.spec.topology.domains or now >= kept.ends or (limit is not None and now + limit <= kept.begins):
                continue
            if leads_to is None or not self._is_for(kept, workload, leads_to.cluster_queue):
                yield kept

    def names(self, workload: Workload) -> Iterator[str]:
        """Yield the Reservations whose domains a workload must not use if it starts now, as `reservation/NAME`."""
        for kept in self.against(workload):
            yield f"reservation/{kept.name}"

    def hosts(self, workload: Workload) -> dict[str, set[str]]:
        """Return the hostnames of the nodes that a workload must not use if it starts now, by cluster."""
        found: dict[str, set[str]] = {}
        for kept in self.against(workload):
            for cluster, host in self._hosts(kept):
                found.setdefault(cluster, set()).add(host)
        return found

    def why(self, workload: Workload) -> str:
        """Return the sentences about what keeps a workload off nodes now; empty: nothing does."""
        later = sentences.runs_into_reservation(workload.max_seconds)
        now = self._registry.now
        return " ".join(
            kept.text + (later if kept.begins > now else "") for kept in self.against(workload) if self._hosts(kept)
        )

    def _hosts(self, kept: _Kept) -> list[tuple[str, str]]:
        """Return the (cluster, hostname) of the nodes in its domains."""
        topology, hosts = kept.spec.topology, list[tuple[str, str]]()
        assert topology is not None
        for tree in self._trees(kept.spec):
            if topology.level in tree.levels:
                depth = tree.levels.index(topology.level) + 1
                for text in topology.domains:
                    values = tuple(text.split("/"))
                    leaves = tree.below(values) if len(values) == depth else []
                    hosts += [(tree.cluster, leaf.values[-1]) for leaf in leaves]
        return hosts

    def _trees(self, spec: ReservationSpec) -> list[Tree]:
        """Return the trees of its flavors; those without hostnames exclude no nodes."""
        placed = self._registry.placed
        trees = {} if placed is None else placed.topologies.trees
        flavors = dict.fromkeys(flavor for flavor, _ in spec.amounts)
        return [trees[flavor] for flavor in flavors if flavor in trees and trees[flavor].by_hostname]

    def _knows_nodes(self, spec: ReservationSpec) -> bool:
        """Whether objects are applied, and nodes are known: a new leader knows none at first."""
        trees = self._trees(spec)
        is_ready = self._registry.placed is not None and not self._registry.objects_changed
        return is_ready and (not trees or any(tree.total for tree in trees))

    # --- what is in the way

    def _in_the_way(self, kept: _Kept, hosts: Iterable[tuple[str, str]], at: float) -> list[Held]:
        """Return the workloads of others that have pods on these nodes, and may not have ended at a time."""
        placed = self._registry.placed
        assert placed is not None
        uids = {uid: None for cluster, host in hosts for uid in placed.on(host, cluster)}
        now, found = self._registry.now, []
        for held in (self._registry.held[uid] for uid in uids):
            ends = held.ends_by if held.ends_by > now else inf  # it has outlived its time limit
            if ends > at and not self._is_for(kept, held.workload, held.queue.name):
                found.append(held)
        return found

    def obstacles(self) -> Iterator[tuple[str, str]]:
        """Yield Reservations that will not be free, or are not, with what is in the way in words."""
        now = self._registry.now
        for kept in self._kept.values():
            topology = kept.spec.topology
            assert topology is not None
            if now >= kept.ends or not topology.domains or not self._knows_nodes(kept.spec):
                continue
            hosts = self._hosts(kept)
            if not hosts:
                yield kept.name, sentences.no_such_domains(kept.name, topology.level, topology.domains)
            elif running := self._in_the_way(kept, hosts, max(kept.begins, now)):
                names = [held.workload.key for held in running]
                yield kept.name, sentences.in_the_way(kept.text, names, evicted=kept.spec.at_start == "Preempt")

    def evict(self) -> list[Evict]:
        """Mark workloads as evicting that run where a Reservation has begun that preempts; return their evictions."""
        evicted, now = [], self._registry.now
        for kept in self._kept.values():
            if kept.spec.at_start != "Preempt" or not kept.begins <= now < kept.ends or self._registry.placed is None:
                continue
            for held in self._in_the_way(kept, self._hosts(kept), now):
                if held.evicting:
                    continue
                held.evicting = True
                held.queue.generation += 1
                self._registry.movers.forget(held)
                evicted.append(Evict(held.workload, RESERVATION_STARTED, kept.text))
        return evicted

    def of(self, held: Held) -> Iterator[str]:
        """Yield what a workload that holds quota is told about Reservations of the nodes on which it runs."""
        now = self._registry.now
        for kept in self._kept.values():
            if now < kept.ends and self._registry.placed is not None:
                running = self._in_the_way(kept, self._hosts(kept), max(kept.begins, now))
                if held in running:
                    yield sentences.runs_while_reserved(kept.text, evicted=kept.spec.at_start == "Preempt")

    # --- which domains

    def choices(self) -> Iterator[tuple[str, tuple[str, ...] | str]]:
        """Yield the Reservations of which the domains are not chosen yet, and which they should be, or why none can.

        Those in which fewest workloads are in the way, then those with least room that suffices. No domain is chosen
        that another Reservation keeps at that time.
        """
        chosen: dict[str, _Kept] = {}
        for kept in self._kept.values():
            topology = kept.spec.topology
            assert topology is not None
            if topology.domains or self._registry.now >= kept.ends or not self._knows_nodes(kept.spec):
                continue
            found = self._choice(kept, topology.level, topology.count, chosen)
            if not isinstance(found, str):
                spec = kept.spec.model_copy(update={"topology": topology.model_copy(update={"domains": found})})
                chosen[kept.name] = kept._replace(spec=spec)
            yield kept.name, found

    def _choice(self, kept: _Kept, level: str, count: int, chosen: dict[str, _Kept]) -> tuple[str, ...] | str:
        trees = [tree for tree in self._trees(kept.spec) if level in tree.levels]
        if not trees:
            return sentences.no_level_to_reserve(kept.name, level, sorted({flavor for flavor, _ in kept.spec.amounts}))
        taken = {
            host
            for other in (self._kept | chosen).values()
            if other.name != kept.name and other.begins < kept.ends and kept.begins < other.ends
            for host in self._hosts(other)
        }
        needed: dict[str, int] = {}
        for (_, resource), amount in kept.spec.amounts.items():
            needed[resource] = -(-max(needed.get(resource, 0), amount) // count)
        found: list[tuple[int, int, str]] = []
        for tree in trees:
            for domain in tree.level(tree.levels.index(level)):
                leaves = tree.below(domain.values)
                hosts = [(tree.cluster, leaf.values[-1]) for leaf in leaves]
                room = {name: sum(leaf.base.get(name, 0) for leaf in leaves) for name in needed}
                if taken.isdisjoint(hosts) and all(room[name] >= amount for name, amount in needed.items()):
                    blocking = len(self._in_the_way(kept, hosts, max(kept.begins, self._registry.now)))
                    found.append((blocking, sum(room.values()), _text(domain)))
        if len(found) < count:
            return sentences.too_few_domains(kept.name, level, count, len(found))
        return tuple(text for _, _, text in sorted(found)[:count])


def _text(domain: Domain) -> str:
    values: Sequence[str] = domain.values
    return "/".join(values)
