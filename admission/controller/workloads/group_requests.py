"""A request for a group of pods is one for each of its pods.

After a crash in the middle of a start those pods that have still their gate are seen, and ungated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.cluster.client import PatchType
from admission.cluster.errors import Conflict, NotFound
from admission.cluster.events import Reference
from admission.cluster.writer import IN_FLIGHT, Deletion, Patch
from admission.controller.state.inbox import Answered, Due, ObjectsChanged, StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.workloads.group_plan import Member, admitted_counts, beyond, queue_of
from admission.controller.workloads.lost_labels import deleted
from admission.kinds.grouping import ROLE, STARTED_WITH, before_deletion, is_role
from admission.kinds.patches import pointer
from admission.model import child_sentences, sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import Plan
    from admission.controller.workloads.lost_labels import LostLabels
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Object


class GroupRequests:
    """Sends them; the outcome is told when all are done."""

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
        """By uid of a pod: how often it had changed when it was to be deleted."""

    def start(self, tracked: Tracked) -> None:
        """Ungate its pods, as many of each role as it was admitted with; those that are too many are deleted.

        Raises Misconfigured.
        """
        members = self._groups.members(tracked)
        plan, queue = self._groups.plan(tracked, members), queue_of(members)
        if tracked.start_patch is not None:  # else others of its group run already
            for member in _unlike(tracked, plan.started):
                self._ungated(tracked, member)
        alone = {member.uid for member in beyond(tracked, members, plan)}
        for member in plan.beside:
            if member.uid in alone:
                continue  # it queues by itself
            count = admitted_counts(tracked).get(member.role, 0)
            told = child_sentences.beyond_group if tracked.larger is None else child_sentences.waits_beside
            note = told(tracked.record.workload.name, count)
            note = note if member.queue == queue else child_sentences.GROUP_OF_SEVERAL_QUEUES
            self._tell(tracked, member, "Pending", note)
        self._send(tracked, Step.START, members, self._of_start(tracked, plan))

    def _of_start(self, tracked: Tracked, plan: Plan) -> Iterator[Patch | Deletion]:
        """Each made when it is its turn, and none after an eviction."""
        for member in plan.started:
            if tracked.record.state is not State.ADMITTED:
                return
            try:
                yield self._ungated(tracked, member)
            except Misconfigured as error:
                self._tell(tracked, member, "Pending", str(error))
        for member in plan.excess:
            note = child_sentences.PODS_BEYOND_GROUP if member.gated else sentences.POD_WITHOUT_QUOTA
            yield self._deletion(tracked, member, note)

    def stop(self, tracked: Tracked) -> None:
        """Delete those of its pods that run: it was evicted, or never had quota. As in Kueue, those that wait stay."""
        evicted = tracked.record.state is State.EVICTING
        note = "" if evicted else sentences.POD_WITHOUT_QUOTA  # of an eviction the group tells
        members = self._groups.members(tracked)
        for each in members:
            if not each.is_alive:
                self._conflicts.pop(each.uid, None)
        told = (each for each in members if each.runs and not each.deleting)
        self._send(tracked, Step.STOP, members, (self._deletion(tracked, each, note) for each in told))
        if tracked.in_flight is None:
            self._groups.touch(tracked)
            self._inbox.wake()

    def look(self, tracked: Tracked) -> None:
        """What is known of its pods is what the watch has told; if that is nothing, they may only lack the label."""
        workload, owner = tracked.record.workload, self._groups.owner(tracked)
        if self._groups.members(tracked) or (owner is not None and owner.makes_pods):
            self._groups.touch(tracked)
            self._inbox.put(StepDone(tracked.uid, Step.WAIT, {"metadata": {"uid": tracked.uid}}))
            return
        tracked.in_flight = tracked.in_flight or Step.WAIT

        def then(found: bool) -> None:
            if found:
                asyncio.get_running_loop().call_later(_PAUSE, self._inbox.put, Due(tracked.uid))
            else:
                self._inbox.put(StepDone(tracked.uid, Step.WAIT, _NOBODY))

        self._labels.find(self._groups.pod_kind, workload.namespace, self._groups.is_lost, then)

    def look_for_the_lost(self) -> None:
        """Find pods whose label was taken away while nobody watched, of groups of which others are known, too."""
        groups = (each.record.workload for each in self._registry)
        for namespace in {group.namespace for group in groups if self._kinds.is_composed(group)}:
            self._labels.find(self._groups.pod_kind, namespace, self._groups.is_lost)

    def _ungated(self, tracked: Tracked, member: Member) -> Patch:
        record, pod, kind = tracked.record, member.object, self._groups.pod_kind
        assert record.admission is not None, record
        mine = tuple(each for each in record.admission.pod_sets if each.name == member.role)
        context = self._environment.context
        admission = replace(record.admission, pod_sets=mine)
        body, _ = kind.start_patch(pod, admission, context.flavors, tracked.updates)
        parent = (
            [] if pod["metadata"].get("annotations") else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        )
        noted = [
            {"op": "add", "path": pointer("metadata", "annotations", name), "value": value}
            for name, value in ((ROLE, member.role), (STARTED_WITH, tracked.uid))
        ]
        return Patch(self._path(tracked, member), [*body, *parent, *noted], patch_type=PatchType.JSON)

    def _deletion(self, tracked: Tracked, member: Member, note: str) -> Deletion:
        """Of a pod as it is known: it may have succeeded by now, and what it has done would be lost.

        But who changes his pod all the time does not keep it.
        """
        if note:
            self._tell(tracked, member, "Stopped", note)
        is_known = self._conflicts[member.uid] < _CONFLICTS
        return Deletion(self._path(tracked, member), member.uid, member.version if is_known else "")

    def _tell(self, tracked: Tracked, member: Member, reason: str, note: str) -> None:
        """By an Event on the pod: `kubectl describe` shows none of the group, which is no object."""
        kind, namespace = self._groups.pod_kind, tracked.record.workload.namespace
        pod = Reference(self._kinds.api_version(kind), kind.kind, member.name, member.uid, namespace)
        self._events.record(pod, reason=reason, action="Stop" if reason == "Stopped" else "Wait", note=note)

    def _path(self, tracked: Tracked, member: Member) -> str:
        return self._kinds.path(self._groups.pod_kind, tracked.record.workload.namespace, member.name)

    def _send(
        self, tracked: Tracked, step: Step, members: Iterable[Member], requests: Iterator[Patch | Deletion]
    ) -> None:
        """As many at a time as the writer has in flight, so that others wait for none of the rest of a large group.

        The outcome is told when all are done.
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
            if isinstance(request, Deletion) and (told := before_deletion(pods[request.path].object)):
                if request.version:
                    told["metadata"]["resourceVersion"] = request.version
                self._writer.submit(Patch(request.path, told), partial(self._told, request, done))
            else:
                self._writer.submit(request, partial(done, request))

        def done(request: Patch | Deletion, result: Object | ClusterError) -> None:
            nonlocal under_way
            under_way -= 1
            if isinstance(request, Deletion):
                self._count(request, result)
            if isinstance(result, NotFound):
                self._inbox.put(ObjectsChanged(self._groups.pod_kind, [deleted(pods[request.path].object)]))
            elif isinstance(result, ClusterError):
                failed.append(result)
            elif isinstance(request, Patch):
                self._inbox.put(Answered(self._groups.pod_kind, result))
            send_next()
            if not under_way:
                outcome = failed[0] if failed else {"metadata": {"uid": tracked.uid}}
                self._inbox.put(StepDone(tracked.uid, step, outcome))

        for _ in range(IN_FLIGHT):
            send_next()
        if under_way:
            tracked.in_flight = step

    def _count(self, deletion: Deletion, result: Object | ClusterError) -> None:
        if isinstance(result, Conflict):
            self._conflicts[deletion.uid] += 1
        else:
            self._conflicts.pop(deletion.uid, None)

    def _told(
        self,
        deletion: Deletion,
        done: Callable[[Deletion, Object | ClusterError], None],
        result: Object | ClusterError,
    ) -> None:
        """Its controller was told that the pod does not fail: it may be deleted."""
        if isinstance(result, ClusterError):
            done(deletion, result)
        else:
            version = deletion.version and result["metadata"]["resourceVersion"]
            deletion = replace(deletion, version=version)
            self._writer.submit(deletion, partial(done, deletion))


def _unlike(tracked: Tracked, members: Iterable[Member]) -> Iterable[Member]:
    """Those that may differ in what a start adds to: of one role none do, but in labels, which admission checks add."""
    if tracked.updates:
        return members
    return {each.role if is_role(each.role) else each.uid: each for each in members}.values()


_CONFLICTS: Final = 10
"""So often a pod may have changed before it is deleted as it is; after each the watch has some time to tell of it."""
_PAUSE: Final = 2.0
"""Seconds in which the watch is to tell of pods that have got their label back."""
_NOBODY: Final = NotFound("no pod of the group is there", code=404, status={})
