"""Manifests of queue objects, and how a test puts them into the database before Sluice runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from admission.model.manifests import parse_documents, parse_manifest
from admission.store.audit_log import Author
from admission.store.store import Store

API_VERSION = "sluice.dev/v1"


async def create_objects(place: Store | str, *objects: str | Mapping[str, Any]) -> None:
    """Create queue objects, given as documents or as YAML. `place`: a store, or the URL of a migrated database."""
    if isinstance(place, str):
        async with Store.open(place) as store:
            await create_objects(store, *objects)
            return
    for each in objects:
        documents = [found.body for found in parse_documents(each, source="test")] if isinstance(each, str) else [each]
        for one in documents:
            await place.queues.create(parse_manifest(one), author=Author("test"))


def text_of(*documents: Mapping[str, Any]) -> str:
    """As a file for `sluice apply` or kubectl."""
    return yaml.safe_dump_all(documents, sort_keys=False)


def manifest(kind: str, name: str, *, namespace: str = "", **content: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **content}


def resource_group(**quotas: Mapping[str, Any]) -> dict[str, Any]:
    """Quotas by flavor and resource: nominal quota, or all fields but the name."""
    flavors = [
        {"name": name, "resources": [{"name": resource, **_quota(amount)} for resource, amount in amounts.items()]}
        for name, amounts in quotas.items()
    ]
    return {"coveredResources": [each["name"] for each in flavors[0]["resources"]], "flavors": flavors}


def _quota(amount: Any) -> dict[str, Any]:
    return amount if isinstance(amount, dict) else {"nominalQuota": amount}


def cluster_queue(
    name: str = "cq",
    *,
    cpu: Any = "4",
    flavor: str = "default",
    quotas: Mapping[str, Mapping[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A ClusterQueue for all namespaces. `quotas` (of `resource_group`): instead of `cpu` of one flavor."""
    group = resource_group(**(quotas or {flavor: {"cpu": cpu}}))
    return manifest("ClusterQueue", name, spec={"resourceGroups": [group], "namespaceSelector": {}, **spec})


def local_queue(name: str = "lq", namespace: str = "default", target: str = "cq") -> dict[str, Any]:
    return manifest("LocalQueue", name, namespace=namespace, spec={"clusterQueue": target})


def cohort(name: str, parent: str = "") -> dict[str, Any]:
    return manifest("Cohort", name, spec={"parentName": parent} if parent else {})


def flavor(name: str = "default", **labels: str) -> dict[str, Any]:
    return manifest("ResourceFlavor", name, spec={"nodeLabels": labels} if labels else {})


def admission_check(name: str) -> dict[str, Any]:
    parameters = {"apiGroup": "example.com", "kind": "Budget", "name": "yearly"}
    return manifest("AdmissionCheck", name, spec={"controllerName": "example.com/budget", "parameters": parameters})


def provisioning_config(name: str, class_name: str, **spec: Any) -> dict[str, Any]:
    return manifest("ProvisioningRequestConfig", name, spec={"provisioningClassName": class_name, **spec})


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
