"""Whether a workload could be placed, while preemption targets are taken and given back one by one.

A target changes few nodes: how much fits is followed from these to the domains that decide, and nothing is searched.
"""

from __future__ import annotations

from functools import cached_property
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from admission.engine.topology.counting import counts_of
from admission.engine.topology.placement import demand_of, levels_of
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
        self._wanted = question.number // demand.size
        # One domain of the level must have room for all pods, or else all domains together.
        self._deciding = searched if question.request is not None and question.request.required else -1
        self._pods = [*counts.pods]
        self._slices = [*counts.slices]
        """Only those of the deciding level follow."""
        self._tops = [domain.number for domain in tree.level(max(0, self._deciding))]
        self._total = sum(counts.slices[top] for top in self._tops)
        self._sufficient = {top for top in self._tops if counts.slices[top] >= self._wanted}
        """The domains of the deciding level that have room for all pods but the leader, by number."""
        self._counts = counts.fork() if leader else counts
        self._stale: dict[int, dict[int, Spot]] = {}
        """Leaves that have changed since they were counted, by number, by that of the domain that decides."""

    def suffices(self) -> bool:
        """Whether there is room for all pods."""
        if self._deciding >= 0:
            return any(map(self._leads, self._sufficient)) if self._leader else bool(self._sufficient)
        return self._total >= self._wanted and (not self._leader or self._total - self._least_lost() >= self._wanted)

    def leaves_room_for(self, other: Room) -> bool:
        """Whether both have room for certain, if this one is placed first and both need one domain of the same level.

        This one gets the domain with the fewest slices that has room for it: any other one is left.
        """
        if self._deciding < 0 or other._deciding != self._deciding or self._leader or self._counts.scores:
            return False
        fewest = min(map(self._slices.__getitem__, self._sufficient))
        left = (top for top in other._sufficient if top not in self._sufficient or self._slices[top] > fewest)
        return any(map(other._leads, left)) if other._leader else any(True for _ in left)

    def _leads(self, top: int) -> bool:
        """Whether a domain has room for all pods and the leader."""
        self._count(top)
        return self._counts.leaders[top] > 0 and self._counts.slices_beside[top] >= self._wanted

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
        self._counts.count_above(parents, max(0, self._deciding))

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
        if self._deciding < 0:
            return -1
        for _ in range(self._deciding, self._last):
            assert leaf.parent is not None
            leaf = leaf.parent
        return leaf.number

    def change(self, part: Part, sign: int) -> None:
        """Pods are gone (1), or back (-1)."""
        pods, slices, wanted, plain = self._pods, self._slices, self._wanted, self._plain
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
                (room, room.part(pods)) for pods in held.placed for flavor, room in self._rooms if flavor == pods.flavor
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
        if self._search is None or self._are_apart():
            return True
        self._follow()
        before = self._search()
        return before is not None and (not self._rooms or self._last_suffices_beside(before))

    def _are_apart(self) -> bool:
        """Whether two pod sets certainly do not get into each other's way."""
        if not self._in_turn or len(self._rooms) != 2:
            return False
        (flavor, first), (other, last) = self._rooms
        return flavor == other and first.leaves_room_for(last)

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
