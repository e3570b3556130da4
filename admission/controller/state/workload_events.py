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
from admission.model import sentences
from admission.store.records import DEQUEUED, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.store.records import Changes, Eviction, WorkloadRecord

WAITS_AFTER: Final = 10.0
"""Seconds of waiting for quota after which an Event tells the reason; other reasons are told at once."""

AGAIN_AFTER: Final = 60.0
"""Seconds, at least, between two Events that tell the same reason of one workload, or one that passes by itself."""

LONG: Final = 3600.0
"""Seconds of waiting after which a Warning tells so, and again whenever that time has doubled."""

IN_DOUBT: Final = 300.0
"""What was due in so many seconds before the last line of the record may not have been told by the leader before,
however long ago that was killed. It is told again, as of the same occasion, so that it is there once in either case."""

TOLD_AGAIN: Final = 2_000
"""Workloads, at most, that are told again when a lead begins: those of which something was written last."""

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

    __slots__ = ("due", "long_from", "occasions", "reasons", "record", "since", "told", "told_at")

    def __init__(self, record: WorkloadRecord, since: float) -> None:
        self.record = record
        self.since = since
        """When the last line of its story was written: with what it says now, the occasion of an Event."""
        self.due = 0.0
        """When something is to be told next."""
        self.told = ""
        self.told_at = 0.0
        self.reasons: set[str] = set()
        """All that were told since it was queued."""
        self.occasions: set[int] = set()
        """Hashes of those that were told: what comes again has to be told as something new."""
        self.long_from = record.queued_at + LONG
        """When it has waited for long, or for twice as long as when that was told last."""


class WorkloadEvents:
    """Told what is committed; `clock` gives seconds since the epoch."""

    def __init__(self, emit: Emit, *, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        self._due: list[tuple[float, str]] = []

    def begin(self, records: Iterable[WorkloadRecord], written: Mapping[str, float]) -> None:
        """A lead begins, or begins anew: the leader before has told what was due, but perhaps not the last of it.

        `written`: when the last line of the story of workloads was written, by uid, of those for which that was last.
        """
        self._waiting.clear()
        self._due.clear()
        now = self._clock()
        doubtful = min(max(written.values(), default=now), now) - IN_DOUBT
        left = TOLD_AGAIN
        for record in sorted(records, key=lambda each: written.get(each.workload.uid, 0.0), reverse=True):
            uid = record.workload.uid
            if record.eviction is not None and record.eviction.at > doubtful and left > 0:
                self._tell_eviction(record, record.eviction)
                left -= 1
            if record.state is not State.PENDING:
                continue
            waiting = self._waiting[uid] = _Waiting(record, written.get(uid, record.queued_at))
            first = record.queued_at + WAITS_AFTER
            if first > now:
                self._schedule(waiting, first)
                continue
            is_doubtful = waiting.since > doubtful and left > 0
            while waiting.long_from <= (doubtful if is_doubtful else now):
                waiting.long_from += waiting.long_from - record.queued_at
            if is_doubtful:
                left -= 1
                self._schedule(waiting, now)
            else:
                waiting.told, waiting.told_at = _text(record), first
                waiting.reasons.add(record.reason)
                self._schedule(waiting, waiting.long_from)

    def tell(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Take in what is committed, but not of the workloads `unwritten`, by uid."""
        evicted = {line.uid for line in changes.transitions if line.state is State.EVICTING}
        reserved = {line.uid for line in changes.transitions if line.reason == QUOTA_RESERVED}
        written = {line.uid: line.at for line in changes.transitions}
        for record in changes.workloads:
            uid = record.workload.uid
            if uid in unwritten:
                continue
            if record.state is State.PENDING:
                self._follow(record, written.get(uid))
                continue
            self._waiting.pop(uid, None)
            if record.state is State.EVICTING and uid in evicted and record.eviction is not None:
                self._tell_eviction(record, record.eviction)
            elif record.message == sentences.UNLABELLED_POD:
                self._emit(record, DEQUEUED, record.message, True, "")
            elif record.is_stop_refused:
                self._emit(record, _eviction_reason(record.evict_reason), record.message, True, "")
            elif record.checks_pending and uid in reserved:
                self._emit(record, QUOTA_RESERVED, record.message, False, "")
            elif record.state is State.ADMITTED and record.reason == PODS_UNSCHEDULED:
                self._emit(record, PODS_UNSCHEDULED, record.message, True, "")

    def _tell_eviction(self, record: WorkloadRecord, eviction: Eviction) -> None:
        reason = _eviction_reason(eviction.reason)
        self._emit(record, reason, eviction.message, True, f"{reason} at {eviction.at:.0f}")

    def _follow(self, record: WorkloadRecord, written: float | None) -> None:
        uid, now = record.workload.uid, self._clock()
        known = self._waiting.get(uid)
        if known is not None and written is not None:
            known.since = written
        if known is None:
            known = self._waiting[uid] = _Waiting(record, record.queued_at if written is None else written)
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
                self._tell_long(waiting, now, text)
            elif text != waiting.told and record.message:
                occasion = f"{text} since {waiting.since:.0f}"
                if hash(occasion) in waiting.occasions:
                    occasion = f"{text} at {now:.0f}"
                waiting.occasions.add(hash(occasion))
                self._emit(record, PENDING, text, False, occasion)
            else:
                self._schedule(waiting, waiting.long_from)
                continue
            waiting.told, waiting.told_at = text, now
            waiting.reasons.add(record.reason)
            self._schedule(waiting, waiting.long_from)

    def _tell_long(self, waiting: _Waiting, now: float, text: str) -> None:
        record = waiting.record
        while 2 * waiting.long_from - record.queued_at <= now:
            waiting.long_from += waiting.long_from - record.queued_at
        long, waited = waiting.long_from - record.queued_at, now - record.queued_at
        occasion = f"{PENDING_FOR_LONG} {long:.0f} {text} since {record.queued_at:.0f}"
        self._emit(record, PENDING_FOR_LONG, f"It has waited for {waited / 3600:.0f} h. {text}", True, occasion)
        waiting.long_from += long

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
