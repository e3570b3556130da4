"""Requests for pod groups: a start or stop of a group is one PATCH or DELETE for each of its pods.

After a crash in the middle of a start the pods that are still gated are observed by the new leader, and ungated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.events import Reference
from admission.cluster.writer import IN_FLIGHT, Deletion, Patch
from admission.controller.state.inbox import Due, ObjectReturned, ObjectsChanged, StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.workloads.group_plan import (
    Member,
    admitted_counts,
    group_domains,
    names_by_queue,
    queue_of,
    surplus_pods,
)
from admission.controller.workloads.lost_labels import deleted
from admission.kinds.grouping import ROLE, STARTED_WITH, before_deletion
from admission.kinds.patches import pointer
from admission.model import child_sentences, sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.model.pod_set_names import is_computed
from admission.model.topology import DomainCount
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import Plan
    from admission.controller.workloads.lost_labels import LostLabels
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Object
    from admission.model.topology import Values
    from admission.model.workload import PodSetAssignment


class GroupRequests:
    """Starts and stops pod groups. When all requests of a step are done, `StepDone` is put into the inbox."""

    def __init__(
        self,
        *,
        groups: PodGroups,
        reconciler: Reconciler,
        labels: LostLabels,
        writer: Writer,
        events: EventRecorder,
        inbox: Inbox,
    ) -> None:
        self._groups = groups
        self._registry = reconciler.state.registry
        self._isolation = reconciler.isolation
        self._environment = reconciler.environment
        self._kinds = reconciler.environment.kinds
        self._labels = labels
        self._writer = writer
        self._events = events
        self._inbox = inbox
        self._conflicts: Counter[str] = Counter()
        """Consecutive 409 Conflict responses to the deletion of a pod, by its uid."""

    def start(self, tracked: Tracked) -> None:
        """Ungate the group's pods, up to the admitted number of each role, and delete excess pods.

        Raises Misconfigured if no pod of the group is started yet and one cannot be started with its admission.
        """
        members = self._groups.members(tracked)
        plan, queue = self._groups.plan(tracked, members), queue_of(members)
        if tracked.start_patch is not None:  # otherwise other pods of the group run already
            domains = group_domains(tracked, members)
            for member in _distinct_patches(tracked, plan.started):
                self._ungate_patch(tracked, member, domains)  # raises Misconfigured before any request is sent
        alone = {member.uid for member in surplus_pods(tracked, members, plan)}
        for member in plan.gated:
            if member.uid in alone:
                continue  # it queues by itself
            count = admitted_counts(tracked).get(member.role, 0)
            message = child_sentences.beyond_group if tracked.larger is None else child_sentences.waits_beside
            note = message(tracked.record.workload.name, count)
            if member.queue != queue:
                note = child_sentences.group_of_several_queues(names_by_queue(members))
            self._record_event(tracked, member, "Pending", note)
        self._send(tracked, Step.START, members, self._start_requests(tracked, plan))

    def _start_requests(self, tracked: Tracked, plan: Plan) -> Iterator[Patch | Deletion]:
        """Yield the requests of a start: created only when they are sent, and none after an eviction."""
        domains = group_domains(tracked, self._groups.members(tracked))
        for member in plan.started:
            if tracked.record.state is not State.ADMITTED:
                return
            try:
                yield self._ungate_patch(tracked, member, domains)
            except Misconfigured as error:
                self._record_event(tracked, member, "Pending", str(error))
        for member in plan.excess:
            note = child_sentences.PODS_BEYOND_GROUP if member.gated else sentences.POD_WITHOUT_QUOTA
            yield self._deletion(tracked, member, note)

    def stop(self, tracked: Tracked) -> None:
        """Delete the group's ungated pods: it was evicted, or never had quota. As in Kueue, gated pods are kept."""
        evicted = tracked.record.state is State.EVICTING
        note = "" if evicted else sentences.POD_WITHOUT_QUOTA  # an eviction is reported for the group as a whole
        members = self._groups.members(tracked)
        for each in members:
            if not each.is_alive:
                self._conflicts.pop(each.uid, None)
        running = (each for each in members if each.runs and not each.deleting)
        self._send(tracked, Step.STOP, members, (self._deletion(tracked, each, note) for each in running))
        if tracked.in_flight is None:
            self._groups.enqueue(tracked)
            self._inbox.wake()

    def reconcile(self, tracked: Tracked) -> None:
        """Reconcile the group from its watched pods; if none is known, search for pods without the watch label."""
        workload, owner = tracked.record.workload, self._groups.owner(tracked)
        if self._groups.members(tracked) or (owner is not None and owner.makes_pods):
            self._groups.enqueue(tracked)
            self._inbox.put(StepDone(tracked.uid, Step.WAIT, {"metadata": {"uid": tracked.uid}}))
            return
        tracked.in_flight = tracked.in_flight or Step.WAIT

        def then(found: bool) -> None:
            if found:
                asyncio.get_running_loop().call_later(_RELABEL_WAIT, self._inbox.put, Due(tracked.uid))
            else:
                self._inbox.put(StepDone(tracked.uid, Step.WAIT, _NO_PODS))

        self._labels.find(self._groups.pod_kind, workload.namespace, self._groups.is_lost, then)

    def restore_watch_labels(self) -> None:
        """Restore the watch label of pods that lost it while no watch was running, also in groups with other pods."""
        groups = (each.record.workload for each in self._registry)
        for namespace in {group.namespace for group in groups if self._kinds.is_composed(group)}:
            self._labels.find(self._groups.pod_kind, namespace, self._groups.is_lost)

    def _ungate_patch(self, tracked: Tracked, member: Member, domains: Mapping[str, Values]) -> Patch:
        """Return the PATCH that starts a pod with the admission of its role. Raises Misconfigured.

        `domains`: of each pod that is placed by topology, by uid.
        """
        record, pod, kind = tracked.record, member.object, self._groups.pod_kind
        assert record.admission is not None, record
        own = tuple(
            _in_domain(each, domains.get(member.uid)) for each in record.admission.pod_sets if each.name == member.role
        )
        context = self._environment.context
        admission = replace(record.admission, pod_sets=own)
        body, _ = kind.start_patch(pod, admission, context.flavors, tracked.updates)
        parent = (
            [] if pod["metadata"].get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        )
        noted = [
            {"op": "add", "path": pointer("metadata", "annotations", name), "value": value}
            for name, value in ((ROLE, member.role), (STARTED_WITH, tracked.uid))
        ]
        return Patch(self._path(tracked, member), [*body, *parent, *noted])

    def _deletion(self, tracked: Tracked, member: Member, note: str) -> Deletion:
        """Return the deletion of a pod, on condition that it has not changed: if it has succeeded, it must be kept.

        After too many conflicts without that condition, so that a user who keeps changing a pod cannot keep it.
        """
        if note:
            self._record_event(tracked, member, "Stopped", note)
        is_conditional = self._conflicts[member.uid] < _MAX_CONFLICTS
        return Deletion(self._path(tracked, member), member.uid, member.version if is_conditional else "")

    def _record_event(self, tracked: Tracked, member: Member, reason: str, note: str) -> None:
        """Record an Event on a pod: the group itself is no object that `kubectl describe` could show Events of."""
        kind, namespace = self._groups.pod_kind, tracked.record.workload.namespace
        pod = Reference(self._kinds.api_version(kind), kind.kind, member.name, member.uid, namespace)
        self._events.record(pod, reason=reason, action="Stop" if reason == "Stopped" else "Wait", note=note)

    def _path(self, tracked: Tracked, member: Member) -> str:
        return self._kinds.path(self._groups.pod_kind, tracked.record.workload.namespace, member.name)

    def _send(
        self, tracked: Tracked, step: Step, members: Iterable[Member], requests: Iterator[Patch | Deletion]
    ) -> None:
        """Send the requests of a step; report `StepDone` with the first error, if any, when all are done.

        At most IN_FLIGHT at a time are submitted to the writer, so that a large group does not fill its queue and delay
        other workloads.
        """
        failed: list[ClusterError] = []
        pods = {self._path(tracked, member): member for member in members}
        under_way = 0

        def send_next() -> None:
            nonlocal under_way
            request = None
            with self._isolation.of(tracked.uid):
                request = next(requests, None)
            if request is None:
                return
            under_way += 1
            if isinstance(request, Deletion) and (preparation := before_deletion(pods[request.path].object)):
                if request.version:
                    preparation["metadata"]["resourceVersion"] = request.version
                self._writer.submit(Patch(request.path, preparation), partial(self._delete_prepared, request, done))
            else:
                self._writer.submit(request, partial(done, request))

        def done(request: Patch | Deletion, result: Object | ClusterError) -> None:
            nonlocal under_way
            under_way -= 1
            if isinstance(request, Deletion):
                self._count_conflict(request, result)
            if isinstance(result, NotFound):
                self._inbox.put(ObjectsChanged(self._groups.pod_kind, [deleted(pods[request.path].object)]))
            elif isinstance(result, ClusterError):
                failed.append(result)
            elif isinstance(request, Patch):
                self._inbox.put(ObjectReturned(self._groups.pod_kind, result))
            send_next()
            if not under_way:
                outcome = failed[0] if failed else {"metadata": {"uid": tracked.uid}}
                self._inbox.put(StepDone(tracked.uid, step, outcome))

        for _ in range(IN_FLIGHT):
            send_next()
        if under_way:
            tracked.in_flight = step

    def _count_conflict(self, deletion: Deletion, result: Object | ClusterError) -> None:
        if isinstance(result, Conflict):
            self._conflicts[deletion.uid] += 1
        else:
            self._conflicts.pop(deletion.uid, None)

    def _delete_prepared(
        self,
        deletion: Deletion,
        done: Callable[[Deletion, Object | ClusterError], None],
        result: Object | ClusterError,
    ) -> None:
        """Delete a pod after the PATCH of `before_deletion`, so that its controller does not count it as a failure."""
        if isinstance(result, ClusterError):
            done(deletion, result)
        else:
            version = deletion.version and result["metadata"]["resourceVersion"]
            deletion = replace(deletion, version=version)
            self._writer.submit(deletion, partial(done, deletion))


def _in_domain(assignment: PodSetAssignment, values: Values | None) -> PodSetAssignment:
    """Return the assignment of one pod of a pod set. Raises Misconfigured if the pod set has no place for it."""
    if assignment.topology is None:
        return assignment
    if values is None:
        raise Misconfigured("all places that the topology assignment of its group has for it are taken")
    return replace(assignment, topology=replace(assignment.topology, domains=(DomainCount(values, 1),)))


def _distinct_patches(tracked: Tracked, members: Iterable[Member]) -> Iterable[Member]:
    """Return pods whose start patches may differ: one of each computed role, whose pods get the same patch.

    All pods of declared pod sets, which may differ, and all pods if admission checks add labels, as labels are no part
    of a role.
    """
    if tracked.updates:
        return members
    return {each.role if is_computed(each.role) else each.uid: each for each in members}.values()


_MAX_CONFLICTS: Final = 10
"""Conflicts after which a pod is deleted unconditionally. After each the watch has some time to report the change."""
_RELABEL_WAIT: Final = 2.0
"""Seconds until a group is checked again whose pods got their label back: the watch has to report them first."""
_NO_PODS: Final = NotFound("no pod of the group exists", code=404, status={})
"""Outcome of the read of a group without pods."""
