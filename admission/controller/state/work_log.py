"""What the log tells of work: a line for each admission and eviction, after the commit that made it true."""

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

LINES: Final = 100
"""Lines about workloads in a second, at most; of those beyond, one more line says how many there are."""

LONGEST: Final = 500
"""Characters of a line."""

_SECONDS: Final = 1.0


class WorkLog:
    """Lines about workloads. What nobody wants to read costs nothing."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until = 0.0
        """When the second ends in which lines are counted."""
        self._lines = 0
        self._untold: Counter[str] = Counter()
        """What was not told in this second, by what it is."""
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Tell of what is committed, but not of the workloads `unwritten`, by uid."""
        if not changes.transitions or not log.isEnabledFor(logging.INFO):
            return
        records = {record.workload.uid: record for record in changes.workloads}
        for line in changes.transitions:
            record = records.get(line.uid)
            if record is None or line.uid in unwritten:
                continue
            if line.state is State.ADMITTED and line.reason in (ADMITTED, QUOTA_RESERVED):
                if self._may_tell("admitted" if line.reason == ADMITTED else "given quota"):
                    _tell_admitted(record, line)
            elif line.reason == ORDERED:
                if self._may_tell("ordered about"):
                    _tell(f"order about {_title(record)}: {line.message}", _facts(record, line))
            elif line.state is State.EVICTING and line.reason == record.evict_reason and self._may_tell("evicted"):
                _tell_evicted(record, line)

    def tell_waiting(self, record: WorkloadRecord, text: str) -> None:
        """Tell why a workload waits, or does not run although it is admitted."""
        if log.isEnabledFor(logging.INFO) and self._may_tell("waiting"):
            line = Transition(record.workload.uid, 0.0, record.state, record.reason)
            _tell(f"{_title(record)} does not run: {text}", _facts(record, line))

    def tell_in_vain(self, flap: Flap, cluster_queue: str) -> None:
        """Warn that what was stopped for a workload of that ClusterQueue has not let it start."""
        if self._may_tell("preempted in vain"):
            preemptor = flap.preemptor
            record = WorkloadRecord(preemptor, State.PENDING, preemptor.created, cluster_queue=cluster_queue)
            facts = _facts(record, Transition(preemptor.uid, 0.0, State.PENDING, PREEMPTED))
            log.warning("%s", clean(flap.message, longest=LONGEST), extra=fields(**facts))

    def flush(self) -> None:
        """Tell how many were left out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._untold:
            what = ", ".join(f"{number} {of}" for of, number in self._untold.items())
            log.info(
                "more workloads within a second than are told one by one: %s",
                what,
                extra=fields(untold=dict(self._untold)),
            )
            self._untold.clear()

    def _may_tell(self, what: str) -> bool:
        now = self._now()
        if now >= self._until:
            self.flush()
            self._until, self._lines = now + _SECONDS, 0
        self._lines += 1
        if self._lines <= LINES:
            return True
        self._untold[what] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._until - now, self.flush)
        return False


def _tell_admitted(record: WorkloadRecord, line: Transition) -> None:
    sets = () if record.admission is None else record.admission.pod_sets
    flavors = sorted({flavor for item in sets for flavor in item.flavors.values()})
    waited = max(line.at - record.queued_at, 0.0)
    done = "admitted" if line.reason == ADMITTED else "quota is reserved for"
    facts = _facts(record, line) | {"flavors": flavors, "waitedSeconds": round(waited, 3)}
    _tell(f"{done} {_title(record)} after {waited:.0f} s: {line.message}", facts)


def _tell_evicted(record: WorkloadRecord, line: Transition) -> None:
    text = f"evicts {_title(record)} from ClusterQueue {record.cluster_queue}: {line.reason}"
    _tell(f"{text}: {line.message}" if line.message else text, _facts(record, line))


def _tell(text: str, facts: dict[str, Any]) -> None:
    log.info("%s", clean(text, longest=LONGEST), extra=fields(**facts))


def _title(record: WorkloadRecord) -> str:
    return f"{record.workload.kind} {record.workload.key}"


def _facts(record: WorkloadRecord, line: Transition) -> dict[str, Any]:
    workload = record.workload
    return {
        "workload": workload.key,
        "uid": workload.uid,
        "clusterQueue": record.cluster_queue or None,
        "reason": line.reason,
        "user": clean(workload.user) or None,
    }
