"""What `/metrics` tells of a replica: what its parts have counted, and what is true as it is read."""

from __future__ import annotations

import platform
import resource
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from admission.api.metrics_endpoint import Fixed
from admission.cli.serve.queue_metrics import queue_families
from admission.controller.auditing.comparison import Problem
from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric
    from prometheus_client.registry import Collector

    from admission.cli.serve.gate_process import Gate
    from admission.cli.serve.leader_roles import Role
    from admission.cluster.client import Client
    from admission.controller.controller import Controller
    from admission.notifications.notifier import Notifier
    from admission.store.store import Store


@dataclass(frozen=True, slots=True)
class Numbers:
    """Where they are read. Counters begin with the process."""

    store: Store
    controller: Controller
    role: Role
    client: Client
    notifier: Notifier
    gate: Gate | None = None

    async def collectors(self) -> Sequence[Collector]:
        """All. Numbers of queues are the leader's to tell, so that a sum over replicas is right."""
        queues = await self._of_queues()
        told = () if self.gate is None else self.gate.metrics()
        fixed = [*self._of_process(), *self._of_role(), *self._of_work(), *self._of_cluster(), *self._of_audit()]
        fixed += self._of_notifications()
        counted = [*self.controller.metrics.collectors(), self.controller.watches.lag.histogram]
        return [*counted, Fixed([*fixed, *told, *queues])]

    def _of_process(self) -> Iterator[Metric]:
        yield _counter("process_cpu_seconds", "User and system time of the process.", time.process_time())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield _gauge("sluice_memory_peak_bytes", "Resident memory of the process at its highest.", peak)
        build = {"git_version": version("sluice"), "python_version": platform.python_version()}
        build["platform"] = f"{platform.system().lower()}/{platform.machine()}"
        info = GaugeMetricFamily("sluice_build_info", "The version that runs.", labels=list(build))
        info.add_metric(list(build.values()), 1)
        yield info

    def _of_role(self) -> Iterator[Metric]:
        epoch = self.role.epoch
        yield _gauge("sluice_leading", "1 for the replica that decides, else 0.", int(epoch is not None))
        text = "1 for the leader while it decides: it has recovered, and API server and database do their part; else 0."
        yield _gauge("sluice_deciding", text, int(epoch is not None and self.controller.decides))
        if epoch is not None:
            yield _gauge("sluice_leader_epoch", "The leader's epoch: grows with each change of leader.", epoch)

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
            "Connections to the database that there may be.",
            ("pool",),
            (((name,), pool.size) for name, pool in pools),
        )
        yield _by(
            "sluice_store_pool_connections_in_use",
            "Connections to the database that are in use.",
            ("pool",),
            (((name,), pool.used) for name, pool in pools),
        )
        yield _counter(
            "sluice_preemptions_in_vain",
            "Preemptions after which the workload that asked for them was not admitted.",
            controller.metrics.flapping,
        )
        text = "Failures of Sluice's own that one workload or queue object caused; it was left alone then."
        yield _counter("sluice_isolated_failures", text, controller.faults.count)
        text = "Workloads that are left alone until they change, because they made Sluice fail."
        yield _gauge("sluice_isolated_workloads", text, len(controller.faults))
        depths = {
            "inbox": controller.inbox.weight,
            "patches": controller.writer.pending,
            "events": controller.events.pending,
        }
        yield _by(
            "sluice_queue_depth",
            "What waits in the queues of the process.",
            ("queue",),
            (((name,), depth) for name, depth in depths.items()),
        )

    def _of_cluster(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "sluice_apiserver_requests",
            "Requests to the API server, by the status code of the answer; empty: there was none.",
            labels=("method", "resource", "code"),
        )
        for labels, number in list(self.client.requests.items()):
            requests.add_metric(labels, number)
        yield requests
        yield _counted("sluice_patches", "Changes of objects, by how they ended.", self.controller.writer.outcomes)
        yield _counted("sluice_events", "Kubernetes events, by what became of them.", self.controller.events.outcomes)
        yield _by(
            "sluice_informer_synced",
            "1 while all objects of the resource are known and the watch is heard, else 0.",
            ("resource",),
            (((name,), int(synced)) for name, synced in self.controller.watches.informers().items()),
        )

    def _of_audit(self) -> Iterator[Metric]:
        auditor = self.controller.auditor
        text = "Differences that audits have found."
        total = CounterMetricFamily("sluice_audit_differences", text, labels=("problem",))
        for problem in Problem:
            total.add_metric((problem.value,), auditor.counts[problem.value])
        yield total
        if auditor.looked_at is not None:
            yield _by(
                "sluice_audit_last_differences",
                "Differences that the last audit found.",
                ("problem",),
                (((problem.value,), auditor.last[problem.value]) for problem in Problem),
            )
            text = "When the last audit was made, in seconds since 1970."
            yield _gauge("sluice_audit_timestamp_seconds", text, auditor.looked_at)

    def _of_notifications(self) -> Iterator[Metric]:
        sent = CounterMetricFamily(
            "sluice_notifications",
            "Attempts to send a notification, by receiver and how they ended: delivered or failed.",
            labels=("receiver", "outcome"),
        )
        for labels, number in list(self.notifier.outcomes.items()):
            sent.add_metric(labels, number)
        yield sent
        text = "Notifications that are lost, because they could not be delivered for three days."
        yield _counter("sluice_notifications_dropped", text, self.notifier.dropped)

    async def _of_queues(self) -> Iterable[Metric]:
        if self.role.epoch is None:
            return ()
        try:
            counts, held = await self.store.workloads.numbers()
        except StoreError:  # an outage is for /readyz to tell; all other numbers are of use just then
            return ()
        if (engine := self.controller.engine()) is None:
            return ()
        self.controller.metrics.keep(frozenset(engine.cluster_queues()), engine.local_queues().keys())
        return queue_families(engine, counts, held, fair_sharing=self.controller.policy.fair_sharing)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    """`_total` is added to the name."""
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
