"""Helpers for engine tests: constructors for queue objects and workloads, and an engine with a clock (`World`)."""

from __future__ import annotations

from typing import Any

import queue_objects

from admission.engine import Engine, NamespaceChanged, QueueObjectChanged, WorkloadGone, WorkloadPending
from admission.engine.policies.admission_fair_sharing import Consumption, RecentUsage
from admission.model.manifests import parse_manifest
from admission.model.queues import QueueObject
from admission.model.workload import PodSet, Workload


def manifest(kind: str, name: str, spec: dict[str, Any], *, namespace: str = "") -> QueueObject:
    return parse_manifest(queue_objects.manifest(kind, name, namespace=namespace, spec=spec))


def cluster_queue(
    name: str,
    quota: dict[str, Any] | int,
    *,
    cohort: str = "",
    limits: dict[str, int] | None = None,
    **fields: Any,
) -> QueueObject:
    """Return a ClusterQueue. `quota`: nominal quotas of cpu or by resource, by flavor; a number: of `default`."""
    nominal = quota if isinstance(quota, dict) else {"default": quota}
    quotas = {
        flavor: amount if isinstance(amount, dict) else {"cpu": {"nominalQuota": amount, **(limits or {})}}
        for flavor, amount in nominal.items()
    }
    spec = {**({"cohortName": cohort} if cohort else {}), **fields}
    return parse_manifest(queue_objects.cluster_queue(name, quotas=quotas, **spec))


def cohort(name: str, quota: int = 0, *, parent: str = "", limit: int | None = None, **fields: Any) -> QueueObject:
    """Return a Cohort with its own cpu quota in the flavor `default`, and a borrowing limit."""
    amounts = {"nominalQuota": quota, **({} if limit is None else {"borrowingLimit": limit})}
    groups = [queue_objects.resource_group(default={"cpu": amounts})]
    return manifest("Cohort", name, {"resourceGroups": groups, **({"parentName": parent} if parent else {}), **fields})


def local_queue(name: str, *, to: str = "", **fields: Any) -> QueueObject:
    return manifest("LocalQueue", name, {"clusterQueue": to or name, **fields}, namespace="ns")


def workload(
    name: str, queue: str, cpu: float = 1, *, count: int = 1, priority: int = 0, created: float = 0.0, **fields: Any
) -> Workload:
    requests = {"cpu": round(cpu * 1000)} | fields.pop("others", {})
    pods = PodSet("main", count, requests, **fields.pop("pods", {}))
    return Workload(
        uid=name, namespace="ns", name=name, queue=queue, priority=priority, created=created, pod_sets=(pods,), **fields
    )


def consumption(engine: Engine) -> dict[tuple[str, str], Consumption]:
    """Return the recent usage of each LocalQueue, by (namespace, name); empty without admission fair sharing."""
    usages = [policy for policy in engine.policies if isinstance(policy, RecentUsage)]
    return usages[0].entries() if usages else {}


class World:
    """An engine that has observed queue objects, and the clock (`now`) with which events are passed to it."""

    def __init__(self, *objects: QueueObject, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        self.now = 1000.0
        self.engine.observe(NamespaceChanged("ns", {}), now=self.now)
        self.tell(manifest("ResourceFlavor", "default", {}), *objects)

    def tell(self, *objects: QueueObject) -> None:
        for item in objects:
            self.engine.observe(QueueObjectChanged(item), now=self.now)

    def submit(self, *workloads: Workload) -> None:
        for item in workloads:
            self.engine.observe(WorkloadPending(item), now=self.now)

    def gone(self, uid: str, requeue: Workload | None = None) -> None:
        self.engine.observe(WorkloadGone(uid, requeue=requeue), now=self.now)

    def admitted(self) -> list[str]:
        """Run cycles until they decide nothing more, and return the names of admitted workloads."""
        decisions = self.engine.settle(self.now)
        wakes = self.engine.wake_at()
        assert wakes is None or wakes > self.now, "the engine would decide without a pause"
        return [admit.workload.name for admit in decisions.admitted]
