"""Reservations: quota of a ClusterQueue that is kept for some of its workloads from a time to a time.

A reservation counts as a workload that holds what its holders do not use of it. Others are admitted only if it still
fits: now, if it has begun; at its start, if they may run then, which they do unless their time limit ends before. So
short workloads fill what is free until the start. Load on the quota tree only falls between two starts, so that these
instants are all there is to check: each has a tree of its own, with the usage of the workloads that may run then.

Where less is free than is reserved, because of workloads that were admitted before, others are admitted only if that
does not get worse. A reservation of more than its ClusterQueue can ever use keeps what it can.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
from admission.engine.policies.contract import AdmissionPolicy, Eviction, Refusal
from admission.engine.tree import add_usage, available, remove_usage
from admission.engine.vocabulary import RESERVATION_STARTED, RESERVED_FOR_OTHERS
from admission.model import sentences
from admission.model.queues import Reservation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from admission.engine.clusterqueue import Held
    from admission.engine.policies.contract import EngineView, PolicyEvent
    from admission.engine.tree import FlavorResource, Node, Tree
    from admission.model.reservations import ReservationSpec
    from admission.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Reservations:
    """Configuration: none, as Reservations are queue objects. Without one it is idle."""

    def start(self, view: EngineView) -> KeptQuota:
        """Create the policy's state, with nothing reserved."""
        return KeptQuota(view)


class _Reserved(NamedTuple):
    """A Reservation. Times in seconds since the epoch."""

    name: str
    spec: ReservationSpec
    begins: float
    ends: float
    amounts: Mapping[FlavorResource, int]
    text: str
    """What it keeps, as a sentence."""

    @staticmethod
    def of(name: str, spec: ReservationSpec) -> _Reserved:
        """Return the Reservation with this spec."""
        window = spec.start, spec.end, spec.time_zone
        text = sentences.reserved(name, spec.amounts, spec.cluster_queue, window)
        return _Reserved(name, spec, spec.begins, spec.ends, spec.amounts, text)

    def is_for(self, workload: Workload, cluster_queue: str) -> bool:
        """Whether it is kept for the workload."""
        if cluster_queue != self.spec.cluster_queue:
            return False
        return self.spec.holders.match(workload.user, workload.namespace, workload.queue)


@dataclass(slots=True, eq=False)
class _Entry:
    """A workload that holds quota."""

    held: Held
    ends: float
    """When its time limit ends (Unix time, s); infinite: it has none, or has outlived it."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A reservation at one instant."""

    reserved: _Reserved
    node: Node
    amounts: dict[int, int]
    """What is kept by flavor-resource of the tree, at most what its ClusterQueue can use."""


class Shortage(NamedTuple):
    """What may not be free of a reservation, of one resource of a flavor, at its start, or now if it has begun."""

    name: str
    """Of the Reservation."""
    key: FlavorResource
    kept: int
    lacks: int
    at: float
    """Unix time (s)."""
    in_the_way: Sequence[tuple[Workload, bool]]
    """Workloads that may still hold some of it then, and whether they have a time limit, the longest first."""


class _Instant:
    """A time at which reservations must fit: their start, or now.

    `tree`: with the usage of the workloads that may run at that time; `kept`: the reservations that apply then.
    """

    def __init__(self, at: float, tree: Tree, kept: list[_Kept]) -> None:
        self.at = at
        self.tree = tree
        self.kept = kept
        self.keys = frozenset(tree.frs[fr] for each in kept for fr in each.amounts)
        """What is kept, by flavor and resource."""
        self.short: dict[int, int] = {}
        """By how much what is free is less than what is kept, by flavor-resource, while `load`ed."""
        self._loaded: list[tuple[Node, int, int]] | None = None
        """What is kept and not used, as added to the usage of the tree; None: it is not."""
        self.stuck = False
        """Whether nothing can be evicted for what is short, until something changes."""
        self._held: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        """Usage of holders, by the positions in `kept` of the reservations that are for them."""
        self._owns: dict[tuple[str, str, str, str], tuple[int, ...]] = {}

    def owns(self, workload: Workload, cluster_queue: str) -> tuple[int, ...]:
        """Return the positions in `kept` of the reservations that are for a workload."""
        key = cluster_queue, workload.namespace, workload.queue, workload.user
        found = self._owns.get(key)
        if found is None:
            matching = (n for n, each in enumerate(self.kept) if each.reserved.is_for(workload, cluster_queue))
            found = self._owns[key] = tuple(matching)
        return found

    def change(
        self, workload: Workload, cluster_queue: str, usage: Iterable[tuple[FlavorResource, int]], sign: int
    ) -> None:
        """Add or remove the usage of a workload."""
        self.unload()
        self.stuck = False
        node = self.tree.queues.get(cluster_queue)
        for key, amount in usage:
            fr = self.tree.index.get(key)
            if fr is not None and node is not None:
                add_usage(node, fr, sign * amount)
        self.note(workload, cluster_queue, usage, sign)

    def note(
        self, workload: Workload, cluster_queue: str, usage: Iterable[tuple[FlavorResource, int]], sign: int
    ) -> None:
        """Add or remove what a workload uses of reservations, of which the tree has the usage already."""
        if not (owns := self.owns(workload, cluster_queue)):
            return
        for key, amount in usage:
            if (fr := self.tree.index.get(key)) is not None:
                self._held[owns][fr] += sign * amount

    def is_used(self, position: int) -> bool:
        """Whether workloads hold quota for which a reservation is."""
        return any(position in owns and any(held.values()) for owns, held in self._held.items())

    def _rests(self) -> Iterator[tuple[_Kept, int, int]]:
        """Yield what holders do not use of each reservation: flavor-resource and amount."""
        used: list[Counter[int]] = [Counter() for _ in self.kept]
        # Those for which fewest reservations are use theirs first; what they use beyond is as that of others.
        for owns in sorted(self._held, key=lambda owns: (len(owns), owns)):
            for fr, amount in self._held[owns].items():
                left = amount
                for position in owns:
                    part = min(left, self.kept[position].amounts.get(fr, 0) - used[position][fr])
                    used[position][fr] += part
                    left -= part
        for position, kept in enumerate(self.kept):
            for fr, amount in kept.amounts.items():
                if (rest := amount - used[position][fr]) > 0:
                    yield kept, fr, rest

    def load(self) -> None:
        """Count what is kept and not used as usage of the tree."""
        if self._loaded is None:
            self.short, self._loaded = self._add_rests(only_preempting=False)

    def unload(self) -> None:
        """Undo `load`."""
        for node, fr, amount in self._loaded or ():
            remove_usage(node, fr, amount)
        self._loaded = None

    def lacks(self) -> dict[tuple[str, FlavorResource], int]:
        """Return what is not free of what reservations shall keep, by their names."""
        self.unload()
        found = {
            (kept.reserved.name, key): amount - kept.amounts.get(self.tree.index.get(key, -1), 0)
            for kept in self.kept
            for key, amount in kept.reserved.amounts.items()
        }
        added = []
        for kept, fr, rest in self._rests():
            free = min(max(available(kept.node, fr), 0), rest)
            add_usage(kept.node, fr, free)
            added.append((kept.node, fr, free))
            found[kept.reserved.name, self.tree.frs[fr]] += rest - free
        for node, fr, amount in added:
            remove_usage(node, fr, amount)
        return found

    def spare(self, cluster_queue: str, key: FlavorResource) -> float:
        """Return what a ClusterQueue can use beside all that is kept; negative: something is short."""
        if key not in self.keys:
            return inf
        self.load()
        fr = self.tree.index[key]
        return -1 if fr in self.short else available(self.tree.queues[cluster_queue], fr)

    def shortage(self, *, only_preempting: bool = False) -> dict[int, int]:
        """Return by how much what is free is less than what is kept, by flavor-resource."""
        self.unload()
        short, added = self._add_rests(only_preempting=only_preempting)
        for node, fr, amount in added:
            remove_usage(node, fr, amount)
        return short

    def _add_rests(self, *, only_preempting: bool) -> tuple[dict[int, int], list[tuple[Node, int, int]]]:
        short: dict[int, int] = {}
        added: list[tuple[Node, int, int]] = []
        for kept, fr, rest in self._rests():
            free = max(available(kept.node, fr), 0)
            if free < rest and not (only_preempting and kept.reserved.spec.at_start != "Preempt"):
                short[fr] = short.get(fr, 0) + rest - free
            add_usage(kept.node, fr, min(free, rest))
            added.append((kept.node, fr, min(free, rest)))
        return short, added

    def hurt_by(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        gone: Sequence[Held],
    ) -> _Kept | None:
        """Return a reservation for which less would be free than is kept, or still less, beside a workload.

        `gone`: the workloads that would have released their quota then.
        """
        if not gone and all(amount <= self.spare(cluster_queue, key) for key, amount in usage.items()):
            return None
        self.load()
        before, stuck = self.short, self.stuck
        changes = [(workload, cluster_queue, tuple(usage.items()), 1)]
        changes += [(held.workload, held.admission.cluster_queue, held.usage, -1) for held in gone]
        for one, queue, amounts, sign in changes:
            self.change(one, queue, amounts, sign)
        after = self.shortage()
        for one, queue, amounts, sign in reversed(changes):
            self.change(one, queue, amounts, -sign)
        self.stuck = stuck
        worse = next((fr for fr, amount in after.items() if amount > before.get(fr, 0)), None)
        if worse is None:
            return None
        owns = self.owns(workload, cluster_queue)
        concerned = [(n in owns, kept) for n, kept in enumerate(self.kept) if worse in kept.amounts]
        return min(concerned, key=lambda each: each[0])[1]


class _Domain:
    """The reservations of one quota tree. `source`: the engine's tree of which its trees are copies."""

    def __init__(self, source: Tree, now: float, until: float, instants: list[_Instant]) -> None:
        self.source = source
        self.since = now
        self.until = until
        """When a reservation begins or ends (Unix time, s)."""
        self.instants = instants
        """In order of time."""
        self._changes: dict[tuple[str, str, str, str, float], tuple[Workload, Counter[FlavorResource]]] = {}
        """Changes of usage that the instants do not have yet: ClusterQueue, namespace, LocalQueue, user and end of the
        time limit, to one of these workloads and the sum."""
        self._taken: Counter[FlavorResource] = Counter()
        """All that was taken since the trees were made."""
        self._spare: dict[tuple[str, FlavorResource], float] = {}
        """ClusterQueue and flavor-resource to what it can use at each instant, plus `_taken` at that time."""

    def note(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Iterable[tuple[FlavorResource, int]],
        ends: float,
        sign: int,
    ) -> None:
        """Note that a workload takes quota until its time limit ends, or releases it."""
        key = cluster_queue, workload.namespace, workload.queue, workload.user, ends
        _, total = self._changes.setdefault(key, (workload, Counter()))
        for fr, amount in usage:
            total[fr] += sign * amount
            if sign > 0:
                self._taken[fr] += amount

    def apply(self) -> None:
        """Bring the instants up to date."""
        for (cluster_queue, _, _, _, ends), (workload, total) in self._changes.items():
            for instant in self.instants:
                if instant.at < ends:
                    instant.change(workload, cluster_queue, total.items(), 1)
        self._changes.clear()

    def surely_permits(self, cluster_queue: str, usage: Mapping[FlavorResource, int]) -> bool:
        """Whether quota beside all that is kept is left at each instant; False: it is not certain.

        What is taken anywhere leaves at most so much less to each ClusterQueue.
        """
        spare, taken = self._spare, self._taken
        return all(amount <= spare.get((cluster_queue, key), -1) - taken[key] for key, amount in usage.items())

    def look(self, cluster_queue: str, usage: Mapping[FlavorResource, int]) -> None:
        """Find out what is left, for `surely_permits`."""
        self.apply()
        for key in usage:
            least = min((instant.spare(cluster_queue, key) for instant in self.instants), default=inf)
            self._spare[cluster_queue, key] = least + self._taken[key]


class KeptQuota(AdmissionPolicy):
    """The policy: refuses workloads that would use reserved quota, and evicts them where a reservation says so."""

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self.idle = True
        self._reservations: dict[str, _Reserved] = {}
        self._entries: dict[str, _Entry] = {}
        """By uid of the workloads that hold quota."""
        self._domains: dict[str, _Domain] = {}
        """By ClusterQueue."""
        self._limits: list[tuple[float, str]] = []
        """Heap of (end of a time limit, uid)."""
        self._unused_since: dict[str, float] = {}
        """By reservation: since when it is seen to be unused."""

    # --- reservations

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Note a changed Reservation."""
        if isinstance(event, QueueObjectChanged):
            if not isinstance(event.object, Reservation):
                return
            spec = event.object.spec
            self._reservations.pop(event.object.name, None)
            if not spec.released_at:
                self._reservations[event.object.name] = _Reserved.of(event.object.name, spec)
        elif isinstance(event, QueueObjectDeleted):
            if event.kind != Reservation.kind or self._reservations.pop(event.name, None) is None:
                return
        else:
            return
        self._domains.clear()
        self.idle = not self._reservations
        if self.idle:
            self._entries.clear()
            self._limits.clear()

    def _domain(self, cluster_queue: str) -> _Domain | None:
        """Return the reservations of a ClusterQueue's tree as of now; None: it is in no tree."""
        source, now = self._view.tree_of(cluster_queue), self._view.now
        if source is None:
            return None
        self._note_overruns(now)
        known = self._domains.get(cluster_queue)
        if known is not None and known.source is source and known.since <= now < known.until:
            return known
        found = self._built(source, now)
        self._domains.update(dict.fromkeys(source.queues, found))
        return found

    def _built(self, source: Tree, now: float) -> _Domain:
        relevant = [each for each in self._reservations.values() if each.spec.cluster_queue in source.queues]
        relevant = sorted((each for each in relevant if each.ends > now), key=lambda each: (each.begins, each.name))
        until = min((at for each in relevant for at in (each.begins, each.ends) if at > now), default=inf)
        instants = []
        for at in sorted({max(each.begins, now) for each in relevant}):
            tree = self._view.blank_tree(next(iter(source.queues)), at)
            apply = [each for each in relevant if each.begins <= at < each.ends]
            instants.append(_Instant(at, tree, [*_kept(tree, apply)]))
        domain = _Domain(source, now, until, instants)
        if instants:
            self._fill(domain)
        return domain

    def _fill(self, domain: _Domain) -> None:
        """Add the usage of all workloads that hold quota to each instant at which they may run."""
        entries = [entry for entry in self._entries.values() if entry.held.queue.name in domain.source.queues]
        entries.sort(key=lambda entry: entry.ends, reverse=True)
        # Summed up from the last instant to the first one, at which nearly all run.
        sums: defaultdict[str, Counter[FlavorResource]] = defaultdict(Counter)
        position = 0
        for instant in reversed(domain.instants):
            while position < len(entries) and entries[position].ends > instant.at:
                held = entries[position].held
                for key, amount in held.usage:
                    sums[held.queue.name][key] += amount
                position += 1
            for name, usage in sums.items():
                for key, amount in usage.items():
                    if (fr := instant.tree.index.get(key)) is not None:
                        add_usage(instant.tree.queues[name], fr, amount)
            queues = {kept.reserved.spec.cluster_queue for kept in instant.kept}
            for entry in entries[:position]:
                if entry.held.queue.name in queues:
                    instant.note(entry.held.workload, entry.held.queue.name, entry.held.usage, 1)

    def _note_overruns(self, now: float) -> None:
        """Let workloads that hold quota beyond their time limit count as without one."""
        while self._limits and self._limits[0][0] <= now:
            ends, uid = heappop(self._limits)
            entry = self._entries.get(uid)
            if entry is not None and entry.ends == ends:
                self._count(entry, -1)
                entry.ends = inf
                self._count(entry, 1)

    # --- workloads

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Refuse a workload beside which a reservation would not fit at a time at which it may run."""
        if not usage or any(not flavor for flavor, _ in usage):
            return None  # asked again when it has flavors
        domain, now = self._domain(cluster_queue), self._view.now
        if domain is None or not domain.instants or domain.surely_permits(cluster_queue, usage):
            return None
        domain.look(cluster_queue, usage)
        if domain.surely_permits(cluster_queue, usage):
            return None
        ends = inf if workload.max_seconds is None else now + workload.max_seconds
        gone = [*victims]
        if workload.replaces and (replaced := self._entries.get(workload.replaces)) is not None:
            gone.append(replaced.held)
        for instant in domain.instants:
            if instant.at >= ends:
                break
            if instant.keys.isdisjoint(usage):
                continue
            running = [held for held in gone if self._runs_at(held, instant)]
            kept = instant.hurt_by(workload, cluster_queue, usage, running)
            if kept is not None:
                later = sentences.runs_into_reservation(workload.max_seconds) if instant.at > now else ""
                return Refusal(RESERVED_FOR_OTHERS, kept.reserved.text + later, until=kept.reserved.ends)
        return None

    def _runs_at(self, held: Held, instant: _Instant) -> bool:
        entry = self._entries.get(held.workload.uid)
        return entry is not None and entry.ends > instant.at

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count a workload at each instant at which it may run."""
        del restored
        ends = held.ends_by if held.ends_by > self._view.now else inf
        if ends != inf:
            heappush(self._limits, (ends, held.workload.uid))
        entry = self._entries[held.workload.uid] = _Entry(held, ends)
        self._count(entry, 1)

    def release(self, held: Held) -> None:
        """Stop counting a workload."""
        entry = self._entries.pop(held.workload.uid, None)
        if entry is not None:
            self._count(entry, -1)

    def _count(self, entry: _Entry, sign: int) -> None:
        held = entry.held
        domain = self._domains.get(held.queue.name)
        if domain is not None and domain.instants:
            domain.note(held.workload, held.queue.name, held.usage, entry.ends, sign)
        for name in [*self._unused_since] if sign > 0 else ():
            reserved = self._reservations.get(name)
            if reserved is None or reserved.is_for(held.workload, held.queue.name):
                del self._unused_since[name]

    # --- evictions

    def evicts_at(self) -> float | None:
        """Return when the next reservation begins that preempts."""
        now = self._view.now
        starts = (each.begins for each in self._reservations.values() if each.spec.at_start == "Preempt")
        return min((at for at in starts if at > now), default=None)

    def evict(self) -> Iterator[Eviction]:
        """Yield the workloads in the way of reservations that have begun and preempt, the lowest priority first."""
        now = self._view.now
        begun = [
            each
            for each in self._reservations.values()
            if each.spec.at_start == "Preempt" and each.begins <= now < each.ends
        ]
        seen: set[int] = set()
        for each in begun:
            domain = self._domain(each.spec.cluster_queue)
            if domain is None or id(domain) in seen or not domain.instants:
                continue
            seen.add(id(domain))
            domain.apply()
            yield from self._in_the_way(domain.instants[0], domain)

    def _in_the_way(self, instant: _Instant, domain: _Domain) -> Iterator[Eviction]:
        instant.load()
        if not instant.short or instant.stuck:
            return
        entries = [entry.held for entry in self._entries.values() if entry.held.queue.name in domain.source.queues]
        removed = [held for held in entries if held.evicting]

        def change(held: Held, sign: int) -> None:
            instant.change(held.workload, held.queue.name, held.usage, sign)

        for held in removed:
            change(held, -1)
        victims: list[Held] = []
        short = instant.shortage(only_preempting=True)
        others = (held for held in entries if not held.evicting and not instant.owns(held.workload, held.queue.name))
        for held in sorted(others, key=lambda held: (held.priority, -held.admitted_at, held.workload.uid)):
            if not short:
                break
            change(held, -1)
            less = instant.shortage(only_preempting=True)
            if sum(less.values()) < sum(short.values()):
                victims.append(held)
                short = less
            else:
                change(held, 1)
        # Those of which the eviction is not needed beside the others stay; the most important ones are tried first.
        for held in reversed(victims[:-1]):
            change(held, 1)
            if sum(instant.shortage(only_preempting=True).values()) > sum(short.values()):
                change(held, -1)
            else:
                victims.remove(held)
        for held in (*removed, *victims):
            change(held, 1)
        instant.stuck = not victims
        kept = next(each for each in instant.kept if each.reserved.spec.at_start == "Preempt")
        for held in victims:
            yield Eviction(held.workload.uid, RESERVATION_STARTED, kept.reserved.text)

    # --- what is said of them

    def shortages(self) -> list[Shortage]:
        """Return what is not free at the start of a reservation, or now if it has begun. Call it every few seconds."""
        found, now = [], self._view.now
        domains = (self._domain(queue) for queue in {each.spec.cluster_queue for each in self._reservations.values()})
        for domain in {id(each): each for each in domains if each is not None}.values():
            domain.apply()
            for instant in domain.instants:
                lacks = instant.lacks()
                for reserved in (
                    each.reserved for each in instant.kept if max(each.reserved.begins, now) == instant.at
                ):
                    for key, amount in reserved.amounts.items():
                        if lack := lacks[reserved.name, key]:
                            others = self._in_the_way_at(instant, domain, key)
                            found.append(Shortage(reserved.name, key, amount, lack, instant.at, others))
        return found

    def _in_the_way_at(self, instant: _Instant, domain: _Domain, key: FlavorResource) -> list[tuple[Workload, bool]]:
        found = [
            entry
            for entry in self._entries.values()
            if entry.held.queue.name in domain.source.queues and entry.ends > instant.at
            if not instant.owns(entry.held.workload, entry.held.queue.name)
            if any(each == key and amount for each, amount in entry.held.usage)
        ]
        found.sort(key=lambda entry: (-entry.ends, entry.held.workload.uid))
        return [(entry.held.workload, entry.ends != inf) for entry in found]

    def unused(self) -> list[str]:
        """Return the reservations that have been unused for as long as they may be. Call it every few seconds."""
        found, now = [], self._view.now
        for name, each in self._reservations.items():
            after = each.spec.release_unused_after_seconds
            if after is None or not each.begins <= now < each.ends:
                self._unused_since.pop(name, None)
                continue
            domain = self._domain(each.spec.cluster_queue)
            if domain is not None:
                domain.apply()
            instant = domain.instants[0] if domain is not None and domain.instants else None
            position = None if instant is None else [one.reserved for one in instant.kept].index(each)
            if instant is None or position is None or instant.is_used(position) or instant.shortage():
                self._unused_since.pop(name, None)
            elif now - self._unused_since.setdefault(name, now) >= after:
                found.append(name)
        return found


def _kept(tree: Tree, reservations: Iterable[_Reserved]) -> Iterator[_Kept]:
    """Yield the reservations with what their ClusterQueues can use of what they keep; `tree` has no usage."""
    added = []
    for each in reservations:
        node = tree.queues[each.spec.cluster_queue]
        amounts = {}
        for key, amount in each.amounts.items():
            fr = tree.index.get(key)
            if fr is None or (free := min(amount, available(node, fr))) <= 0:
                continue
            amounts[fr] = free
            add_usage(node, fr, free)
            added.append((node, fr, free))
        yield _Kept(each, node, amounts)
    for node, fr, amount in added:
        remove_usage(node, fr, amount)
