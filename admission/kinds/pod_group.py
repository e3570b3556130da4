"""Adapter for groups of pods that are queued as one workload, as Kueue's pod groups are.

The API server has no objects of this kind: `admission.controller.workloads.group_object` says what the pods of a
namespace that name the same group are as one. Equal pods have one role and make up one pod set; in a CompositePodGroup,
if they are of the same PodGroup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from admission.kinds import templates
from admission.kinds.base import SUBMITTED_BY, SUBMITTER_GROUPS, Kind, Object, Outcome, PodCount
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Observed
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet

_MAX_ROLES: Final = 32
_PODS: Final = "pods"
"""Key of the `PodGroup` beside the metadata of a group."""
FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that no longer run."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What the pods of a group, and its owner, say of it now. The first fields are those of `Observed`."""

    suspended: bool
    active: bool
    counts: tuple[PodCount, ...]
    finished: Outcome | None
    ready: bool
    waits_for: str
    is_uneven: bool
    pod_priority_class: str
    requested: Mapping[str, int]
    """Number of pods by role that it requests quota for, or holds."""
    pod_sets: tuple[PodSet, ...]
    """The pod sets that its pods have declared; empty: none are declared."""
    examples: Mapping[str, bytes]
    """A pod of each role, packed."""
    faults: Sequence[str]
    """Messages about errors in its pods."""
    wait_message: str
    """Why it cannot be queued yet, whatever pods it has; empty: no reason is known."""
    may_be_elsewhere: bool
    """Whether all of its pods can stay gated while copies of them run in another cluster."""

    def example(self, role: str) -> Object:
        """Return what all pods of a role have in common, in the form of a template."""
        return templates.digest_parts(orjson.loads(self.examples[role]))


def as_object(metadata: Object, group: PodGroup) -> Object:
    """Return a group as an object of its kind."""
    return {"metadata": metadata, _PODS: group}


def group_in(obj: Object) -> PodGroup:
    """Return the group of an `as_object`."""
    found: PodGroup = obj[_PODS]
    return found


@dataclass(frozen=True, slots=True)
class PodGroupKind(Kind):
    """Adapter for pod groups (see `Kind`)."""

    group: ClassVar[str] = "sluice.dev"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    is_custom: ClassVar[bool] = False
    is_composed: ClassVar[bool] = True
    reports_pods: ClassVar[bool] = True
    pods_label: ClassVar[str] = ""
    plural: ClassVar[str] = "podgroups"
    kind: ClassVar[str] = "PodGroup"
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY, SUBMITTER_GROUPS)

    def observe(self, obj: Object) -> Observed:
        """Return the state of the group, by its pods."""
        group = group_in(obj)
        return self._observed(
            obj,
            suspended=group.suspended,
            active=group.active,
            counts=group.counts,
            finished=group.finished,
            ready=group.ready,
            ending=False,
            pod_priority_class=group.pod_priority_class,
            waits_for=group.waits_for,
            is_uneven=group.is_uneven,
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return one pod set per role, or the declared ones. Raises Misconfigured."""
        group = group_in(obj)
        if faults := [*(": ".join(fault) for fault in self.metadata_faults(obj)), *group.faults]:
            raise Misconfigured("; ".join(faults))
        if group.pod_sets:
            return group.pod_sets
        if len(group.requested) > _MAX_ROLES:
            number, differences = len(group.requested), "which differ in requests, placement or PodGroup"
            raise Misconfigured(f"the group has pods of {number} roles, {differences}; {_MAX_ROLES} is the most")
        return tuple(
            templates.pod_set(role, group.example(role), context, path="", count=count)
            for role, count in sorted(group.requested.items())
            if role in group.examples
        )

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return []: its pods were validated themselves."""
        return []

    def gate(self, obj: Object) -> list[Object]:
        """Return []: its pods are gated themselves."""
        return []

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return no patch, as each pod has its own. Raises Misconfigured if the pods of a role cannot be injected."""
        group = group_in(obj)
        for assignment in admission.pod_sets:
            if assignment.name in group.examples:
                pod = group.example(assignment.name)
                templates.inject(pod, templates.of_admission(assignment, flavors, updates, pod, path=""), path="")
        return [], {}

    def may_stay_gated(self, obj: Object) -> bool:
        """Whether all of its pods can stay gated while copies of them run in another cluster."""
        return group_in(obj).may_be_elsewhere

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return []: each pod has a resume patch of its own."""
        return []

    def templates(self, obj: Object) -> list[Object]:
        """Return a pod of each role."""
        group = group_in(obj)
        return [group.example(role) for role in group.examples]
