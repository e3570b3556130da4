"""Counting upward: how many pods and slices of a pod set fit into each domain. The first phase of a placement.

The first use of a demand sees what fits into each distinct room (`alike.py`), and sums that up. Its counts are kept: a
later use recounts only leaves that have changed since, and the domains above these.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from copy import copy
from itertools import compress, repeat
from operator import floordiv
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from admission.engine.topology.alike import rooms, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from admission.engine.topology.alike import Rooms, Verdicts
    from admission.engine.topology.nodes import PodRules
    from admission.engine.topology.tree import Domain, Leaf, Tree
    from admission.model.topology import Values

PODS = "pods"
_PODS_BITS = 40
"""More than the number of pods in a domain has."""
_DISTINCT = 8
"""Most distinct numbers of slices for which a `Line` is looked through."""
_NOTHING: Mapping[str, int] = {}
_ELSEWHERE = "topologyDomain"


class Demand(NamedTuple):
    """All that counts depend on, apart from the tree."""

    requests: tuple[tuple[str, int], ...]
    """(resource, amount) of one pod, by name of the resource, with one of `pods`; amounts of 0 are left out."""
    rules: PodRules
    leader: tuple[tuple[str, int], ...] | None
    """Requests of the leader's pod, in the same form; None: the pod set has no leader."""
    slice_level: int
    """Index of the level of the outermost slices."""
    size: int
    """Pods of such a slice; 1 without slices."""
    units: tuple[int, ...]
    """For each level the size of inner slices, which pods of a domain of the level come in; 1 if there are none."""
    empty: bool = False
    """Whether to count as if no placed workload used anything."""
    within: Values = ()
    """Values of the domain outside of which no leaf is considered; empty: all are."""


def requests_of(requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return `Demand.requests` for the requests of one pod."""
    counted = {**requests, PODS: requests.get(PODS, 0) + 1}
    return tuple(sorted((resource, amount) for resource, amount in counted.items() if amount > 0))


class Line:
    """The domains of a level that hold slices, in the order of how many, then of pods, then of values.

    It is looked through as long as no domain moves, which is less work for a few uses, then kept in order.
    """

    def __init__(self, tree: Tree, level: int, slices: Sequence[int], pods: Sequence[int]) -> None:
        self._tree, self._level = tree, level
        self._ranks, self._domains = tree.ranks(), tree.by_rank()
        self._base = len(self._domains)
        self._slices, self._pods = slices, pods
        # If slices are pods, these are not compared once more.
        self._bits = 0 if slices is pods else _PODS_BITS
        self._has_moved = False
        self._looked: tuple[list[int], list[int]] | None = None
        """The numbers of slices of all domains in the order of values, and the distinct ones; while none has moved."""
        self._places: list[int] | None = None
        """The place of each domain as a number, as comparing tuples would take three times as long."""
        self._place_of: dict[int, int] = {}
        """The place of each domain by its rank."""

    def _in_order(self) -> list[int]:
        numbers, slices, pods = self._tree.numbers[self._level], self._slices, self._pods
        held = [*compress(numbers, map(slices.__getitem__, numbers))]
        base, bits, ranked = self._base, self._bits, map(self._ranks.__getitem__, held)
        in_pods = map(pods.__getitem__, held)
        if bits:
            both = zip(map(slices.__getitem__, held), in_pods, ranked, strict=True)
            places = [(have << bits | number) * base + rank for have, number, rank in both]
        else:
            places = [number * base + rank for number, rank in zip(in_pods, ranked, strict=True)]
        places.sort()
        return places

    def move(self, number: int) -> None:
        """Give the domain of this number the place that its counts have now."""
        self._has_moved, self._looked = True, None
        if self._places is None:
            return
        if not self._place_of:
            self._place_of = {place % self._base: place for place in self._places}
        rank, slices = self._ranks[number], self._slices[number]
        before = self._place_of.pop(rank, None)
        if before is not None:
            del self._places[bisect_left(self._places, before)]
        if slices:
            now = self._place_of[rank] = (slices << self._bits | self._pods[number]) * self._base + rank
            insort(self._places, now)

    def most(self) -> int:
        """Return the most slices that one domain holds."""
        return max(map(self._slices.__getitem__, self._tree.numbers[self._level]), default=0)

    def since(self, least: int) -> Iterator[Domain]:
        """Yield the domains that hold at least so many slices, one or more, those with fewest first."""
        if self._places is None and not self._has_moved:
            if self._looked is None:
                every = [*map(self._slices.__getitem__, self._tree.in_order[self._level])]
                self._looked = every, sorted({*every})
            counts, distinct = self._looked
            if len(distinct) <= _DISTINCT:
                yield from self._look_through(counts, distinct[bisect_left(distinct, least) :])
                return
        if self._places is None:
            self._places = self._in_order()
        base = self._base
        for at in range(bisect_left(self._places, (least << self._bits) * base), len(self._places)):
            yield self._domains[self._places[at] % base]

    def _look_through(self, counts: list[int], distinct: list[int]) -> Iterator[Domain]:
        """Yield the domains that hold these numbers of slices; `counts`: how many each domain of the level does."""
        domains, in_order = self._tree.domains, self._tree.in_order[self._level]
        for slices in distinct:
            numbers = compress(in_order, map(slices.__eq__, counts))
            for number in sorted(numbers, key=self._pods.__getitem__) if self._bits else numbers:
                yield domains[number]


class DomainCounts:
    """The counts of a demand in a tree, by numbers of domains. `..._beside`: what fits beside the leader."""

    def __init__(self, tree: Tree, demand: Demand) -> None:
        self._tree = tree
        self._demand = demand
        self._deepest = demand.slice_level == len(tree.levels) - 1
        self._plain = self._deepest and demand.size == 1
        """Whether slices are pods, so that one list is both."""
        self._seen = -1
        self._numbering: tuple[object, object] = (None, None)
        self._rooms: Rooms
        self._verdicts: Verdicts | None = None
        # What fits into each room, by its number.
        self._fits: list[int] = []
        self._fits_leader: list[bool] = []
        self._fits_beside: list[int] = []
        self._lines: dict[int, Line] = {}
        """Of the levels for which it was asked."""
        self.pods: list[int] = []
        self.slices: list[int] = []
        self.leaders: list[int] = []
        self.pods_beside: list[int] = []
        self.slices_beside: list[int] = []
        self.scores: list[int] = []
        """How much the pods prefer a domain; empty if they prefer none."""

    def refresh(self) -> None:
        """Bring the counts up to the tree's present state."""
        tree, within, log = self._tree, self._demand.within, self._tree.changes
        if self._seen == log.written:
            return
        self._judge()
        before, self._seen = self._seen, log.written
        if within:
            self._begin()
            self._count(tree.below(within))
        elif before < 0 or 4 * len(changed := log.since(before)) > len(tree.leaves):
            self._begin()
            self._count_all()
        else:
            self._extend()
            self._count(changed)

    def _judge(self) -> None:
        """See what fits into each room, and which kinds of nodes are excluded, where that is not known yet."""
        tree, demand = self._tree, self._demand
        self._rooms = rooms(tree, empty=demand.empty)
        if tree.by_hostname:  # other leaves are several nodes, of which Kueue excludes none
            self._verdicts = verdicts(tree, demand.rules)
        numbering = self._rooms.numbering, self._verdicts.numbering if self._verdicts is not None else None
        if numbering != self._numbering:
            self._numbering = numbering
            self._seen = -1
            self._fits, self._fits_leader, self._fits_beside = [0], [False], [0]
        since = len(self._fits) - 1
        self._fits += self._fitting(since, demand.requests)
        if demand.leader is not None:
            leader = [number > 0 for number in self._fitting(since, demand.leader)]
            beside = self._fitting(since, demand.requests, dict(demand.leader))
            self._fits_leader += leader
            alone = self._fits[len(self._fits_beside) :]
            self._fits_beside += [b if fits else a for fits, a, b in zip(leader, alone, beside, strict=True)]

    def _fitting(
        self, since: int, requests: tuple[tuple[str, int], ...], taken: Mapping[str, int] = _NOTHING
    ) -> list[int]:
        """Return for each room from this one on how many pods with these requests fit when `taken` is in use, too."""
        resources, keys = self._tree.resources, self._rooms.keys
        if len(keys) == since:
            return []
        if not all(resource in resources for resource, _ in requests):
            return [0] * (len(keys) - since)
        asked = [(resources.index(resource), amount, taken.get(resource, 0)) for resource, amount in requests]
        asked.sort(key=lambda one: (keys[since][one[0]] - one[2]) // one[1])  # what is scarce first
        least: list[int] = []
        most = 0  # an upper bound of these
        for at, amount, less in asked:
            free = self._rooms.column(at, since)
            if less:
                free = [have - less for have in free]
            if not least:
                least = [*map(floordiv, free, repeat(amount))]
                most = max(least)
            elif min(free) < most * amount:
                # To multiply takes a fifth of the time of dividing bytes of memory.
                least = [n if n * amount <= have else have // amount for n, have in zip(least, free, strict=True)]
        return least

    def _begin(self) -> None:
        self.pods, self.slices, self.leaders, self.pods_beside, self.slices_beside, self.scores = [], [], [], [], [], []
        if self._plain:
            self.slices = self.pods
        if self._demand.leader is None:  # beside no leader the same fits
            self.pods_beside, self.slices_beside = self.pods, self.slices
        elif self._plain:
            self.slices_beside = self.pods_beside
        self._lines = {}
        self._extend()

    def _extend(self) -> None:
        number = len(self._tree.domains)
        if len(self.pods) == number:
            return
        self._lines = {}  # ranks have changed
        for counts in (self.pods, self.slices, self.leaders, self.pods_beside, self.slices_beside):
            counts.extend([0] * (number - len(counts)))
        if self._demand.rules.preferences:
            self.scores.extend([0] * (number - len(self.scores)))

    def _count_all(self) -> None:
        """Count all leaves, and the domains above them: each column at once."""
        demand, tree, of = self._demand, self._tree, self._rooms.of
        if self._verdicts is not None:
            kinds, excluded = self._verdicts.kinds.of, self._verdicts.excluded
            if any(excluded):
                of = [0 if excluded[kind] else room for room, kind in zip(of, kinds, strict=True)]
            if self.scores:
                self.scores[:] = [self._verdicts.scores[kind] for kind in kinds]
        fits = self._fits
        self.pods[:] = map(fits.__getitem__, of)
        if demand.leader is not None:
            self.leaders[:] = [int(self._fits_leader[room]) for room in of]
            self.pods_beside[:] = [self._fits_beside[room] for room in of]
        if self._deepest and not self._plain:
            self.slices[:] = [count // demand.size for count in self.pods]
            if demand.leader is not None:
                self.slices_beside[:] = [count // demand.size for count in self.pods_beside]
        bare = self._plain and demand.leader is None and not self.scores
        pods_of = self.pods.__getitem__
        for level in range(len(tree.levels) - 2, -1, -1):
            for domain in tree.by_level[level]:
                if bare:  # the most frequent case of `_count_inner`
                    self.pods[domain.number] = sum(map(pods_of, domain.below))
                else:
                    self._count_inner(domain, level)

    def _count(self, leaves: Iterable[Leaf]) -> None:
        """Count these leaves, and the domains above those of which a count has changed."""
        above: dict[Domain, None] = {}
        for leaf in leaves:
            if self._count_leaf(leaf) and leaf.parent is not None:
                above[leaf.parent] = None
        self.count_above(above)

    def count_above(self, parents: Iterable[Domain], top: int = 0) -> None:
        """Count these domains, above leaves whose counts have changed, and those above them up to the level `top`."""
        for level in range(len(self._tree.levels) - 2, top - 1, -1):
            for domain in parents:
                self._count_inner(domain, level)
            parents = dict.fromkeys(domain.parent for domain in parents if domain.parent is not None)

    def fork(self) -> Self:
        """Return a copy that does not follow the tree, for `put` and `count_above`."""
        other = copy(self)
        other.pods, other.leaders, other.pods_beside = [*self.pods], [*self.leaders], [*self.pods_beside]
        other.slices = other.pods if self._plain else [*self.slices]
        other.slices_beside = other.pods_beside if self._plain else [*self.slices_beside]
        other._lines = {}
        return other

    def put(self, at: int, pods: int, beside: int, *, leads: bool) -> None:
        """Set the counts of the leaf of this number; the demand has a leader."""
        self.pods[at], self.pods_beside[at], self.leaders[at] = pods, beside, int(leads)
        if self._deepest and not self._plain:
            self.slices[at], self.slices_beside[at] = pods // self._demand.size, beside // self._demand.size

    def _count_leaf(self, leaf: Leaf) -> bool:
        """Return whether any of its counts is another one now."""
        at, demand = leaf.number, self._demand
        room, score = self._rooms.of[at], 0
        if self._verdicts is not None:
            kind = self._verdicts.kinds.of[at]
            score = self._verdicts.scores[kind]
            if self._verdicts.excluded[kind]:
                room = 0
        pods = self._fits[room]
        changed = pods != self.pods[at]
        self.pods[at] = pods
        if not self._plain:
            self.slices[at] = pods // demand.size if self._deepest else 0
        if demand.leader is not None:
            leaders, beside = int(self._fits_leader[room]), self._fits_beside[room]
            changed = changed or leaders != self.leaders[at] or beside != self.pods_beside[at]
            self.leaders[at], self.pods_beside[at] = leaders, beside
            self.slices_beside[at] = beside // demand.size if self._deepest else 0
        if self.scores:
            changed = changed or score != self.scores[at]
            self.scores[at] = score
        if changed and (line := self._lines.get(len(self._tree.levels) - 1)) is not None:
            line.move(at)
        return changed

    def is_excluded(self, number: int) -> bool:
        """Whether the pods cannot run on the leaf of this number, however much is free there."""
        return self._verdicts is not None and bool(self._verdicts.excluded[self._verdicts.kinds.of[number]])

    def line(self, level: int) -> Line:
        """Return the domains of a level in the order of what they hold; the demand has no leader."""
        found = self._lines.get(level)
        if found is None:
            found = self._lines[level] = Line(self._tree, level, self.slices, self.pods)
        return found

    def exclusions(self) -> Counter[str]:
        """Return the number of leaves by what excludes them, in the words of Kueue's messages."""
        tree, within, rooms_of = self._tree, self._demand.within, self._rooms.of
        kinds_of = self._verdicts.kinds.of if self._verdicts is not None else [0] * len(rooms_of)
        elsewhere: Counter[tuple[int, int]] = Counter()
        if within:
            inside = set(tree.below(within))
            others = (leaf.number for leaf in tree.leaves.values() if leaf not in inside)
            elsewhere.update((rooms_of[n], kinds_of[n]) for n in others)
        total: Counter[str] = Counter()
        for (room, kind), number in Counter(zip(rooms_of, kinds_of, strict=True)).items():
            if not room:
                continue
            away = elsewhere[room, kind]
            if why := self._verdicts.excluded[kind] if self._verdicts is not None else "":
                total[why] += number
                continue
            total[_ELSEWHERE] += away
            if not self._fits[room]:
                total[f'resource "{self._limiting(room)}"'] += number - away
        return total

    def _limiting(self, room: int) -> str:
        """Return the first resource of which a room, into which no pod fits, has too little."""
        free = dict(zip(self._tree.resources, self._rooms.keys[room - 1], strict=True))
        return next(resource for resource, amount in self._demand.requests if free.get(resource, 0) < amount)

    def _count_inner(self, domain: Domain, level: int) -> None:
        demand, at = self._demand, domain.number
        unit = demand.units[level + 1]
        numbers = domain.below
        pods = self.pods
        if unit == 1:
            pods[at] = sum(map(pods.__getitem__, numbers))
        else:
            pods[at] = sum([pods[n] - pods[n] % unit for n in numbers])
        if self.scores:
            self.scores[at] = sum([self.scores[n] for n in numbers])
        if level == demand.slice_level:
            self.slices[at] = pods[at] // demand.size
        elif level < demand.slice_level and not self._plain:
            self.slices[at] = sum([self.slices[n] for n in numbers])
        if demand.leader is not None:
            self._count_beside(domain, level)
        elif (line := self._lines.get(level)) is not None:
            line.move(at)

    def _count_beside(self, domain: Domain, level: int) -> None:
        demand, at = self._demand, domain.number
        unit = demand.units[level + 1]
        capable = [n for n in domain.below if self.leaders[n]]
        self.leaders[at] = 1 if capable else 0
        self.pods_beside[at] = self.slices_beside[at] = 0
        if not capable:
            return
        pods, beside = self.pods, self.pods_beside
        lost = min((pods[n] - pods[n] % unit) - (beside[n] - beside[n] % unit) for n in capable)
        beside[at] = pods[at] - lost
        if level < demand.slice_level:
            self.slices_beside[at] = self.slices[at] - min(self.slices[n] - self.slices_beside[n] for n in capable)
        elif level == demand.slice_level:
            self.slices_beside[at] = beside[at] // demand.size


def counts_of(tree: Tree, demand: Demand) -> DomainCounts:
    """Return the present counts of a demand."""
    counts = tree.counts.pop(demand, None) or DomainCounts(tree, demand)
    if not demand.within:
        tree.remember(demand, counts)
    counts.refresh()
    return counts


class Capacities(Protocol):
    """Counts by number of the domain, as of `DomainCounts`."""

    pods: list[int]
    slices: list[int]
    leaders: list[int]
    pods_beside: list[int]
    slices_beside: list[int]
    scores: list[int]


def by_leader(
    domains: Iterable[Domain], counts: Capacities, ranks: Sequence[int], *, ascending: bool = False
) -> list[Domain]:
    """Sort by what fits beside the leader, with the best domain for the leader first.

    `ranks`: `Tree.ranks`. `ascending`: domains with fewer slices come first.
    """
    leaders, slices, pods, scores = counts.leaders, counts.slices_beside, counts.pods_beside, counts.scores
    sign = 1 if ascending else -1

    def key(domain: Domain) -> tuple[int, int, int, int]:
        n = domain.number
        return -leaders[n], sign * slices[n], pods[n], ranks[n]

    in_order = sorted(domains, key=key)
    if scores:
        in_order.sort(key=lambda domain: (-leaders[domain.number], -scores[domain.number]))
    return in_order


def by_slices(
    domains: Iterable[Domain], counts: Capacities, ranks: Sequence[int], *, ascending: bool = False
) -> list[Domain]:
    """Sort by numbers of slices (all, without a leader), then by fewest pods. Parameters as of `by_leader`."""
    slices, pods, scores, sign = counts.slices, counts.pods, counts.scores, 1 if ascending else -1
    in_order = sorted(
        domains, key=lambda domain: (sign * slices[domain.number], pods[domain.number], ranks[domain.number])
    )
    if scores:
        in_order.sort(key=lambda domain: -scores[domain.number])
    return in_order
