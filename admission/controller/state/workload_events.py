"""Kubernetes Events on the objects of workloads: why one waits, or was evicted, for `kubectl describe job`.

A Job that is admitted within `WAITS_AFTER` gets none of them, so that one that is started undisturbed has a single
Event, `Admitted`. The text is the sentence that conditions have. The recorder writes in the background.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from admission.controller.state.workload_change import DEACTIVATED, QUOTA_RESERVED
from admission.engine.vocabulary import (
    PENDING_EVALUATION,
    PODS_UNSCHEDULED,
    PREEMPTED,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
)
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from admission.store.records import Changes, Eviction, WorkloadRecord

WAITS_AFTER: Final = 10.0
"""Seconds of waiting for quota after which an Event tells the reason; other reasons are told at once."""

AGAIN_AFTER: Final = 60.0
"""Seconds, at least, between two Events that tell the same reason of one workload, or one that passes by itself."""

LONG: Final = 3600.0
"""Seconds of waiting after which a Warning tells so, and again whenever that time has doubled."""

IN_DOUBT: Final = 300.0
"""What was due in so many seconds before a lead began may not have been told by the leader before. It is told again,
as of the same occasion, so that it is there once in either case."""

Emit: TypeAlias = "Callable[[WorkloadRecord, str, str, bool, str], object]"
"""Called with a record, and of an Event: reason, note, whether it is a Warning, and its occasion or nothing (see
`EventRecorder.record`)."""

PENDING: Final = "Pending"
PENDING_FOR_LONG: Final = "PendingForLong"
TELLS_WHY: Final = frozenset({PENDING, PENDING_FOR_LONG, PODS_UNSCHEDULED})
"""Reasons of Events that tell why a workload does not run now; the others tell what has happened."""

_LOOK_SECONDS: Final = 1.0
_PASSING: Final = frozenset({"", PENDING_EVALUATION, WAITING_FOR_QUOTA, WAITING_FOR_PREEMPTED, "WaitingForPodsReady"})
"""Reasons that often go away by themselves within moments."""


class _Waiting:
    """What was told of one waiting workload."""

    __slots__ = ("due", "long_from", "reasons", "record", "told", "told_at")

    def __init__(self, record: WorkloadRecord) -> None:
        self.record = record
        self.due = 0.0
        """When something is to be told next."""
        self.told = ""
        self.told_at = 0.0
        self.reasons: set[str] = set()
        """All that were told since it was queued."""
        self.long_from = record.queued_at + LONG
        """When it has waited for long, or for twice as long as when that was told last."""


class WorkloadEvents:
    """Told what is committed; `clock` gives seconds since the epoch."""

    def __init__(self, emit: Emit, *, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        self._due: list[tuple[float, str]] = []

    def begin(self, records: Iterable[WorkloadRecord]) -> None:
        """A lead begins: of those that wait already, the leader before has told what was due then."""
        self._waiting.clear()
        self._due.clear()
        now = self._clock()
        for record in records:
            if record.eviction is not None and record.eviction.at > now - IN_DOUBT:
                self._tell_eviction(record, record.eviction)
            if record.state is not State.PENDING:
                continue
            waiting = self._waiting[record.workload.uid] = _Waiting(record)
            first = record.queued_at + WAITS_AFTER
            if first > now - IN_DOUBT:
                self._schedule(waiting, first)
                continue
            waiting.told, waiting.told_at = _text(record), first
            waiting.reasons.add(record.reason)
            long = LONG
            while record.queued_at + long <= now:
                long *= 2
            waiting.long_from = record.queued_at + long
            self._schedule(waiting, waiting.long_from)

    def tell(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Take in what is committed, but not of the workloads `unwritten`, by uid."""
        evicted = {line.uid for line in changes.transitions if line.state is State.EVICTING}
        reserved = {line.uid for line in changes.transitions if line.reason == QUOTA_RESERVED}
        for record in changes.workloads:
            uid = record.workload.uid
            if uid in unwritten:
                continue
            if record.state is State.PENDING:
                self._follow(record)
                continue
            self._waiting.pop(uid, None)
            if record.state is State.EVICTING and uid in evicted and record.eviction is not None:
                self._tell_eviction(record, record.eviction)
            elif record.checks_pending and uid in reserved:
                self._emit(record, QUOTA_RESERVED, record.message, False, "")
            elif record.state is State.ADMITTED and record.reason == PODS_UNSCHEDULED:
                self._emit(record, PODS_UNSCHEDULED, record.message, True, "")

    def _tell_eviction(self, record: WorkloadRecord, eviction: Eviction) -> None:
        reason = _eviction_reason(eviction.reason)
        self._emit(record, reason, eviction.message, True, f"{reason} at {eviction.at:.0f}")

    def _follow(self, record: WorkloadRecord) -> None:
        uid, now = record.workload.uid, self._clock()
        known = self._waiting.get(uid)
        if known is None:
            known = self._waiting[uid] = _Waiting(record)
        elif (record.reason, record.message) == (known.record.reason, known.record.message):
            known.record = record
            return
        known.record = record
        passes = record.reason in _PASSING
        earliest = record.queued_at + WAITS_AFTER if passes else now
        again = known.told_at + AGAIN_AFTER if passes or record.reason in known.reasons else 0.0
        self._schedule(known, min(max(earliest, again if known.told else 0.0), known.long_from))

    def _schedule(self, waiting: _Waiting, due: float) -> None:
        waiting.due = due
        heappush(self._due, (due, waiting.record.workload.uid))

    def tell_due(self) -> None:
        """Tell what is due by now."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            due, uid = heappop(self._due)
            waiting = self._waiting.get(uid)
            if waiting is None or waiting.due != due:
                continue
            record, text = waiting.record, _text(waiting.record)
            if now >= waiting.long_from:
                waited = now - record.queued_at
                waiting.long_from = record.queued_at + 2 * waited
                self._emit(record, PENDING_FOR_LONG, f"It has waited for {waited / 3600:.0f} h. {text}", True, "")
                waiting.told, waiting.told_at = text, now
            elif text != waiting.told and record.message:
                is_new = record.reason not in waiting.reasons
                occasion = f"{record.reason} since {record.queued_at:.0f}" if is_new else ""
                self._emit(record, PENDING, text, False, occasion)
                waiting.told, waiting.told_at = text, now
                waiting.reasons.add(record.reason)
            self._schedule(waiting, waiting.long_from)

    async def run(self) -> NoReturn:
        """Tell what is due, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.tell_due()


def _text(record: WorkloadRecord) -> str:
    return f"{record.reason}: {record.message}"


def _eviction_reason(reason: str) -> str:
    """Kueue's word for the Event of an eviction."""
    return reason if reason == PREEMPTED or reason.startswith(DEACTIVATED) else f"EvictedDueTo{reason}"
