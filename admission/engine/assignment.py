"""Result of flavor assignment: the flavors of a workload's pod sets, the mode, and the obstacles met."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.tree import available, lowest_subtree
from admission.engine.vocabulary import (
    NO_MATCHING_FLAVOR,
    TOPOLOGY_PLACEMENT_FAILED,
    Cause,
    ExceededQuota,
    Shortage,
    Undeclared,
    severity,
)
from admission.model.pod_set_names import titled
from admission.model.workload import Admission, PodSetAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.clusterqueue import Plan
    from admission.engine.topology.state import PlacedPods
    from admission.engine.tree import Node
    from admission.model.topology import TopologyAssignment


class Mode(IntEnum):
    """Whether a workload fits with its flavors, worst first (Kueue's `FlavorAssignmentMode`)."""

    NO_FIT = 0
    PREEMPT = 1
    """Preemption may make it fit; targets may turn out not to exist."""
    DEFERRED_FIT = 2
    """It fits after the preemptions for another workload have completed."""
    FIT = 3


class Possibility(IntEnum):
    """The finer form of `Mode` by which flavors are compared, worst first (Kueue's `preemptionMode`)."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Preemption would be permitted, but the simulation found no targets."""
    PREEMPT = 2
    """By preemption of workloads of the same ClusterQueue, among others."""
    RECLAIM = 3
    """By preemption of workloads of other ClusterQueues only."""
    FIT = 4


MODES = (Mode.NO_FIT, Mode.PREEMPT, Mode.PREEMPT, Mode.PREEMPT, Mode.FIT)
"""The mode of each `Possibility`, by its value."""


class Choice(NamedTuple):
    """The flavor of one resource of a pod set."""

    flavor: str
    fr: int
    """Index of the flavor-resource in the tree."""
    mode: Mode
    borrow: int
    """Borrowing level: height of the lowest subtree that holds it; 0: within the ClusterQueue's own quota."""
    tried: int
    """Index of the last flavor that was tried, -1 if it was the last of the group."""


class Attempt(NamedTuple):
    """One flavor that was tried for a pod set."""

    group: int
    """Index of the resource group in the ClusterQueue's spec."""
    flavor: str
    possibility: Possibility
    borrow: int
    """Borrowing level, as in `Choice`."""
    causes: tuple[Cause, ...]
    """Obstacles met; empty if it fits."""
    reason: str
    """A reason of the vocabulary; "" if it fits."""

    @property
    def mode(self) -> Mode:
        """The mode that corresponds to `possibility`."""
        return MODES[self.possibility]


class PodSetResult(NamedTuple):
    """The assignment of one pod set; `choices` is empty if it does not fit."""

    name: str
    pods: int
    """Number of pods; with partial admission less than the pod set's count."""
    requests: Mapping[str, int]
    """Resource to the amount for all pods."""
    choices: Mapping[str, Choice]
    """Resource to its flavor."""
    causes: tuple[Cause, ...]
    """Obstacles met in all flavors that were tried; empty if it fits."""
    attempts: tuple[Attempt, ...]
    """The flavors that were tried, in order."""

    @property
    def mode(self) -> Mode:
        """The worst mode of its resources."""
        if not self.causes:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)


@dataclass(slots=True, eq=False)
class Assignment:
    """The assignment of all pod sets of a workload."""

    pod_sets: list[PodSetResult] = field(default_factory=list)
    usage: dict[int, int] = field(default_factory=dict)
    """Flavor-resource (index in the tree) to amount."""
    borrowing: int = 0
    """The highest borrowing level of any of its resources."""
    mode: Mode = Mode.NO_FIT
    """The worst mode of its pod sets (Kueue's representative mode)."""
    placed_pod_sets: dict[int, TopologyAssignment] = field(default_factory=dict)
    """Index of a pod set to the domains of its pods, if they are placed by topology."""
    placed: tuple[PlacedPods, ...] = ()
    """The same with flavors and requests: what the workload uses of their trees."""
    delayed: frozenset[int] = frozenset()
    """Indices of pod sets that are placed only when all admission checks are Ready."""
    unplaced: bool = False
    """Whether it does not fit for the topology's sake alone."""
    cluster: str = ""
    """Name of the cluster that the workload is dispatched to with it; empty: it is not dispatched."""
    admission: Admission | None = None
    """Cached result of `admission_to`; workloads that share the assignment share the Admission, too."""

    def admission_to(self, cluster_queue: str) -> Admission:
        """Return the Admission of a workload with this assignment, in the ClusterQueue for which it was computed."""
        if self.admission is None:
            self.admission = Admission(
                cluster_queue,
                tuple(
                    PodSetAssignment(
                        pod_set.name,
                        {resource: choice.flavor for resource, choice in pod_set.choices.items()},
                        {resource: pod_set.requests[resource] for resource in pod_set.choices},
                        pod_set.pods,
                        self.placed_pod_sets.get(index),
                        index in self.delayed,
                    )
                    for index, pod_set in enumerate(self.pod_sets)
                ),
                self.cluster,
            )
        return self.admission

    def tried(self) -> tuple[dict[str, int], ...]:
        """Return `Progress.tried` of this assignment."""
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.choices.items()} for pod_set in self.pod_sets
        )

    def needing_preemption(self) -> frozenset[int]:
        """Return the flavor-resources that need preemption (Kueue's `flavorResourcesNeedPreemption`)."""
        choices = (choice for pod_set in self.pod_sets for choice in pod_set.choices.values())
        return frozenset(choice.fr for choice in choices if choice.mode is Mode.PREEMPT)

    def message(self) -> str:
        """Return Kueue's message for an assignment that does not simply fit, with the numbers."""
        return "; ".join(
            f"couldn't assign flavors to {titled(pod_set.name)}: {', '.join(sorted(map(str, pod_set.causes)))}"
            for pod_set in self.pod_sets
            if pod_set.causes
        )

    def reason(self) -> str:
        """Return the pending reason for a workload that does not fit (Kueue's `resolveNoFitReason`).

        Within a resource group the mildest reason counts, as the flavors are alternatives; between groups and pod sets
        the most severe one, as all of them are needed. A resource in no group counts as NoMatchingFlavor.
        """
        if self.unplaced:
            return TOPOLOGY_PLACEMENT_FAILED
        worst = ""
        for pod_set in self.pod_sets:
            if pod_set.mode is not Mode.NO_FIT:
                continue
            by_group: dict[int, str] = {}
            for attempt in pod_set.attempts:
                mildest = by_group.get(attempt.group, attempt.reason)
                by_group[attempt.group] = min(mildest, attempt.reason, key=severity)
            own = max(by_group.values(), default="", key=severity)
            if not own or any(isinstance(cause, Undeclared) for cause in pod_set.causes):
                own = max(own, NO_MATCHING_FLAVOR, key=severity)
            worst = max(worst, own, key=severity)
        return worst


class KnownFit(NamedTuple):
    """A cached assignment in which the first flavor of every resource fitted: a new search finds it while these fit."""

    checks: tuple[tuple[int, int, int], ...]
    """(flavor-resource, requested amount, borrowing level) of each resource."""
    assignment: Assignment

    def holds(self, node: Node) -> bool:
        """Whether a search at the ClusterQueue's current usage would find the same assignment."""
        for fr, amount, borrow in self.checks:
            if amount > max(0, available(node, fr)) or lowest_subtree(node, fr, amount)[0] != borrow:
                return False
        return True


def obstacles(plan: Plan, assignment: Assignment) -> tuple[tuple[int, int], ...] | None:
    """Return, for each flavor that could hold the workload, a flavor-resource that is short, and the requested amount.

    While each of these is short the workload does not fit. None if that does not follow from the assignment: only the
    common case of one part, that is one search among flavors, is covered.
    """
    if len(plan.groups) != 1 or len(plan.groups[0].parts) != 1:
        return None
    (part,) = plan.groups[0].parts
    attempts = {attempt.flavor: attempt for attempt in assignment.pod_sets[0].attempts}
    found = []
    for option in part.options:
        attempt = attempts.get(option.flavor)
        causes = [cause for cause in attempt.causes if not isinstance(cause, str)] if attempt is not None else []
        short = next((cause for cause in causes if isinstance(cause, Shortage)), None)
        if option.mismatch or any(isinstance(cause, ExceededQuota) for cause in causes):
            continue
        if short is None:
            return None
        found.append((option.frs[short.resource], plan.totals[0][short.resource]))
    return tuple(found)
