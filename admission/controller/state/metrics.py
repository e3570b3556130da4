"""Counters and histograms of the leader: what became of workloads, how long they waited, how long its own work took.

Names, labels and buckets are Kueue's, with `sluice_` for `kueue_`, wherever Kueue has the metric. Workloads are counted
from what was committed, at once for all of a commit, so that no number tells of what a crash has undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from prometheus_client import Counter, Histogram

from admission.controller.state.workload_change import ADMITTED, QUOTA_RESERVED
from admission.serving.metrics import LATENCY_BUCKETS, WAIT_BUCKETS, Children
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from prometheus_client.registry import Collector

    from admission.engine.events import Decisions
    from admission.serving.tracing import Exemplar
    from admission.store.records import Changes, Transition, WorkloadRecord

ExemplarOf: TypeAlias = "Callable[[str], Exemplar | None]"
"""The trace of a workload by uid; None: it has none."""

_QUEUED: Final = "Queued"
_ENDED: Final = ("Succeeded", "Failed")
"""Outcomes of workloads that ran to their end; those that were deleted or left their queue are not counted as such."""

_BY_CLASS: Final = ("cluster_queue", "priority_class")
_BY_LOCAL_QUEUE: Final = ("name", "namespace", "priority_class")


def _counter(name: str, text: str, labels: tuple[str, ...]) -> Children[Counter]:
    return Children(Counter(f"sluice_{name}", text, labels, registry=None), labels)


def _histogram(
    name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = WAIT_BUCKETS
) -> Children[Histogram]:
    return Children(Histogram(f"sluice_{name}", text, labels, registry=None, buckets=buckets), labels)


class _Both(NamedTuple):
    """The same number for ClusterQueues and for LocalQueues."""

    cluster_queue: Children[Counter]
    local_queue: Children[Counter]

    @classmethod
    def of(cls, name: str, text: str) -> _Both:
        return cls(_counter(name, text, _BY_CLASS), _counter(f"local_queue_{name}", text, _BY_LOCAL_QUEUE))

    def inc(self, record: WorkloadRecord) -> None:
        workload = record.workload
        self.cluster_queue[record.cluster_queue, workload.priority_class].inc()
        self.local_queue[workload.queue, workload.namespace, workload.priority_class].inc()


class _Times(NamedTuple):
    """The same times for ClusterQueues and for LocalQueues."""

    cluster_queue: Children[Histogram]
    local_queue: Children[Histogram]
    exemplar_of: ExemplarOf | None

    @classmethod
    def of(cls, name: str, text: str, exemplar_of: ExemplarOf | None) -> _Times:
        local = _histogram(f"local_queue_{name}", text, _BY_LOCAL_QUEUE)
        return cls(_histogram(name, text, _BY_CLASS), local, exemplar_of)

    def observe(self, record: WorkloadRecord, seconds: float) -> None:
        workload, seconds = record.workload, max(seconds, 0.0)
        exemplar = None if self.exemplar_of is None else self.exemplar_of(workload.uid)
        self.cluster_queue[record.cluster_queue, workload.priority_class].observe(seconds, exemplar)
        self.local_queue[workload.queue, workload.namespace, workload.priority_class].observe(seconds, exemplar)


class _Eviction(NamedTuple):
    at: float
    cluster_queue: str
    reason: str


class _Waits:
    """How long workloads waited and ran."""

    def __init__(self, exemplar_of: ExemplarOf | None) -> None:
        def times(name: str, text: str) -> _Times:
            return _Times.of(name, text, exemplar_of)

        self._exemplar_of = exemplar_of
        self.quota_reserved_wait = times(
            "quota_reserved_wait_time_seconds", "Time from queueing (or being queued again) to being given quota."
        )
        self.admission_wait = times(
            "admission_wait_time_seconds", "Time from queueing (or being queued again) to admission."
        )
        self.checks_wait = times(
            "admission_checks_wait_time_seconds", "Time from being given quota to admission by all admission checks."
        )
        self.execution = times("execution_time_seconds", "Time from admission to the end of a workload.")
        self.ready_wait = times(
            "ready_wait_time_seconds", "Time from queueing to all pods being ready (with waitForPodsReady)."
        )
        self.admitted_until_ready = times(
            "admitted_until_ready_wait_time_seconds",
            "Time from admission to all pods being ready (with waitForPodsReady).",
        )
        self.eviction_latency = _histogram(
            "workload_eviction_latency_seconds",
            "Time from the decision to evict a workload until its pods were gone and its quota free.",
            ("cluster_queue", "reason"),
        )
        self.ready_to_evicted = _histogram(
            "pods_ready_to_evicted_time_seconds",
            "Time from all pods being ready to the decision to evict a workload (with waitForPodsReady).",
            ("cluster_queue", "reason", "underlying_cause"),
        )
        self.creation_latency = _histogram(
            "workload_creation_latency_seconds",
            "Time from the creation of an object to its being queued; creation times are whole seconds.",
            ("job_kind",),
        )


class LeaderMetrics(_Waits):
    """All of them, for one process. Counters begin with it."""

    def __init__(self, exemplar_of: ExemplarOf | None = None) -> None:
        """`exemplar_of` gives the trace of a workload by uid, if it has one; None: there are no traces."""
        super().__init__(exemplar_of)
        self.quota_reserved = _Both.of("quota_reserved_workloads_total", "Workloads that were given quota.")
        self.admitted = _Both.of("admitted_workloads_total", "Workloads that were admitted.")
        self.finished = _Both.of("finished_workloads_total", "Workloads that have succeeded or failed.")
        self.evicted = _counter(
            "evicted_workloads_total",
            "Evictions of workloads, by what they were for.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        )
        self.local_queue_evicted = _counter(
            "local_queue_evicted_workloads_total",
            "Evictions of workloads, by what they were for.",
            ("name", "namespace", "reason", "underlying_cause", "priority_class"),
        )
        self.preempted = _counter(
            "preempted_workloads_total",
            "Workloads that were preempted, by the ClusterQueue that it was for.",
            ("preempting_cluster_queue", "reason"),
        )
        self.attempts = _counter(
            "admission_attempts_total", "Rounds of decisions: success if any workload was admitted.", ("result",)
        )
        self.attempt_seconds = _histogram(
            "admission_attempt_duration_seconds", "Time of a round of decisions.", ("result",), LATENCY_BUCKETS
        )
        self.cycles = Counter("sluice_cycles_total", "Scheduler cycles; a round of decisions has some.", registry=None)
        self.commit_seconds = Histogram(
            "sluice_commit_duration_seconds",
            "Time that a round of decisions waited for its transaction.",
            registry=None,
            buckets=LATENCY_BUCKETS,
        )
        self.flapping = 0
        """How many preemptions were in vain."""
        self._preemptions: dict[str, tuple[str, str]] = {}
        """Of workloads whose eviction is not committed yet, by uid: the queue that it is for, and why it may."""
        self._evictions: dict[str, _Eviction] = {}
        """Of workloads that are being stopped, by uid."""
        self._ready: dict[str, float] = {}
        """By uid: when the admission began of which it is counted already that its pods are ready."""

    def collectors(self) -> Iterator[Collector]:
        """What `/metrics` reads."""
        for name in vars(self):
            if not name.startswith("_"):
                yield from _collectors(getattr(self, name))

    def keep(self, cluster_queues: Collection[str], local_queues: Collection[tuple[str, str]]) -> None:
        """Drop the series of all ClusterQueues, and LocalQueues by (namespace, name), that do not exist any more."""
        for children in self._children():
            match children.labels:
                case ("cluster_queue" | "preempting_cluster_queue", *_):
                    children.keep(lambda values: values[0] in cluster_queues)
                case ("name", "namespace", *_):
                    children.keep(lambda values: (values[1], values[0]) in local_queues)
                case _:
                    pass

    def _children(self) -> Iterator[Children[Counter] | Children[Histogram]]:
        for value in vars(self).values():
            if isinstance(value, Children):
                yield value
            elif isinstance(value, _Both | _Times):
                yield value.cluster_queue
                yield value.local_queue

    def decided(
        self,
        decisions: Decisions,
        seconds: float,
        queue_of: Callable[[str], str],
        exemplar: Exemplar | None = None,
    ) -> None:
        """Count a round of decisions, before its commit is counted. `queue_of`: a workload's ClusterQueue, by uid."""
        result = "success" if decisions.admitted else "inadmissible"
        self.attempts[result,].inc()
        self.attempt_seconds[result,].observe(seconds, exemplar)
        self.cycles.inc(decisions.cycles)
        self.flapping += len(decisions.flapping)
        for evict in decisions.evicted:
            if evict.preemptor is not None and evict.preemption_reason:
                self._preemptions[evict.workload.uid] = queue_of(evict.preemptor), evict.preemption_reason

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Count what became of workloads by a commit, but for those `unwritten`, by uid."""
        records = {record.workload.uid: record for record in changes.workloads}
        for line in changes.transitions:
            record = records.get(line.uid)
            if record is not None and line.uid not in unwritten:
                self._count(record, line)
        self._count_ready(record for record in records.values() if record.ready_at is not None)
        self._preemptions.clear()

    def _count(self, record: WorkloadRecord, line: Transition) -> None:
        match line.state:
            case State.ADMITTED if line.reason in (ADMITTED, QUOTA_RESERVED):
                self._count_admission(record, line)
            case State.EVICTING if line.reason == record.evict_reason:
                self._count_eviction(record, line)
            case State.PENDING:
                if line.reason == _QUEUED:
                    latency = max(line.at - record.workload.created, 0.0)
                    exemplar = None if self._exemplar_of is None else self._exemplar_of(line.uid)
                    self.creation_latency[record.workload.kind,].observe(latency, exemplar)
                else:
                    self._count_stop(line)
            case State.FINISHED:
                self._count_stop(line)
                if record.outcome in _ENDED:
                    self.finished.inc(record)
                    if record.cleared_at is not None:
                        self.execution.observe(record, line.at - record.cleared_at)
            case _:
                pass

    def _count_admission(self, record: WorkloadRecord, line: Transition) -> None:
        at_once = record.cleared_at == record.admitted_at  # it has no admission checks
        if line.reason == QUOTA_RESERVED or at_once:
            self.quota_reserved.inc(record)
            self.quota_reserved_wait.observe(record, line.at - record.queued_at)
        if line.reason == ADMITTED:
            self.admitted.inc(record)
            self.admission_wait.observe(record, line.at - record.queued_at)
            if not at_once and record.admitted_at is not None:
                self.checks_wait.observe(record, line.at - record.admitted_at)

    def _count_eviction(self, record: WorkloadRecord, line: Transition) -> None:
        workload = record.workload
        queue, cause = self._preemptions.get(line.uid, ("", ""))
        if queue:
            self.preempted[queue, cause].inc()
        reason, _, due_to = line.reason.partition("DueTo")
        cause = cause or due_to
        self.evicted[record.cluster_queue, reason, cause, workload.priority_class].inc()
        self.local_queue_evicted[workload.queue, workload.namespace, reason, cause, workload.priority_class].inc()
        if record.ready_at is not None:
            exemplar = None if self._exemplar_of is None else self._exemplar_of(line.uid)
            seconds = max(line.at - record.ready_at, 0.0)
            self.ready_to_evicted[record.cluster_queue, reason, cause].observe(seconds, exemplar)
        self._evictions.setdefault(line.uid, _Eviction(line.at, record.cluster_queue, reason))

    def _count_stop(self, line: Transition) -> None:
        self._ready.pop(line.uid, None)
        if (eviction := self._evictions.pop(line.uid, None)) is not None:
            latency = max(line.at - eviction.at, 0.0)
            exemplar = None if self._exemplar_of is None else self._exemplar_of(line.uid)
            self.eviction_latency[eviction.cluster_queue, eviction.reason].observe(latency, exemplar)

    def _count_ready(self, records: Iterable[WorkloadRecord]) -> None:
        for record in records:
            uid, cleared_at, ready_at = record.workload.uid, record.cleared_at, record.ready_at
            if cleared_at is None or ready_at is None or self._ready.get(uid) == cleared_at:
                continue
            if record.state is State.ADMITTED:
                self._ready[uid] = cleared_at
                self.ready_wait.observe(record, ready_at - record.queued_at)
                self.admitted_until_ready.observe(record, ready_at - cleared_at)


def _collectors(value: object) -> Iterator[Collector]:
    match value:
        case Children():
            yield value.metric
        case _Both() | _Times():
            yield value.cluster_queue.metric
            yield value.local_queue.metric
        case Counter() | Histogram():
            yield value
        case _:
            pass
