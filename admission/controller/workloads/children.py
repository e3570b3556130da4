"""Child objects of queued workloads, such as the Jobs of a JobSet: they start and stop with their owner.

Whether an object is part of its owner is decided again at each change of either, by their present versions
(`Kind.part`):

| owner                                      | child                                                             |
| ------------------------------------------ | ----------------------------------------------------------------- |
| would not create such a child              | is a workload of its own: pending, and stopped if it runs         |
| creates pods that are not queued           | is a workload of its own if it is a pod: the owner's pods are     |
|                                            | not counted, and it would be an additional one                    |
| is not queued                              | is a workload of its own                                          |
| holds quota and runs                       | is started, if its controller had it running (`START_WITH_OWNER`) |
| the same, but the child is out of date     | is stopped: its controller starts it again with the new template  |
| the same, but has enough running pods      | if it is a pod: is deleted if it runs, stays pending if gated     |
| the same, but the child has no queue label | is left alone                                                     |
| the same, but the child gets more pods     | its number is set back to that with which its owner was admitted  |
| is pending, or is being stopped            | is stopped                                                        |
| is finished                                | is left alone                                                     |
| is deleted                                 | is stopped, until Kubernetes' garbage collector deletes it        |
| is not known yet, or would not create such | is left alone until the owner is read from the API server: of two |
| a child as far as is known                 | watches that of the child may be ahead                            |

A child that was a workload of its own, because its owner was not queued, leaves the queue as soon as it holds no quota.
`child_requests` sends the resulting requests.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import orjson

from admission.cluster.errors import Conflict, NotFound
from admission.cluster.events import ObjectReference
from admission.controller.state.inbox import ObjectGone, Recheck
from admission.controller.state.tracked import StoredObject, is_older, packed
from admission.controller.state.triggers import LeftQueue
from admission.controller.workloads.child_requests import Child, ChildRequests, ChildVerdict
from admission.controller.workloads.renderings import Renderings
from admission.kinds.base import is_watched
from admission.kinds.children import Belonging, claimed_owner, controller_of, fitting_pod_sets, rendered_owner
from admission.kinds.declared import workload_of
from admission.kinds.pod_matching import has_room
from admission.model import child_sentences
from admission.model.errors import ClusterError, Misconfigured
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from admission.cluster.events import EventRecorder
    from admission.controller.state.context import Context
    from admission.controller.state.inbox import Inbox, StepDone
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.controller.workloads.sender import Sender
    from admission.kinds.base import Kind, Object, Observed, PodCount
    from admission.kinds.children import ClaimedOwner
    from admission.kinds.pod_matching import Fitting
    from admission.model.workload import PodSet

log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 2.0
"""Seconds until an object is read again after a failed request."""
_MAX_OWNER_DEPTH: Final = 10
"""Levels of owners above an object that are followed, as in Kueue."""


class Children:
    """The objects with an owner reference to a kind whose controller creates such objects; entry point of all objects.

    Passes each observed object on: as a child to ChildRequests, else as a workload to PodGroups or the Reconciler.
    """

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        groups: PodGroups,
        sender: Sender,
        events: EventRecorder,
        inbox: Inbox,
    ) -> None:
        self._reconciler = reconciler
        self._groups = groups
        self._registry = reconciler.state.registry
        self._isolation = reconciler.isolation
        self._environment = reconciler.environment
        self._kinds = self._environment.kinds
        self._sender = sender
        self._inbox = inbox
        self._child_requests = ChildRequests(reconciler=reconciler, sender=sender, events=events, recheck=self._recheck)
        self._context = self._environment.context
        self._renderings = Renderings()
        self._children: dict[str, Child] = {}
        """By uid."""
        self._by_owner: defaultdict[str, set[str]] = defaultdict(set)
        """Uid of an owner -> uids of its children."""
        self._excess_pods = _ExcessPods(self._children, self._by_owner, self._context)
        self._fetched_owners: dict[str, StoredObject | None] = {}
        """Owners that are no workloads, read from the API server, by uid; None: deleted."""
        self._doubted: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        """By uid of an owner: its new children of which it seems to have none, and whether it is being read since."""
        self._owner_states: dict[str, tuple[Any, ...]] = {}
        """By uid of an owner: what its children depend on (queue, generation, state and pending checks)."""

    def objects(self) -> dict[str, StoredObject]:
        """Return the known child objects, by uid."""
        return {uid: StoredObject(child.kind, child.raw) for uid, child in self._children.items()}

    def is_part(self, uid: str) -> bool:
        """Whether an object is part of its owner now, or that is not known yet: it is no workload of its own."""
        child = self._children.get(uid)
        return child is not None and (
            child.is_beyond or self._verdict(child.kind, child.object) != ChildVerdict.WORKLOAD
        )

    def process(self, kind: Kind, obj: Object) -> None:
        """Process a version of an object, as a workload or as a child. An exception is attributed to that object."""
        metadata = obj["metadata"]
        if self._isolation.refuses(obj):
            return
        if metadata["uid"] in self._isolation.faults.by_uid and self._isolation.ignores(kind, obj):
            return
        try:
            self._process(kind, obj)
        except Exception as error:  # noqa: BLE001  any error sets this object aside, and no other
            self._isolation.failed_at(kind, obj, error)

    def object_returned(self, kind: Kind, obj: Object) -> None:
        """Process an object from a response, if it is still known.

        The response may arrive after the watch has reported the object's deletion, which it does not report again.
        """
        uid = obj["metadata"]["uid"]
        is_known = uid in self._children or self._registry.get(uid) is not None or self._groups.has(uid)
        if is_known or self._fetched_owners.get(uid) is not None:
            self.process(kind, obj)

    def recheck(self, uid: str) -> None:
        """Process the last observed version of an object again, if it still exists."""
        if self._groups.recheck(uid):
            return
        tracked = self._registry.get(uid)
        if (child := self._children.get(uid)) is not None:
            self.process(child.kind, child.object)
        elif tracked is not None and tracked.seen is not None and (obj := tracked.object) is not None:
            self.process(tracked.seen.kind, obj)

    def _process(self, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        uid = metadata["uid"]
        claimed = claimed_owner(kind, obj, self._kinds) if "ownerReferences" in metadata else None
        is_known = claimed is not None or uid in self._renderings.owners
        if is_known and (owner := self._renderings.note(kind, obj, claimed)):
            self._recheck(owner)
        if kind.is_custom:
            obj = self._renderings.complete(obj)
        if claimed is None and uid in self._children:
            self._remove_child(uid)
        is_part = (
            self._process_child(kind, obj, claimed)
            if claimed is not None
            else "ownerReferences" in metadata and self._holds_quota_of_disabled(kind, obj)
        )
        if not is_part and not ((kind.group, kind.kind) in self._groups.kinds and self._groups.take(kind, obj)):
            self._reconciler.process(kind, obj)
        if uid in self._by_owner:
            self._owner_changed(kind, obj)

    def _process_child(self, kind: Kind, obj: Object, claimed: ClaimedOwner) -> bool:
        """Process a version of a child; return whether it is part of its owner, and so no workload of its own."""
        metadata = obj["metadata"]
        uid = metadata["uid"]
        seen = kind.observe(obj)
        if seen.finished is not None:
            self._remove_child(uid)
            return False
        child = self._children.get(uid)
        if child is None or child.owner != claimed.reference["uid"]:
            self._remove_child(uid)
            child = self._children[uid] = Child(kind, b"", "", str(claimed.reference["uid"]))
            self._by_owner[child.owner].add(uid)
        elif is_older(seen.resource_version, child.version):
            kind, obj = child.kind, child.object
            seen = kind.observe(obj)
        child.kind, child.raw, child.version = kind, packed(obj), seen.resource_version
        is_starting = self._sender.is_busy(uid) and child.was_ungated  # this version may be older than the request
        child.runs, child.created = (
            not seen.deleting and (is_starting or not seen.suspended),
            metadata["creationTimestamp"],
        )
        scaling = kind.scaling
        if child.was_part and child.runs and scaling is not None and (patch := scaling.confine_patch(obj)):
            self._child_requests.change(seen, patch)
        if self._registry.get(uid) is None:
            self._limit(child, seen, obj, claimed)
            if not seen.queue:
                self._count(child, seen, runs=child.was_part and not child.is_beyond)
                return False  # not queued: it is known only as a possible owner of others
            if child.is_beyond:
                return True
        verdict = self._verdict(kind, obj)
        self._count(child, seen, runs=verdict is ChildVerdict.RUN)
        if verdict is ChildVerdict.WORKLOAD or not self._leave_queue(uid, obj, verdict):
            return False
        if verdict is ChildVerdict.RUN and kind.ends_by_deletion:
            owner = self._owner(claimed, obj, _MAX_OWNER_DEPTH)[0]
            if owner is not None and self._excess_pods.has(child, uid, claimed.kind, owner, self._held(child.owner)):
                verdict = ChildVerdict.EXCESS
        self._child_requests.follow(child, seen, obj, verdict)
        return True

    def _holds_quota_of_disabled(self, kind: Kind, obj: Object) -> bool:
        """Whether an object belongs to a workload that holds quota, and whose kind was taken out meanwhile.

        Its owners may not be watched any more. But a start has written the workload's uid into all of its templates.
        """
        if self._registry.get(obj["metadata"]["uid"]) is not None or controller_of(obj) is None:
            return False
        try:
            uids = {label for each in kind.templates(obj) if (label := workload_of(each))}
        except Misconfigured:  # reported where the object is handled as a workload itself
            return False
        found = [tracked for uid in uids if (tracked := self._registry.get(uid)) is not None]
        return any(each.holds_quota and self._kinds.of(each.record.workload) is None for each in found)

    def _limit(self, child: Child, seen: Observed, obj: Object, claimed: ClaimedOwner) -> None:
        """Set the pods of a running child back to those that its owner was admitted with.

        No webhook sees a child without a queue label outside managed namespaces. Without a version of it that had no
        more (after a restart), a Job without that label gets the most pods with which it is part of its owner; another
        child is suspended, until its user edits it. With the label it is a workload of its own then.
        """
        if (scaling := seen.kind.scaling) is None:
            return
        tracked = self._registry.get(child.owner)
        generation = None if tracked is None or tracked.seen is None else tracked.seen.generation
        if not child.is_beyond and generation is not None and child.checked == (seen.generation, generation):
            return
        child.is_beyond = False
        owner, verdict = self._owner(claimed, obj, _MAX_OWNER_DEPTH)
        if owner is None or verdict is not ChildVerdict.RUN:
            return
        child.checked = seen.generation, generation
        context, held = self._context.of_namespace(seen.namespace), self._held(child.owner)

        def part(version: Object) -> Belonging:
            return claimed.ownership.part(owner, seen.kind, version, context, held, was_part=child.was_part)

        found = part(obj)
        child.is_beyond = found is Belonging.MORE and not seen.suspended
        if found in (Belonging.CURRENT, Belonging.OUTDATED):
            child.was_part, child.within = True, child.raw
            if not seen.queue:
                self._child_requests.follow(
                    child, seen, obj, ChildVerdict.RUN
                )  # resumed if it was suspended for its pods
        elif child.is_beyond and seen.queue and not child.within:
            child.is_beyond = False
        elif child.is_beyond:
            owner_name = f"{claimed.kind.kind} {owner['metadata']['name']}"
            within = orjson.loads(child.within) if child.within else _fewer(obj, part)
            patch = [] if within is None else scaling.limit(obj, within)[0]
            self._child_requests.set_back(child, seen, obj, patch, child_sentences.more_than_owner_holds(owner_name))

    def _count(self, child: Child, seen: Observed, *, runs: bool) -> None:
        """Have the workload of a child that scales by itself hold quota for the pods that the child has."""
        if seen.kind.scaling is None or not seen.kind.scaling.grows or self._registry.get(child.owner) is None:
            return
        counts = seen.counts if runs and not seen.suspended and not seen.deleting else ()
        has_changed = self._renderings.count(seen.uid, child.owner, counts)
        if has_changed or any(count.scale_up > count.wanted for count in counts):
            self._recheck(child.owner)

    def scale_up(self, owner: str, counts: Mapping[str, int]) -> None:
        """After a commit: let the running children of a workload have the pods that they ask for.

        `counts`: pods for which quota is reserved, by pod set.
        """
        for uid in self._by_owner.get(owner, ()):
            child, scaling = self._children[uid], self._children[uid].kind.scaling
            if not child.runs or not child.was_part or scaling is None:
                continue
            if patch := scaling.scale_patch(child.object, counts):
                self._child_requests.change(child.kind.observe(child.object), patch)

    def _owner_changed(self, kind: Kind, obj: Object) -> None:
        """Reconcile the children of an observed object, if what they depend on has changed."""
        metadata = obj["metadata"]
        uid = metadata["uid"]
        if uid in self._fetched_owners:
            self._fetched_owners[uid] = StoredObject(kind, packed(obj))
        tracked = self._registry.get(uid)
        admission_state = None if tracked is None else (tracked.record.state, tracked.record.checks_pending)
        state = (kind.queue_name(obj), metadata.get("generation"), admission_state)
        if self._owner_states.get(uid) != state:
            self._owner_states[uid] = state
            self._recheck_children(uid)

    def read(self, uid: str) -> bool:
        """Read an object that is no workload: it has left its watch, or a request about it has failed.

        Returns whether it is known. An unknown owner is read again when its children are processed again.
        """
        if (pod := self._groups.member(uid)) is not None:
            kind, metadata = self._groups.pod_kind, pod["metadata"]
        elif (child := self._children.get(uid)) is not None:
            kind, metadata = child.kind, child.object["metadata"]
        else:
            self._recheck_children(uid)
            return False
        self._sender.read(self._target(kind, metadata, metadata["namespace"]))
        return True

    def owner_answered(self, message: StepDone) -> None:
        """Before the response to a request about an owner is processed: judge its doubted children after it."""
        if message.uid in self._doubted and not isinstance(message.result, ClusterError):
            for uid, is_read in self._doubted.pop(message.uid).items():
                if is_read and (child := self._children.get(uid)) is not None:
                    child.owner_read = True
                self._recheck(uid)

    def _target(self, kind: Kind, named: Mapping[str, Any], namespace: str) -> ObjectReference:
        """Return the reference to an object; `named`: its metadata, or a reference of another one to it."""
        return ObjectReference(self._kinds.api_version(kind), kind.kind, str(named["name"]), named["uid"], namespace)

    def answered(self, message: StepDone) -> None:
        """Process the response to a request about a child, an owner that is no workload, or a pod of a group."""
        uid, result = message.uid, message.result
        if not (uid in self._children or self._groups.has(uid) or uid in self._by_owner):
            return  # deleted meanwhile
        if isinstance(result, NotFound) or (not isinstance(result, ClusterError) and result["metadata"]["uid"] != uid):
            self._inbox.put(ObjectGone(uid))
            return
        if isinstance(result, ClusterError):
            level = logging.DEBUG if isinstance(result, Conflict) else logging.WARNING
            log.log(level, "a request about an object has failed, which is read again: %s", result)
            self._sender.remind(uid, _RETRY_DELAY)
            return
        kind = self._kinds.get(result["apiVersion"].rpartition("/")[0], result["kind"])
        assert kind is not None, result
        if uid in self._by_owner and uid not in self._fetched_owners:
            self._fetched_owners[uid] = StoredObject(kind, packed(result))
            self._recheck_children(uid)
        self.object_returned(kind, result)
        if not is_watched(kind, result) and not self._sender.is_busy(uid):
            self._sender.label(kind, self._target(kind, result["metadata"], result["metadata"]["namespace"]))

    def object_deleted(self, uid: str) -> None:
        """Process the deletion of an object: reconcile its children, and the owner whose rendered child it was."""
        if owner := self._renderings.child_deleted(uid):
            self._recheck(owner)
        self._remove_child(uid)
        if uid in self._by_owner:
            self._owner_states.pop(uid, None)
            self._fetched_owners[uid] = None
            self._recheck_children(uid)

    def _remove_child(self, uid: str) -> None:
        """Remove an object from the known children, if it is one."""
        child = self._children.pop(uid, None)
        if child is None:
            return
        child.wait_message = ""
        if self._renderings.count(uid, child.owner, ()):
            self._recheck(child.owner)
        others = self._by_owner[child.owner]
        others.discard(uid)
        if not others:
            del self._by_owner[child.owner]
            self._doubted.pop(child.owner, None)
            self._fetched_owners.pop(child.owner, None)
            self._owner_states.pop(child.owner, None)
        for other in others if child.kind.ends_by_deletion else ():
            if not self._children[other].runs:
                self._recheck(other)  # one of the gated pods of the owner may run in its place

    def _recheck(self, uid: str) -> None:
        """Process an object again by way of the inbox, so that its errors are isolated from the present object."""
        self._inbox.put(Recheck(uid))

    def _recheck_children(self, uid: str) -> None:
        for child in self._by_owner.get(uid, ()):
            self._recheck(child)

    # --- verdicts

    def _verdict(self, kind: Kind, obj: Object, *, owners: int = _MAX_OWNER_DEPTH) -> ChildVerdict:
        """Return the state that an object should be in by its owner. `owners`: levels of owners to follow at most.

        An unknown owner is read; its children are processed again afterwards.
        """
        claimed = claimed_owner(kind, obj, self._kinds) if owners else None
        if claimed is None:
            return ChildVerdict.WORKLOAD
        owner_kind, ownership, reference = claimed
        uid = reference["uid"]
        owner, verdict = self._owner(claimed, obj, owners)
        is_unread = uid not in self._fetched_owners and self._registry.get(uid) is None
        if verdict is ChildVerdict.UNKNOWN and is_unread and not self._sender.is_busy(uid):
            self._sender.read(self._target(owner_kind, reference, obj["metadata"]["namespace"]))
        if owner is None or verdict in (ChildVerdict.WORKLOAD, ChildVerdict.UNKNOWN):
            return verdict
        if verdict is ChildVerdict.WAIT and rendered_owner(kind, obj, claimed):
            return verdict  # the owner's pod sets are read from this child: comparing them would mean nothing
        child, context = (
            self._children.get(obj["metadata"]["uid"]),
            self._context.of_namespace(obj["metadata"]["namespace"]),
        )
        was_part = child is not None and child.was_part
        held = self._held(uid) or (child.accepted if child is not None else {})
        part = ownership.part(owner, kind, obj, context, held, was_part=was_part)
        if child is not None and part not in (Belonging.NONE, Belonging.MORE):
            child.was_part = True
            if not child.accepted and uid in self._children:
                child.accepted = {count.name: count.wanted for count in owner_kind.observe(owner).counts}
        is_uncounted = kind.ends_by_deletion and not self._environment.queues_pods_of(owner_kind, owner, kind)
        if is_uncounted:
            return ChildVerdict.WORKLOAD
        if part in (Belonging.NONE, Belonging.MORE):
            if child is None or child.owner_read:
                return ChildVerdict.WORKLOAD
            doubted = self._doubted[uid]
            doubted.setdefault(obj["metadata"]["uid"], False)
            if not self._sender.is_busy(uid):
                self._sender.read(self._target(owner_kind, reference, obj["metadata"]["namespace"]))
                doubted[obj["metadata"]["uid"]] = True
            return ChildVerdict.UNKNOWN
        return ChildVerdict.OUTDATED if part is Belonging.OUTDATED and verdict is ChildVerdict.RUN else verdict

    def _held(self, uid: str) -> dict[str, int]:
        """Return the number of pods that an owner holds quota for, by pod set; empty: it is no workload, or waits."""
        tracked = self._registry.get(uid)
        admission = None if tracked is None else tracked.record.admission
        return {} if admission is None else {each.name: each.count for each in admission.pod_sets}

    def _owner(self, claimed: ClaimedOwner, obj: Object, owners: int) -> tuple[Object | None, ChildVerdict]:
        """Return the last observed version of an owner, if known, and the verdict on children that are part of it.

        An object of another kind, name or namespace than the owner reference says is no owner.
        """
        reference = claimed.reference
        kind, owner, verdict = self._known(reference["uid"], owners)
        if kind is not None and owner is not None:
            named = claimed.kind.group, claimed.kind.kind, obj["metadata"]["namespace"], reference["name"]
            if (kind.group, kind.kind, owner["metadata"]["namespace"], owner["metadata"]["name"]) != named:
                return None, ChildVerdict.WORKLOAD
        return owner, verdict

    def _known(self, uid: str, owners: int) -> tuple[Kind | None, Object | None, ChildVerdict]:
        """Return the kind and last observed version of an object, and the verdict on children that are part of it."""
        tracked = self._registry.get(uid)
        if tracked is not None:
            record, seen, owner = tracked.record, tracked.seen, tracked.object
            if owner is None or seen is None:
                return None, None, ChildVerdict.WAIT if record.state is State.EVICTING else ChildVerdict.UNKNOWN
            is_here = not (record.checks_pending or seen.suspended or tracked.runs_elsewhere)
            runs = record.state is State.ADMITTED and is_here
            return seen.kind, owner, ChildVerdict.RUN if runs else ChildVerdict.WAIT
        if (above := self._children.get(uid)) is not None:
            owner = above.object
            verdict = self._verdict(above.kind, owner, owners=owners - 1)
            is_stopped = verdict.stops or (verdict is ChildVerdict.RUN and above.kind.observe(owner).suspended)
            return above.kind, owner, ChildVerdict.WAIT if is_stopped else verdict
        if uid not in self._fetched_owners:
            return None, None, ChildVerdict.UNKNOWN
        known = self._fetched_owners[uid]
        if known is None:
            return None, None, ChildVerdict.ORPHANED
        owner = orjson.loads(known.raw)
        if not known.kind.queue_name(owner):
            return known.kind, owner, ChildVerdict.WORKLOAD
        has_ended = known.kind.observe(owner).finished is not None
        return known.kind, owner, ChildVerdict.OWNER_FINISHED if has_ended else ChildVerdict.WAIT

    # --- consequences

    def _leave_queue(self, uid: str, obj: Object, verdict: ChildVerdict) -> bool:
        """End the workload of a child that is part of its owner, if it has one; return whether it has none any more.

        A workload that holds quota, or has a request under way, stays until that is over.
        """
        tracked = self._registry.get(uid)
        if tracked is None:
            return True
        if verdict is ChildVerdict.UNKNOWN or tracked.holds_quota or self._sender.is_busy(uid):
            return False
        reference = next(each for each in obj["metadata"]["ownerReferences"] if each.get("controller"))
        message = child_sentences.part_of(f"{reference['kind']} {reference['name']}")
        self._reconciler.handle(tracked, LeftQueue(message))
        return True


def _fewer(obj: Object, part: Callable[[Object], Belonging]) -> Object | None:
    """Return a Job with the most pods at a time with which it is part of its owner; None: it is no Job."""
    if "parallelism" not in obj["spec"]:
        return None

    def with_pods(number: int) -> Object:
        return {**obj, "spec": {**obj["spec"], "parallelism": number}}

    numbers = range(1, obj["spec"]["parallelism"])
    return with_pods(bisect_left(numbers, 1, key=lambda number: part(with_pods(number)) is Belonging.MORE))


class _ExcessPods:
    """Whether an owner has as many pods as it holds quota for, so that one more of its pods must not run.

    An owner reference proves nothing, as users can write it. Neither is the number of an owner's pods enough where it
    has several pod sets: a user could delete small pods, and create large ones in their place.
    """

    def __init__(self, children: Mapping[str, Child], by_owner: Mapping[str, set[str]], context: Context) -> None:
        """`children`: by uid. `by_owner`: uids of children by the owner's uid."""
        self._children = children
        self._by_owner = by_owner
        self._context = context

    def has(self, child: Child, uid: str, owner_kind: Kind, owner: Object, held: Mapping[str, int]) -> bool:
        """Return whether the owner needs no further pod such as `child`, whose uid is `uid`.

        `held`: number of pods that the owner holds quota for, by pod set. Pods of the owner's children count, such as
        those of the Jobs of a JobSet. If the pod itself runs, only older ones count.
        """
        counts = [
            count._replace(wanted=max(count.wanted, held.get(count.name, 0)), left=None) if count.stays else count
            for count in owner_kind.observe(owner).counts
        ]
        own_age = (*_age(child), uid)
        preceding = [
            other
            for other, each in self._pods_of(child.owner)
            if each.runs and other != uid and (not child.runs or (*_age(each), other) < own_age)
        ]
        if len(preceding) >= sum(count.needed for count in counts):
            return True
        return len(counts) > 1 and not self._fits(child, preceding, owner_kind, owner, counts)

    def _fits(
        self, child: Child, preceding: Sequence[str], owner_kind: Kind, owner: Object, counts: Sequence[PodCount]
    ) -> bool:
        """Return whether a pod has room beside others (their uids) in the pod sets of its owner."""
        try:
            limits = owner_kind.pod_sets(owner, self._context.of_namespace(owner["metadata"]["namespace"]))
        except Misconfigured:  # reported where the owner is handled
            return True
        needed = {limit.name: 0 for limit in limits}
        needed |= {count.name: count.needed for count in counts if count.name in needed}
        metadata = owner["metadata"]
        version = f"{metadata['uid']} {metadata.get('generation')}"
        others = [self._fitting(self._children[each], limits, version) for each in preceding]
        return has_room(self._fitting(child, limits, version), others, needed)

    def _fitting(self, child: Child, limits: Sequence[PodSet], version: str) -> Fitting:
        """Return the pod sets of an owner that a pod fits; all if it fits none, as it may have any pod's place.

        Computed once for each version of the pod and of the owner (`version`).
        """
        key = f"{version} {child.version}"
        if child.fitting is None or child.fitting[0] != key:
            obj = child.object
            context = self._context.of_namespace(obj["metadata"]["namespace"])
            found = fitting_pod_sets(limits, child.kind, obj, context)
            child.fitting = key, found or frozenset(limit.name for limit in limits)
        return child.fitting[1]

    def _pods_of(self, owner: str, *, levels: int = _MAX_OWNER_DEPTH) -> Iterator[tuple[str, Child]]:
        """Yield (uid, pod) of the pods of an owner and of its children. `levels`: depth of children to follow."""
        for uid in self._by_owner.get(owner, ()) if levels else ():
            child = self._children[uid]
            if child.kind.ends_by_deletion:
                yield uid, child
            else:
                yield from self._pods_of(uid, levels=levels - 1)


def _age(child: Child) -> tuple[str, bool]:
    """Return the sort key of pods by age; of pods of the same second those that Sluice has ungated come first."""
    return child.created, not child.was_ungated
