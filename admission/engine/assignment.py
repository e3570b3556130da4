"""The assignment of flavors to a workload's pod sets, and the obstacles: the result of `flavors.Assigner`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from admission.engine.tree import available, lowest_subtree
from admission.engine.vocabulary import NO_MATCHING_FLAVOR, Cause, Excess, Shortage, Undeclared, severity
from admission.model.workload import Admission, PodSetAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.engine.clusterqueue import Plan
    from admission.engine.tree import Node


class Mode(IntEnum):
    """What admission with a flavor takes, worst first."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    """It fits once the preemptions for another workload are done."""
    FIT = 3


class Possibility(IntEnum):
    """The finer form of `Mode` that compares flavors, worst first (Kueue's `granularMode`)."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


MODES = (Mode.NO_FIT, Mode.PREEMPT, Mode.PREEMPT, Mode.PREEMPT, Mode.FIT)


class Choice(NamedTuple):
    """The flavor of one resource of a pod set."""

    flavor: str
    fr: int
    mode: Mode
    borrow: int
    """Height of the lowest subtree that holds it; 0: within the ClusterQueue's own quota."""
    tried: int
    """Index of the last flavor that was tried, -1 if it was the last of the group."""


class Attempt(NamedTuple):
    """One flavor that was tried for a pod set."""

    group: int
    flavor: str
    possibility: Possibility
    borrow: int
    causes: tuple[Cause, ...]
    reason: str
    """A reason of the vocabulary; "" if it fits."""

    @property
    def mode(self) -> Mode:
        """The coarse view of `possibility`."""
        return MODES[self.possibility]


class PodSetResult(NamedTuple):
    """The assignment of one pod set; `choices` is empty if it does not fit."""

    name: str
    pods: int
    requests: Mapping[str, int]
    """Resource to the amount for all pods."""
    choices: Mapping[str, Choice]
    causes: tuple[Cause, ...]
    attempts: tuple[Attempt, ...]

    @property
    def mode(self) -> Mode:
        """The worst of its resources."""
        if not self.causes:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)


@dataclass(slots=True, eq=False)
class Assignment:
    """The assignment of all pod sets of a workload."""

    pod_sets: list[PodSetResult] = field(default_factory=list)
    usage: dict[int, int] = field(default_factory=dict)
    """Flavor-resource to amount."""
    borrowing: int = 0
    """The highest borrowing level of any of its resources."""
    mode: Mode = Mode.NO_FIT
    admission: Admission | None = None
    """What is given by it, once that was asked for; workloads that share the assignment share that, too."""

    def admission_to(self, cluster_queue: str) -> Admission:
        """What a workload is given by it, by the ClusterQueue for which it was computed."""
        if self.admission is None:
            self.admission = Admission(
                cluster_queue,
                tuple(
                    PodSetAssignment(
                        pod_set.name,
                        {resource: choice.flavor for resource, choice in pod_set.choices.items()},
                        {resource: pod_set.requests[resource] for resource in pod_set.choices},
                        pod_set.pods,
                    )
                    for pod_set in self.pod_sets
                ),
            )
        return self.admission

    def tried(self) -> tuple[dict[str, int], ...]:
        """For `Progress`."""
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.choices.items()} for pod_set in self.pod_sets
        )

    def needing_preemption(self) -> frozenset[int]:
        """The flavor-resources of which too little is free."""
        choices = (choice for pod_set in self.pod_sets for choice in pod_set.choices.values())
        return frozenset(choice.fr for choice in choices if choice.mode is Mode.PREEMPT)

    def message(self) -> str:
        """Why it is not simply admitted, with the numbers."""
        return "; ".join(
            f"couldn't assign flavors to pod set {pod_set.name}: {', '.join(sorted(map(str, pod_set.causes)))}"
            for pod_set in self.pod_sets
            if pod_set.causes
        )

    def reason(self) -> str:
        """The word of the vocabulary for a workload that does not fit.

        Within a resource group the mildest counts, as the flavors are alternatives; between groups and pod sets the
        most severe, as all of them are needed, and of a resource that is in no group there is never enough.
        """
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
    """An assignment of flavors of which each was the first to be tried, and fitted: it is found again where they do."""

    checks: tuple[tuple[int, int, int], ...]
    """For each resource: the flavor-resource, the amount that was asked of it, and the borrowing level of that."""
    assignment: Assignment

    def holds(self, node: Node) -> bool:
        """Whether a search at the ClusterQueue's present usage would find the same."""
        for fr, amount, borrow in self.checks:
            if amount > max(0, available(node, fr)) or lowest_subtree(node, fr, amount)[0] != borrow:
                return False
        return True


def obstacles(plan: Plan, assignment: Assignment) -> tuple[tuple[int, int], ...] | None:
    """For each flavor that could do, a flavor-resource of which too little is available, and the amount needed.

    None if that does not follow from the assignment: only the common case of one search among flavors is told.
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
        if option.mismatch or any(isinstance(cause, Excess) for cause in causes):
            continue
        if short is None:
            return None
        found.append((option.frs[short.resource], plan.totals[0][short.resource]))
    return tuple(found)
