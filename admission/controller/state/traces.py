"""Traces of the leader: each round of decisions with its commit, and the way of each workload."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from admission.controller.state.workload_change import ADMITTED
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from admission.engine.events import Decisions
    from admission.serving.tracing import Attributes, Exemplar, Tracing
    from admission.store.records import Changes, Transition, WorkloadRecord


class Traces:
    """Told of what has happened. What is told of workloads is committed."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._cycle: Exemplar | None = None
        """Of the last round of decisions."""

    def decided(self, decisions: Decisions, seconds: float) -> Exemplar | None:
        """A round of decisions has taken `seconds`, until now."""
        attributes = {
            "sluice.admitted": len(decisions.admitted),
            "sluice.evicted": len(decisions.evicted),
            "sluice.cycles": decisions.cycles,
        }
        now = time.time()
        self._cycle = self._tracing.span("cycle", now - seconds, now, attributes)
        return self._cycle

    def wrote(self, changes: Changes, seconds: float) -> Exemplar | None:
        """A commit has taken `seconds`, until now."""
        attributes = {"sluice.workloads": len(changes.workloads), "sluice.transitions": len(changes.transitions)}
        now = time.time()
        return self._tracing.span("commit", now - seconds, now, attributes, within=self._cycle)

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """What became of workloads, but for those `unwritten`, by uid."""
        records = {record.workload.uid: record for record in changes.workloads}
        for line in changes.transitions:
            if (record := records.get(line.uid)) is not None and line.uid not in unwritten:
                _tell(self._tracing, record, line)

    def patched(self, uid: str, began: float, ended: float, *, failed: bool) -> None:
        """The request that starts a workload has been answered."""
        self._tracing.workload_span(uid, "start patch", began, ended, {"error": failed})


def _tell(tracing: Tracing, record: WorkloadRecord, line: Transition) -> None:
    """One more part of the way of a workload is behind it."""
    workload = record.workload
    attributes: Attributes = {
        "k8s.namespace.name": workload.namespace,
        "sluice.workload": workload.name,
        "sluice.kind": workload.kind,
        "sluice.local_queue": workload.queue,
        "sluice.cluster_queue": record.cluster_queue,
        "sluice.reason": line.reason,
    }
    began = record.cleared_at
    match line.state:
        case State.ADMITTED if line.reason == ADMITTED:
            tracing.workload_span(line.uid, "wait", record.queued_at, line.at, attributes)
        case State.EVICTING if line.reason == record.evict_reason and began is not None:
            tracing.workload_span(line.uid, "run", began, line.at, attributes)
        case State.FINISHED:
            if began is not None and not record.evict_reason:
                tracing.workload_span(line.uid, "run", began, line.at, attributes)
            tracing.workload_root(line.uid, "workload", workload.created, line.at, attributes)
        case _:
            pass
