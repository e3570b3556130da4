"""Kubernetes Events about workloads: why they are pending, or were evicted, for `kubectl describe job`.

A Job that is admitted within `WAIT_EVENT_DELAY` gets no Event about its wait, so that a Job that starts undisturbed has
a single Event, `Admitted`. Notes are the same messages as in conditions. The recorder writes Events in the background.
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
from admission.store.records import DEQUEUED, LEARNED, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from admission.store.records import Changes, LastEviction, WorkloadRecord

WAIT_EVENT_DELAY: Final = 10.0
"""Seconds of waiting for quota after which an Event gives the reason; other reasons are reported immediately."""

AGAIN_AFTER: Final = 60.0
"""Seconds at least between two Events of a workload if the reason is a transient one, or was reported before."""

LONG: Final = 3600.0
"""Seconds of waiting after which a Warning is written, and again whenever that time has doubled."""

IN_DOUBT: Final = 300.0
"""Seconds before the last persisted transition in which the former leader may have left due Events unwritten, however
long ago it was killed. They are written again with the same occasion, so that each exists once."""

MAX_REPEATED: Final = 2_000
"""Workloads at most whose Events are written again when a leader starts: those with the latest transitions."""

Emit: TypeAlias = "Callable[[WorkloadRecord, str, str, bool, str], object]"
"""Writes an Event: (record, reason, note, whether it is a Warning, occasion or empty), see `EventRecorder.record`."""

PENDING: Final = "Pending"
PENDING_FOR_LONG: Final = "PendingForLong"
REASONS_FOR_WAITING: Final = frozenset({PENDING, PENDING_FOR_LONG, PODS_UNSCHEDULED})
"""Reasons of Events that explain why a workload does not run; all other Events report what has happened."""

_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks for due Events."""
_TRANSIENT: Final = frozenset({"", PENDING_EVALUATION, WAITING_FOR_QUOTA, WAITING_FOR_PREEMPTED, "WaitingForPodsReady"})
"""Transient reasons, which often change within seconds without intervention."""


class _Reported:
    """A pending workload, and the Events that were written about it."""

    __slots__ = ("due", "long_from", "occasions", "reasons", "record", "reported", "reported_at", "since")

    def __init__(self, record: WorkloadRecord, since: float) -> None:
        self.record = record
        self.since = since
        """Time of its last transition; together with the text, it identifies the occasion of an Event."""
        self.due = 0.0
        """Time at which its next Event is due."""
        self.reported = ""
        """Text of its last Event, see `_text`; empty: there was none."""
        self.reported_at = 0.0
        self.reasons: set[str] = set()
        """Reasons reported since it was queued."""
        self.occasions: set[int] = set()
        """Hashes of the occasions of its Events: if one recurs, the new Event gets another occasion."""
        self.long_from = record.queued_at + LONG
        """Time of the next `PendingForLong` Warning: `LONG` after it was queued, and at each doubling of its wait."""


class WorkloadEvents:
    """Schedules and writes Events about committed states of workloads. `clock` returns Unix time in seconds."""

    def __init__(self, emit: Emit, *, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._waiting: dict[str, _Reported] = {}
        """Pending workloads by uid."""
        self._due: list[tuple[float, str]] = []
        """Heap of (due time, uid); entries that differ from `_Waiting.due` are outdated."""

    def begin(self, records: Iterable[WorkloadRecord], written: Mapping[str, float]) -> None:
        """Start from loaded `records`. The former leader has written the Events that were due, except perhaps the last.

        `written`: times of the last transitions by uid, for the workloads whose last transition is recent.
        """
        self._waiting.clear()
        self._due.clear()
        now = self._clock()
        doubtful = min(max(written.values(), default=now), now) - IN_DOUBT
        left = MAX_REPEATED
        for record in sorted(records, key=lambda each: written.get(each.workload.uid, 0.0), reverse=True):
            uid = record.workload.uid
            if record.eviction is not None and record.eviction.at > doubtful and left > 0:
                self._emit_eviction(record, record.eviction)
                left -= 1
            if record.state is not State.PENDING:
                continue
            waiting = self._waiting[uid] = _Reported(record, written.get(uid, record.queued_at))
            first = record.queued_at + WAIT_EVENT_DELAY
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
                waiting.reported, waiting.reported_at = _text(record), first
                waiting.reasons.add(record.reason)
                self._schedule(waiting, waiting.long_from)

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Process a commit; `unwritten`: uids of workloads that were not written."""
        evicted = {transition.uid for transition in changes.transitions if transition.state is State.EVICTING}
        reserved = {transition.uid for transition in changes.transitions if transition.reason == QUOTA_RESERVED}
        written = {transition.uid: transition.at for transition in changes.transitions}
        learned = {each.uid: each.message for each in changes.transitions if each.reason == LEARNED}
        for record in changes.workloads:
            uid = record.workload.uid
            if uid in unwritten:
                continue
            if record.state is State.PENDING:
                self._follow(record, written.get(uid))
                continue
            self._waiting.pop(uid, None)
            if record.state is State.EVICTING and uid in evicted and record.eviction is not None:
                self._emit_eviction(record, record.eviction)
            elif record.message == sentences.UNLABELLED_POD:
                self._emit(record, DEQUEUED, record.message, True, "")
            elif record.is_stop_hindered:
                self._emit(record, _eviction_reason(record.evict_reason), record.message, True, "")
            elif record.checks_pending and uid in reserved:
                self._emit(record, QUOTA_RESERVED, record.message, False, "")
            elif uid in learned and record.state is State.ADMITTED:
                self._emit(record, LEARNED, learned[uid], True, "")
            elif record.state is State.ADMITTED and record.reason == PODS_UNSCHEDULED:
                self._emit(record, PODS_UNSCHEDULED, record.message, True, "")

    def _emit_eviction(self, record: WorkloadRecord, eviction: LastEviction) -> None:
        reason = _eviction_reason(eviction.reason)
        self._emit(record, reason, eviction.message, True, f"{reason} at {eviction.at:.0f}")

    def _follow(self, record: WorkloadRecord, written: float | None) -> None:
        uid, now = record.workload.uid, self._clock()
        known = self._waiting.get(uid)
        if known is not None and written is not None:
            known.since = written
        if known is None:
            known = self._waiting[uid] = _Reported(record, record.queued_at if written is None else written)
        elif (record.reason, record.message) == (known.record.reason, known.record.message):
            known.record = record
            return
        known.record = record
        is_transient = record.reason in _TRANSIENT
        earliest = record.queued_at + WAIT_EVENT_DELAY if is_transient else now
        again = known.reported_at + AGAIN_AFTER if is_transient or record.reason in known.reasons else 0.0
        self._schedule(known, min(max(earliest, again if known.reported else 0.0), known.long_from))

    def _schedule(self, waiting: _Reported, due: float) -> None:
        waiting.due = due
        heappush(self._due, (due, waiting.record.workload.uid))

    def emit_due(self) -> None:
        """Write the Events that are due."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            due, uid = heappop(self._due)
            waiting = self._waiting.get(uid)
            if waiting is None or waiting.due != due:
                continue
            record, text = waiting.record, _text(waiting.record)
            if now >= waiting.long_from:
                self._emit_long(waiting, now, text)
            elif text != waiting.reported and record.message:
                occasion = f"{text} since {waiting.since:.0f}"
                if hash(occasion) in waiting.occasions:
                    occasion = f"{text} at {now:.0f}"
                waiting.occasions.add(hash(occasion))
                self._emit(record, PENDING, text, False, occasion)
            else:
                self._schedule(waiting, waiting.long_from)
                continue
            waiting.reported, waiting.reported_at = text, now
            waiting.reasons.add(record.reason)
            self._schedule(waiting, waiting.long_from)

    def _emit_long(self, waiting: _Reported, now: float, text: str) -> None:
        record = waiting.record
        while 2 * waiting.long_from - record.queued_at <= now:
            waiting.long_from += waiting.long_from - record.queued_at
        long, waited = waiting.long_from - record.queued_at, now - record.queued_at
        occasion = f"{PENDING_FOR_LONG} {long:.0f} {text} since {record.queued_at:.0f}"
        self._emit(record, PENDING_FOR_LONG, f"It has waited for {waited / 3600:.0f} h. {text}", True, occasion)
        waiting.long_from += long

    async def run(self) -> NoReturn:
        """Write Events as they become due, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            self.emit_due()


def _text(record: WorkloadRecord) -> str:
    return f"{record.reason}: {record.message}"


def _eviction_reason(reason: str) -> str:
    """Return Kueue's Event reason for an eviction reason: `EvictedDueToPodsReadyTimeout`."""
    return reason if reason == PREEMPTED or reason.startswith(DEACTIVATED) else f"EvictedDueTo{reason}"
