"""Copies of dispatched workloads in one cluster, as last seen, and what is due for a workload that runs as a copy.

    hub ──create copy──> unsuspend ──copy the status──> finished
                 stop: suspend, delete the copy ──copy is gone──> release

What is due is a pure function of the committed state, the object and the copy (`due`). It is level-based, like
`lifecycle.next_step`: it may be evaluated again at any time, after any crash, and gives the same request until that has
taken effect.

| committed | copy            | object      | due      | why                                                      |
| --------- | --------------- | ----------- | -------- | -------------------------------------------------------- |
| any       | not known       | any         | nothing  | its cluster does not answer: it may run there            |
| admitted  | none            | suspended   | CREATE   | its quota is committed, so it may run                    |
| admitted  | none            | unsuspended | VANISHED | it was started: others have deleted the copy             |
| admitted  | suspended by us | any         | COMPLETE | what is copied along comes before its pods               |
| admitted  | there           | suspended   | RESUME   | the second write of its start                            |
| admitted  | there           | suspended   | STOPPED  | by others, after it was unsuspended                      |
| admitted  | there           | unsuspended | GROW     | its annotation asks for more pods, and has quota for them |
| admitted  | other pods      | unsuspended | SCALE    | its object asks for fewer now, or has quota for more     |
| admitted  | there           | unsuspended | REPORT   | if the status of the copy is another one                 |
| evicting  | unfinished      | any         | DELETE   | its quota is to be released, when the copy is gone       |
| any       | finished        | unfinished  | REPORT   | it ends when its own status says so                      |
| any       | unfinished      | finished    | DELETE   | others have written the status                           |
| pending   | none            | unsuspended | SUSPEND  | it was unsuspended by others                             |
| evicting  | none            | unsuspended | SUSPEND  | it is queued again as it was                             |
| evicting  | none            | suspended   | REPORT   | if its status shows pods; then its quota is released     |
| any       | there           | is deleted  | DELETE   |                                                          |

A copy that fails while it is deleted has not ended: it may have failed for that. One that succeeds has, also if that is
seen only when it is gone.

A pod of a group is evicting if its group is, or has no room for it. If others have deleted its copy, SUSPEND is due,
and then CREATE: the other pods of the group go on.

An object that stays gated (see `kinds.dispatched`) counts as unsuspended as long as it says where its copy runs.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from admission.controller.state.tracked import is_older, packed
from admission.kinds.dispatched import ORIGIN, Origin, origin_of
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.cluster.informer import WatchedChange
    from admission.kinds.base import Kind, Object, Observed

_REMEMBERED: Final = 10_000
"""Deleted copies that are remembered at most: answers to their creation may be older than their deletion."""


class Copy(NamedTuple):
    """A copy as last seen."""

    kind: Kind
    origin: Origin
    uid: str
    version: str
    """Its resourceVersion."""
    raw: bytes
    """The object, serialised by `packed`."""
    seen: Observed
    """Its state."""
    is_marked: bool
    """Whether it says itself that it is a copy: others can take that away from it."""

    @property
    def object(self) -> Object:
        """The object, deserialised at each access."""
        found: Object = orjson.loads(self.raw)
        return found


class Copies:
    """The copies in one cluster that Sluice has made, by the uid of the object that each is a copy of.

    They outlive the state of a leader, as watches do not report the same version twice.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        """`changed`: called with the uid of an object whose copy has appeared, changed or gone, and of its group."""
        self.key = ""
        """Signs the copies; empty: it is not known yet."""
        self._changed = changed
        self._found: dict[str, Copy] = {}
        self._origins: dict[str, str] = {}
        """Uid of a copy -> uid of the object that it is a copy of."""
        self.doubtful: set[str] = set()
        """Uids of objects whose copy has left its watch, and may only have lost the label by which it is watched."""
        self._of_groups: defaultdict[str, set[str]] = defaultdict(set)
        """Uid of a pod group -> uids of the pods of it that have, or had, a copy."""
        self._gone: OrderedDict[str | Origin, None] = OrderedDict()
        """Uids of copies that were deleted, and what they were made for: others can create their like."""

    def __iter__(self) -> Iterator[Copy]:
        return iter(tuple(self._found.values()))

    def get(self, uid: str) -> Copy | None:
        """Return the copy of an object; None: none was seen."""
        return self._found.get(uid)

    def of(self, uid: str) -> Copy | None:
        """Return the copy that has this uid itself."""
        return self._found.get(self._origins.get(uid, ""))

    def of_group(self, uid: str) -> list[Copy]:
        """Return the copies of the pods of a group."""
        return [self._found[each] for each in self._of_groups.get(uid, ())]

    def _tell(self, origin: Origin) -> None:
        self._changed(origin.uid)
        if origin.group:
            self._changed(origin.group)

    def observe(self, kind: Kind, change: WatchedChange) -> None:
        """Process a change that a watch reports. Others than copies are ignored.

        A copy that has succeeded while it was being deleted is kept as it was last: that is the end of its workload.
        """
        obj = change.object
        is_gone = change.type == "DELETED" or obj is None
        is_new = obj is not None and not is_gone and ORIGIN in (obj["metadata"].get("labels") or ())
        if obj is not None and (is_new or change.uid in self._origins):
            self.put(kind, obj)
        if is_gone:
            copy = self._found.get(self._origins.get(change.uid, ""))
            if copy is None:
                return
            if copy.seen.finished is not None and copy.seen.finished.succeeded:
                self._tell(copy.origin)
            elif kind.watched_label and (obj is None or "deletionTimestamp" not in obj["metadata"]):
                self.doubtful.add(copy.origin.uid)
                self._tell(copy.origin)
            else:
                self.remove(change.uid)

    def put(self, kind: Kind, obj: Object, made_for: Origin | None = None) -> bool:
        """Process a version of an object; return whether it is a copy. `made_for`: it is one, whatever it says."""
        metadata = obj["metadata"]
        uid, version = metadata["uid"], metadata["resourceVersion"]
        known = self._found.get(self._origins.get(uid, ""))
        # Whoever takes the label away from a copy does not take it away from its object.
        marked = origin_of(kind, obj, self.key)
        origin = marked or made_for or (None if known is None else known.origin)
        if origin is None or uid in self._gone:
            return False
        if known is not None and known.version != version and is_older(version, known.version):
            return True
        former = self._found.get(origin.uid)
        if former is not None and former.uid != uid:
            if former.origin == origin:
                return False  # put in its place by others, although its deletion was not seen yet
            self._origins.pop(former.uid, None)
            self._leave_group(former.origin)
        if known is None and origin in self._gone:
            return False
        seen, was_over = kind.observe(obj), known is not None and known.seen.finished is not None
        may_be_end = seen.finished is not None and seen.finished.succeeded and not kind.ends_by_deletion
        if seen.deleting and not (was_over or may_be_end):
            seen = replace(seen, finished=None)  # it may have ended because it is deleted
        self._origins[uid] = origin.uid
        self.doubtful.discard(origin.uid)
        self._found[origin.uid] = Copy(kind, origin, uid, version, packed(obj), seen, marked is not None)
        if origin.group:
            self._of_groups[origin.group].add(origin.uid)
        self._tell(origin)
        return True

    def expect(self, origin: Origin) -> None:
        """Take the next object that is signed for this as its copy: it is about to be created, perhaps again."""
        self._gone.pop(origin, None)

    def remove(self, uid: str) -> None:
        """Process that the copy with this uid is gone."""
        if (of := self._origins.pop(uid, None)) is None:
            return
        self._gone[uid] = None
        origin = self._found[of].origin
        if self._found[of].uid == uid:
            self._gone[origin] = None
            del self._found[of]
            self._leave_group(origin)
            self.doubtful.discard(of)
        while len(self._gone) > 2 * _REMEMBERED:
            self._gone.popitem(last=False)
        self._tell(origin)

    def _leave_group(self, origin: Origin) -> None:
        if origin.group:
            self._of_groups[origin.group].discard(origin.uid)
            if not self._of_groups[origin.group]:
                del self._of_groups[origin.group]


class CopyStep(Enum):
    """What is due for a workload that runs as a copy."""

    NOTHING = auto()
    CREATE = auto()
    """Create the copy, already started."""
    DELETE = auto()
    """Delete the copy, after its pods."""
    COMPLETE = auto()
    """Copy along what it needs, and unsuspend the copy."""
    GROW = auto()
    """Write the number of pods into the object that its annotation asks for."""
    SCALE = auto()
    """Give the copy the pods that its object asks for, if there is quota for them."""
    STOPPED = auto()
    """Evict it: its user has suspended the object."""
    RESUME = auto()
    """Unsuspend the object."""
    SUSPEND = auto()
    """Suspend the object."""
    REPORT = auto()
    """Write the status of the copy to the object; without a copy, that of a suspended object."""
    VANISHED = auto()
    """Evict it: its copy was deleted."""


def due(
    state: State,
    own: Observed,
    copy: Observed | None,
    *,
    differs: bool,
    certain: bool,
    checks_pending: bool = False,
    completed: bool = False,
    begun: bool = False,
    grows: bool = False,
    scales: bool = False,
) -> CopyStep:
    """Return what is due. `own`: the object by its own fields, `differs`: its status is not that of its copy.

    `certain`: whether it is known that there is no other copy. `completed`: whether the copy was unsuspended.
    `begun`: whether the object was unsuspended for this copy. `grows`, `scales`: whether the object, or the copy,
    is to have another number of pods.
    """
    if copy is None and not certain:
        return CopyStep.NOTHING
    if copy is not None and copy.finished is not None:
        return CopyStep.REPORT if differs else CopyStep.NOTHING
    if copy is not None and copy.deleting:
        return CopyStep.NOTHING
    is_over = own.finished is not None or own.deleting
    if state is State.ADMITTED and not checks_pending and not is_over:
        if copy is None:
            return CopyStep.CREATE if own.suspended else CopyStep.VANISHED
        if copy.suspended and not completed:
            return CopyStep.COMPLETE
        if own.suspended:
            return CopyStep.STOPPED if begun else CopyStep.RESUME
        if grows:
            return CopyStep.GROW
        if scales:
            return CopyStep.SCALE
        return CopyStep.REPORT if differs else CopyStep.NOTHING
    if copy is not None:
        return CopyStep.DELETE
    if not (own.suspended or is_over):
        return CopyStep.SUSPEND
    return CopyStep.REPORT if differs and not is_over else CopyStep.NOTHING
