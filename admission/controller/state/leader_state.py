"""In-memory state of the leader: registry of workloads, engine, and the batch of the next commit."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.controller.state.tracked import Tracked, is_older
from admission.controller.state.workload_change import WorkloadChange
from admission.engine.events import WorkloadEnded, WorkloadGone
from admission.engine.vocabulary import MISCONFIGURED
from admission.kinds.devices import Claimed
from admission.model import sentences
from admission.store.records import SUCCEEDED, Changes, Closed, Opened, Resized, State, Transition
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from admission.engine import Engine
    from admission.engine.events import Event
    from admission.kinds.base import Kind
    from admission.model.workload import Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord

MAX_REMEMBERED: Final = 20_000
"""Finished workloads that are remembered at most, the last ones: more than finish while a watch lags behind."""


class LeaderState:
    """Registry, engine and batch, which `apply` changes together; registry and requests are those of one cluster."""

    def __init__(self, engine: Engine, *, batch: Batch | None = None, clock: Callable[[], float]) -> None:
        """`engine` and `batch`: may be shared by the states of several clusters. `clock`: returns Unix time (s)."""
        self.engine = engine
        self.registry = WorkloadRegistry()
        self.batch = Batch() if batch is None else batch
        self.dirty: dict[str, None] = {}
        """Uids of workloads for which a request may be due, in order (used as an ordered set)."""
        self.resized: dict[str, None] = {}
        """Uids of workloads that hold more, less or other quota or places, or whose object is gone: see their pods."""
        self.quota_freed = False
        """Whether quota was released, or queue objects changed, since the last cycle."""
        self.arrivals = 0
        """Number of workloads that have arrived since the last cycle."""
        self.ended = EndedWorkloads()
        self.clock = clock
        self.now = clock()
        """Time (Unix time, s) of all events of one iteration of the leader, which reads the clock once at its start."""

    def observe(self, event: Event) -> None:
        """Pass an event to the engine."""
        self.engine.observe(event, now=self.now)

    def apply(self, change: WorkloadChange) -> None:
        """Apply a change to the registry and the engine, and add it to the batch of the next commit."""
        tracked = change.tracked
        uid = tracked.record.workload.uid
        if change.is_new:
            self.arrivals += 1
        self.registry.put(tracked)
        if change.ledger:
            change.ledger = [self._located(entry) for entry in change.ledger]
            if change.waits_for_pods or any(isinstance(entry, Resized) for entry in change.ledger):
                self.resized[uid] = None
        self.batch.add(change)
        if change.frees_quota:
            self.quota_freed = True
        if change.is_due:
            self.dirty[uid] = None
        for event in change.engine_events:
            self.engine.observe(event, now=change.now)
        if change.is_finished:
            self.registry.remove(uid)
            self._note_end(tracked.record)

    def _note_end(self, record: WorkloadRecord) -> None:
        """Report the end of a workload to those that start after it, unless a newer one has its name."""
        workload = record.workload
        if not self.registry.has_name_of(workload):
            kind, succeeded = workload.kind.lower(), record.outcome == SUCCEEDED
            self.observe(WorkloadEnded(workload.namespace, workload.name, kind, workload.created, succeeded))

    def _located(self, entry: Opened | Resized | Closed) -> Opened | Resized | Closed:
        if isinstance(entry, Closed):
            return entry
        located = self.engine.located(entry.admission)
        return entry if located is entry.admission else replace(entry, admission=located)

    def restore(
        self, record: WorkloadRecord, order: Order | None, checks: tuple[CheckRecord, ...], *, is_on: bool = True
    ) -> None:
        """Add a workload from the database.

        `is_on`: whether its kind is enabled; if not, no informer watches its object.
        """
        if order is not None:
            placed = replace(record.workload, rank_priority=order.rank_priority, rank_at=order.rank_at)
            record = replace(record, workload=placed)
        if record.state is State.ADMITTED and record.cleared_at is None and not record.checks_pending:
            record = replace(record, cleared_at=record.admitted_at)  # written by a release without admission checks
        barred = record.reason in BLOCKING_REASONS or not record.active or not record.workload.pod_sets
        on_hold = record.state is State.PENDING and (barred or not is_on)
        tracked = Tracked(record=record, on_hold=on_hold, order=order, checks=checks)
        tracked.unsettled = tracked.holds_quota  # it may have been started and stopped just before the state was loaded
        if order is None or order.priority is None:
            tracked.own_priority = record.workload.priority
        change = WorkloadChange(tracked, now=self.now)
        if (
            order is not None and order.revision == record.revision
        ):  # the record was last written with the order, not by a leader
            change.tracked.order = None
            change.apply_order(order)
        if record.admission is not None:
            change.report_admitted()
        else:
            change.report_pending()
        if on_hold and not is_on and record.active:
            _block_kind_off(change)
        self.apply(change)

    def drop(self, tracked: Tracked) -> None:
        """Remove a workload that holds no quota, together with its unwritten changes."""
        uid = tracked.uid
        self.batch.forget(uid)
        self.dirty.pop(uid, None)
        if self.registry.get(uid) is not None:
            self.registry.remove(uid)
        self.observe(WorkloadGone(uid))

    def keep_out(self, tracked: Tracked) -> None:
        """Record a dropped workload with its present reason, and exclude it from cycles; if it runs, it is stopped."""
        change = WorkloadChange(tracked, now=self.now)
        change.tracked.on_hold = True
        change.write(message=tracked.record.message)
        change.report_pending()
        change.is_due = tracked.seen is not None and not tracked.seen.suspended
        self.apply(change)


class WorkloadRegistry:
    """Unfinished workloads, by uid and by the name of their object."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Tracked] = {}
        self.get = self._by_uid.get
        """Return the workload of a uid; None if there is none."""
        self._uid_by_name: dict[tuple[str, str, str, str], str] = {}
        """Uid by (group, kind, namespace, name): `("batch", "Job", "team-a", "train")`."""
        self._claimants: dict[Claimed, set[str]] = {}
        """Uids of the workloads whose pods name a ResourceClaim or template."""
        self._claimed: dict[str, set[Claimed]] = {}
        """The same, by uid."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Tracked]:
        return iter(self._by_uid.values())

    def records(self) -> dict[str, WorkloadRecord]:
        """Return a snapshot of the records, by uid."""
        return {uid: tracked.record for uid, tracked in self._by_uid.items()}

    def time_limits(self) -> dict[str, float]:
        """Return by uid the seconds that workloads with a time limit may run, counted from their last or next start."""
        return {
            tracked.uid: max(limit - tracked.record.past_seconds, 0.0)
            for tracked in self
            if (limit := tracked.max_seconds) is not None
        }

    def named(self, kind: Kind, namespace: str, name: str) -> Tracked | None:
        """Return the workload whose object has this name: the newest one if it was deleted and recreated."""
        uid = self._uid_by_name.get((kind.group, kind.kind, namespace, name))
        return self._by_uid.get(uid) if uid is not None else None

    def has_name_of(self, workload: Workload) -> bool:
        """Whether there is an unfinished workload of the same kind and name."""
        return _name(workload) in self._uid_by_name

    def put(self, tracked: Tracked) -> None:
        """Add a workload, or replace its state."""
        workload = tracked.record.workload
        if workload.uid not in self._by_uid:
            seen = tracked.seen
            key = _name(workload) if seen is None else (seen.kind.group, seen.kind.kind, seen.namespace, seen.name)
            self._uid_by_name[key] = workload.uid
        self._by_uid[workload.uid] = tracked
        for pod_set in workload.pod_sets:
            if pod_set.claims:
                self._put_claims(workload.uid, {Claimed(workload.namespace, each) for each in pod_set.claims})

    def _put_claims(self, uid: str, claims: set[Claimed]) -> None:
        known = self._claimed.setdefault(uid, set())
        for claimed in claims - known:
            known.add(claimed)
            self._claimants.setdefault(claimed, set()).add(uid)

    def claimants(self, claims: Iterable[Claimed]) -> set[str]:
        """Return the uids of the workloads whose pods name one of these, or did earlier."""
        return set().union(*(self._claimants.get(each, ()) for each in claims))

    def remove(self, uid: str) -> None:
        """Remove a workload. Its name is kept if a newer workload has it."""
        workload = self._by_uid.pop(uid).record.workload
        for claimed in self._claimed.pop(uid, ()):
            others = self._claimants[claimed]
            others.discard(uid)
            if not others:
                del self._claimants[claimed]
        name = _name(workload)
        if self._uid_by_name.get(name) == uid:
            del self._uid_by_name[name]


class EndedWorkloads:
    """Finished workloads, which late watch events must not queue again.

    For each uid, the version of its object at which it had finished. A watch may lag behind the responses of other
    requests, and behind what a former leader has seen, and then delivers objects as they were before the end. An object
    that has changed since may be queued again, for example a Job that is run again.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """`before`: uids of workloads that finished under earlier leaders, oldest first, at unknown versions."""
        self._versions = OrderedDict.fromkeys(before, "")

    def add(self, uid: str, version: str) -> None:
        """Add a finished workload; `version`: its object's resourceVersion, empty if the object was deleted."""
        self._versions[uid] = version
        self._versions.move_to_end(uid)
        if len(self._versions) > MAX_REMEMBERED:
            self._versions.popitem(last=False)

    def has(self, uid: str, version: str) -> bool:
        """Whether an object of this resourceVersion belongs to a finished workload."""
        ended = self._versions.get(uid)
        return ended is not None and not is_older(ended, version)

    def forget(self, uids: Iterable[str]) -> None:
        """Remove workloads, whose objects exist after all."""
        for uid in uids:
            self._versions.pop(uid, None)


class Batch:
    """Changes for the next commit: records (the last version of each is written), ledger entries and transitions."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._records: dict[str, WorkloadRecord] = {}
        self._reasons: dict[str, WorkloadRecord] = {}
        """Records of which only the reason or message has changed, by uid: they may be written later."""
        self._closed: list[Closed] = []
        self._opened: list[Opened] = []
        self._transitions: list[Transition] = []
        """In the order in which they happened; sorting by time would be wrong if the clock was set back."""
        self._resized: list[Resized] = []
        self._checks: dict[tuple[str, str], CheckRecord] = {}
        self._dropped_checks: list[tuple[str, str]] = []
        self._deactivated: list[str] = []

    @property
    def urgent(self) -> bool:
        """Whether it contains more than new reasons for waiting, which may be written later."""
        return bool(
            self._records or self._closed or self._opened or self._resized or self._checks or self._dropped_checks
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.urgent or self._reasons)

    def add(self, change: WorkloadChange) -> None:
        """Add a change; of several records of a workload the last one is written."""
        record = change.tracked.record
        uid = record.workload.uid
        if change.is_written:
            self._reasons.pop(uid, None)
            self._records[uid] = record
        elif change.is_written_later:
            (self._records if uid in self._records else self._reasons)[uid] = record
        self._transitions += change.transitions
        for entry in change.ledger:
            match entry:
                case Opened():
                    self._opened.append(entry)
                case Resized():
                    self._resized.append(entry)
                case Closed(ended):
                    # Sizes are written last: a size from before the end must not apply to a later admission.
                    self._resized = [resized for resized in self._resized if resized.workload.uid != ended]
                    self._closed.append(entry)
        for check in change.dropped_checks:
            self._checks.pop((uid, check.name), None)
            self._dropped_checks.append((uid, check.name))
        for check in change.requested_checks:
            self._checks[uid, check.name] = check
        if change.deactivates:
            self._deactivated.append(uid)

    def concerns(self, uid: str) -> bool:
        """Whether anything of a workload is to be written, other than a new reason for waiting."""
        return (
            uid in self._records
            or self.moves_quota(uid)
            or any(each == uid for each, _ in (*self._checks, *self._dropped_checks))
        )

    def moves_quota(self, uid: str) -> bool:
        """Whether it contains a start, an end or a new size of an admission of this workload."""
        return (
            any(one.uid == uid for one in self._closed)
            or any(one.workload.uid == uid for one in self._opened)
            or any(one.workload.uid == uid for one in self._resized)
        )

    def forget(self, uid: str) -> None:
        """Remove all changes of a workload except for those of its quota."""
        self._records.pop(uid, None)
        self._reasons.pop(uid, None)
        self._transitions = [each for each in self._transitions if each.uid != uid]
        self._checks = {key: check for key, check in self._checks.items() if check.uid != uid}
        self._dropped_checks = [key for key in self._dropped_checks if key[0] != uid]
        self._deactivated = [other for other in self._deactivated if other != uid]

    def take(self, *, known: int | None = None) -> Changes:
        """Return all changes and empty the batch.

        `known`: revision up to which the leader has read what other writers changed.
        """
        changes = Changes(
            workloads=(*self._records.values(), *self._reasons.values()),
            closed=tuple(self._closed),
            opened=tuple(self._opened),
            resized=tuple(self._resized),
            transitions=tuple(self._transitions),
            checks=tuple(self._checks.values()),
            dropped_checks=tuple(self._dropped_checks),
            deactivated=tuple(self._deactivated),
            known=known,
        )
        self._clear()
        return changes


def _block_kind_off(change: WorkloadChange) -> None:
    """Record that a pending workload cannot be admitted, because its kind is not enabled."""
    workload = change.tracked.record.workload
    message = sentences.kind_off(f"{workload.group}/{workload.kind.lower()}")
    if change.tracked.record.message != message:
        change.tracked.change(reason=MISCONFIGURED, message=message)
        change.write(message=message)


def _name(workload: Workload) -> tuple[str, str, str, str]:
    return workload.group, workload.kind, workload.namespace, workload.name
