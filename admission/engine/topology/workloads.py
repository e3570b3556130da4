"""Placement of whole workloads: their pod sets in the trees of the flavors that quota has chosen for them."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from admission.engine.assignment import Mode
from admission.engine.topology.counting import requests_of
from admission.engine.topology.nodes import PodRules
from admission.engine.topology.placement import Placed, Question, place
from admission.engine.topology.replacement import beyond, resize, shortened
from admission.engine.topology.state import PlacedPods
from admission.engine.topology.trial import Room, Trial
from admission.engine.vocabulary import NO_TREE, Unplaced, several_trees
from admission.model.topology import HOSTNAME
from admission.model.workload import NodeRequirement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.topology.state import Topologies
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet, Workload


def places(queue: ClusterQueue, pod_set: PodSet) -> bool:
    """Whether the pod set is placed by topology: by its request, or as all flavors of the ClusterQueue have one."""
    return pod_set.topology is not None or queue.only_topology


def placed_pods(workload: Workload, admission: Admission, flavors: Mapping[str, object]) -> tuple[PlacedPods, ...]:
    """Return the pods of an admission that are placed; `flavors`: those with a topology."""
    requests = {pod_set.name: pod_set.beside_devices for pod_set in workload.pod_sets}
    found = []
    for pod_set in admission.pod_sets:
        if pod_set.topology is None:
            continue
        names = sorted(set(pod_set.flavors.values()))
        flavor = next((name for name in names if name in flavors), names[0] if names else "")
        amounts = requests_of(requests.get(pod_set.name, {}))
        found.append(PlacedPods(flavor, pod_set.topology, amounts, admission.cluster or workload.cluster))
    return tuple(found)


class Placer:
    """Places the pod sets of one workload with an assignment of flavors in one ClusterQueue.

    `replaced`: the workload whose quota this one takes over. Its pods stay where they are, only others are placed.
    `kept_from`: hostnames of nodes on which it must not start, by cluster.
    """

    def __init__(
        self,
        topologies: Topologies,
        queue: ClusterQueue,
        pod_sets: tuple[PodSet, ...],
        replaced: Held | None = None,
        kept_from: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._topologies = topologies
        self._queue = queue
        self._pod_sets = pod_sets
        self._kept_from = kept_from or {}
        self._stay = replaced.placed if replaced is not None else ()
        self._present = {
            pod_set.name: pod_set.topology
            for pod_set in (replaced.admission.pod_sets if replaced is not None else ())
            if pod_set.topology is not None
        }

    def complete(self, assignment: Assignment) -> None:
        """Place a workload for which quota has been found; without a place its mode gets worse.

        If its pods do not fit beside what is placed now, they may after preemption, unless they would not fit into
        empty nodes either. (Kueue's `updateForTAS` of flavor assignment.)
        """
        if assignment.mode is Mode.NO_FIT or self._lacks_tree(assignment):
            return
        assignment.delayed = frozenset(
            index
            for indices in self._groups(assignment)
            if not self._queue.provisioned.isdisjoint(self._flavors(assignment, indices))
            for index in indices
        )
        if assignment.mode is Mode.FIT and not self._place(assignment, empty=False):
            assignment.mode = Mode.PREEMPT
        if assignment.mode is Mode.PREEMPT:
            if not self._place(assignment, empty=True):
                assignment.mode, assignment.unplaced = Mode.NO_FIT, True
                return
            for index in assignment.placed_pod_sets:
                result = assignment.pod_sets[index]
                choices = {name: choice._replace(mode=Mode.PREEMPT) for name, choice in result.choices.items()}
                assignment.pod_sets[index] = result._replace(choices=choices)

    def trial(self, assignment: Assignment) -> Trial:
        """Return what tells whether the workload can be placed without some of those that are placed now."""
        groups = self._in_order(assignment)
        # Room decides about the last one, unless pods stay in place or are spread: places are not only room then.
        exact = not self._present and not self._topologies.rules.balanced
        before = groups[:-1] if exact else groups

        def search() -> list[PlacedPods] | None:
            found = self.search(assignment, empty=False, groups=before)
            return None if isinstance(found, tuple) else [*found.values()] if exact else []

        rooms = partial(self._rooms, assignment, groups)
        return Trial(self._topologies, rooms, search if before else None, in_turn=exact)

    def _rooms(self, assignment: Assignment, groups: list[tuple[str, list[int]]]) -> Iterator[tuple[str, Room]]:
        """Yield the room that pods need beside those of other groups, unless some of them stay in place.

        Groups that are equal have one room.
        """
        known: dict[tuple[str, Question], Room] = {}
        for flavor, indices in groups:
            if self._pod_sets[self._workers(assignment, indices)].name not in self._present:
                question = self._question(flavor, assignment, indices, empty=False)
                room = known.get((flavor, question))
                if room is None:
                    room = known[flavor, question] = Room(
                        self._topologies.trees[flavor], question, self._topologies.rules
                    )
                yield flavor, room

    @staticmethod
    def _workers(assignment: Assignment, indices: Sequence[int]) -> int:
        """Return which pod set of a group has the workers: that with more pods, with equal numbers the first one."""
        return max(indices, key=lambda index: (assignment.pod_sets[index].pods, -index))

    def _leader(self, assignment: Assignment, indices: Sequence[int]) -> int | None:
        """Return which pod set of a group has the leader; None: none has."""
        workers = self._workers(assignment, indices)
        return next((index for index in indices if index != workers), None)

    def _question(self, flavor: str, assignment: Assignment, indices: Sequence[int], *, empty: bool) -> Question:
        index, leader = self._workers(assignment, indices), self._leader(assignment, indices)
        pod_set, number, into = self._pod_sets[index], assignment.pod_sets[index].pods, self._queue.flavors[flavor]
        if (request := pod_set.topology) is not None and request.layers and not self._topologies.rules.as_kueue:
            # Pods beyond whole slices get the place of one more slice; Kueue places them nowhere.
            number += -number % max(1, request.layers[0].size)
        return Question(
            number,
            requests_of(pod_set.beside_devices),
            pod_set.topology,
            pod_rules(pod_set, into, self._kept_from.get(into.spec.cluster, ())),
            requests_of(self._pod_sets[leader].beside_devices) if leader is not None else None,
            empty=empty,
        )

    def place_now(self, assignment: Assignment) -> None:
        """Give the assignment the place that it has at the present usage, if there is one."""
        found = self.search(assignment, empty=False)
        if not isinstance(found, tuple):
            self._record(assignment, found)

    def _place(self, assignment: Assignment, *, empty: bool) -> bool:
        found = self.search(assignment, empty=empty)
        if isinstance(found, tuple):
            if empty:  # the obstacles to a place beside what is placed now say more
                return False
            index, cause = found
            result = assignment.pod_sets[index]
            assignment.pod_sets[index] = result._replace(causes=(*result.causes, Unplaced(cause)))
            return False
        self._record(assignment, found)
        return True

    def _record(self, assignment: Assignment, found: Mapping[int, PlacedPods]) -> None:
        assignment.placed_pod_sets = {index: pods.assignment for index, pods in found.items()}
        assignment.placed = tuple(self._new(index, pods) for index, pods in found.items())

    def _new(self, index: int, pods: PlacedPods) -> PlacedPods:
        """Return the pods of a pod set that do not run there already."""
        present = self._present.get(self._pod_sets[index].name)
        return pods if present is None else pods._replace(assignment=beyond(pods.assignment, present))

    def _lacks_tree(self, assignment: Assignment) -> bool:
        """Whether a pod set has not exactly one flavor with a topology; then the assignment does not fit."""
        for indices in self._groups(assignment):
            trees = self._flavors(assignment, indices)
            if len(trees) != 1:
                why = several_trees(trees) if trees else NO_TREE
                for index in indices:
                    result = assignment.pod_sets[index]
                    cause = f"failed to assign flavors to pod set {result.name}: {why}"
                    assignment.pod_sets[index] = result._replace(causes=(*result.causes, Unplaced(cause)))
                assignment.mode, assignment.unplaced = Mode.NO_FIT, True
                return True
        return False

    def _groups(self, assignment: Assignment) -> Iterator[list[int]]:
        """Yield the pod sets that are placed together, by index."""
        groups: dict[str | int, list[int]] = {}
        for index, pod_set in enumerate(self._pod_sets[: len(assignment.pod_sets)]):
            delayed = index in assignment.delayed or not assignment.pod_sets[index].pods
            if places(self._queue, pod_set) and not delayed:
                groups.setdefault(pod_set.group or index, []).append(index)
        yield from groups.values()

    def _flavors(self, assignment: Assignment, indices: Sequence[int]) -> list[str]:
        chosen = {choice.flavor for index in indices for choice in assignment.pod_sets[index].choices.values()}
        return sorted(chosen & self._topologies.trees.keys())

    def _in_order(self, assignment: Assignment) -> list[tuple[str, list[int]]]:
        """Return the pod sets that are placed together, by index, with their flavor; in the order of placement."""
        groups = ((self._flavors(assignment, indices)[0], indices) for indices in self._groups(assignment))
        return sorted(groups, key=itemgetter(0))

    def search(
        self, assignment: Assignment, *, empty: bool, groups: list[tuple[str, list[int]]] | None = None
    ) -> dict[int, PlacedPods] | tuple[int, str]:
        """Return the place of each pod set by index, or the index of a pod set that has none, and why.

        `groups`: as of `_in_order`; None: all.
        """
        groups = self._in_order(assignment) if groups is None else groups
        found: dict[int, PlacedPods] = {}
        failure: tuple[int, str] | None = None
        assumed = [*self._stay] if empty else []  # otherwise they are counted as any usage
        for pods in assumed:
            self._topologies.assume(pods, 1)
        for flavor, indices in groups:
            placed = self._search_group(flavor, assignment, indices, empty=empty)
            if isinstance(placed, str):
                failure = indices[0], placed
                break
            found.update(placed)
            for index, pods in placed.items() if len(groups) > 1 else ():
                assumed.append(self._new(index, pods))
                self._topologies.assume(assumed[-1], 1)
        for pods in assumed:
            self._topologies.assume(pods, -1)
        return failure if failure is not None else dict(sorted(found.items()))

    def _search_group(
        self, flavor: str, assignment: Assignment, indices: Sequence[int], *, empty: bool
    ) -> dict[int, PlacedPods] | str:
        workers, leader = self._workers(assignment, indices), self._leader(assignment, indices)
        question = self._question(flavor, assignment, indices, empty=empty)
        tree, pods = self._topologies.trees[flavor], assignment.pod_sets[workers].pods
        here = self._present.get(self._pod_sets[workers].name)
        there = self._present.get(self._pod_sets[leader].name) if leader is not None else None
        if here is not None and (leader is None or there is not None):
            # The template of pods in one domain has its node selector, unless it is a node: the others have to join.
            within = here.domains[0].values if len(here.domains) == 1 and not tree.by_hostname else ()
            number = max(pods, sum(count for _, count in here.domains))
            alone = question._replace(number=number, leader=None)
            resized = resize(tree, alone, here, self._topologies.rules, within)
            if isinstance(resized, str):
                return resized
            found = {workers: PlacedPods(flavor, resized, question.requests, tree.cluster)}
            if leader is not None and question.leader is not None and there is not None:
                found[leader] = PlacedPods(flavor, there, question.leader, tree.cluster)
            return found
        placed = place(tree, question, self._topologies.rules)
        if not isinstance(placed, Placed):
            return placed
        found = {workers: PlacedPods(flavor, shortened(placed.pods, pods), question.requests, tree.cluster)}
        if leader is not None and placed.leader is not None and question.leader is not None:
            # As in Kueue a leader that requests nothing has no flavor, and so no place that could be confirmed.
            own = flavor if assignment.pod_sets[leader].choices else ""
            found[leader] = PlacedPods(own, placed.leader, question.leader, tree.cluster)
        return found


def pod_rules(pod_set: PodSet, flavor: ResourceFlavor, kept_from: Collection[str] = ()) -> PodRules:
    """Return which nodes of a flavor the pods can run on. `kept_from`: hostnames of nodes that they must not use."""
    affinity = pod_set.affinity
    if kept_from:
        others = NodeRequirement(HOSTNAME, "NotIn", tuple(sorted(kept_from)))
        affinity = tuple((*term, others) for term in (((),) if affinity is None else affinity))
    return PodRules(
        (*pod_set.tolerations, *flavor.spec.tolerations),
        tuple(sorted(pod_set.node_selector.items())),
        affinity,
        pod_set.preferences,
    )


def obstacle(queue: ClusterQueue, topologies: Topologies, flavor: str, pod_set: PodSet) -> str:
    """Return why a pod set cannot have the flavor for its topology's sake, as Kueue's message; "" if it can."""
    tree = topologies.trees.get(flavor)
    request = pod_set.topology
    if request is None:
        lone = tree is not None and not queue.only_topology
        return f'Flavor "{flavor}" supports only TopologyAwareScheduling' if lone else ""
    if flavor not in topologies.named:
        return f'Flavor "{flavor}" does not support TopologyAwareScheduling'
    if tree is None:
        return f'Flavor "{flavor}" information missing in TAS cache'
    wanted = [level for level, _ in request.layers]
    wanted += [level for level in (request.required, request.preferred) if level]
    if any(level not in tree.levels for level in wanted):
        return f'Flavor "{flavor}" does not contain the requested level'
    return ""
