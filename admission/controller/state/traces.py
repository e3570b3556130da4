"""Trace spans of the leader: decision rounds with their commits, and the lifecycle of each workload."""

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
    """Records spans of decisions, commits and workloads; those of workloads only after the commit."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._cycle: Exemplar | None = None
        """Trace and span of the last decision round, the parent of its commit's span."""

    def decided(self, decisions: Decisions, seconds: float) -> Exemplar | None:
        """Record a decision round that took `seconds` and has just ended; return its exemplar."""
        attributes = {
            "sluice.admitted": len(decisions.admitted),
            "sluice.evicted": len(decisions.evicted),
            "sluice.cycles": decisions.cycles,
        }
        now = time.time()
        self._cycle = self._tracing.span("cycle", now - seconds, now, attributes)
        return self._cycle

    def wrote(self, changes: Changes, seconds: float) -> Exemplar | None:
        """Record a commit that took `seconds` and has just ended; return its exemplar."""
        attributes = {"sluice.workloads": len(changes.workloads), "sluice.transitions": len(changes.transitions)}
        now = time.time()
        return self._tracing.span("commit", now - seconds, now, attributes, within=self._cycle)

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Record the spans that committed transitions end; `unwritten`: uids of workloads that were not written."""
        records = {record.workload.uid: record for record in changes.workloads}
        for transition in changes.transitions:
            if (record := records.get(transition.uid)) is not None and transition.uid not in unwritten:
                _record_spans(self._tracing, record, transition)

    def patched(self, uid: str, began: float, ended: float, *, failed: bool) -> None:
        """Record a start patch, from `began` to `ended` (Unix time, s)."""
        self._tracing.workload_span(uid, "start patch", began, ended, {"error": failed})


def _record_spans(tracing: Tracing, record: WorkloadRecord, transition: Transition) -> None:
    """Record the spans of a workload that end with this transition: its wait, its run, or its whole lifetime."""
    workload = record.workload
    attributes: Attributes = {
        "k8s.namespace.name": workload.namespace,
        "sluice.workload": workload.name,
        "sluice.kind": workload.kind,
        "sluice.local_queue": workload.queue,
        "sluice.cluster_queue": record.cluster_queue,
        "sluice.reason": transition.reason,
    }
    began = record.cleared_at
    match transition.state:
        case State.ADMITTED if transition.reason == ADMITTED:
            tracing.workload_span(transition.uid, "wait", record.queued_at, transition.at, attributes)
        case State.EVICTING if transition.reason == record.evict_reason and began is not None:
            tracing.workload_span(transition.uid, "run", began, transition.at, attributes)
        case State.FINISHED:
            if began is not None and not record.evict_reason:
                tracing.workload_span(transition.uid, "run", began, transition.at, attributes)
            tracing.workload_root(transition.uid, "workload", workload.created, transition.at, attributes)
        case _:
            pass
