"""Log lines about workloads: one for each admission, eviction and order, written after the commit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from admission.controller.state.workload_change import ADMITTED, ORDERED, QUOTA_RESERVED
from admission.engine.vocabulary import PREEMPTED
from admission.model.text import clean
from admission.serving.logs import fields
from admission.store.records import State, Transition, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from admission.engine.events import Flap
    from admission.store.records import Changes

log = logging.getLogger(__name__)

MAX_LINES: Final = 100
"""Lines about workloads per second at most; one more line gives the number of those that were left out."""

MAX_LENGTH: Final = 500
"""Characters of a line at most."""

_PERIOD: Final = 1.0
"""Seconds in which lines are counted."""


class WorkLog:
    """Writes and limits the log lines about workloads. No lines are computed if the log level suppresses them."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until = 0.0
        """End of the period in which lines are counted, by the monotonic clock."""
        self._lines = 0
        self._left_out: Counter[str] = Counter()
        """Number of lines left out in this period, by event: `{"admitted": 900}`."""
        self._timer: asyncio.TimerHandle | None = None

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Log the transitions of a commit; `unwritten`: uids of workloads that were not written."""
        if not changes.transitions or not log.isEnabledFor(logging.INFO):
            return
        records = {record.workload.uid: record for record in changes.workloads}
        for transition in changes.transitions:
            record = records.get(transition.uid)
            if record is None or transition.uid in unwritten:
                continue
            if transition.state is State.ADMITTED and transition.reason in (ADMITTED, QUOTA_RESERVED):
                if self._may_log("admitted" if transition.reason == ADMITTED else "given quota"):
                    _log_admitted(record, transition)
            elif transition.reason == ORDERED:
                if self._may_log("ordered about"):
                    _log(f"order about {_title(record)}: {transition.message}", _facts(record, transition))
            elif (
                transition.state is State.EVICTING
                and transition.reason == record.evict_reason
                and self._may_log("evicted")
            ):
                _log_evicted(record, transition)

    def log_waiting(self, record: WorkloadRecord, text: str) -> None:
        """Log why a workload is pending, or does not run although it is admitted."""
        if log.isEnabledFor(logging.INFO) and self._may_log("waiting"):
            transition = Transition(record.workload.uid, 0.0, record.state, record.reason)
            _log(f"{_title(record)} does not run: {text}", _facts(record, transition))

    def log_flap(self, flap: Flap, cluster_queue: str) -> None:
        """Warn of a preemption without effect: the preemptor, of this ClusterQueue, was not admitted."""
        if self._may_log("preempted in vain"):
            preemptor = flap.preemptor
            record = WorkloadRecord(preemptor, State.PENDING, preemptor.created, cluster_queue=cluster_queue)
            facts = _facts(record, Transition(preemptor.uid, 0.0, State.PENDING, PREEMPTED))
            log.warning("%s", clean(flap.message, longest=MAX_LENGTH), extra=fields(**facts))

    def flush(self) -> None:
        """Log the numbers of lines that were left out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            what = ", ".join(f"{number} {of}" for of, number in self._left_out.items())
            log.info(
                "more workloads within a second than are logged one by one: %s",
                what,
                extra=fields(untold=dict(self._left_out)),
            )
            self._left_out.clear()

    def _may_log(self, what: str) -> bool:
        """Count a line; return whether it is within the limit."""
        now = self._now()
        if now >= self._until:
            self.flush()
            self._until, self._lines = now + _PERIOD, 0
        self._lines += 1
        if self._lines <= MAX_LINES:
            return True
        self._left_out[what] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._until - now, self.flush)
        return False


def _log_admitted(record: WorkloadRecord, transition: Transition) -> None:
    sets = () if record.admission is None else record.admission.pod_sets
    flavors = sorted({flavor for item in sets for flavor in item.flavors.values()})
    waited = max(transition.at - record.queued_at, 0.0)
    done = "admitted" if transition.reason == ADMITTED else "quota is reserved for"
    facts = _facts(record, transition) | {"flavors": flavors, "waitedSeconds": round(waited, 3)}
    _log(f"{done} {_title(record)} after {waited:.0f} s: {transition.message}", facts)


def _log_evicted(record: WorkloadRecord, transition: Transition) -> None:
    text = f"evicts {_title(record)} from ClusterQueue {record.cluster_queue}: {transition.reason}"
    _log(f"{text}: {transition.message}" if transition.message else text, _facts(record, transition))


def _log(text: str, facts: dict[str, Any]) -> None:
    log.info("%s", clean(text, longest=MAX_LENGTH), extra=fields(**facts))


def _title(record: WorkloadRecord) -> str:
    return f"{record.workload.kind} {record.workload.key}"


def _facts(record: WorkloadRecord, transition: Transition) -> dict[str, Any]:
    workload = record.workload
    return {
        "workload": workload.key,
        "uid": workload.uid,
        "clusterQueue": record.cluster_queue or None,
        "reason": transition.reason,
        "user": clean(workload.user) or None,
    }
