"""Metrics of a replica at `/metrics`: counters of its components, and gauges computed at each scrape."""

from __future__ import annotations

import platform
import resource
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from admission.api.metrics_endpoint import Fixed
from admission.cli.serve.queue_metrics import cluster_families, label_families, queue_families, topology_families
from admission.controller.auditing.comparison import Problem
from admission.model.errors import StoreError
from admission.model.queues import ClusterQueue
from admission.store.workloads.waits import objectives_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric
    from prometheus_client.registry import Collector

    from admission.cli.serve.gate_process import GateProcess
    from admission.cli.serve.leader_roles import Role
    from admission.cluster.client import Client
    from admission.controller.controller import Controller
    from admission.notifications.notifier import Notifier
    from admission.store.store import Store


_OBJECTIVE_SECONDS: Final = 7 * 86400.0
"""The time before a scrape for which gauges say how objectives were met."""
_OBJECTIVES_EVERY: Final = 300.0
"""Seconds between two computations of it, which read all workloads of that time."""


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """Collects the metrics of all components of the replica. Counters start at zero with the process."""

    store: Store
    controller: Controller
    role: Role
    client: Client
    notifier: Notifier
    gate: GateProcess | None = None
    _of_objectives: _OfObjectives = field(default_factory=lambda: _OfObjectives(), init=False)

    async def collectors(self) -> Sequence[Collector]:
        """Return all collectors. Only the leader has metrics of queues, so that a sum over replicas is correct."""
        queues = await self._of_queues()
        of_gate = () if self.gate is None else self.gate.metrics()
        fixed = [*self._of_process(), *self._of_role(), *self._of_work(), *self._of_cluster(), *self._of_audit()]
        fixed += [*self._of_notifications(), *self._of_clusters()]
        counted = [*self.controller.metrics.collectors(), self.controller.watches.lag.histogram]
        return [*counted, Fixed([*fixed, *of_gate, *queues])]

    def _of_process(self) -> Iterator[Metric]:
        yield _counter("process_cpu_seconds", "User and system CPU time of the process.", time.process_time())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield _gauge("sluice_memory_peak_bytes", "Peak resident memory of the process.", peak)
        build = {"git_version": version("sluice"), "python_version": platform.python_version()}
        build["platform"] = f"{platform.system().lower()}/{platform.machine()}"
        info = GaugeMetricFamily(
            "sluice_build_info", "Versions of Sluice and Python, and the platform; always 1.", labels=list(build)
        )
        info.add_metric(list(build.values()), 1)
        yield info

    def _of_role(self) -> Iterator[Metric]:
        epoch = self.role.epoch
        yield _gauge("sluice_leading", "1 for the leader, else 0.", int(epoch is not None))
        text = (
            "1 for the leader while it makes decisions: it has recovered, and API server and database respond; else 0."
        )
        yield _gauge("sluice_deciding", text, int(epoch is not None and self.controller.is_deciding))
        if epoch is not None:
            yield _gauge("sluice_leader_epoch", "Epoch of the leader; increases with each change of leader.", epoch)

    def _of_work(self) -> Iterator[Metric]:
        controller, statistics = self.controller, self.store.statistics
        yield _counter(
            "sluice_store_write_transactions",
            "Write transactions committed to the database.",
            statistics.write_transactions,
        )
        yield _counter("sluice_store_commits", "Commits of the controller.", statistics.commits)
        pools = [(pool.name, pool) for pool in self.store.pools()]
        yield _by(
            "sluice_store_pool_connections",
            "Maximum number of connections to the database.",
            ("pool",),
            (((name,), pool.size) for name, pool in pools),
        )
        yield _by(
            "sluice_store_pool_connections_in_use",
            "Connections to the database in use.",
            ("pool",),
            (((name,), pool.used) for name, pool in pools),
        )
        yield _counter(
            "sluice_preemptions_in_vain",
            "Preemptions after which the preemptor was not admitted.",
            controller.metrics.flapping,
        )
        text = "Evictions of workloads that had been evicted twice or more in the hour before."
        yield _counter("sluice_evictions_repeated", text, controller.metrics.evicted_again)
        text = "Internal errors caused by one workload or queue object, which was then isolated."
        yield _counter("sluice_isolated_failures", text, controller.faults.count)
        text = "Workloads that are isolated until they change, because they caused internal errors."
        yield _gauge("sluice_isolated_workloads", text, len(controller.faults))
        depths = {
            "inbox": controller.inbox.weight,
            "patches": controller.writer.pending,
            "events": controller.events.pending,
        }
        yield _by(
            "sluice_queue_depth",
            "Items in the internal queues of the process.",
            ("queue",),
            (((name,), depth) for name, depth in depths.items()),
        )

    def _of_cluster(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "sluice_apiserver_requests",
            "Requests to the API server, by status code; empty if there was no response.",
            labels=("method", "resource", "code"),
        )
        for labels, number in list(self.client.requests.items()):
            requests.add_metric(labels, number)
        yield requests
        yield _counted("sluice_patches", "PATCH requests for objects, by outcome.", self.controller.writer.outcomes)
        yield _counted("sluice_events", "Kubernetes Events, by outcome.", self.controller.events.outcomes)
        yield _by(
            "sluice_informer_synced",
            "1 while the resource is listed completely and its watch is connected, else 0.",
            ("resource",),
            (((name,), int(synced)) for name, synced in self.controller.watches.informers().items()),
        )

    def _of_clusters(self) -> Iterator[Metric]:
        if lost := self.controller.lost_clusters():
            text = "1 while the cluster is lost, or not connected yet, so that nothing is decided about it; else 0."
            yield _by(
                "sluice_cluster_lost", text, ("cluster",), (((name,), int(value)) for name, value in lost.items())
            )

    def _of_audit(self) -> Iterator[Metric]:
        auditor = self.controller.auditor
        text = "Differences found by audits."
        total = CounterMetricFamily("sluice_audit_differences", text, labels=("problem",))
        for problem in Problem:
            total.add_metric((problem.value,), auditor.counts[problem.value])
        yield total
        if auditor.last_audit_at is not None:
            yield _by(
                "sluice_audit_last_differences",
                "Differences found by the last audit.",
                ("problem",),
                (((problem.value,), auditor.last[problem.value]) for problem in Problem),
            )
            text = "Unix time of the last audit."
            yield _gauge("sluice_audit_timestamp_seconds", text, auditor.last_audit_at)

    def _of_notifications(self) -> Iterator[Metric]:
        sent = CounterMetricFamily(
            "sluice_notifications",
            "Attempts to send a notification, by receiver and outcome: delivered or failed.",
            labels=("receiver", "outcome"),
        )
        for labels, number in list(self.notifier.outcomes.items()):
            sent.add_metric(labels, number)
        yield sent
        text = "Notifications dropped because they could not be delivered for three days."
        yield _counter("sluice_notifications_dropped", text, self.notifier.dropped)

    async def _of_queues(self) -> Iterable[Metric]:
        if self.role.epoch is None:
            return ()
        try:
            counts, held = await self.store.workloads.numbers()
            of_labels = await label_families(self.store)
        except StoreError:  # /readyz reports the outage; the other metrics are needed during it
            return ()
        if (engine := self.controller.engine()) is None:
            return ()
        self.controller.metrics.keep(frozenset(engine.cluster_queues()), engine.local_queues().keys())
        families = queue_families(engine, counts, held, fair_sharing=self.controller.policy.fair_sharing)
        families += of_labels
        families += await self._of_objectives.families(self.store)
        if self.controller.lost_clusters():
            try:
                numbers, seen = await self.store.workloads.by_cluster(), await self.store.joined_clusters.capacities()
                families += cluster_families(numbers, seen)
            except StoreError:
                return ()
        return [*families, *(await topology_families(engine) if engine.placing_flavors() else ())]


class _OfObjectives:
    """Gauges of how objectives of ClusterQueues were met; none if there are no objectives."""

    def __init__(self) -> None:
        self._made_at = -_OBJECTIVES_EVERY
        self._found: list[Metric] = []

    async def families(self, store: Store) -> list[Metric]:
        if time.monotonic() - self._made_at >= _OBJECTIVES_EVERY:
            self._found = await self._made(store)
            self._made_at = time.monotonic()
        return self._found

    async def _made(self, store: Store) -> list[Metric]:
        try:
            queues = await store.queues.list(ClusterQueue.kind)
            objectives = objectives_of(one for one in queues if isinstance(one, ClusterQueue))
            if not objectives:
                return []
            now = store.now()
            # clocks differ: what was created in the near future counts, too
            by_time = {(name, 0): one for name, one in objectives.items()}
            outcomes = await store.outcomes(by_time, (now - _OBJECTIVE_SECONDS, now + _OBJECTIVES_EVERY))
        except StoreError:
            return []
        wished = (((name,), one.percentile / 100) for name, one in objectives.items())
        met = (((name,), outcome.share) for (name, _), outcome in outcomes.found.items())
        by = ("cluster_queue",)
        text = "Share of workloads that are to start within the wished wait of the ClusterQueue."
        wish = _by("sluice_cluster_queue_objective_ratio", text, by, wished)
        text = "Share of the workloads of the last 7 days that started within the wished wait; none: there were none."
        return [wish, _by("sluice_cluster_queue_objective_met_ratio", text, by, met)]


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    """Return a counter; prometheus_client appends `_total` to the name."""
    return CounterMetricFamily(name, text, value=value)


def _by(name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counted(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("outcome",))
    for outcome, count in counts.items():
        family.add_metric((outcome,), count)
    return family
