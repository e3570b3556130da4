"""Prometheus metrics of the leader: outcomes and waiting times of workloads, and durations of cycles and commits.

Names, labels and buckets are Kueue's, with `sluice_` for `kueue_`, wherever Kueue has the metric. Workloads are counted
after each commit, from its transitions, so that a metric never includes changes that a crash has undone.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from prometheus_client import Counter, Histogram

from admission.controller.state.workload_change import ADMITTED, QUOTA_RESERVED
from admission.serving.metrics import LATENCY_BUCKETS, WAIT_BUCKETS, MetricChildren
from admission.store.records import State
from admission.store.workloads.preemptions import REPETITION_SECONDS, REPETITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from prometheus_client.registry import Collector

    from admission.engine.events import Decisions
    from admission.serving.tracing import Exemplar
    from admission.store.records import Changes, Transition, WorkloadRecord

ExemplarOf: TypeAlias = "Callable[[str], Exemplar | None]"
"""Returns the exemplar (trace id) of a workload by uid; None: it has no trace."""

_QUEUED: Final = "Queued"
_ENDED: Final = ("Succeeded", "Failed")
"""Outcomes that count as finished; workloads that were deleted or left their queue do not."""

_BY_CLASS: Final = ("cluster_queue", "priority_class")
_BY_LOCAL_QUEUE: Final = ("name", "namespace", "priority_class")


def _counter(name: str, text: str, labels: tuple[str, ...]) -> MetricChildren[Counter]:
    return MetricChildren(Counter(f"sluice_{name}", text, labels, registry=None), labels)


def _histogram(
    name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = WAIT_BUCKETS
) -> MetricChildren[Histogram]:
    return MetricChildren(Histogram(f"sluice_{name}", text, labels, registry=None, buckets=buckets), labels)


class _QueueCounters(NamedTuple):
    """A counter by ClusterQueue, and the same counter by LocalQueue."""

    cluster_queue: MetricChildren[Counter]
    local_queue: MetricChildren[Counter]

    @classmethod
    def of(cls, name: str, text: str) -> _QueueCounters:
        return cls(_counter(name, text, _BY_CLASS), _counter(f"local_queue_{name}", text, _BY_LOCAL_QUEUE))

    def inc(self, record: WorkloadRecord) -> None:
        workload = record.workload
        self.cluster_queue[record.cluster_queue, workload.priority_class].inc()
        self.local_queue[workload.queue, workload.namespace, workload.priority_class].inc()


class _QueueHistograms(NamedTuple):
    """A histogram of seconds by ClusterQueue, and the same histogram by LocalQueue."""

    cluster_queue: MetricChildren[Histogram]
    local_queue: MetricChildren[Histogram]
    exemplar_of: ExemplarOf | None

    @classmethod
    def of(cls, name: str, text: str, exemplar_of: ExemplarOf | None) -> _QueueHistograms:
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


class _DurationMetrics:
    """Histograms of how long workloads waited and ran."""

    def __init__(self, exemplar_of: ExemplarOf | None) -> None:
        def times(name: str, text: str) -> _QueueHistograms:
            return _QueueHistograms.of(name, text, exemplar_of)

        self._exemplar_of = exemplar_of
        self.quota_reserved_wait = times(
            "quota_reserved_wait_time_seconds", "Time from queueing (or being queued again) to quota reservation."
        )
        self.admission_wait = times(
            "admission_wait_time_seconds", "Time from queueing (or being queued again) to admission."
        )
        self.checks_wait = times(
            "admission_checks_wait_time_seconds", "Time from quota reservation to admission by all admission checks."
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


class LeaderMetrics(_DurationMetrics):
    """All metrics of the leader, for one process: counters start at zero when it starts."""

    def __init__(self, exemplar_of: ExemplarOf | None = None) -> None:
        """`exemplar_of`: returns the exemplar of a workload by uid; None: tracing is off."""
        super().__init__(exemplar_of)
        self.quota_reserved = _QueueCounters.of("quota_reserved_workloads_total", "Workloads that were given quota.")
        self.admitted = _QueueCounters.of("admitted_workloads_total", "Workloads that were admitted.")
        self.finished = _QueueCounters.of("finished_workloads_total", "Workloads that have succeeded or failed.")
        self.evicted = _counter(
            "evicted_workloads_total",
            "Evictions of workloads, by reason.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        )
        self.local_queue_evicted = _counter(
            "local_queue_evicted_workloads_total",
            "Evictions of workloads, by reason.",
            ("name", "namespace", "reason", "underlying_cause", "priority_class"),
        )
        self.preempted = _counter(
            "preempted_workloads_total",
            "Workloads that were preempted, by the ClusterQueue of the preemptor.",
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
        """Number of preemptions without effect: the preemptor was not admitted (`Flap`)."""
        self.evicted_again = 0
        """Number of evictions of workloads that had been evicted twice or more in the hour before."""
        self._recent: deque[tuple[float, str]] = deque()
        """Evictions of the last hour: Unix time (s) and uid."""
        self._times: Counts[str] = Counts()
        """The number of these evictions by uid."""
        self._preemptions: dict[str, tuple[str, str]] = {}
        """Preemptor's ClusterQueue and preemption reason of evictions that are not committed yet, by uid."""
        self._evictions: dict[str, _Eviction] = {}
        """Evictions whose workloads are still being stopped, by uid."""
        self._ready: dict[str, float] = {}
        """Start (Unix time, s) of the admission whose readiness was counted already, by uid."""

    def collectors(self) -> Iterator[Collector]:
        """Yield the metrics that `/metrics` exposes."""
        for name in vars(self):
            if not name.startswith("_"):
                yield from _collectors(getattr(self, name))

    def keep(self, cluster_queues: Collection[str], local_queues: Collection[tuple[str, str]]) -> None:
        """Remove the series of queues that no longer exist. `local_queues`: (namespace, name) of the existing ones."""
        for children in self._children():
            match children.labels:
                case ("cluster_queue" | "preempting_cluster_queue", *_):
                    children.keep(lambda values: values[0] in cluster_queues)
                case ("name", "namespace", *_):
                    children.keep(lambda values: (values[1], values[0]) in local_queues)
                case _:
                    pass

    def _children(self) -> Iterator[MetricChildren[Counter] | MetricChildren[Histogram]]:
        for value in vars(self).values():
            if isinstance(value, MetricChildren):
                yield value
            elif isinstance(value, _QueueCounters | _QueueHistograms):
                yield value.cluster_queue
                yield value.local_queue

    def decided(
        self,
        decisions: Decisions,
        seconds: float,
        queue_of: Callable[[str], str],
        exemplar: Exemplar | None = None,
    ) -> None:
        """Count a decision round; call before `committed`. `queue_of`: returns a workload's ClusterQueue by uid."""
        result = "success" if decisions.admitted else "inadmissible"
        self.attempts[result,].inc()
        self.attempt_seconds[result,].observe(seconds, exemplar)
        self.cycles.inc(decisions.cycles)
        self.flapping += len(decisions.flapping)
        for evict in decisions.evicted:
            if evict.preemptor is not None and evict.preemption_reason:
                self._preemptions[evict.workload.uid] = queue_of(evict.preemptor), evict.preemption_reason

    def committed(self, changes: Changes, *, unwritten: Collection[str] = ()) -> None:
        """Count the transitions of a commit; `unwritten`: uids of workloads that were not written."""
        records = {record.workload.uid: record for record in changes.workloads}
        for transition in changes.transitions:
            record = records.get(transition.uid)
            if record is not None and transition.uid not in unwritten:
                self._count(record, transition)
        self._count_ready(record for record in records.values() if record.ready_at is not None)
        self._preemptions.clear()

    def restored(self, records: Collection[WorkloadRecord]) -> None:
        """Note what was counted before the records were loaded, by this replica or the former leader.

        What another leader has ended meanwhile is forgotten, so that it is not mistaken for a later eviction.
        """
        evicting = {record.workload.uid for record in records if record.state is State.EVICTING}
        self._evictions = {uid: eviction for uid, eviction in self._evictions.items() if uid in evicting}
        self._ready = {
            record.workload.uid: record.cleared_at
            for record in records
            if record.ready_at is not None and record.cleared_at is not None
        }

    def _count(self, record: WorkloadRecord, transition: Transition) -> None:
        match transition.state:
            case State.ADMITTED if transition.reason in (ADMITTED, QUOTA_RESERVED):
                self._count_admission(record, transition)
            case State.EVICTING if transition.reason == record.evict_reason:
                self._count_eviction(record, transition)
            case State.PENDING:
                if transition.reason == _QUEUED:
                    latency = max(transition.at - record.workload.created, 0.0)
                    exemplar = None if self._exemplar_of is None else self._exemplar_of(transition.uid)
                    self.creation_latency[record.workload.kind,].observe(latency, exemplar)
                else:
                    self._count_stop(transition)
            case State.FINISHED:
                self._count_stop(transition)
                if record.outcome in _ENDED:
                    self.finished.inc(record)
                    if record.cleared_at is not None:
                        self.execution.observe(record, transition.at - record.cleared_at)
            case _:
                pass

    def _count_admission(self, record: WorkloadRecord, transition: Transition) -> None:
        without_checks = record.cleared_at == record.admitted_at
        if transition.reason == QUOTA_RESERVED or without_checks:
            self.quota_reserved.inc(record)
            self.quota_reserved_wait.observe(record, transition.at - record.queued_at)
        if transition.reason == ADMITTED:
            self.admitted.inc(record)
            self.admission_wait.observe(record, transition.at - record.queued_at)
            if not without_checks and record.admitted_at is not None:
                self.checks_wait.observe(record, transition.at - record.admitted_at)

    def _count_eviction(self, record: WorkloadRecord, transition: Transition) -> None:
        workload = record.workload
        queue, cause = self._preemptions.get(transition.uid, ("", ""))
        if queue:
            self.preempted[queue, cause].inc()
        reason, _, due_to = transition.reason.partition("DueTo")
        cause = cause or due_to
        self.evicted[record.cluster_queue, reason, cause, workload.priority_class].inc()
        self.local_queue_evicted[workload.queue, workload.namespace, reason, cause, workload.priority_class].inc()
        if record.ready_at is not None:
            exemplar = None if self._exemplar_of is None else self._exemplar_of(transition.uid)
            seconds = max(transition.at - record.ready_at, 0.0)
            self.ready_to_evicted[record.cluster_queue, reason, cause].observe(seconds, exemplar)
        self._count_repetition(transition)
        self._evictions.setdefault(transition.uid, _Eviction(transition.at, record.cluster_queue, reason))

    def _count_repetition(self, transition: Transition) -> None:
        while self._recent and self._recent[0][0] <= transition.at - REPETITION_SECONDS:
            _, uid = self._recent.popleft()
            self._times[uid] -= 1
            if not self._times[uid]:
                del self._times[uid]
        self._times[transition.uid] += 1
        self.evicted_again += self._times[transition.uid] >= REPETITIONS
        self._recent.append((transition.at, transition.uid))

    def _count_stop(self, transition: Transition) -> None:
        self._ready.pop(transition.uid, None)
        if (eviction := self._evictions.pop(transition.uid, None)) is not None:
            latency = max(transition.at - eviction.at, 0.0)
            exemplar = None if self._exemplar_of is None else self._exemplar_of(transition.uid)
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
        case MetricChildren():
            yield value.metric
        case _QueueCounters() | _QueueHistograms():
            yield value.cluster_queue.metric
            yield value.local_queue.metric
        case Counter() | Histogram():
            yield value
        case _:
            pass
