"""Groups of pods: what is seen of their pods makes up one object.

A group's identity is on record: while a workload of that name is not finished, the group is that one. A new one gets an
uid from that of its oldest pod, so that after a restart the same pods make the same group. Everything else follows from
the pods.

Pods that have ended stay until somebody deletes them. A new group may have the name of theirs: they are not part of it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from admission.cluster.informer import Change
from admission.controller.state.inbox import ObjectsChanged
from admission.controller.state.tracked import StoredObject, is_older
from admission.controller.workloads.group_object import assembled, without_pods
from admission.controller.workloads.group_owners import GroupOwners
from admission.controller.workloads.group_plan import (
    Member,
    beyond,
    member_of,
    planned,
    room_in,
)
from admission.controller.workloads.group_pod_sets import in_pod_sets, on_record
from admission.controller.workloads.triggers import ObjectGone
from admission.kinds.base import POD
from admission.kinds.group_sizes import GroupSizeKind
from admission.kinds.grouped import GroupedKind
from admission.kinds.grouping import GATE, STARTED_WITH, foreign_group_of, group_of
from admission.kinds.pod_group import PodGroupKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_owners import GroupOwner
    from admission.controller.workloads.group_plan import Plan
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Conventions, Kind, Object
    from admission.kinds.limits import NamespaceContext


class PodGroups:
    """All pods that are in groups."""

    def __init__(self, *, reconciler: Reconciler, inbox: Inbox) -> None:
        self._reconciler = reconciler
        self._registry = reconciler.state.registry
        self._kinds = reconciler.environment.kinds
        self._kind = self._kinds.get(PodGroupKind.group, PodGroupKind.kind)
        """None where pods are not queued: then there are no groups."""
        self._inbox = inbox
        grouped = [*(kind for kind in self._kinds if isinstance(kind, GroupedKind)), *self._kinds.sizes.values()]
        self.kinds = {POD, *((kind.group, kind.kind) for kind in grouped)}
        """API group and kind of objects that may be pods in groups, or tell of groups."""
        self._owners = GroupOwners(self._kinds)
        self._groups: dict[tuple[str, str], dict[str, Member]] = {}
        self._group_of: dict[str, tuple[str, str]] = {}
        """By uid of a pod: the group that it was first seen in; whoever changes the label later moves nothing."""
        self.changed: dict[tuple[str, str], None] = {}
        """Those that are still to be told, by namespace and name."""
        self._version = 0
        self._due: dict[tuple[str, str], float] = {}
        """From when on (`loop.time`) groups of many pods are told again."""
        self._later: set[tuple[str, str]] = set()
        """Those that will be told after a pause."""

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
            self._pods_changed(key)
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
            self._pods_changed(key)

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
                    self.changed[key] = None
            return
        if kind.owner_of(name) == name:
            self.changed[namespace, name] = None
            return
        for key in self._groups:
            if key[0] == namespace and kind.owner_of(key[1]) == name:
                self.changed[key] = None

    def _pods_changed(self, key: tuple[str, str]) -> None:
        """Have the group told; a large one after a pause, as its pods change one by one, and it is told as a whole.

        What is asked of it meanwhile is answered by what is known of its pods.
        """
        due = self._due.get(key, 0.0)
        if not due or due <= (loop := asyncio.get_running_loop()).time():
            self.changed[key] = None
        elif key not in self._later:
            self._later.add(key)
            loop.call_at(due, self._is_due, key)

    def _is_due(self, key: tuple[str, str]) -> None:
        self._later.discard(key)
        self.changed[key] = None
        self._inbox.wake()

    def touch(self, tracked: Tracked) -> None:
        """Have the group told again as it is."""
        workload = tracked.record.workload
        self.changed[workload.namespace, workload.name] = None

    def tell(self) -> None:
        """Tell all groups that have changed, each once, however many of its pods have."""
        while self.changed:
            changed, self.changed = self.changed, {}
            for key in changed:
                began = time.monotonic()
                self._tell_of(key)
                self._due.pop(key, None)
                if len(self._groups.get(key, ())) > _MANY:
                    taken = time.monotonic() - began
                    self._due[key] = asyncio.get_running_loop().time() + _PAUSE * taken

    def _tell_of(self, key: tuple[str, str]) -> None:
        assert self._kind is not None
        tracked = self._registry.named(self._kind, *key)
        if members := self._kept(key, tracked, self._present(key, tracked)):
            conventions, context = self._conventions, self._context_of(key[0])
            self._see(assembled(key, members, tracked, self._owners, conventions, context).object)
            if tracked is not None and self._registry.get(tracked.uid) is None:
                self.changed[key] = None  # it is over: those of its pods that wait are another group
            return
        owner = self._owners.of(key)
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
            leaving = beyond(tracked, members, self.plan(tracked, members))
        else:
            leaving = [each for each in members if each.declared and each.gated and needed == _NO_GANG]
        for each in leaving:
            del self._groups[key][each.uid], self._group_of[each.uid]
            change = Change("MODIFIED", f"{key[0]}/{each.name}", each.uid, each.object)
            self._inbox.put(ObjectsChanged(self.pod_kind, [change]))
        return [each for each in members if each.uid in self._groups[key]] if leaving else members

    def _see(self, group: Object) -> None:
        assert self._kind is not None
        self._version += 1
        group["metadata"]["resourceVersion"] = str(self._version)
        isolation = self._reconciler.isolation
        if isolation.leaves_alone(self._kind, group):
            return
        try:
            self._reconciler.see(self._kind, group)
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this group
            isolation.failed_at(self._kind, group, error)

    @property
    def _conventions(self) -> Conventions:
        assert self._kind is not None
        return self._kind.conventions

    def plan(self, tracked: Tracked, members: Sequence[Member]) -> Plan:
        """What becomes of the pods of a group that holds quota."""
        return planned(tracked, members, self._context_of(tracked.record.workload.namespace))

    def _context_of(self, namespace: str) -> NamespaceContext:
        return self._reconciler.environment.context.of_namespace(namespace)

    # --- what is asked about groups

    def members(self, tracked: Tracked) -> list[Member]:
        """The pods of a group, the oldest first."""
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

    def owner(self, tracked: Tracked) -> GroupOwner | None:
        """The object whose pods the group is; None: it has none."""
        return self._owners.of((tracked.record.workload.namespace, tracked.record.workload.name))

    def is_lost(self, obj: Object) -> bool:
        """Whether a pod without the label by which it is watched is one of a group on record."""
        if self._kind is None or self._starter(obj) is not None:
            return self._kind is not None
        group = group_of(obj, self._conventions)
        named = self._registry.named(self._kind, obj["metadata"]["namespace"], group) if group else None
        return named is not None and GATE.is_closed(obj)

    @property
    def pod_kind(self) -> Kind:
        """The kind of their pods."""
        kind = self._kinds.get(*POD)
        assert kind is not None
        return kind


_NO_GANG: Final = frozenset({0})
_MANY: Final = 200
"""Of a group of more pods the telling is dear."""
_PAUSE: Final = 10.0
"""How many times as long as that has taken it pauses."""
