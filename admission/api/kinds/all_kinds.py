"""API descriptors of all kinds of queue objects; those with a status, or checks of their own, have a module each."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from admission.api.kinds.budget_requests import BUDGET_REQUEST
from admission.api.kinds.budgets import BUDGET
from admission.api.kinds.cluster_queues import CLUSTER_QUEUE
from admission.api.kinds.clusters import CLUSTER
from admission.api.kinds.cohorts import COHORT
from admission.api.kinds.columns import ACTIVE, Column, at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.local_queues import LOCAL_QUEUE
from admission.api.kinds.object_schemas import AdmissionCheckStatus
from admission.api.kinds.queue_status import admission_check_status, silences
from admission.api.kinds.reservations import RESERVATION
from admission.api.kinds.subscriptions import SUBSCRIPTION
from admission.api.kinds.user_limits import USER_LIMIT
from admission.model.queues import (
    AdmissionCheck,
    Drain,
    PriceBook,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.store import Store


def _drained(document: Document, now: float) -> object:
    del now
    spec = document["spec"]
    return ",".join([*spec.get("nodes", ()), *(f"flavor/{name}" for name in spec.get("flavors", ()))])


async def _drain_warnings(store: Store, written: Drain, context: WarningContext) -> list[str]:
    del context
    known = (await store.queues.names(ResourceFlavor.kind))[ResourceFlavor.kind]
    return [f"there is no ResourceFlavor {name}" for name in written.spec.flavors if name not in known]


DRAIN: Final = ObjectKind(
    Drain,
    columns=(
        Column("Drained", _drained, "Nodes and flavors on which nothing starts any more"),
        Column("Start", at("spec", "startTime"), "When the maintenance begins; empty: at once"),
        Column("Deadline", at("spec", "deadline"), "When workloads are evicted that still run there"),
        Column("Reason", at("spec", "reason"), "Why"),
    ),
    warnings=_drain_warnings,
)


def _prices(document: Document, now: float) -> object:
    del now
    return len(document["spec"]["prices"])


async def _price_warnings(store: Store, written: PriceBook, context: WarningContext) -> list[str]:
    del context
    known = (await store.queues.names(ResourceFlavor.kind))[ResourceFlavor.kind]
    priced = {each.flavor for each in written.spec.prices} - {""}
    return [f"there is no ResourceFlavor {name}" for name in sorted(priced) if name not in known]


PRICE_BOOK: Final = ObjectKind(
    PriceBook,
    columns=(
        Column("Currency", at("spec", "currency"), "The currency of its prices"),
        Column("Prices", _prices, "Number of prices", "integer"),
    ),
    warnings=_price_warnings,
)

PROVISIONING_REQUEST_CONFIG: Final = ObjectKind(
    ProvisioningRequestConfig,
    columns=(Column("Class", at("spec", "provisioningClassName"), "Mode of provisioning"),),
)


async def _check_inputs(store: Store, checks: Sequence[AdmissionCheck]) -> list[tuple[str, str]]:
    return await silences(store, checks)


async def _check_warnings(store: Store, written: AdmissionCheck, context: WarningContext) -> list[str]:
    del context
    if written.provisioning_config is not None:
        ((_, missing),) = await silences(store, [written])
        return [f"spec.parameters: {missing}"] if missing else []
    if not written.is_part_of_kueue:
        return []
    name = written.spec.controller_name
    return [f"spec.controllerName: {name} is a part of Kueue and does not answer Sluice; name another one"]


ADMISSION_CHECK: Final = ObjectKind(
    AdmissionCheck,
    columns=(
        Column("Controller", at("spec", "controllerName"), "Controller that answers the check", wide=True),
        ACTIVE,
    ),
    selectable_fields={"spec.controllerName": lambda check: check.spec.controller_name},
    status_schema=AdmissionCheckStatus,
    status=Status(_check_inputs, admission_check_status),
    warnings=_check_warnings,
)


def _node_labels(document: Document, now: float) -> object:
    del now
    return ",".join(f"{key}={value}" for key, value in document.get("spec", {}).get("nodeLabels", {}).items()) or None


async def _flavor_warnings(store: Store, written: ResourceFlavor, context: WarningContext) -> list[str]:
    del context
    name = written.spec.topology_name
    if name is None or name in (await store.queues.names(Topology.kind))[Topology.kind]:
        return []
    return [f"there is no Topology {name}; nothing is admitted before it is created"]


RESOURCE_FLAVOR: Final = ObjectKind(
    ResourceFlavor,
    columns=(Column("Node Labels", _node_labels, "Labels of the nodes of the flavor", wide=True),),
    warnings=_flavor_warnings,
)


def _levels(document: Document, now: float) -> object:
    del now
    return ",".join(level["nodeLabel"] for level in document["spec"]["levels"])


TOPOLOGY: Final = ObjectKind(
    Topology,
    columns=(Column("Levels", _levels, "Node labels of the levels, from the widest to the narrowest"),),
)


WORKLOAD_PRIORITY_CLASS: Final = ObjectKind(
    WorkloadPriorityClass, columns=(Column("Value", at("value"), "Priority of its workloads", "integer"),)
)


KINDS: Final = MappingProxyType(
    {
        kind.model.kind: kind
        for kind in (
            CLUSTER_QUEUE,
            COHORT,
            LOCAL_QUEUE,
            RESOURCE_FLAVOR,
            TOPOLOGY,
            WORKLOAD_PRIORITY_CLASS,
            ADMISSION_CHECK,
            PROVISIONING_REQUEST_CONFIG,
            BUDGET,
            RESERVATION,
            DRAIN,
            USER_LIMIT,
            PRICE_BOOK,
            BUDGET_REQUEST,
            SUBSCRIPTION,
            CLUSTER,
        )
    }
)
"""Descriptor by kind, for each of `admission.model.queues.QUEUE_OBJECTS`."""
