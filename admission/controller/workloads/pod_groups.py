"""Pod groups: assembles the pods of each group to one object, which is processed like an observed object.

The identity of a group is stored: as long as a workload of its name is not finished, the group is that workload. The
uid of a new group is derived from that of its oldest pod, so that after a restart the same pods make up the same group.
All other fields follow from the pods.

Finished pods exist until they are deleted. A new group may have the name of their group; they are not part of it.

The group of a pod with a PodGroup of `scheduling.k8s.io` depends on objects that may be observed after the pod
(`group_trees`). The pod is assigned again at each update of its group, as long as it is gated and the group holds no
quota for it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.cluster.informer import WatchedChange
from admission.controller.state.inbox import ObjectsChanged
from admission.controller.state.tracked import StoredObject, is_older
from admission.controller.state.triggers import LeftQueue, ObjectDeleted
from admission.controller.workloads.group_object import assembled, without_pods
from admission.controller.workloads.group_owners import GroupOwners
from admission.controller.workloads.group_plan import (
    Member,
    admitted_counts,
    group_state,
    member_of,
    missing_pods,
    planned,
    role_leaf,
    surplus_pods,
)
from admission.controller.workloads.group_pod_sets import in_pod_sets, stored_pod_sets
from admission.kinds.base import POD
from admission.kinds.dispatched import runs_in
from admission.kinds.foreign_groups import COMPOSITE, POD_GROUP
from admission.kinds.grouping import GATE, STARTED_WITH, foreign_group_of, group_of, role_of
from admission.kinds.pod_group import PodGroupKind
from admission.model import child_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.controller.workloads.group_owners import GroupOwner, Needed
    from admission.controller.workloads.group_plan import GroupPlan
    from admission.controller.workloads.group_trees import GroupState
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Conventions, Kind, Object
    from admission.kinds.grouped import GroupedKind
    from admission.kinds.limits import NamespaceContext


_LARGE: Final = 200
"""Number of pods of a group above which its updates are rate-limited, as each reads all of its pods."""
_PAUSE: Final = 10.0
"""Minimum pause after the update of a large group, in multiples of the update's duration."""
MAX_WAIT: Final = 1.0
"""Seconds that a new group waits for objects that it refers to: their watch may lag behind the watch of pods."""

_Key: TypeAlias = tuple[str, str]
"""Namespace and name of a group."""


class PodGroups:
    """All pods that are in groups, and the owners of these groups."""

    def __init__(self, *, reconciler: Reconciler, inbox: Inbox, listed: Callable[[], bool]) -> None:
        """`listed`: returns whether the first lists of all kinds are complete; until then no group is updated."""
        self._reconciler = reconciler
        self._registry = reconciler.state.registry
        self._dispatching = reconciler.dispatching
        self._kinds = reconciler.environment.kinds
        self._kind = self._kinds.get(PodGroupKind.group, PodGroupKind.kind)
        """None if pods are not queued: then there are no groups."""
        self._inbox = inbox
        self._listed = listed
        grouped = [*(kind for kind in self._kinds if kind.grouping is not None), *self._kinds.sizes.values()]
        self.kinds = {POD, *((kind.group, kind.kind) for kind in grouped)}
        """API group and kind of objects that may be pods in groups, owners of groups, or give the size of groups."""
        self._owners = GroupOwners(self._kinds, self._state_of)
        self._groups: dict[_Key, dict[str, Member]] = {}
        self._group_of: dict[str, _Key] = {}
        """Group in which a pod was first observed, by the pod's uid; later changes of the label have no effect."""
        self._updates = GroupUpdates(inbox)
        self._known_states: dict[_Key, tuple[bool, bool]] = {}
        """By namespace and name of a CompositePodGroup: whether it has started, and whether it holds no quota."""
        self._version = 0

    # --- observed objects

    def take(self, kind: Kind, obj: Object) -> bool:
        """Process an object if it is a pod in a group or an owner of such pods; return whether it is."""
        metadata = obj["metadata"]
        if (grouping := kind.grouping) is not None:
            self._owners.take(grouping, obj)
            self._owner_changed(grouping, metadata["namespace"], metadata["name"])
            return True
        uid = metadata["uid"]
        if self._kind is None or (kind.group, kind.kind) != POD or self._registry.get(uid) is not None:
            return False
        if uid not in self._group_of:
            starter, group = self._starter(obj), self._group_named(obj)
            if starter is not None:
                group = starter.record.workload.name
            elif not group or not kind.queue_name(obj) or self._is_queued_alone(obj, group):
                return False
            self._group_of[uid] = metadata["namespace"], group
        key = self._group_of[uid]
        members = self._groups.setdefault(key, {})
        known = members.get(uid)
        if known is None or not is_older(metadata["resourceVersion"], known.version):
            members[uid] = member_of(obj, known, key[1], conventions=self._conventions)
            self._updates.pods_changed(key)
        return True

    def _starter(self, obj: Object) -> Tracked | None:
        """Return the group that has started a pod, by its annotation: its labels may have changed since."""
        metadata = obj["metadata"]
        tracked = self._registry.get((metadata.get("annotations") or {}).get(STARTED_WITH, ""))
        is_gated = GATE.is_closed(obj) and not runs_in(obj)
        if tracked is None or is_gated or not self._kinds.is_composed(tracked.record.workload):
            return None
        return tracked if tracked.record.workload.namespace == metadata["namespace"] else None

    def has(self, uid: str) -> bool:
        """Whether this is a known pod of a group."""
        return uid in self._group_of

    def member(self, uid: str) -> Object | None:
        """Return a pod of a group as last observed; None: it is in no group."""
        key = self._group_of.get(uid)
        return None if key is None else self._groups[key][uid].object

    def is_alive(self, uid: str) -> bool:
        """Whether this is a known pod of a group, and has not finished."""
        return uid in self._group_of and self._groups[self._group_of[uid]][uid].is_alive

    def workload_of(self, uid: str) -> Tracked | None:
        """Return the workload of a pod's group; None: it is in no group, or that has none."""
        key = self._group_of.get(uid)
        return None if key is None or self._kind is None else self._registry.named(self._kind, *key)

    def recheck(self, uid: str) -> bool:
        """Enqueue the group of this uid, or with a pod of it, as copies have changed; return whether there is one."""
        key, tracked = self._group_of.get(uid), self._registry.get(uid)
        if tracked is not None and self._kinds.is_composed(tracked.record.workload):
            key = tracked.record.workload.namespace, tracked.record.workload.name
        if key is not None:
            self._updates.pods_changed(key)
        return key is not None

    def object_deleted(self, uid: str) -> None:
        """Process the deletion of a pod or an owner of pods."""
        if (owner := self._owners.object_deleted(uid)) is not None:
            self._owner_changed(*owner)
        elif (key := self._group_of.pop(uid, None)) is not None:
            self._groups[key].pop(uid, None)
            self._updates.pods_changed(key)

    def objects(self) -> dict[str, StoredObject]:
        """Return all known pods and owners of pods, by uid."""
        pod = self._kinds.get(*POD)
        assert pod is not None or not self._groups
        return self._owners.objects() | {
            uid: StoredObject(pod, member.raw)  # type: ignore[arg-type]
            for members in self._groups.values()
            for uid, member in members.items()
        }

    def _owner_changed(self, kind: GroupedKind, namespace: str, name: str) -> None:
        """Enqueue the groups of an owner; objects that only give the size of groups: see `_enqueue_changed`."""
        if (kind.group, kind.kind) in self._kinds.sizes:
            return
        if kind.owner_of(name) == name:
            self._updates.enqueue((namespace, name))
            return
        for key in self._groups:
            if key[0] == namespace and kind.owner_of(key[1]) == name:
                self._updates.enqueue(key)

    def _enqueue_changed(self) -> None:
        touched = set(self._owners.touched)
        self._owners.touched.clear()
        for key, members in self._groups.items() if touched else ():
            declared = {each.declared for each in members.values() if each.declared is not None}
            names = (name for each in declared for name in self._owners.names(key[0], each))
            if any((key[0], name) in touched for name in names):
                self._updates.enqueue(key)

    def kinds_changed(self) -> None:
        """Enqueue all groups that have PodGroups, because the API server serves other kinds than before."""
        self._owners.touched.update((key[0], each.leaf) for key, pods in self._groups.items() for each in pods.values())

    def enqueue(self, tracked: Tracked) -> None:
        """Enqueue a group, so that it is processed again."""
        workload = tracked.record.workload
        self._updates.enqueue((workload.namespace, workload.name))

    def update_due(self) -> None:
        """Update all groups that have changed, each once, however many of its pods have changed."""
        while (self._updates.due or self._owners.touched) and self._listed():
            self._enqueue_changed()
            due = list(self._updates.due)
            self._updates.due.clear()
            for key in due:
                began = time.monotonic()
                try:
                    self._update(key)
                except Exception as error:  # noqa: BLE001  an error in one group must not stop the update of others
                    self._reconciler.isolation.faults.report(f"group {key[1]} of namespace {key[0]}", error)
                self._updates.updated(key, len(self._groups.get(key, ())), time.monotonic() - began)

    def _update(self, key: _Key) -> None:
        assert self._kind is not None
        tracked = self._registry.named(self._kind, *key)
        moved_to = self._reassign(key)
        members = self._present(key, tracked)
        needed = self._owners.needed(key, (each.declared for each in members))
        is_incomplete = tracked is None and needed is not None and needed.is_incomplete
        if self._updates.must_wait(key, is_incomplete=is_incomplete):
            return
        leaving = self._leaving(tracked, members)
        if members := self._release_surplus(key, tracked, members, needed):
            conventions, context = self._conventions, self._context_of(key[0])
            self._process(assembled(key, members, tracked, self._owners, needed, conventions, context, leaving))
            if tracked is not None and self._registry.get(tracked.uid) is None:
                self._updates.enqueue(key)  # it is finished: gated pods are a new group
            self._enqueue_followers(key)
            return
        owner = self._owners.of(key)
        if tracked is not None and owner is not None and (owner.makes_pods or owner.outcome):
            if (last := tracked.object) is not None:
                self._process(without_pods(last, tracked, owner, leaving))
            return
        if not self._groups.get(key):
            self._groups.pop(key, None)
        if tracked is not None:
            is_moved = moved_to and not tracked.holds_quota
            trigger = LeftQueue(child_sentences.part_of(moved_to)) if is_moved else ObjectDeleted(tracked.seen)
            with self._reconciler.isolation.of(tracked.uid):
                self._reconciler.handle(tracked, trigger)
            if self._dispatching is not None:
                self._dispatching.recheck(tracked.uid)
        self._enqueue_followers(key)

    def _enqueue_followers(self, key: _Key) -> None:
        """Enqueue the groups that start after a CompositePodGroup, if that has started or stopped."""
        if not self._owners.is_composite(*key):
            self._known_states.pop(key, None)
            return
        state = self._state_of(*key)
        now = state.has_started(), state.leaves is None
        if self._known_states.get(key, (False, True)) != now:
            self._known_states[key] = now
            self._owners.touched.add(key)

    # --- groups of other systems, whose surplus pods may be queued one by one

    def _group_named(self, obj: Object) -> str:
        """Return the name of the group that a pod belongs to by what is known now; empty: it is queued by itself."""
        declared = foreign_group_of(obj, self._conventions)
        if declared is None or not declared.leaf:
            return group_of(obj, self._conventions)
        return self._owners.assign(obj["metadata"]["namespace"], declared.leaf, obj).group

    def _is_queued_alone(self, obj: Object, group: str) -> bool:
        """Return whether a pod with the name of another system's group is a workload of its own.

        It is if it runs but was not started with the group, if the group has all of its pods, or if that is not a gang.
        """
        declared = foreign_group_of(obj, self._conventions)
        if declared is None or not GATE.is_closed(obj):
            return declared is not None
        key = obj["metadata"]["namespace"], group
        assert self._kind is not None
        tracked = self._registry.named(self._kind, *key)
        if tracked is not None and tracked.holds_quota:
            return missing_pods(tracked, self._belonging(key, tracked)) <= 0
        needed = self._owners.needed(key, [declared])
        return needed is not None and not needed.is_gang

    def _release_surplus(
        self, key: _Key, tracked: Tracked | None, members: list[Member], needed: Needed | None
    ) -> list[Member]:
        """Have the surplus pods of another system's group queued one by one; return the other pods."""
        if needed is None:
            return members
        if tracked is not None and tracked.holds_quota:
            leaving = surplus_pods(tracked, members, self.plan(tracked, members))
        else:
            leaving = [each for each in members if each.declared and each.gated and not needed.is_gang]
        for each in leaving:
            self._move(key, each, "")
        return [each for each in members if each.uid in self._groups[key]] if leaving else members

    def _reassign(self, key: _Key) -> str:
        """Move gated pods with a PodGroup of `scheduling.k8s.io` to the groups that they belong to now.

        Returns the last of these groups, for example `CompositePodGroup rc`; empty: no pod was moved to another group.
        """
        waiting = [each for each in self._groups.get(key, {}).values() if each.leaf and each.gated and each.is_alive]
        leaves_with_quota = (self._state_of(*key).leaves or ()) if waiting else ()
        assigned: dict[_Key, str] = {}
        moved = ""
        for each in waiting:
            if each.leaf in leaves_with_quota:
                continue
            if (leaf_and_role := (each.leaf, each.role)) not in assigned:
                assigned[leaf_and_role] = self._owners.assign(key[0], each.leaf, each.object).group
            holder = self._holder(key[0], each) if self._owners.is_missing(key[0], each.leaf) else ""
            if (target := holder or assigned[leaf_and_role]) != key[1]:
                self._move(key, each, target)
                moved = target and f"{POD_GROUP if target == each.leaf else COMPOSITE} {target}"
        return moved

    def _holder(self, namespace: str, each: Member) -> str:
        """Return the group whose start lacks this gated pod, whose PodGroup is gone; empty: there is none.

        Only its pods that have started say that they are part of it then.
        """
        for tracked in self._registry:
            workload = tracked.record.workload
            if tracked.holds_quota and workload.namespace == namespace and self._kinds.is_composed(workload):
                role = role_of(each.object, role_leaf(workload.name, each.leaf))
                members = self._groups.get((namespace, workload.name), {}).values()
                there = sum(one.role == role and one.counts for one in members)
                if members and there < admitted_counts(tracked).get(role, 0):
                    return workload.name
        return ""

    def _move(self, key: _Key, each: Member, group: str) -> None:
        """Move a pod from one group to another; `group` empty: it is queued by itself."""
        del self._groups[key][each.uid]
        if group:
            other = self._group_of[each.uid] = key[0], group
            conventions = self._conventions
            self._groups.setdefault(other, {})[each.uid] = member_of(each.object, each, group, conventions=conventions)
            self._updates.enqueue(other)
            return
        del self._group_of[each.uid]
        change = WatchedChange("MODIFIED", f"{key[0]}/{each.name}", each.uid, each.object)
        self._inbox.put(ObjectsChanged(self.pod_kind, [change]))

    def _process(self, group: Object) -> None:
        assert self._kind is not None
        self._version += 1
        group["metadata"]["resourceVersion"] = str(self._version)
        isolation = self._reconciler.isolation
        if isolation.refuses(group) or isolation.ignores(self._kind, group):
            return
        try:
            self._reconciler.process(self._kind, group)
        except Exception as error:  # noqa: BLE001  any exception is attributed to this group
            isolation.failed_at(self._kind, group, error)

    @property
    def _conventions(self) -> Conventions:
        assert self._kind is not None
        return self._kind.conventions

    def plan(self, tracked: Tracked, members: Sequence[Member]) -> GroupPlan:
        """Return what is due for the pods of a group that holds quota."""
        return planned(tracked, members, self._context_of(tracked.record.workload.namespace))

    def _context_of(self, namespace: str) -> NamespaceContext:
        return self._reconciler.environment.context.of_namespace(namespace)

    # --- queries

    def _state_of(self, namespace: str, name: str) -> GroupState:
        assert self._kind is not None
        members = self._groups.get((namespace, name), {})
        return group_state(self._registry.named(self._kind, namespace, name), members.values())

    def members(self, tracked: Tracked) -> list[Member]:
        """Return the pods of a group, the oldest first, then those whose copies only still run."""
        workload = tracked.record.workload
        members = self._present((workload.namespace, workload.name), tracked)
        return [*members, *self._leaving(tracked, members)]

    def _leaving(self, tracked: Tracked | None, members: Sequence[Member]) -> list[Member]:
        """Return the pods of a group that are deleted, and whose copies still run. `members`: the others."""
        if tracked is None or self._dispatching is None:
            return []
        found = self._dispatching.leaving(tracked, {each.uid for each in members})
        context = self._context_of(tracked.record.workload.namespace)
        return in_pod_sets(found, stored_pod_sets(tracked), context) if found else []

    def _present(self, key: _Key, tracked: Tracked | None) -> list[Member]:
        """Return the pods of the group that has the name now, the oldest first."""
        members = sorted(self._belonging(key, tracked), key=lambda member: (member.created, member.name))
        return in_pod_sets(members, stored_pod_sets(tracked), self._context_of(key[0]))

    def _belonging(self, key: _Key, tracked: Tracked | None) -> Iterator[Member]:
        dispatching = self._dispatching
        for member in self._groups.get(key, {}).values():
            if tracked is None:
                if member.is_alive:
                    yield member
            elif member.is_alive or member.group in ("", tracked.uid):
                yield member if dispatching is None else dispatching.member(tracked, member)

    def owner(self, tracked: Tracked) -> GroupOwner | None:
        """Return the owner of a group; None: it has none."""
        return self._owners.of((tracked.record.workload.namespace, tracked.record.workload.name))

    def is_lost(self, obj: Object) -> bool:
        """Return whether a pod that has lost its watch label belongs to a stored group."""
        if self._kind is None or self._starter(obj) is not None:
            return self._kind is not None
        group = self._group_named(obj)
        named = self._registry.named(self._kind, obj["metadata"]["namespace"], group) if group else None
        return named is not None and GATE.is_closed(obj)

    @property
    def pod_kind(self) -> Kind:
        """The kind `Pod`."""
        kind = self._kinds.get(*POD)
        assert kind is not None
        return kind


class GroupUpdates:
    """Groups that are due now, after a pause, or when an object that they refer to is observed."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.due: dict[_Key, None] = {}
        """Groups to update now, in order of arrival."""
        self._not_before: dict[_Key, float] = {}
        """Time (`loop.time`) before which a large group is not updated again."""
        self._scheduled: set[_Key] = set()
        """Large groups whose update is scheduled for that time."""
        self._waiting: dict[_Key, bool] = {}
        """New groups that refer to unknown objects; the value says whether MAX_WAIT is over."""

    def enqueue(self, key: _Key) -> None:
        """Make a group due now."""
        self.due[key] = None

    def pods_changed(self, key: _Key) -> None:
        """Make a group due now, or after its pause if it is large: its pods change one by one.

        Until then decisions are based on the last update.
        """
        due = self._not_before.get(key, 0.0)
        if not due or due <= (loop := asyncio.get_running_loop()).time():
            self.due[key] = None
        elif key not in self._scheduled:
            self._scheduled.add(key)
            loop.call_at(due, self._pause_ended, key)

    def _pause_ended(self, key: _Key) -> None:
        self._scheduled.discard(key)
        self.due[key] = None
        self._inbox.wake()

    def must_wait(self, key: _Key, *, is_incomplete: bool) -> bool:
        """Return whether to skip the update of a new group: objects that it refers to may be observed within MAX_WAIT.

        `is_incomplete`: there are unknown ones. The group becomes due again when one is observed, or after MAX_WAIT.
        """
        if not is_incomplete:
            self._waiting.pop(key, None)
        elif key not in self._waiting:
            self._waiting[key] = False
            asyncio.get_running_loop().call_later(MAX_WAIT, self._wait_ended, key)
        return is_incomplete and not self._waiting[key]

    def _wait_ended(self, key: _Key) -> None:
        if key in self._waiting:
            self._waiting[key] = True
            self._pause_ended(key)

    def updated(self, key: _Key, pods: int, seconds: float) -> None:
        """Note that a group with this number of pods was updated, and the duration of the update."""
        self._not_before.pop(key, None)
        if not pods:
            self._waiting.pop(key, None)
        if pods > _LARGE:
            self._not_before[key] = asyncio.get_running_loop().time() + _PAUSE * seconds
