"""Whether a workload could be placed, while preemption targets are taken and given back one by one.

A target changes few nodes: how much fits is followed from these to the domains that decide, and nothing is searched.
"""

from __future__ import annotations

from functools import cached_property
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from admission.engine.topology.counting import counts_of
from admission.engine.topology.placement import demand_of, levels_of

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
    """Whether there is room for the pods of one pod set, without a leader."""

    def __init__(self, tree: Tree, question: Question, rules: Rules) -> None:
        levels = levels_of(tree, question.request)
        assert not isinstance(levels, str), "it would fit if nothing else were there"
        searched, layers = levels
        demand = demand_of(tree, question._replace(leader=None), rules, layers)
        counts = counts_of(tree, demand)
        known = all(resource in tree.resources for resource, _ in demand.requests)
        self._leaves = tree.leaves if known else {}
        self._resources = tuple(resource for resource, _ in demand.requests)
        self._amounts = tuple(amount for _, amount in demand.requests)
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
        tops = [counts.slices[domain.number] for domain in tree.level(max(0, self._deciding))]
        self._total = sum(tops)
        self._sufficient = sum(slices >= self._wanted for slices in tops)
        """Number of domains of the deciding level that have room for all pods."""

    def suffices(self) -> bool:
        """Whether there is room for all pods."""
        return self._total >= self._wanted if self._deciding < 0 else self._sufficient > 0

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
        for (leaf, number, top, free), count in part.spots:
            fitting = maxsize
            for at, gain, amount in resources:
                have = free[at] = free[at] + gain * count
                if have < fitting * amount:
                    fitting = have // amount
            more = max(0, fitting) - pods[number]
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
                self._sufficient += (now >= wanted) - (before >= wanted)

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

    `rooms`: the rooms that it needs, of each flavor. `search`: whether the workload can be placed in the trees, where
    these rooms do not suffice for certain. Then the trees follow the targets; otherwise they stay as they are.
    """

    def __init__(
        self,
        topologies: Topologies,
        rooms: Callable[[], Iterable[tuple[str, Room]]],
        search: Callable[[], bool] | None,
    ) -> None:
        self._topologies = topologies
        self._make_rooms = rooms
        self._search = search
        self._parts: dict[Held, list[tuple[Room, Part]]] = {}

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
        if self._search is not None:
            self._topologies.charge(held.placed, -1 if gone else 1)

    def fits(self) -> bool:
        """Whether the workload could be placed now."""
        return all(room.suffices() for _, room in self._rooms) and (self._search is None or self._search())
