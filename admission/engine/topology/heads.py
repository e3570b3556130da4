"""Heads of a cycle that are placed by topology: their targets, and the room that they take until the cycle ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.assignment import Mode
from admission.engine.clusterqueue import PODS
from admission.engine.topology.workloads import Placer
from admission.engine.victims import without

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.engine.assignment import Assignment
    from admission.engine.clusterqueue import Held
    from admission.engine.configuration import Policy
    from admission.engine.drains import Drains
    from admission.engine.entry import Entry
    from admission.engine.preemption import TargetSearch
    from admission.engine.topology.state import PlacedPods, Topologies
    from admission.engine.victims import Target


class PlacedHeads:
    """The heads that a cycle has placed; `victims`: the preemption targets of the cycle so far, by uid."""

    def __init__(self, policy: Policy, victims: Mapping[str, Held], drains: Drains | None = None) -> None:
        self._drains = drains
        self._rules = policy.topology
        self._victims = victims
        # Kueue does not count pods here, so that heads of one cycle may get a node that has no room for all of them.
        self._ignored = PODS if policy.as_kueue else ""
        self._charged: list[tuple[Topologies, tuple[PlacedPods, ...]]] = []

    def placer(self, entry: Entry) -> Placer | None:
        """Return what places the pods of a head; None: its ClusterQueue has no flavor with a topology."""
        topologies = entry.queue.topologies
        if topologies is None:
            return None
        replaced = entry.replaced() if entry.item.workload.replaces else None
        kept_from = self._drains.hostnames(entry.item.workload) if self._drains is not None else {}
        return Placer(topologies, entry.queue, entry.item.shape.written, replaced, kept_from)

    def is_placed(self, entry: Entry) -> bool:
        """Whether its domains still have room for its pods, without the targets of the cycle and its own."""
        return entry.is_placed_without(self._victims, self._ignored)

    def needs_other_place(self, entry: Entry) -> bool:
        """Whether other heads have taken its domains, but not its quota, so that it is assigned anew.

        Kueue's TASRecomputeAssignmentWithinSchedulingCycle.
        """
        if entry.assignment.mode is Mode.NO_FIT or self._rules is None or not self._rules.places_again:
            return False
        return not self.is_placed(entry) and entry.fits_without(self._victims)

    def occupy(self, entry: Entry) -> None:
        """Count the pods of a head in the tree of their own flavor until the end of the cycle."""
        topologies, pods = entry.queue.topologies, entry.assignment.placed
        if topologies is not None and pods:
            topologies.charge(pods, 1)
            self._charged.append((topologies, pods))

    def end(self) -> None:
        """Take back what was counted: those of admitted heads count in all trees from now on."""
        for topologies, pods in self._charged:
            topologies.charge(pods, -1)


def targets_of(assignment: Assignment, search: Callable[[], TargetSearch], placer: Placer | None) -> list[Target]:
    """Place the pods of an assignment for which quota was found; return its preemption targets, if it needs them."""
    if placer is None:
        return search().targets(assignment) if assignment.mode is Mode.PREEMPT else []
    placer.complete(assignment)
    if assignment.mode is not Mode.PREEMPT:
        return []
    targets = search().targets(assignment, placer.trial(assignment))
    if targets:
        with without([target.held for target in targets]):
            placer.place_now(assignment)
    return targets
