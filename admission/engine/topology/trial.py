"""Whether a workload could be placed, while preemption targets are taken and given back one by one.

A target changes few nodes: how much fits is followed from these to the domains that decide, and nothing is searched.
"""

from __future__ import annotations

from functools import cached_property
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from admission.engine.topology.counting import Line, counts_of
from admission.engine.topology.placement import demand_of, levels_of
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.engine.clusterqueue import Held
    from admission.engine.topology.placement import Question, Rules
    from admission.engine.topology.state import PlacedPods, Topologies
    from admission.engine.topology.tree import Domain, Leaf, Tree


Spot: TypeAlias = "tuple[Leaf, int, int, list[int]]"
"""A leaf, its number, that of the domain above it which decides, and what is free of a room's resources there."""


class Part(NamedTuple):
    """What pods that are placed take of a `Room`."""

    gains: list[int]
    """What one pod takes of each of the room's resources."""
    spots: list[tuple[Spot, int]]
    """Where pods are, and how many."""


class Room:
    """Whether there is room for the pods of one pod set, and for its leader if it has one.

    What fits without the leader is followed at once. What fits beside it is counted where the former suffices.
    """

    def __init__(self, tree: Tree, question: Question, rules: Rules) -> None:
        levels = levels_of(tree, question.request)
        assert not isinstance(levels, str), "it would fit if nothing else were there"
        searched, layers = levels
        demand = demand_of(tree, question, rules, layers)
        counts = counts_of(tree, demand)
        amounts, leader = dict(demand.requests), dict(demand.leader or ())
        self._tree, self._demand = tree, demand
        self._resources = tuple(amounts | leader)
        self._amounts = tuple(amounts.get(resource, 0) for resource in self._resources)
        self._leader = tuple(leader.get(resource, 0) for resource in self._resources) if leader else ()
        """What the leader requests of each resource; empty: there is none."""
        self.by_hostname = tree.by_hostname
        self._leaves = tree.leaves if set(self._resources) <= set(tree.resources) else {}
        self._is_excluded = counts.is_excluded
        self._spots: dict[int, Spot] = {}
        """Leaves that have changed, by number."""
        self._slice_level, self._size, self._units = demand.slice_level, demand.size, demand.units
        self._last = len(tree.levels) - 1
        self._plain = demand.slice_level == self._last and demand.size == 1
        """Whether slices are pods."""
        self.wanted = question.number // demand.size
        unconstrained = question.request is None or not (question.request.required or question.request.preferred)
        self._takes_least = rules.mixed and unconstrained and self._plain and self.wanted > 0
        self._line: Line | None = None
        """The leaves in the order of how many pods fit, as `_in_line` says of each; None: it was not asked for."""
        self._in_line: list[int] = []
        self._moved: set[int] = set()
        """Leaves that have changed since."""
        # One domain of the level must have room for all pods, or else all domains together.
        self.deciding = searched if question.request is not None and question.request.required else -1
        self._pods = [*counts.pods]
        self._slices = [*counts.slices]
        """Only those of the deciding level follow."""
        self._tops = [domain.number for domain in tree.level(max(0, self.deciding))]
        self._total = sum(counts.slices[top] for top in self._tops)
        self._sufficient = {top for top in self._tops if counts.slices[top] >= self.wanted}
        """The domains of the deciding level that have room for all pods but the leader, by number."""
        self._counts = counts.fork() if leader else counts
        self._stale: dict[int, dict[int, Spot]] = {}
        """Leaves that have changed since they were counted, by number, by that of the domain that decides."""

    def suffices(self) -> bool:
        """Whether there is room for all pods."""
        if self.deciding >= 0:
            return any(map(self._leads, self._sufficient)) if self._leader else bool(self._sufficient)
        return self._total >= self.wanted and (not self._leader or self._total - self._least_lost() >= self.wanted)

    def is_apart_from(self, before: Sequence[Room]) -> bool:
        """Whether it certainly has room, wherever those that are placed before it are.

        Each of these takes one domain of its own level: they cannot touch all that have room.
        """
        level = min(room.deciding for room in (self, *before))
        if level < 0:
            return False
        number = sum(room.wanted for room in before) if all(map(self.is_like, before)) else maxsize
        domains, slices = self._tree.domains, self._slices
        touched: set[int] = set()
        for top in filter(self._leads, self._sufficient) if self._leader else self._sufficient:
            if slices[top] - number >= self.wanted:
                return True
            touched.add(_above(domains[top], self.deciding - level))
            if len(touched) > len(before):
                return True
        return len(touched - before[0].choices(level, touched)) >= len(before)

    def choices(self, level: int, domains: set[int]) -> set[int]:
        """Return in which of these domains of a level Kueue may place the pods, before it places any others."""
        if level < self.deciding:
            return {_above(self._tree.domains[top], self.deciding - level) for top in self._sufficient}
        return {top for top in domains & self._sufficient if self._counts.scores or not self._is_behind(top)}

    def _is_behind(self, top: int) -> bool:
        """Whether another domain that has room for all pods is smaller, so that Kueue chooses that one."""
        slices = self._slices
        smaller = (other for other in self._sufficient if slices[other] < slices[top])
        if not self._leader:
            return next(smaller, None) is not None
        beside = self._counts.slices_beside
        return not self._leads(top) or any(self._leads(other) and beside[other] < beside[top] for other in smaller)

    def fills_domains(self) -> bool:
        """Whether no domain has room for the pods twice."""
        return self._plain and all(self._slices[top] < 2 * self.wanted for top in self._sufficient)

    def is_like(self, other: Room) -> bool:
        """Whether pods of both are alike, and each is known to leave room for one less where it is."""
        return self._plain and not self._leader and not self._counts.scores and self._demand == other._demand

    def take(self, taken: dict[int, int]) -> bool:
        """Place the pods in the domain of their level that Kueue chooses; return whether one has room for them.

        `taken`: how many pods that are alike are in domains of that level already; these are added.
        """
        slices, wanted = self._slices, self.wanted

        def left(top: int) -> int:
            return slices[top] - taken[top]

        # Which one of several that are equal does not matter.
        untouched = self._sufficient.difference(taken) if taken else self._sufficient
        best = min(untouched, key=slices.__getitem__, default=None)
        touched = min((top for top in taken if left(top) >= wanted), key=left, default=None)
        if touched is not None and (best is None or left(touched) < slices[best]):
            best = touched
        if best is None:
            return False
        taken[best] = taken.get(best, 0) + wanted
        return True

    def take_anywhere(self, level: int) -> dict[int, int] | None:
        """Return how many pods Kueue places in each domain of a level; None if that is not known.

        They are placed where least is free.
        """
        if not self._takes_least:
            return None
        line = self._leaf_line()
        taken: dict[int, int] = {}
        rest = self.wanted
        alone = next(line.since(rest), None)
        for leaf in line.since(1) if alone is None else (alone,):
            count = min(rest, self._pods[leaf.number])
            top = _above(leaf, self._last - level)
            taken[top] = taken.get(top, 0) + count
            rest -= count
            if not rest:
                break
        return taken

    def _leaf_line(self) -> Line:
        """Return the leaves in the order of how many pods fit."""
        pods, moved = self._pods, self._moved
        if self._line is None or len(moved) > len(pods) // 4:
            self._line, self._in_line = Line(self._tree, self._last, pods, pods), [*pods]
        else:
            lined = self._in_line
            for number in moved:
                if pods[number] != lined[number]:
                    lined[number] = pods[number]
                    self._line.move(number)
        moved.clear()
        return self._line

    def has_room_beside(self, number: int) -> bool:
        """Whether there is room for all pods beside so many that are alike, if all domains together decide."""
        return self._total - number >= self.wanted

    def _leads(self, top: int) -> bool:
        """Whether a domain has room for all pods and the leader."""
        self._count(top)
        return self._counts.leaders[top] > 0 and self._counts.slices_beside[top] >= self.wanted

    def _least_lost(self) -> int:
        """Return how many slices fit no more where the leader takes least; more than all if it fits nowhere."""
        self._count(-1)
        counts = self._counts
        lost = (counts.slices[top] - counts.slices_beside[top] for top in self._tops if counts.leaders[top])
        return min(lost, default=self._total + 1)

    def _count(self, top: int) -> None:
        """Count what fits beside the leader in a domain that decides."""
        parents: dict[Domain, None] = {}
        for leaf, number, _, free in self._stale.pop(top, {}).values():
            each = [*zip(free, self._leader, self._amounts, strict=True)]
            pods = beside = self._pods[number]
            leads = all(have >= less for have, less, _ in each if less)
            if leads:
                beside = max(0, min((have - less) // amount for have, less, amount in each if amount))
            self._counts.put(number, pods, beside, leads=leads)
            if leaf.parent is not None:
                parents[leaf.parent] = None
        self._counts.count_above(parents, max(0, self.deciding))

    def part(self, pods: PlacedPods) -> Part:
        """Return what pods that are placed take of this room."""
        amounts, spots = dict(pods.requests), []
        for values, count in pods.assignment.domains:
            leaf = self._leaves.get(values)
            if leaf is None or not leaf.present:
                continue
            spot = self._spots.get(leaf.number)
            if spot is None:
                if self._is_excluded(leaf.number):
                    continue
                free = [leaf.free.get(resource, 0) for resource in self._resources]
                spot = self._spots[leaf.number] = leaf, leaf.number, self._top(leaf), free
            spots.append((spot, count))
        return Part([amounts.get(resource, 0) for resource in self._resources], spots)

    def _top(self, leaf: Domain) -> int:
        """Return the number of the domain above a leaf that decides; -1: all domains together do."""
        return -1 if self.deciding < 0 else _above(leaf, self._last - self.deciding)

    def change(self, part: Part, sign: int) -> None:
        """Take the pods of a part away (`sign` 1), or put them back (-1)."""
        pods, slices, wanted, plain = self._pods, self._slices, self.wanted, self._plain
        is_lined, moved = self._line is not None, self._moved
        both = zip(part.gains, self._amounts, strict=True)
        resources = [(at, sign * gain, amount) for at, (gain, amount) in enumerate(both)]
        for spot, count in part.spots:
            leaf, number, top, free = spot
            fitting = maxsize
            for at, gain, amount in resources:
                have = free[at] = free[at] + gain * count
                if amount and have < fitting * amount:
                    fitting = have // amount
            more = max(0, fitting) - pods[number]
            if self._leader:
                self._stale.setdefault(top, {})[number] = spot
            if not more:
                continue
            if plain:
                pods[number] += more
                if is_lined:
                    moved.add(number)
            else:
                more = self._climb(leaf, more)
            if top < 0:
                self._total += more
            else:
                before = slices[top]
                now = slices[top] = before + more
                if now >= wanted > before:
                    self._sufficient.add(top)
                elif before >= wanted > now:
                    self._sufficient.remove(top)

    def _climb(self, domain: Domain, more: int) -> int:
        """Count more pods on a leaf, up to the level of the slices; return how many slices more there are."""
        pods = self._pods
        for level in range(self._last, self._slice_level, -1):
            before = pods[domain.number]
            now = pods[domain.number] = before + more
            unit = self._units[level]
            more = (now - now % unit) - (before - before % unit)
            assert domain.parent is not None
            domain = domain.parent
        before = pods[domain.number]
        now = pods[domain.number] = before + more
        return now // self._size - before // self._size


def _above(domain: Domain, levels: int) -> int:
    """Return the number of the domain that many levels above."""
    for _ in range(levels):
        assert domain.parent is not None
        domain = domain.parent
    return domain.number


class Trial:
    """The trees of topologies without the targets taken so far, as one pending workload sees them.

    `rooms`: the rooms that it needs, of each flavor. `search`: places what has to be placed before it is known whether
    the last room suffices; None: it has no place. The trees follow the targets only where that is called. `in_turn`:
    whether the rooms are those of all that is placed, one after the other.
    """

    def __init__(
        self,
        topologies: Topologies,
        rooms: Callable[[], Iterable[tuple[str, Room]]],
        search: Callable[[], Iterable[PlacedPods] | None] | None,
        *,
        in_turn: bool,
    ) -> None:
        self._topologies = topologies
        self._make_rooms = rooms
        self._search = search
        self._in_turn = in_turn
        self._parts: dict[Held, list[tuple[Room, Part]]] = {}
        self._gone: dict[Held, None] = {}
        self._gone_from_trees: dict[Held, None] = {}

    @cached_property
    def _rooms(self) -> list[tuple[str, Room]]:
        return [*self._make_rooms()]

    def change(self, held: Held, *, gone: bool) -> None:
        """Count an admitted workload no more if it is gone, and again otherwise."""
        if held.queue.topologies is None:
            return
        parts = self._parts.get(held)
        if parts is None:
            parts = self._parts[held] = [
                (room, room.part(pods))
                for pods in held.placed
                for flavor, room in dict.fromkeys(self._rooms)  # pod sets that are equal share one
                if flavor == pods.flavor
            ]
        for room, part in parts:
            room.change(part, 1 if gone else -1)
        if gone:
            self._gone[held] = None
        else:
            del self._gone[held]
            if not self._gone:
                self._follow()

    def _follow(self) -> None:
        """Have the trees follow the targets."""
        for held in [held for held in self._gone_from_trees if held not in self._gone]:
            del self._gone_from_trees[held]
            self._topologies.charge(held.placed, 1)
        for held in [held for held in self._gone if held not in self._gone_from_trees]:
            self._gone_from_trees[held] = None
            self._topologies.charge(held.placed, -1)

    def fits(self) -> bool:
        """Whether the workload could be placed now."""
        if not all(room.suffices() for _, room in self._rooms):
            return False
        if self._search is None:
            return True
        if self._in_turn and (known := self._fits_in_turn()) is not None:
            return known
        self._follow()
        before = self._search()
        return before is not None and (not self._rooms or self._last_suffices_beside(before))

    def _fits_in_turn(self) -> bool | None:
        """Return whether there is room for all, one after the other; None: only placing them would tell."""
        rooms = [room for _, room in self._rooms]
        if len({flavor for flavor, _ in self._rooms}) > 1:
            return None
        if all(room.is_apart_from(rooms[:at]) for at, room in enumerate(rooms) if at):
            return True
        if not all(room.is_like(rooms[0]) for room in rooms):
            # The same room for several groups, and not in as many domains as there are groups.
            return False if len({*rooms}) == 1 and rooms[0].deciding >= 0 and rooms[0].fills_domains() else None
        *before, last = rooms
        number = sum(room.wanted for room in before)
        in_domains = before if last.deciding < 0 else rooms  # those that each take one domain, behind `first`
        first = None
        if in_domains[0].deciding < 0:
            first, *in_domains = in_domains
        levels = {room.deciding for room in in_domains}
        if len(levels) > 1 or -1 in levels:
            return None
        taken = first.take_anywhere(*levels) if first is not None and levels else {}
        if taken is None:
            return None
        return all(room.take(taken) for room in in_domains) and (last.deciding >= 0 or last.has_room_beside(number))

    def _last_suffices_beside(self, before: Iterable[PlacedPods]) -> bool:
        flavor, room = self._rooms[-1]
        parts = [
            room.part(pods)
            for pods in before
            if (pods.assignment.levels[-1] == HOSTNAME if room.by_hostname else pods.flavor == flavor)
        ]
        for part in parts:
            room.change(part, -1)
        suffices = room.suffices()
        for part in parts:
            room.change(part, 1)
        return suffices
