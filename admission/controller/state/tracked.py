"""In-memory state of one workload: its record, and its object as last seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from admission.kinds.dispatched import without_status
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Kind, Object, Observed, Outcome
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord


_LATE = "cameLate"
"""Key of a record's `original`, set if a start patch took effect after the eviction. Persisted: do not rename."""


class StoredObject(NamedTuple):
    """An object as last seen, serialised by `packed`."""

    kind: Kind
    raw: bytes


def packed(obj: Object) -> bytes:
    """Serialise an object for keeping in memory: as JSON it takes a quarter of the memory. Removes `managedFields`."""
    obj["metadata"].pop("managedFields", None)  # not used, and half of the size of many objects
    return bytes(memoryview(orjson.dumps(obj)))  # a copy, as orjson does not shrink its buffer to the result


def is_older(version: str, known: str) -> bool:
    """Whether a resourceVersion is older than the known one.

    They are growing integers, which Kubernetes guarantees since 1.35. False if either is not a number.
    """
    try:
        return int(version) < int(known)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class StartPatch:
    """JSON patch that starts a workload, computed when it was admitted, and the values that it replaces."""

    resource_version: str
    """resourceVersion of the object from which it was computed; for another version it has to be computed again."""
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
        """Return the patch that starts a workload with this admission and the `updates` of its admission checks.

        Raises Misconfigured if the workload cannot be started with them.
        """
        body, original = seen.kind.start_patch(without_status(seen.kind, obj), admission, flavors, updates)
        if admission.cluster:  # a copy is started in its place, and nothing in the object is replaced
            body, original = [], {}
        return cls(seen.resource_version, body, original)


@dataclass(slots=True)
class Tracked:
    """One workload. `record` is as the last commit wrote it, or as the next one will.

    In the registry only a `WorkloadChange` changes it, except for `attempts`, `in_sync`, `wait_number` and `measured`,
    which are changed while its requests are sent and answered.
    """

    record: WorkloadRecord
    seen: Observed | None = None
    """The object's observed state; None: not seen since the leader started, or deleted."""
    kept: bytes | Object | None = None
    """`object`, serialised by `packed`; one that `is_composed` as it is."""
    on_hold: bool = False
    """Whether cycles skip it: it is on hold by its user or an admin, misconfigured, or still runs without quota."""
    refused: tuple[int, str] | None = None
    """Generation of the object that cannot be started, and the message why; another generation is tried again."""
    attempts: int = 0
    """Number of requests for it that failed since the last successful one."""
    order: Order | None = None
    """Admin's order about it, which overrides its object."""
    own_priority: int | None = None
    """Its priority without the order's override; None: not known, to be computed from the object."""
    pod_class: str | None = None
    """PriorityClass of its pods from which `own_priority` was computed; None: not known."""
    checks: tuple[CheckRecord, ...] = ()
    """States of its admission checks, sorted by name."""
    reason_changes: int = 0
    """Number of history entries about reasons for waiting since the state was loaded, see `MAX_REASON_CHANGES`."""
    deadline: float | None = None
    """Unix time (s) of its next timeout, such as `waitForPodsReady`, as long as it holds quota; None: it has none."""
    unsettled: bool = False
    """Whether it was unsuspended, and its status may still be from before that, so that it may have unreported pods."""
    finished_as: Outcome | None = None
    """Outcome of its finished object, while its pods still hold the quota; None: it has not finished."""
    wait_number: int = 0
    """Number of the `PodWaiter` wait for its pods that is under way; 0: none."""
    measured: float | None = None
    """Start (Unix time, s) after which the requests of its pods were, or are to be, read; None: never."""
    start_patch: StartPatch | None = None
    """Patch to send when its admission is committed."""
    in_sync: int = 0
    """Generation that is known to match the admission, because the start patch created it."""
    surplus_pod_sets: frozenset[str] = frozenset()
    """Names of pod sets that may have more pods than requested; only counting the pods shows when they are gone."""
    larger: Workload | None = None
    """The workload with more pods than it was admitted with, pending in the engine beside the admission; None: none."""
    barred: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    """Clusters that it is not dispatched to for some time: until when (Unix time, s), and the message why."""
    sent_to: str = ""
    """The cluster that it was last dispatched to, and may have left data in; empty: none that this leader knows."""
    larger_obstacle: str = ""
    """Message why `larger` cannot be admitted, other than quota in use by others; empty: nothing is known."""

    not_scaled: tuple[int, str] = (-1, "")
    """Generation of the object whose number of pods its cluster has not accepted for the copy, and the message why."""
    pod_refused: tuple[str, str] = ("", "")
    """Uid of a pod of a group of which the cluster has not accepted a copy while others run, and the message why."""

    @property
    def uid(self) -> str:
        return self.record.workload.uid

    @property
    def max_seconds(self) -> int | None:
        """Its time limit (s): not more than when it was admitted, by which Budgets have reserved hours for it."""
        own = None if self.seen is None else self.seen.max_seconds
        return min((each for each in (own, self.record.workload.max_seconds) if each is not None), default=None)

    @property
    def object(self) -> Object | None:
        """The Kubernetes object as last seen, deserialised at each access; patches are computed from it."""
        return orjson.loads(self.kept) if isinstance(self.kept, bytes) else self.kept

    @object.setter  # noqa: A003
    def object(self, obj: Object | None) -> None:
        is_composed = self.seen is not None and self.seen.kind.is_composed
        self.kept = obj if obj is None or is_composed else packed(obj)

    def update_object(self, seen: Observed, obj: Object) -> None:
        """Process a newer version of the object."""
        before, self.seen = self.seen, seen
        self.kept = obj if seen.kind.is_composed else packed(obj)
        if seen.kind.ends_by_deletion:
            self.unsettled = False  # a gated object of such a kind has never run
        elif self.runs_elsewhere:
            # When its copy is gone, only its pods show whether they are, too: others may have deleted it without them.
            self.unsettled = not seen.started and (self.unsettled or (before is not None and before.started))
        elif not seen.suspended:
            self.unsettled = seen.stopped or not seen.started or not seen.kind.reports_pods
        elif not seen.kind.reports_pods:
            pass  # the status shows no pods: unchanged until the PodWaiter has listed them
        elif seen.active:
            self.unsettled = False
        elif before is not None and seen.generation > before.generation + 1:
            self.unsettled = True  # generations were missed, in which it may have run
        if before is None or before.generation != seen.generation:
            self.wait_number = 0

    @property
    def holds_quota(self) -> bool:
        return self.record.state in (State.ADMITTED, State.EVICTING)

    @property
    def runs_elsewhere(self) -> bool:
        """Whether a copy in another cluster runs in its place, or is to run as soon as it is admitted."""
        if self.seen is not None and self.seen.is_dispatched:
            return True
        return self.record.admission is not None and bool(self.record.admission.cluster)

    @property
    def started_late(self) -> bool:
        """Whether it is pending, with fields injected by a start patch that took effect after its eviction."""
        original = self.record.original
        return self.record.state is State.PENDING and original is not None and _LATE in original

    def note_late_start(self, started_late: bool) -> None:
        """Store `started_late` in the record; the caller has it written."""
        if started_late and self.record.original is not None:
            self.change(original={**self.record.original, _LATE: True})
        elif self.started_late:
            self.change(original=None)

    @property
    def updates(self) -> tuple[PodSetUpdate, ...]:
        """Labels, annotations, node selectors and tolerations that admission checks add to its pods."""
        return tuple(update for check in self.checks for update in check.pod_set_updates)

    def change(self, **fields: Any) -> WorkloadRecord:
        """Replace fields of the record and return it; the caller has it written."""
        self.record = replace(self.record, **fields)
        return self.record
