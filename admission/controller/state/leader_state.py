"""What a leader works on: workloads, the engine, and what the next commit writes, collected over one step."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.controller.state.tracked import Tracked, is_older
from admission.controller.state.workload_change import WorkloadChange
from admission.engine.events import WorkloadGone
from admission.engine.vocabulary import MISCONFIGURED
from admission.model import sentences
from admission.store.records import Changes, Closed, Opened, Resized, State, Transition
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from admission.engine import Engine
    from admission.engine.events import Event
    from admission.kinds.base import Kind
    from admission.model.workload import Workload
    from admission.store.records import CheckRecord, Order, WorkloadRecord

MOST_REMEMBERED: Final = 20_000
"""Ends that are remembered in a lead: more than a watch lags behind."""


class LeaderState:
    """Registry, engine and batch, which change together, by `apply`. `clock` gives Unix time in seconds."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float]) -> None:
        self.engine = engine
        self.registry = Registry()
        self.batch = Batch()
        self.dirty: dict[str, None] = {}
        """The workloads of which a request may be due, in order."""
        self.freed = False
        """Whether quota has become free since the last cycle."""
        self.arrived = 0
        """How many have arrived since then."""
        self.ended = EndedWorkloads()
        self.clock = clock
        self.now = clock()
        """The time (Unix time, s) of all that happens in one turn of the leader; it looks at the clock before."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for quota who has not just arrived."""
        return self.engine.waiting > self.arrived

    def tell(self, event: Event) -> None:
        """Tell the engine."""
        self.engine.observe(event, now=self.now)

    def apply(self, change: WorkloadChange) -> None:
        """Have a change take effect: in memory, in the engine, and with the next commit in the database."""
        tracked = change.tracked
        uid = tracked.record.workload.uid
        if change.is_new:
            self.arrived += 1
        self.registry.put(tracked)
        self.batch.add(change)
        if change.frees_quota:
            self.freed = True
        if change.is_due:
            self.dirty[uid] = None
        for event in change.engine_events:
            self.engine.observe(event, now=change.now)
        if change.is_over:
            self.registry.remove(uid)

    def restore(
        self, record: WorkloadRecord, order: Order | None, checks: tuple[CheckRecord, ...], *, is_on: bool = True
    ) -> None:
        """A workload as it is on record; not `is_on`: its kind is switched off, and nobody sees its object."""
        if order is not None:
            placed = replace(record.workload, rank_priority=order.rank_priority, rank_at=order.rank_at)
            record = replace(record, workload=placed)
        if record.state is State.ADMITTED and record.cleared_at is None and not record.checks_pending:
            record = replace(record, cleared_at=record.admitted_at)  # written by a version that knew no checks
        barred = record.reason in BLOCKING_REASONS or not record.active or not record.workload.pod_sets
        on_hold = record.state is State.PENDING and (barred or not is_on)
        tracked = Tracked(record=record, on_hold=on_hold, order=order, checks=checks)
        tracked.unsettled = tracked.holds_quota  # it may have been started and stopped a moment ago
        if order is None or order.priority is None:
            tracked.own_priority = record.workload.priority
        change = WorkloadChange(tracked, now=self.now)
        if order is not None and order.revision == record.revision:  # written by nobody who had taken it in
            change.tracked.order = None
            change.take_order(order)
        if record.admission is not None:
            change.tell_admitted()
        else:
            change.tell_pending()
        if on_hold and not is_on and record.active:
            _bar_kind_off(change)
        self.apply(change)

    def drop(self, tracked: Tracked) -> None:
        """Forget a workload that holds nothing, and what was to be written of it."""
        uid = tracked.uid
        self.batch.forget(uid)
        self.dirty.pop(uid, None)
        if self.registry.get(uid) is not None:
            self.registry.remove(uid)
        self.tell(WorkloadGone(uid))

    def keep_out(self, tracked: Tracked) -> None:
        """Record a dropped workload as it is, and keep it out of all decisions; if it runs, it is stopped."""
        change = WorkloadChange(tracked, now=self.now)
        change.tracked.on_hold = True
        change.write(message=tracked.record.message)
        change.tell_pending()
        change.is_due = tracked.seen is not None and not tracked.seen.suspended
        self.apply(change)


class Registry:
    """All workloads that are not finished, by uid and by the name of their object."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Tracked] = {}
        self.get = self._by_uid.get
        """The workload of a uid; None if there is none."""
        self._uid_by_name: dict[tuple[str, str, str, str], str] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Tracked]:
        return iter(self._by_uid.values())

    def records(self) -> dict[str, WorkloadRecord]:
        """What is on record of each, by uid, as it is at this moment."""
        return {uid: tracked.record for uid, tracked in self._by_uid.items()}

    def time_limits(self) -> dict[str, float]:
        """Seconds for which each workload that has a limit may run, from its next or last start on, by uid."""
        return {
            tracked.uid: max(tracked.seen.max_seconds - tracked.record.past_seconds, 0.0)
            for tracked in self
            if tracked.seen is not None and tracked.seen.max_seconds is not None
        }

    def named(self, kind: Kind, namespace: str, name: str) -> Tracked | None:
        """The workload whose object has this name: the newest, where one was deleted and created anew."""
        uid = self._uid_by_name.get((kind.group, kind.kind, namespace, name))
        return self._by_uid.get(uid) if uid is not None else None

    def put(self, tracked: Tracked) -> None:
        """Add a workload, or replace its former state."""
        workload = tracked.record.workload
        if workload.uid not in self._by_uid:
            seen = tracked.seen
            key = _name(workload) if seen is None else (seen.kind.group, seen.kind.kind, seen.namespace, seen.name)
            self._uid_by_name[key] = workload.uid
        self._by_uid[workload.uid] = tracked

    def remove(self, uid: str) -> None:
        workload = self._by_uid.pop(uid).record.workload
        name = _name(workload)
        if self._uid_by_name.get(name) == uid:
            del self._uid_by_name[name]


class EndedWorkloads:
    """Workloads that are over, so that what is told of them late does not queue them once more.

    By uid, up to which version of its object each is over. A watch may lag behind what other requests were answered,
    and behind what a former leader has seen: it still tells of objects as they were before the end. An object that has
    changed since may queue again, as one that is run anew.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """`before`: uids of those that had ended before this lead, oldest first, of which no version is known."""
        self._versions = OrderedDict.fromkeys(before, "")

    def add(self, uid: str, version: str) -> None:
        """A workload has ended; `version` is its object's resourceVersion, empty if the object is gone."""
        self._versions[uid] = version
        if len(self._versions) > MOST_REMEMBERED:
            self._versions.popitem(last=False)

    def has(self, uid: str, version: str) -> bool:
        """Whether an object of this resourceVersion belongs to a workload that is over."""
        ended = self._versions.get(uid)
        return ended is not None and not is_older(ended, version)

    def forget(self, uids: Iterable[str]) -> None:
        """They are there after all."""
        for uid in uids:
            self._versions.pop(uid, None)


class Batch:
    """Records (the last version of each wins), the ledger's beginnings and endings, and the story."""

    def __init__(self) -> None:
        self._records: dict[str, WorkloadRecord] = {}
        self._reasons: dict[str, WorkloadRecord] = {}
        self._closed: list[Closed] = []
        self._opened: list[Opened] = []
        self._story: list[Transition] = []
        """As it happened, which times do not tell where the clock is set back."""
        self._resized: list[Resized] = []
        self._checks: dict[tuple[str, str], CheckRecord] = {}
        self._dropped_checks: list[tuple[str, str]] = []
        self._deactivated: list[str] = []

    @property
    def urgent(self) -> bool:
        """Whether it holds more than new reasons for waiting, which may be written some time later."""
        return bool(
            self._records or self._closed or self._opened or self._resized or self._checks or self._dropped_checks
        )

    @property
    def empty(self) -> bool:
        return not (self.urgent or self._reasons)

    def add(self, change: WorkloadChange) -> None:
        """Have all that a change says written; of several records of a workload the last one counts."""
        record = change.tracked.record
        uid = record.workload.uid
        if change.is_written:
            self._reasons.pop(uid, None)
            self._records[uid] = record
        elif change.is_noted:
            (self._records if uid in self._records else self._reasons)[uid] = record
        self._story += change.lines
        for entry in change.ledger:
            match entry:
                case Opened():
                    self._opened.append(entry)
                case Resized():
                    self._resized.append(entry)
                case Closed(ended):
                    # Sizes are written last: one from before the end is not for what may begin after it.
                    self._resized = [resized for resized in self._resized if resized.workload.uid != ended]
                    self._closed.append(entry)
        for check in change.dropped_checks:
            self._checks.pop((uid, check.name), None)
            self._dropped_checks.append((uid, check.name))
        for check in change.asked_checks:
            self._checks[uid, check.name] = check
        if change.deactivates:
            self._deactivated.append(uid)

    def moves_quota(self, uid: str) -> bool:
        """Whether it holds a beginning, an ending or another size of an admission of this workload."""
        return (
            any(one.uid == uid for one in self._closed)
            or any(one.workload.uid == uid for one in self._opened)
            or any(one.workload.uid == uid for one in self._resized)
        )

    def forget(self, uid: str) -> None:
        """Drop all that is not about quota of a workload."""
        self._records.pop(uid, None)
        self._reasons.pop(uid, None)
        self._story = [line for line in self._story if line.uid != uid]
        self._checks = {key: check for key, check in self._checks.items() if check.uid != uid}
        self._dropped_checks = [key for key in self._dropped_checks if key[0] != uid]
        self._deactivated = [other for other in self._deactivated if other != uid]

    def take(self, *, known: int | None = None) -> Changes:
        """Everything collected so far; the batch is empty afterwards.

        `known`: the revision up to which what others write was taken in.
        """
        changes = Changes(
            workloads=(*self._records.values(), *self._reasons.values()),
            closed=tuple(self._closed),
            opened=tuple(self._opened),
            resized=tuple(self._resized),
            transitions=tuple(self._story),
            checks=tuple(self._checks.values()),
            dropped_checks=tuple(self._dropped_checks),
            deactivated=tuple(self._deactivated),
            known=known,
        )
        self.__init__()  # type: ignore[misc]
        return changes


def _bar_kind_off(change: WorkloadChange) -> None:
    workload = change.tracked.record.workload
    message = sentences.kind_off(f"{workload.group}/{workload.kind.lower()}")
    if change.tracked.record.message != message:
        change.tracked.change(reason=MISCONFIGURED, message=message)
        change.write(message=message)


def _name(workload: Workload) -> tuple[str, str, str, str]:
    return workload.group, workload.kind, workload.namespace, workload.name
