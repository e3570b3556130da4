"""Manifests that the tests of the API and of the commands share."""

from __future__ import annotations

from typing import Any

API_VERSION = "sluice.dev/v1"


def manifest(kind: str, name: str, *, namespace: str = "", **content: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **content}


def cluster_queue(name: str, *, cpu: str = "4", flavor: str = "default", **spec: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]}
    return manifest("ClusterQueue", name, spec={"resourceGroups": [group], "namespaceSelector": {}, **spec})


def local_queue(name: str, namespace: str, target: str) -> dict[str, Any]:
    return manifest("LocalQueue", name, namespace=namespace, spec={"clusterQueue": target})


def cohort(name: str, parent: str = "") -> dict[str, Any]:
    return manifest("Cohort", name, spec={"parentName": parent} if parent else {})


def flavor(name: str, **labels: str) -> dict[str, Any]:
    return manifest("ResourceFlavor", name, spec={"nodeLabels": labels} if labels else {})


def admission_check(name: str) -> dict[str, Any]:
    parameters = {"apiGroup": "example.com", "kind": "Budget", "name": "yearly"}
    return manifest("AdmissionCheck", name, spec={"controllerName": "example.com/budget", "parameters": parameters})


def provisioning_config(name: str, class_name: str) -> dict[str, Any]:
    return manifest("ProvisioningRequestConfig", name, spec={"provisioningClassName": class_name})


def topology(name: str, *levels: str) -> dict[str, Any]:
    return manifest("Topology", name, spec={"levels": [{"nodeLabel": level} for level in levels]})


def budget(name: str, hours: int, **spec: Any) -> dict[str, Any]:
    resources = [{"name": "nvidia.com/gpu", "hours": hours}]
    return manifest("Budget", name, spec={"scope": {}, "resources": resources, "period": {"every": "Month"}, **spec})


def reservation(name: str, queue: str, cpu: int, **spec: Any) -> dict[str, Any]:
    """Return a Reservation of cpu for ada, on 1 December 2030 unless given."""
    times = {"start": "2030-12-01T08:00", "end": "2030-12-01T18:00"}
    quotas = [{"flavor": "default", "resource": "cpu", "amount": cpu}]
    given = {"clusterQueue": queue, "quotas": quotas, "holders": {"users": ["ada"]}, **times, **spec}
    return manifest("Reservation", name, spec=given)


def priority_class(name: str, value: int) -> dict[str, Any]:
    return manifest("WorkloadPriorityClass", name, value=value)


def user_limit(name: str, running: int, **spec: Any) -> dict[str, Any]:
    return manifest("UserLimit", name, spec={"running": running, **spec})


def price_book(name: str, *prices: dict[str, Any]) -> dict[str, Any]:
    return manifest("PriceBook", name, spec={"currency": "EUR", "prices": [*prices]})


def drain(name: str, *nodes: str) -> dict[str, Any]:
    spec = {"nodes": [*nodes], "flavors": ["a100"], "deadline": "2030-12-01T18:00:00Z", "reason": "fans"}
    return manifest("Drain", name, spec=spec)
