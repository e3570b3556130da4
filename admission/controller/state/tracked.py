"""What the controller keeps in memory about each workload: what is committed, and what was last seen of its object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.controller.state.lifecycle import Step
    from admission.kinds.base import Kind, Object, Observed
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord


_LATE = "cameLate"
"""In a record's `original`."""


class StoredObject(NamedTuple):
    """An object as it was last seen, packed."""

    kind: Kind
    raw: bytes


def packed(obj: Object) -> bytes:
    """An object that has to be kept: as JSON it takes a quarter of the memory."""
    obj["metadata"].pop("managedFields", None)  # nobody reads them, and they are half of many objects
    return bytes(memoryview(orjson.dumps(obj)))  # copied, because orjson leaves its buffer as large as it was


def is_older(version: str, known: str) -> bool:
    """Whether a resourceVersion is older than the known one: they are numbers that grow (promised since 1.35)."""
    try:
        return int(version) < int(known)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class StartPatch:
    """The request that starts a workload, as computed when it was decided, and what it replaces in the object."""

    resource_version: str
    """Of the object that it was computed from: for another version it has to be computed anew."""
    body: list[Object]
    original: Object
    """See `Kind.start_patch`."""

    @classmethod
    def of(
        cls,
        seen: Observed,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        *,
        updates: Sequence[PodSetUpdate] = (),
    ) -> StartPatch:
        """The request that starts a workload with this admission, and with what its admission checks add.

        Raises Misconfigured if it cannot be started so.
        """
        body, original = seen.kind.start_patch(obj, admission, flavors, updates)
        return cls(seen.resource_version, body, original)


@dataclass(slots=True)
class Tracked:
    """One workload. `record` is what the next commit writes, or the last one wrote.

    Changed in the registry only by a `WorkloadChange`; but `in_flight`, `attempts`, `in_sync` and `wait` are of its
    requests.
    """

    record: WorkloadRecord
    seen: Observed | None = None
    """None: not seen since the start, or gone."""
    raw: bytes | None = None
    """`object`, packed."""
    on_hold: bool = False
    """Kept out of the cycles: by its user, or because it is misconfigured or still runs ungated."""
    refused: tuple[int, str] | None = None
    """The object's generation that the API server would not start, and what it said; another one is tried again."""
    in_flight: Step | None = None
    """A request for it is under way, or its outcome is not known yet."""
    attempts: int = 0
    """Requests for it that failed since the last one that did not."""
    order: Order | None = None
    """What an admin has ordered about it."""
    own_priority: int | None = None
    """Its priority without the order; None: not known now."""
    pod_class: str | None = None
    """The PriorityClass of its pods when that was found out; None: not known now."""
    checks: tuple[CheckRecord, ...] = ()
    """What admission checks say of it, by name."""
    reason_changes: int = 0
    """Lines in its story about why it waits, since the state was loaded."""
    deadline: float | None = None
    """When it has to be looked at again, if it still holds quota then."""
    unsettled: bool = False
    """Whether it was unsuspended and its controller may not have said so yet: what its status says is from before."""
    wait: int = 0
    """The number of the wait for its pods that is under way (`PodWaiter`); 0: none."""
    start_patch: StartPatch | None = None
    """What to send when its admission is committed."""
    in_sync: int = 0
    """The generation that is known to be what was admitted, because Sluice made it by starting it."""
    surplus: frozenset[str] = frozenset()
    """The pod sets that may have more pods than it wants: only a count can tell whether they are gone."""
    larger: Workload | None = None
    """With more pods than it was admitted with, as the engine has it waiting for their quota beside what it holds."""
    larger_barred: str = ""
    """What keeps `larger` from being given quota, beside others that hold it."""

    @property
    def uid(self) -> str:
        return self.record.workload.uid

    @property
    def object(self) -> Object | None:
        """The Kubernetes object as last seen, unpacked anew each time: patches are made from it."""
        return None if self.raw is None else orjson.loads(self.raw)

    @object.setter  # noqa: A003
    def object(self, obj: Object | None) -> None:
        self.raw = None if obj is None else packed(obj)

    def saw(self, seen: Observed, obj: Object) -> None:
        """A newer version of the object was seen."""
        before, self.seen, self.raw = self.seen, seen, packed(obj)
        if seen.kind.ends_by_deletion:
            self.unsettled = False  # what is gated has never run
        elif not seen.suspended:
            self.unsettled = seen.stopped or not seen.started or not seen.kind.tells_of_pods
        elif not seen.kind.tells_of_pods:
            pass  # it stays as it is until the pods were looked for
        elif seen.active:
            self.unsettled = False
        elif before is not None and seen.generation > before.generation + 1:
            self.unsettled = True  # what it was meanwhile nobody knows
        if before is None or before.generation != seen.generation:
            self.wait = 0

    @property
    def holds_quota(self) -> bool:
        return self.record.state in (State.ADMITTED, State.EVICTING)

    @property
    def came_late(self) -> bool:
        """Whether it waits with what a start put in that came through after its eviction."""
        original = self.record.original
        return self.record.state is State.PENDING and original is not None and _LATE in original

    def note_late_start(self, came_late: bool) -> None:
        """Have `came_late` written by the commit that the caller adds the record to."""
        if came_late and self.record.original is not None:
            self.change(original={**self.record.original, _LATE: True})
        elif self.came_late:
            self.change(original=None)

    @property
    def updates(self) -> tuple[PodSetUpdate, ...]:
        """What admission checks add to its pods."""
        return tuple(update for check in self.checks for update in check.pod_set_updates)

    def change(self, **fields: Any) -> WorkloadRecord:
        """Replace fields of the record; it is written by the commit that the caller adds it to."""
        self.record = replace(self.record, **fields)
        return self.record
