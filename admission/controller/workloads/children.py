"""Objects that are part of a queued one, such as the Jobs of a JobSet: they run and stop with it, and do not queue.

Whether an object is part of its owner is judged anew at each change of either, by what both are now (`find_part`).

| owner                                  | the child                                                           |
| -------------------------------------- | ------------------------------------------------------------------- |
| would make no such child               | is a workload of its own: it waits, or is stopped and waits         |
| makes pods that are not queued         | is a workload of its own if it is a pod: it would be one more       |
| is not queued                          | is a workload of its own                                            |
| holds quota and runs                   | is started if it has asked to run                                   |
| the same, and the child is out of date | is stopped: its controller starts it again with the new template    |
| the same, but as many pods run already | is deleted if it is a pod that runs, and waits if it has its gate   |
| waits, or is being stopped             | is stopped                                                          |
| has ended                              | is left as it is                                                    |
| is gone                                | is stopped, until Kubernetes' garbage collector deletes it          |
| is not known yet                       | is left as it is until the API server has told of the owner         |

A child that was queued by itself before, because its owner was not, leaves the queue as soon as it holds no quota.
What is requested because of the verdict is the subject of `child_requests`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import orjson

from admission.cluster.errors import NotFound
from admission.controller.state.inbox import Answered, LookAgain
from admission.controller.state.tracked import StoredObject, is_older, packed
from admission.controller.workloads.child_requests import Child, ChildRequests, Verdict
from admission.controller.workloads.renderings import Renderings
from admission.controller.workloads.triggers import LeftQueue
from admission.kinds.base import POD
from admission.kinds.children import Part, claimed_owner, rendered_owner
from admission.model import child_sentences
from admission.model.errors import ClusterError
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from admission.cluster.client import Client
    from admission.cluster.events import EventRecorder
    from admission.cluster.informer import Change
    from admission.cluster.writer import Writer
    from admission.controller.state.inbox import Inbox
    from admission.controller.workloads.lost_labels import LostLabels
    from admission.controller.workloads.pod_groups import PodGroups
    from admission.controller.workloads.reconciler import Reconciler
    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Claim

log = logging.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds before a request that failed is tried again."""
_MOST_OWNERS: Final = 10
"""How many owners above each other are looked at, as in Kueue."""


class Children:
    """All objects that claim an owner of a kind that makes such objects."""

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        groups: PodGroups,
        labels: LostLabels,
        client: Client,
        writer: Writer,
        events: EventRecorder,
        inbox: Inbox,
        reads: set[asyncio.Task[None]],
    ) -> None:
        self._reconciler = reconciler
        self._groups = groups
        self._labels = labels
        self._registry = reconciler.state.registry
        self._isolation = reconciler.isolation
        self._environment = reconciler.environment
        self._kinds = self._environment.kinds
        self._client = client
        self._inbox = inbox
        self._requests = ChildRequests(
            reconciler=reconciler, writer=writer, events=events, inbox=inbox, look_again=self._look_again
        )
        self._context = self._environment.context
        self._reads = reads
        self._renderings = Renderings()
        self._children: dict[str, Child] = {}
        self._by_owner: defaultdict[str, set[str]] = defaultdict(set)
        self._asked: dict[str, StoredObject | None] = {}
        """Owners without a record that the API server was asked for, by uid; None: it is gone."""
        self._owner_states: dict[str, tuple[Any, ...]] = {}
        """What was last known of the owners of children, as far as it matters to them."""

    def objects(self) -> dict[str, StoredObject]:
        """All that are known, by uid."""
        return {uid: StoredObject(child.kind, child.raw) for uid, child in self._children.items()}

    def see(self, kind: Kind, obj: Object) -> None:
        """Take in an object as it is now, as a workload or as part of one; what is raised is its own fault."""
        metadata = obj["metadata"]
        if metadata["uid"] in self._isolation.faults.by_uid and self._isolation.leaves_alone(kind, obj):
            return
        try:
            self._see(kind, obj)
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to this object
            self._isolation.failed_at(kind, obj, error)

    def answered(self, kind: Kind, obj: Object) -> None:
        """Take in an object from an answer, unless it is gone: of what the watch has ended it never tells again."""
        uid = obj["metadata"]["uid"]
        is_known = uid in self._children or self._registry.get(uid) is not None or self._groups.has(uid)
        if is_known or self._asked.get(uid) is not None:
            self.see(kind, obj)

    def look_again(self, uid: str) -> None:
        """As if it had just changed, if it still exists."""
        tracked = self._registry.get(uid)
        if (child := self._children.get(uid)) is not None:
            self.see(child.kind, child.object)
        elif tracked is not None and tracked.seen is not None and (obj := tracked.object) is not None:
            self.see(tracked.seen.kind, obj)

    def _see(self, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        uid = metadata["uid"]
        claimed = claimed_owner(kind, obj, self._kinds) if "ownerReferences" in metadata else None
        is_known = claimed is not None or uid in self._renderings.owners
        if is_known and (owner := self._renderings.note(kind, obj, claimed)):
            self._look_again(owner)
        if kind.rendered_by is not None:
            obj = self._renderings.complete(obj)
        if claimed is None and uid in self._children:
            self._forget(uid)
        is_part = claimed is not None and self._take(kind, obj, claimed)
        if not is_part and not ((kind.group, kind.kind) in self._groups.kinds and self._groups.take(kind, obj)):
            self._reconciler.see(kind, obj)
        if uid in self._by_owner:
            self._owner_changed(kind, obj)

    def _take(self, kind: Kind, obj: Object, claimed: Claim) -> bool:
        """Take in an object that claims an owner as it is now; whether it is part of that, and so no workload."""
        metadata = obj["metadata"]
        uid = metadata["uid"]
        seen = kind.observe(obj)
        if seen.finished is not None:
            self._forget(uid)
            return False
        child = self._children.get(uid)
        if child is None or child.owner != claimed[1]["uid"]:
            self._forget(uid)
            child = self._children[uid] = Child(kind, b"", "", str(claimed[1]["uid"]))
            self._by_owner[child.owner].add(uid)
        elif is_older(seen.resource_version, child.version):
            kind, obj = child.kind, child.object
            seen = kind.observe(obj)
        child.kind, child.raw, child.version = kind, packed(obj), seen.resource_version
        child.runs, child.created = not seen.suspended and not seen.deleting, metadata["creationTimestamp"]
        if not seen.queue and self._registry.get(uid) is None:
            return False  # it runs as its controller likes, and is known as a possible owner only
        verdict = self._verdict(kind, obj)
        if verdict is Verdict.WORKLOAD or not self._leaves_the_queue(uid, obj, verdict):
            return False
        if verdict is Verdict.RUN and kind.ends_by_deletion and self._is_excess(child, uid, obj):
            verdict = Verdict.NO_ROOM
        self._requests.follow(child, seen, obj, verdict)
        return True

    def _owner_changed(self, kind: Kind, obj: Object) -> None:
        """An object that has children was seen: they may have to run or to stop."""
        metadata = obj["metadata"]
        uid = metadata["uid"]
        if uid in self._asked:
            self._asked[uid] = StoredObject(kind, packed(obj))
        tracked = self._registry.get(uid)
        held = None if tracked is None else (tracked.record.state, tracked.record.checks_pending)
        state = (kind.queue_name(obj), metadata.get("generation"), held)
        if self._owner_states.get(uid) != state:
            self._owner_states[uid] = state
            self._look_again_at_children(uid)

    def lost(self, change: Change) -> bool:
        """Whether it is one that may only have lost the label by which it is watched: it is looked at then."""
        if (kind := self._kinds.get(*POD)) is not None and (pod := self._groups.member(change.uid)) is not None:
            self._labels.check(kind, pod)
            return True
        child = self._children.get(change.uid)
        if child is None or not child.kind.watched_label:
            return False
        self._labels.check(child.kind, child.object)
        return True

    def gone(self, uid: str) -> None:
        """An object does not exist any more."""
        if owner := self._renderings.gone(uid):
            self._look_again(owner)
        self._forget(uid)
        if uid in self._by_owner:
            self._owner_states.pop(uid, None)
            self._asked[uid] = None
            self._look_again_at_children(uid)

    def _forget(self, uid: str) -> None:
        child = self._children.pop(uid, None)
        if child is None:
            return
        child.waits = ""
        others = self._by_owner[child.owner]
        others.discard(uid)
        if not others:
            del self._by_owner[child.owner]
            self._asked.pop(child.owner, None)
            self._owner_states.pop(child.owner, None)
        for other in others if child.kind.ends_by_deletion else ():
            if not self._children[other].runs:
                self._look_again(other)  # there is room for one of them

    def _look_again(self, uid: str) -> None:
        """Later: whatever follows is then kept apart from others as always."""
        self._inbox.put(LookAgain(uid))

    def _look_again_at_children(self, uid: str) -> None:
        for child in self._by_owner.get(uid, ()):
            self._look_again(child)

    # --- whose it is

    def _verdict(self, kind: Kind, obj: Object, *, owners: int = _MOST_OWNERS) -> Verdict:
        claimed = claimed_owner(kind, obj, self._kinds) if owners else None
        if claimed is None:
            return Verdict.WORKLOAD
        owner_kind, reference = claimed
        uid = reference["uid"]
        owner, verdict = self._owner(owner_kind, uid, owners)
        if verdict is Verdict.UNKNOWN and uid not in self._asked and self._registry.get(uid) is None:
            self._ask(owner_kind, uid, obj["metadata"]["namespace"], str(reference["name"]))
        if owner is None or verdict in (Verdict.WORKLOAD, Verdict.UNKNOWN):
            return verdict
        if verdict is Verdict.WAIT and rendered_owner(kind, obj, claimed):
            return verdict  # the owner's pods are counted by what this asks for
        part = owner_kind.part(owner, kind, obj, self._context.of_namespace(obj["metadata"]["namespace"]))
        is_uncounted = kind.ends_by_deletion and not self._environment.queues_pods_of(owner_kind, owner, kind)
        if part is Part.NONE or is_uncounted:
            return Verdict.WORKLOAD
        return Verdict.OUTDATED if part is Part.OUTDATED and verdict is Verdict.RUN else verdict

    def _owner(self, kind: Kind, uid: str, owners: int) -> tuple[Object | None, Verdict]:
        """An owner as it is now, if there is one, and what becomes of its children, if they are really its own."""
        tracked = self._registry.get(uid)
        if tracked is not None:
            record, seen, owner = tracked.record, tracked.seen, tracked.object
            if owner is None or seen is None:
                return None, Verdict.WAIT if record.state is State.EVICTING else Verdict.UNKNOWN
            runs = record.state is State.ADMITTED and not record.checks_pending and not seen.suspended
            return owner, Verdict.RUN if runs else Verdict.WAIT
        if (above := self._children.get(uid)) is not None:
            owner = above.object
            verdict = self._verdict(above.kind, owner, owners=owners - 1)
            is_stopped = verdict.stops or (verdict is Verdict.RUN and above.kind.observe(owner).suspended)
            return owner, Verdict.WAIT if is_stopped else verdict
        if uid not in self._asked:
            return None, Verdict.UNKNOWN
        known = self._asked[uid]
        if known is None:
            return None, Verdict.ORPHANED
        owner = orjson.loads(known.raw)
        if not kind.queue_name(owner):
            return owner, Verdict.WORKLOAD
        has_ended = kind.observe(owner).finished is not None
        return owner, Verdict.LEAVE if has_ended else Verdict.WAIT

    def _ask(self, kind: Kind, uid: str, namespace: str, name: str) -> None:
        """Have the owner told, for what claims one that was not heard of; children are looked at again then."""
        self._do(self._read(kind, uid, self._kinds.path(kind, namespace, name)))

    def _do(self, reading: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(reading)
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    async def _read(self, kind: Kind, uid: str, path: str) -> None:
        try:
            owner: Object | None = await self._client.get(path)
        except NotFound:
            owner = None
        except ClusterError as error:
            log.warning("cannot see the owner %s: %s", path, error)
            await asyncio.sleep(_PAUSE)
            self._look_again_at_children(uid)
            return
        if owner is None or owner["metadata"]["uid"] != uid:
            self._asked[uid] = None
        else:
            self._asked.setdefault(uid, StoredObject(kind, packed(owner)))  # the watch may have told of its end since
            self._inbox.put(Answered(kind, owner))
        self._look_again_at_children(uid)

    # --- what becomes of it

    def _leaves_the_queue(self, uid: str, obj: Object, verdict: Verdict) -> bool:
        """Whether it is no workload, or not any more; one that holds quota stays one until that is free."""
        tracked = self._registry.get(uid)
        if tracked is None:
            return True
        if verdict is Verdict.UNKNOWN or tracked.holds_quota or tracked.in_flight is not None:
            return False
        reference = next(each for each in obj["metadata"]["ownerReferences"] if each.get("controller"))
        message = child_sentences.part_of(f"{reference['kind']} {reference['name']}")
        self._reconciler.handle(tracked, LeftQueue(message))
        return True

    def _is_excess(self, child: Child, uid: str, obj: Object) -> bool:
        """Whether so many pods of its owner run, older ones if it runs itself, that there is no room for it.

        Those of the owner's children count, such as those of the Jobs of a JobSet.
        """
        claimed = claimed_owner(child.kind, obj, self._kinds)
        owner = None if claimed is None else self._owner(claimed[0], child.owner, _MOST_OWNERS)[0]
        if claimed is None or owner is None:
            return False
        wanted = sum(count.needed for count in claimed[0].observe(owner).counts)
        running = [(*_age(each), other) for other, each in self._pods_of(child.owner) if each.runs and other != uid]
        before = [each for each in running if not child.runs or each < (*_age(child), uid)]
        return len(before) >= wanted

    def _pods_of(self, owner: str, *, levels: int = _MOST_OWNERS) -> Iterator[tuple[str, Child]]:
        """The pods of an owner and of its children, with their uids."""
        for uid in self._by_owner.get(owner, ()) if levels else ():
            child = self._children[uid]
            if child.kind.ends_by_deletion:
                yield uid, child
            else:
                yield from self._pods_of(uid, levels=levels - 1)


def _age(child: Child) -> tuple[str, bool]:
    """Older ones, and of the same second those that were let run, come first."""
    return child.created, not child.was_let_run
