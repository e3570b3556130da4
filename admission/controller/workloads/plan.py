"""What is due for the objects of a workload: pure functions of its committed state and its objects as last seen.

Level-based: they may be evaluated again at any time, and result in the same writes until these have taken effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from admission.cluster.events import ObjectReference
from admission.controller.state.lifecycle import Step, next_step
from admission.controller.state.tracked import StartPatch
from admission.controller.state.triggers import EditedBeforeStart, StartImpossible
from admission.controller.workloads.group_plan import (
    admitted_counts,
    group_domains,
    names_by_queue,
    planned,
    queue_of,
    surplus_pods,
)
from admission.controller.workloads.scaling import reserved_scale_up
from admission.kinds.base import START_WITH_OWNER, WORKLOAD_UID
from admission.kinds.grouping import ROLE, STARTED_WITH, before_deletion
from admission.kinds.patches import annotated, pointer
from admission.model import child_sentences, sentences
from admission.model.errors import Misconfigured
from admission.model.pod_set_names import is_computed
from admission.model.topology import DomainCount
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import GroupPlan, Member
    from admission.kinds.base import Kind, Object, Observed
    from admission.kinds.limits import NamespaceContext
    from admission.model.queues import ResourceFlavor
    from admission.model.topology import Values
    from admission.model.workload import PodSetAssignment, Workload


@dataclass(frozen=True, slots=True)
class Write:
    """What is due for an object: a patch or its deletion, and the Event about it."""

    target: ObjectReference
    patch: Object | list[Object] | None
    """A merge patch, or the operations of a JSON patch; None: the object is deleted."""
    subresource: str = ""
    version: str = ""
    """Precondition of a deletion on the resourceVersion; empty: none."""
    preparation: Object | None = None
    """Merge patch that is sent before the deletion; None: none."""
    note: str = ""
    """Why it is stopped, for an Event; empty: none is recorded."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event is due about a pod that stays gated."""

    target: ObjectReference
    note: str


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """More pods are due, by pod set, that the children of a workload have instead of its object."""

    counts: Mapping[str, int]


Due: TypeAlias = "Write | ScaleUp | StartImpossible | EditedBeforeStart | None"
"""What is due: a write, or something that has to be recorded first; None: nothing."""


def reference(workload: Workload) -> ObjectReference:
    """Return the reference to a workload's object."""
    return ObjectReference(workload.api_version, workload.kind, workload.name, workload.uid, workload.namespace)


def step_of(tracked: Tracked, seen: Observed) -> Step:
    """Return the next step for a workload."""
    # Computing whether something has to be restored is expensive, and only needed then.
    state = tracked.record.state
    stopped = (state is State.EVICTING or (state is State.PENDING and tracked.started_late)) and not seen.active
    return next_step(
        state,
        seen,
        changed_by_us=stopped and (obj := tracked.object) is not None and _restoration(tracked, seen, obj) is not None,
        checks_pending=tracked.record.checks_pending,
        settled=not tracked.unsettled,
    )


def desired(tracked: Tracked, seen: Observed, step: Step, flavors: Mapping[str, ResourceFlavor]) -> Due:
    """Return what is due for the object of a workload that is no pod group, in its next step."""
    target = reference(tracked.record.workload)
    suspension = seen.kind.suspension
    if step is Step.STOP and suspension is None:
        return Write(target, None)
    start = tracked.start_patch
    if step is Step.START and start is not None and start.resource_version == seen.resource_version:
        return Write(target, start.body)
    if step is Step.WAIT and not (counts := reserved_scale_up(tracked, seen)):
        return None
    if (obj := tracked.object) is None:
        return None
    match step:
        case Step.START:
            return _start(tracked, seen, obj, flavors)
        case Step.STOP if suspension is not None:
            return Write(target, suspension.stop_patch(obj))
        case Step.RESTORE if (patch := _restoration(tracked, seen, obj)) is not None:
            return Write(target, patch)
        case Step.WAIT:
            scaled = [] if seen.kind.scaling is None else seen.kind.scaling.scale_patch(obj, counts)
            return Write(target, scaled) if scaled else ScaleUp(counts)
        case _:
            return None


def _start(tracked: Tracked, seen: Observed, obj: Object, flavors: Mapping[str, ResourceFlavor]) -> Due:
    """Return what starts a workload whose object has changed since its admission, or was started before."""
    record = tracked.record
    assert record.admission is not None, record
    target = reference(record.workload)
    suspension = seen.kind.suspension
    begun = suspension is not None and _restoration(tracked, seen, obj) is not None  # it was started, then suspended
    try:
        if begun and suspension is not None:
            return Write(target, seen.kind.resume_patch(obj)) if suspension.may_resume(obj) else None
        start = StartPatch.of(seen, obj, record.admission, flavors, updates=tracked.updates)
    except Misconfigured as error:
        return StartImpossible(seen.generation, str(error), begun=begun)
    if start.original != record.original:
        # The object was edited since: the fields to restore have to be committed before they are replaced.
        return EditedBeforeStart(start.original)
    return Write(target, start.body)


def _restoration(tracked: Tracked, seen: Observed, obj: Object) -> Object | list[Object] | None:
    original, suspension = tracked.record.original, seen.kind.suspension
    return None if original is None or suspension is None else suspension.restore_patch(obj, original)


# --- pods of a group


def desired_of_group(
    tracked: Tracked,
    seen: Observed,
    step: Step,
    members: Sequence[Member],
    *,
    kind: Kind,
    context: NamespaceContext,
    flavors: Mapping[str, ResourceFlavor],
) -> Iterator[Write | Notice] | StartImpossible:
    """Return what is due for the pods of a group that is started or stopped. `kind`: of pods.

    Each write is created when it is asked for: a large group may be evicted meanwhile.
    """
    if step is Step.STOP:
        return _stopped(tracked, members)
    plan = planned(tracked, members, context)
    domains = group_domains(tracked, members)

    def started(member: Member) -> Write:
        return started_pod(tracked, member, kind, flavors, domains)

    if tracked.start_patch is not None:  # otherwise other pods of the group run already
        try:
            for member in _distinct_patches(tracked, plan.started):
                started(member)
        except Misconfigured as error:
            return StartImpossible(seen.generation, str(error))
    return chain(still_gated(tracked, members, plan), _started(tracked, plan, started))


def _started(tracked: Tracked, plan: GroupPlan, started: Callable[[Member], Write]) -> Iterator[Write | Notice]:
    """Ungate pods up to the admitted number of each role, and delete excess pods."""
    for member in plan.started:
        if tracked.record.state is not State.ADMITTED:
            return
        try:
            yield started(member)
        except Misconfigured as error:
            yield Notice(pod_reference(tracked, member), str(error))
    yield from (excess_pod(tracked, member) for member in plan.excess)


def _stopped(tracked: Tracked, members: Iterable[Member]) -> Iterator[Write]:
    """Delete ungated pods: the group was evicted, or never had quota. As in Kueue, gated pods are kept."""
    evicted = tracked.record.state is State.EVICTING
    note = "" if evicted else sentences.POD_WITHOUT_QUOTA  # an eviction is reported for the group as a whole
    for member in members:
        if member.runs and not member.deleting:
            yield _deleted_pod(tracked, member, note)


def still_gated(tracked: Tracked, members: Sequence[Member], plan: GroupPlan) -> Iterator[Notice]:
    """Say why pods stay gated, except those that queue by themselves."""
    queue, alone = queue_of(members), {each.uid for each in surplus_pods(tracked, members, plan)}
    message = child_sentences.beyond_group if tracked.larger is None else child_sentences.waits_beside
    for member in plan.gated:
        if member.uid not in alone:
            note = message(tracked.record.workload.name, admitted_counts(tracked).get(member.role, 0))
            if member.queue != queue:
                note = child_sentences.group_of_several_queues(names_by_queue(members))
            yield Notice(pod_reference(tracked, member), note)


def pod_reference(tracked: Tracked, member: Member) -> ObjectReference:
    """Return the reference to a pod of a group."""
    return ObjectReference("v1", "Pod", member.name, member.uid, tracked.record.workload.namespace)


def _distinct_patches(tracked: Tracked, members: Iterable[Member]) -> Iterable[Member]:
    """Return pods whose start patches may differ: one of each computed role, whose pods get the same patch.

    All pods of declared pod sets, which may differ, and all pods if admission checks add labels, as labels are no part
    of a role.
    """
    if tracked.updates:
        return members
    return {each.role if is_computed(each.role) else each.uid: each for each in members}.values()


def started_pod(
    tracked: Tracked,
    member: Member,
    kind: Kind,
    flavors: Mapping[str, ResourceFlavor],
    domains: Mapping[str, Values],
) -> Write:
    """Return the patch that starts a pod of a group with the admission of its role. Raises Misconfigured.

    `domains`: of each pod that is placed by topology, by uid.
    """
    record, pod = tracked.record, member.object
    assert record.admission is not None, record
    own = tuple(
        _in_domain(each, domains.get(member.uid)) for each in record.admission.pod_sets if each.name == member.role
    )
    body, _ = kind.start_patch(pod, replace(record.admission, pod_sets=own), flavors, tracked.updates)
    noted = annotated(pod, {ROLE: member.role, STARTED_WITH: tracked.uid})
    named = {"op": "add", "path": pointer("metadata", "labels", WORKLOAD_UID), "value": tracked.uid}
    return Write(pod_reference(tracked, member), [*body, *noted, named])


def excess_pod(tracked: Tracked, member: Member) -> Write:
    """Return the deletion of a pod beyond the quota of its group."""
    note = child_sentences.PODS_BEYOND_GROUP if member.gated else sentences.POD_WITHOUT_QUOTA
    return _deleted_pod(tracked, member, note)


def _deleted_pod(tracked: Tracked, member: Member, note: str) -> Write:
    """Return the deletion of a pod of a group, if it has not changed: if it has succeeded, it must be kept."""
    target, preparation = pod_reference(tracked, member), before_deletion(member.object)
    return Write(target, None, version=member.version, preparation=preparation, note=note)


def _in_domain(assignment: PodSetAssignment, values: Values | None) -> PodSetAssignment:
    """Return the assignment of one pod of a pod set. Raises Misconfigured if the pod set has no place for it."""
    if assignment.topology is None:
        return assignment
    if values is None:
        raise Misconfigured("all places that the topology assignment of its group has for it are taken")
    return replace(assignment, topology=replace(assignment.topology, domains=(DomainCount(values, 1),)))


# --- children


def started_child(seen: Observed, obj: Object) -> list[Object]:
    """Return the JSON patch that starts a child, and removes the annotation of `stopped_child`."""
    annotation = pointer("metadata", "annotations", START_WITH_OWNER)
    removal = [{"op": "remove", "path": annotation}] if starts_with_owner(obj) else []
    return [*seen.kind.resume_patch(obj), *removal]


def stopped_child(seen: Observed, obj: Object) -> list[Object]:
    """Return the JSON patch that suspends a child.

    Its controller has started it once, and may not do so again: the annotation has Sluice start it later.
    """
    stop = [] if seen.kind.suspension is None else seen.kind.suspension.stop_patch(obj)
    return [*stop, *annotated(obj, {START_WITH_OWNER: "true"})]


def starts_with_owner(obj: Object) -> bool:
    """Whether a child was suspended by `stopped_child`."""
    return START_WITH_OWNER in (obj["metadata"].get("annotations") or {})
