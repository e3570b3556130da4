"""What `/metrics` tells of a replica: what store, controller and client have counted, and what waits where."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.api.metrics import Family, single
from admission.controller.audit import Problem
from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.cli.roles import Role
    from admission.cluster.client import Client
    from admission.controller import Controller
    from admission.store.records import QueueStatus
    from admission.store.store import Store


@dataclass(frozen=True, slots=True)
class Numbers:
    """Where they are read. Counters begin with the process."""

    store: Store
    controller: Controller
    role: Role
    client: Client

    async def families(self) -> list[Family]:
        """All. Numbers of queues are the leader's to tell, so that a sum over replicas is right."""
        return [*self._of_process(), *self._of_role(), *self._of_work(), *self._of_audit(), *await self._of_queues()]

    def _of_process(self) -> Iterable[Family]:
        yield single(
            "process_cpu_seconds_total", "counter", "User and system time of the process.", time.process_time()
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield single("sluice_memory_peak_bytes", "gauge", "Resident memory of the process at its highest.", peak)

    def _of_role(self) -> Iterable[Family]:
        epoch = self.role.epoch
        yield single("sluice_leading", "gauge", "1 for the replica that decides, else 0.", int(epoch is not None))
        deciding = int(epoch is not None and self.controller.engine() is not None)
        yield single("sluice_deciding", "gauge", "1 once the leader has recovered and decides.", deciding)
        if epoch is not None:
            yield single("sluice_leader_epoch", "gauge", "The leader's epoch: grows with each change of leader.", epoch)

    def _of_work(self) -> Iterable[Family]:
        controller, statistics = self.controller, self.store.statistics
        yield single(
            "sluice_store_write_transactions_total",
            "counter",
            "Write transactions committed to the database.",
            statistics.write_transactions,
        )
        yield single("sluice_store_commits_total", "counter", "Commits of the controller.", statistics.commits)
        yield _counted(
            "sluice_apiserver_requests_total", "Requests sent to the API server.", "method", self.client.requests
        )
        yield _counted(
            "sluice_patches_total", "Changes of objects, by how they ended.", "outcome", controller.writer.outcomes
        )
        yield _counted(
            "sluice_events_total", "Kubernetes events, by what became of them.", "outcome", controller.events.outcomes
        )
        yield single(
            "sluice_preemptions_in_vain_total",
            "counter",
            "Preemptions after which the workload that asked for them was not admitted.",
            controller.flapping,
        )
        text = "Failures of Sluice's own that one workload or queue object caused; it was left alone then."
        yield single("sluice_isolated_failures_total", "counter", text, controller.faults.count)
        text = "Workloads that are left alone until they change, because they made Sluice fail."
        yield single("sluice_isolated_workloads", "gauge", text, len(controller.faults))
        depths = {
            ("inbox",): controller.inbox.weight,
            ("patches",): controller.writer.pending,
            ("events",): controller.events.pending,
        }
        yield Family(
            "sluice_queue_depth", "gauge", "What waits in the queues of the process.", depths.items(), ("queue",)
        )

    def _of_audit(self) -> Iterable[Family]:
        auditor = self.controller.auditor
        total = {(problem.value,): auditor.counts[problem.value] for problem in Problem}
        yield Family(
            "sluice_audit_differences_total",
            "counter",
            "Differences that audits have found.",
            total.items(),
            ("problem",),
        )
        if auditor.looked_at is not None:
            last = {(problem.value,): auditor.last[problem.value] for problem in Problem}
            yield Family(
                "sluice_audit_differences",
                "gauge",
                "Differences that the last audit found.",
                last.items(),
                ("problem",),
            )
            text = "When the last audit was made, in seconds since 1970."
            yield single("sluice_audit_timestamp_seconds", "gauge", text, auditor.looked_at)

    async def _of_queues(self) -> Iterable[Family]:
        if self.role.epoch is None:
            return ()
        try:
            statuses = await self.store.workloads.cluster_queue_status()
        except StoreError:  # an outage is for /readyz to tell; all other numbers are of use just then
            return ()
        return _of_statuses(statuses)


def _counted(name: str, text: str, label: str, counts: Mapping[str, int]) -> Family:
    return Family(name, "counter", text, [((value,), count) for value, count in counts.items()], (label,))


def _of_statuses(statuses: Mapping[str, QueueStatus]) -> Iterable[Family]:
    """By the names that Kueue has for the same, with our own first word."""
    by_queue = ("cluster_queue",)
    yield Family(
        "sluice_pending_workloads",
        "gauge",
        "Workloads that wait for a ClusterQueue.",
        [((name,), status.pending) for name, status in statuses.items()],
        by_queue,
    )
    yield Family(
        "sluice_reserving_active_workloads",
        "gauge",
        "Workloads that hold quota of a ClusterQueue.",
        [((name,), status.reserving) for name, status in statuses.items()],
        by_queue,
    )
    yield Family(
        "sluice_admitted_active_workloads",
        "gauge",
        "Those of them that may run.",
        [((name,), status.admitted) for name, status in statuses.items()],
        by_queue,
    )
    yield Family(
        "sluice_cluster_queue_resource_usage",
        "gauge",
        "Quota that is held, in cores, bytes or pieces.",
        [
            ((name, *pot), _plain(pot[1], amount))
            for name, status in statuses.items()
            for pot, amount in status.usage.items()
        ],
        ("cluster_queue", "flavor", "resource"),
    )


def _plain(resource_name: str, amount: int) -> float:
    """In the base unit; cpu is counted in thousandths."""
    return amount / 1000 if resource_name == "cpu" else amount
