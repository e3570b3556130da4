"""Groups of pods: what is seen of their pods makes up one object, and a request for it is one for each of its pods.

A group's identity is on record: while a workload of that name is not finished, the group is that one. A new one gets an
uid from that of its oldest pod, so that after a restart the same pods make the same group. Everything else follows from
the pods: after a crash in the middle of a start those that have still their gate are seen, and ungated.

Pods that have ended stay until somebody deletes them. A new group may have the name of theirs: they are not part of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.cluster.client import PatchType
from admission.cluster.errors import NotFound
from admission.cluster.events import Reference
from admission.cluster.informer import Change
from admission.cluster.writer import Deletion, Patch
from admission.controller.state.inbox import Answered, Due, ObjectsChanged, StepDone
from admission.controller.state.lifecycle import Step
from admission.controller.state.tracked import StoredObject, is_older
from admission.controller.workloads.group_object import assembled, without_pods
from admission.controller.workloads.group_owners import GroupOwners
from admission.controller.workloads.group_plan import (
    Member,
    admitted_counts,
    beyond,
    member_of,
    planned,
    queue_of,
    room_in,
)
from admission.controller.workloads.group_pod_sets import in_pod_sets, of_group, on_record
from admission.controller.workloads.lost_labels import deleted
from admission.controller.workloads.triggers import ObjectGone
from admission.kinds.base import POD
from admission.kinds.group_sizes import GroupSizeKind
from admission.kinds.grouped import GroupedKind
from admission.kinds.grouping import GATE, ROLE, STARTED_WITH, before_deletion, foreign_group_of, group_of
from admission.kinds.patches import pointer
from admission.kinds.pod_group import PodGroupKind
from admission.model import child_sentences, sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from admission.cluster.events import EventRecorder
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_plan import Plan
    from admission.controller.workloads.lost_labels import LostLabels
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Conventions, Kind, Object
    from admission.kinds.limits import NamespaceContext


class PodGroups:
    """All pods that are in groups, and the requests about them."""

    def __init__(
        self, *, reconciler: Reconciler, labels: LostLabels, writer: Writer, events: EventRecorder, inbox: Inbox
    ) -> None:
        self._reconciler = reconciler
        self._registry = reconciler.state.registry
        self._kinds = reconciler.environment.kinds
        self._kind = self._kinds.get(PodGroupKind.group, PodGroupKind.kind)
        """None where pods are not queued: then there are no groups."""
        self._labels = labels
        self._writer = writer
        self._events = events
        self._inbox = inbox
        self._owners = GroupOwners(self._kinds)
        self._groups: dict[tuple[str, str], dict[str, Member]] = {}
        self._group_of: dict[str, tuple[str, str]] = {}
        """By uid of a pod: the group that it was first seen in; whoever changes the label later moves nothing."""
        self._changed: dict[tuple[str, str], None] = {}
        self._version = 0

    # --- what is seen

    def take(self, kind: Kind, obj: Object) -> bool:
        """Take in an object as it is now, if it is a pod in a group or an owner of such pods; whether it is."""
        metadata = obj["metadata"]
        if isinstance(kind, GroupedKind):
            self._owners.take(kind, obj)
            self._owner_changed(kind, metadata["namespace"], metadata["name"])
            return True
        uid = metadata["uid"]
        if self._kind is None or (kind.group, kind.kind) != POD or self._registry.get(uid) is not None:
            return False
        if uid not in self._group_of:
            starter, group = self._starter(obj), group_of(obj, self._conventions)
            if starter is not None:
                group = starter.record.workload.name
            elif not group or not kind.queue_name(obj) or self._queues_beside(obj):
                return False
            self._group_of[uid] = metadata["namespace"], group
        key = self._group_of[uid]
        members = self._groups.setdefault(key, {})
        known = members.get(uid)
        if known is None or not is_older(metadata["resourceVersion"], known.version):
            members[uid] = member_of(obj, known, conventions=self._conventions)
            self._changed[key] = None
        return True

    def _starter(self, obj: Object) -> Tracked | None:
        """The group that has started a pod, whatever labels that has by now."""
        metadata = obj["metadata"]
        tracked = self._registry.get((metadata.get("annotations") or {}).get(STARTED_WITH, ""))
        if tracked is None or GATE.is_closed(obj) or not self._kinds.is_composed(tracked.record.workload):
            return None
        return tracked if tracked.record.workload.namespace == metadata["namespace"] else None

    def has(self, uid: str) -> bool:
        """Whether it is a pod of a group, and exists as far as is known."""
        return uid in self._group_of

    def member(self, uid: str) -> Object | None:
        """The pod of a group as it was last seen; None: it is in none."""
        key = self._group_of.get(uid)
        return None if key is None else self._groups[key][uid].object

    def gone(self, uid: str) -> None:
        """A pod, or an owner of pods, does not exist any more."""
        if (owner := self._owners.gone(uid)) is not None:
            self._owner_changed(*owner)
        elif (key := self._group_of.pop(uid, None)) is not None:
            self._groups[key].pop(uid, None)
            self._changed[key] = None

    def objects(self) -> dict[str, StoredObject]:
        """All pods and owners of pods that are known, by uid."""
        pod = self._kinds.get(*POD)
        assert pod is not None or not self._groups
        return self._owners.objects() | {
            uid: StoredObject(pod, member.raw)  # type: ignore[arg-type]
            for members in self._groups.values()
            for uid, member in members.items()
        }

    def _owner_changed(self, kind: GroupedKind, namespace: str, name: str) -> None:
        if isinstance(kind, GroupSizeKind):
            for key, members in self._groups.items():
                sizes = {each.declared.size for each in members.values() if each.declared is not None}
                if key[0] == namespace and any(size is not None and size.name == name for size in sizes):
                    self._changed[key] = None
            return
        if kind.owner_of(name) == name:
            self._changed[namespace, name] = None
            return
        for key in self._groups:
            if key[0] == namespace and kind.owner_of(key[1]) == name:
                self._changed[key] = None

    def touch(self, tracked: Tracked) -> None:
        """Have the group told again as it is."""
        workload = tracked.record.workload
        self._changed[workload.namespace, workload.name] = None

    def tell(self) -> None:
        """Tell all groups that have changed, each once, however many of its pods have."""
        while self._changed:
            changed, self._changed = self._changed, {}
            for key in changed:
                self._tell_of(key)

    def _tell_of(self, key: tuple[str, str]) -> None:
        assert self._kind is not None
        tracked, owner = self._registry.named(self._kind, *key), self._owners.of(key)
        if members := self._kept(key, tracked, self._present(key, tracked)):
            holds = tracked is not None and tracked.holds_quota
            excess = self._plan(tracked, members).excess if holds and tracked is not None else ()
            needed = self._owners.needed(key[0], (each.declared for each in members))
            known = of_group(tracked, members, self._context_of(key[0]))
            if not holds:
                members = in_pod_sets(members, known.pod_sets, self._context_of(key[0]))
            self._see(assembled(key, members, tracked, owner, excess, self._conventions, known, needed=needed))
            if tracked is not None and self._registry.get(tracked.uid) is None:
                self._changed[key] = None  # it is over: those of its pods that wait are another group
            return
        if tracked is not None and owner is not None and (owner.makes_pods or owner.over):
            if (last := tracked.object) is not None:
                self._see(without_pods(last, tracked, owner))
            return
        if not self._groups.get(key):
            self._groups.pop(key, None)
        if tracked is not None:
            with self._reconciler.isolation.of(tracked.uid):
                self._reconciler.handle(tracked, ObjectGone(tracked.seen))

    # --- groups of other systems, beside which their pods may queue alone

    def _queues_beside(self, obj: Object) -> bool:
        """Whether a pod that names a group of another system is a workload of its own.

        What runs without having been started with the group is; and what comes when that has all of its pods, or when
        it is known to be no gang.
        """
        told = foreign_group_of(obj, self._conventions)
        if told is None or not GATE.is_closed(obj):
            return told is not None
        key = obj["metadata"]["namespace"], told.name
        assert self._kind is not None
        tracked = self._registry.named(self._kind, *key)
        if tracked is not None and tracked.holds_quota:
            return room_in(tracked, self._belonging(key, tracked)) <= 0
        return self._owners.needed(key[0], [told]) == _NO_GANG

    def _kept(self, key: tuple[str, str], tracked: Tracked | None, members: list[Member]) -> list[Member]:
        """Have those pods of a group of another system queue by themselves that it does not need; the others."""
        if (needed := self._owners.needed(key[0], (each.declared for each in members))) is None:
            return members
        if tracked is not None and tracked.holds_quota:
            leaving = beyond(tracked, members, self._plan(tracked, members))
        else:
            leaving = [each for each in members if each.declared and each.gated and needed == _NO_GANG]
        for each in leaving:
            del self._groups[key][each.uid], self._group_of[each.uid]
            change = Change("MODIFIED", f"{key[0]}/{each.name}", each.uid, each.object)
            self._inbox.put(ObjectsChanged(self._pod_kind, [change]))
        return [each for each in members if each not in leaving]

    def _see(self, group: Object) -> None:
        assert self._kind is not None
        self._version += 1
        group["metadata"]["resourceVersion"] = str(self._version)
        self._reconciler.isolation.see(self._kind, group, self._reconciler.see)

    @property
    def _conventions(self) -> Conventions:
        assert self._kind is not None
        return self._kind.conventions

    def _plan(self, tracked: Tracked, members: list[Member]) -> Plan:
        return planned(tracked, members, self._context_of(tracked.record.workload.namespace))

    def _context_of(self, namespace: str) -> NamespaceContext:
        return self._reconciler.environment.context.of_namespace(namespace)

    # --- what is asked for

    def start(self, tracked: Tracked) -> None:
        """Ungate its pods, as many of each role as it was admitted with; those that are too many are deleted.

        Raises Misconfigured.
        """
        members = self._members(tracked)
        plan, queue = self._plan(tracked, members), queue_of(members)
        requests: list[Patch | Deletion] = []
        for member in plan.started:
            try:
                requests.append(self._ungated(tracked, member))
            except Misconfigured as error:
                if tracked.start_patch is not None:
                    raise
                self._tell(tracked, member, "Pending", str(error))  # others of its group run already
        for member in plan.excess:
            note = child_sentences.PODS_BEYOND_GROUP if member.gated else sentences.POD_WITHOUT_QUOTA
            requests.append(self._deletion(tracked, member, note))
        for member in plan.beside:
            count = admitted_counts(tracked).get(member.role, 0)
            told = child_sentences.beyond_group if tracked.larger is None else child_sentences.waits_beside
            note = told(tracked.record.workload.name, count)
            note = note if member.queue == queue else child_sentences.GROUP_OF_SEVERAL_QUEUES
            self._tell(tracked, member, "Pending", note)
        self._send(tracked, Step.START, requests)

    def stop(self, tracked: Tracked) -> None:
        """Delete its pods: all of an evicted one, of one that waits those that run without its having quota."""
        evicted = tracked.record.state is State.EVICTING
        note = "" if evicted else sentences.POD_WITHOUT_QUOTA  # of an eviction the group tells
        ended = [each for each in self._members(tracked) if each.is_alive and not each.deleting]
        requests = [self._deletion(tracked, each, note) for each in ended if evicted or not each.gated]
        self._send(tracked, Step.STOP, requests)
        if not requests:
            self.touch(tracked)
            self._inbox.wake()

    def look(self, tracked: Tracked) -> None:
        """What is known of its pods is what the watch has told; if that is nothing, they may only lack the label."""
        workload = tracked.record.workload
        owner = self._owners.of((workload.namespace, workload.name))
        if self._members(tracked) or (owner is not None and owner.makes_pods):
            self.touch(tracked)
            self._inbox.put(StepDone(tracked.uid, Step.WAIT, {"metadata": {"uid": tracked.uid}}))
            return
        tracked.in_flight = tracked.in_flight or Step.WAIT

        def then(found: bool) -> None:
            if found:
                asyncio.get_running_loop().call_later(_PAUSE, self._inbox.put, Due(tracked.uid))
            else:
                self._inbox.put(StepDone(tracked.uid, Step.WAIT, _NOBODY))

        self._labels.find(self._pod_kind, workload.namespace, self._is_lost, then)

    def look_for_the_lost(self) -> None:
        """Find pods whose label was taken away while nobody watched, of groups of which others are known, too."""
        groups = (each.record.workload for each in self._registry)
        for namespace in {group.namespace for group in groups if self._kinds.is_composed(group)}:
            self._labels.find(self._pod_kind, namespace, self._is_lost)

    def _is_lost(self, obj: Object) -> bool:
        """Whether a pod without the label by which it is watched is one of a group on record."""
        if self._kind is None or self._starter(obj) is not None:
            return self._kind is not None
        group = group_of(obj, self._conventions)
        named = self._registry.named(self._kind, obj["metadata"]["namespace"], group) if group else None
        return named is not None and GATE.is_closed(obj)

    def _members(self, tracked: Tracked) -> list[Member]:
        workload = tracked.record.workload
        return self._present((workload.namespace, workload.name), tracked)

    def _present(self, key: tuple[str, str], tracked: Tracked | None) -> list[Member]:
        """The pods that make up the group that has the name now, the oldest first."""
        members = sorted(self._belonging(key, tracked), key=lambda member: (member.created, member.name))
        return in_pod_sets(members, on_record(tracked), self._context_of(key[0]))

    def _belonging(self, key: tuple[str, str], tracked: Tracked | None) -> Iterator[Member]:
        for member in self._groups.get(key, {}).values():
            if member.is_alive or (tracked is not None and member.group in ("", tracked.uid)):
                yield member

    def _ungated(self, tracked: Tracked, member: Member) -> Patch:
        record, pod, kind = tracked.record, member.object, self._pod_kind
        assert record.admission is not None, record
        mine = tuple(each for each in record.admission.pod_sets if each.name == member.role)
        context = self._reconciler.environment.context
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
        if note:
            self._tell(tracked, member, "Stopped", note)
        return Deletion(self._path(tracked, member), member.uid)

    def _tell(self, tracked: Tracked, member: Member, reason: str, note: str) -> None:
        """By an Event on the pod: `kubectl describe` shows none of the group, which is no object."""
        kind, namespace = self._pod_kind, tracked.record.workload.namespace
        pod = Reference(self._kinds.api_version(kind), kind.kind, member.name, member.uid, namespace)
        self._events.record(pod, reason=reason, action="Stop" if reason == "Stopped" else "Wait", note=note)

    def _path(self, tracked: Tracked, member: Member) -> str:
        return self._kinds.path(self._pod_kind, tracked.record.workload.namespace, member.name)

    @property
    def _pod_kind(self) -> Kind:
        kind = self._kinds.get(*POD)
        assert kind is not None
        return kind

    def _send(self, tracked: Tracked, step: Step, requests: Sequence[Patch | Deletion]) -> None:
        """All at once, as many at a time as the writer has in flight; the outcome is told when all are done."""
        if not requests:
            return
        tracked.in_flight = step
        failed: list[ClusterError] = []
        left = len(requests)
        pods = {self._path(tracked, member): member for member in self._members(tracked)}

        def done(request: Patch | Deletion, result: Object | ClusterError) -> None:
            nonlocal left
            left -= 1
            if isinstance(result, NotFound):
                self._inbox.put(ObjectsChanged(self._pod_kind, [deleted(pods[request.path].object)]))
            elif isinstance(result, ClusterError):
                failed.append(result)
            elif isinstance(request, Patch):
                self._inbox.put(Answered(self._pod_kind, result))
            if not left:
                outcome = failed[0] if failed else {"metadata": {"uid": tracked.uid}}
                self._inbox.put(StepDone(tracked.uid, step, outcome))

        for request in requests:
            if isinstance(request, Deletion) and (told := before_deletion(pods[request.path].object)):
                self._writer.submit(Patch(request.path, told), partial(self._told, request, done))
            else:
                self._writer.submit(request, partial(done, request))

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
            self._writer.submit(deletion, partial(done, deletion))


_NO_GANG: Final = frozenset({0})
_PAUSE: Final = 2.0
"""Seconds in which the watch is to tell of pods that have got their label back."""
_NOBODY: Final = NotFound("no pod of the group is there", code=404, status={})
