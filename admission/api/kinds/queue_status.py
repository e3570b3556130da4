"""Status of queue objects, computed at each read from other objects and the ledger; field names are Kueue's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from admission.model.names import STOP_REASON
from admission.model.quantity import format_amount
from admission.model.queues import AdmissionCheck, ClusterQueue, ProvisioningRequestConfig, ResourceFlavor, Topology
from admission.store.records import QueueStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from admission.api.http.responses import Document
    from admission.model.queues import LocalQueue
    from admission.store.store import Store

NO_WORKLOADS: Final = QueueStatus()
"""Numbers of a queue without workloads."""


@dataclass(frozen=True, slots=True)
class ExistingObjects:
    """Other objects that the condition Active of queues depends on."""

    flavors: AbstractSet[str]
    """Names of all ResourceFlavors."""
    unplaced: Mapping[str, str]
    """By name of each ResourceFlavor whose Topology does not exist: the name of that."""
    checks: Mapping[str, str]
    """By name of each AdmissionCheck: why nothing answers it; empty if its controller does."""
    cluster_queues: Mapping[str, ClusterQueue]
    """All ClusterQueues by name; empty where only the status of ClusterQueues is computed."""


_LAST: WeakKeyDictionary[Store, dict[bool, ExistingObjects]] = WeakKeyDictionary()
"""By store and by "has ClusterQueues": the last value, reused while it is equal.

The inputs of a thousand queues then refer to the same object, which makes comparing them fast.
"""


async def existing_objects(store: Store, cluster_queues: Iterable[ClusterQueue] = ()) -> ExistingObjects:
    """Read the flavors and checks; `cluster_queues` are those that the caller has read already."""
    check, topology = AdmissionCheck.kind, Topology.kind
    flavors = [each for each in await store.queues.list(ResourceFlavor.kind) if isinstance(each, ResourceFlavor)]
    names = await store.queues.names(check, topology)
    checks = await unanswered(store) if names[check] else {}
    placed = {flavor.name: flavor.spec.topology_name for flavor in flavors if flavor.spec.topology_name}
    unplaced = {flavor: name for flavor, name in placed.items() if name not in names[topology]}
    queues = {queue.name: queue for queue in cluster_queues}
    found = ExistingObjects({flavor.name for flavor in flavors}, unplaced, checks, queues)
    last = _LAST.setdefault(store, {})
    key = bool(found.cluster_queues)
    if found != last.get(key):
        last[key] = found
    return last[key]


def missing_flavors(queue: ClusterQueue, existing: ExistingObjects) -> list[str]:
    """Return the flavors that the ClusterQueue has quota in and that do not exist."""
    named = (quotas.name for group in queue.spec.resource_groups for quotas in group.flavors)
    return [name for name in named if name not in existing.flavors]


def missing_checks(queue: ClusterQueue, existing: ExistingObjects) -> list[str]:
    """Return the admission checks that the ClusterQueue requires and that do not exist."""
    strategy = queue.spec.admission_checks_strategy
    return [rule.name for rule in strategy.admission_checks if rule.name not in existing.checks] if strategy else []


def cluster_queue_status(queue: ClusterQueue, numbers: QueueStatus, existing: ExistingObjects) -> Document:
    """Return the status of a ClusterQueue, without `fairSharing`."""
    reason, message = _activity(queue, existing)
    usage = _flavor_usage(queue, numbers.usage or {})
    return {
        "conditions": [_condition("Active", reason == "Ready", reason, message, queue.metadata.generation)],
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        **_counts(numbers),
    }


def local_queue_status(queue: LocalQueue, numbers: QueueStatus, existing: ExistingObjects) -> Document:
    """Return the status of a LocalQueue."""
    target = existing.cluster_queues.get(queue.spec.cluster_queue)
    if queue.spec.stop_policy != "None":
        reason, message = "Stopped", f"LocalQueue is stopped{_why(queue)}"
    elif target is None:
        reason, message = "ClusterQueueDoesNotExist", f"there is no ClusterQueue {queue.spec.cluster_queue}"
    elif _activity(target, existing)[0] != "Ready":
        reason, message = "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
    else:
        reason, message = "Ready", "Can submit new workloads to localQueue"
    usage = _amounts(numbers.usage or {})
    return {
        "conditions": [_condition("Active", reason == "Ready", reason, message, queue.metadata.generation)],
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        **_counts(numbers),
    }


async def unanswered(store: Store) -> dict[str, str]:
    """Return, by name of each AdmissionCheck, why nothing answers it; empty if its controller does."""
    checks = [check for check in await store.queues.list(AdmissionCheck.kind) if isinstance(check, AdmissionCheck)]
    return {check.name: text for check, (_, text) in zip(checks, await silences(store, checks), strict=True)}


async def silences(store: Store, checks: Iterable[AdmissionCheck]) -> list[tuple[str, str]]:
    """Return reason and message why nothing answers each check; both are empty if its controller does."""
    answered = await store.orders.answered()
    configs = await store.queues.names(ProvisioningRequestConfig.kind)
    return [_silence(check, answered, configs[ProvisioningRequestConfig.kind]) for check in checks]


def admission_check_status(check: AdmissionCheck, silence: tuple[str, str]) -> Document:
    """Return the status of an AdmissionCheck; `silence`: why nothing answers it (see `silences`)."""
    generation = check.metadata.generation
    reason, text = silence
    if not reason:
        condition = _condition("Active", True, "Active", f"{check.spec.controller_name} answers it", generation)
    else:
        condition = _condition("Active", False, reason, text, generation)
        condition |= {"status": "Unknown"} if reason == "NotAnswered" else {}
    return {"conditions": [condition]}


def _silence(check: AdmissionCheck, answered: AbstractSet[str], configs: AbstractSet[str]) -> tuple[str, str]:
    """Return reason and message about a check that is not answered; empty if it is."""
    controller, config = check.spec.controller_name, check.provisioning_config
    if config is not None:
        if config in configs:
            return "", ""
        parameters = check.spec.parameters
        if parameters is None:
            return "BadParametersRef", "must name a ProvisioningRequestConfig"
        return "BadParametersRef", f'there is no ProvisioningRequestConfig "{config}"; create it'
    if check.name in answered:
        return "", ""
    if check.is_part_of_kueue:
        return (
            "NoController",
            f"{controller} is a part of Kueue and does not answer Sluice; workloads would wait forever",
        )
    return "NotAnswered", f"{controller} has not answered for any workload yet"


def _activity(queue: ClusterQueue, existing: ExistingObjects) -> tuple[str, str]:
    """Return reason and message of the condition Active, as Kueue words them; the reason Ready means True."""
    found = []
    if queue.spec.stop_policy != "None":
        found.append(("Stopped", f"is stopped{_why(queue)}"))
    if missing := missing_flavors(queue, existing):
        found.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {', '.join(missing)}"))
    named = dict.fromkeys(quotas.name for group in queue.spec.resource_groups for quotas in group.flavors)
    found += [
        ("TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{flavor}"')
        for flavor in named
        if (topology := existing.unplaced.get(flavor))
    ]
    if missing := missing_checks(queue, existing):
        found.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {', '.join(missing)}"))
    if not found:
        strategy = queue.spec.admission_checks_strategy
        names = [rule.name for rule in strategy.admission_checks] if strategy else []
        silent = [f"AdmissionCheck {name}: {existing.checks[name]}" for name in names if existing.checks[name]]
        return "Ready", "; ".join(["Can admit new workloads", *silent])
    return found[0][0], f"Can't admit new workloads: {', '.join(message for _, message in found)}."


def _why(queue: ClusterQueue | LocalQueue) -> str:
    """Return the reason for the stop in parentheses, from the queue's annotation; empty if there is none."""
    reason = queue.metadata.annotations.get(STOP_REASON)
    return f" ({reason})" if reason else ""


def _flavor_usage(queue: ClusterQueue, usage: Mapping[tuple[str, str], int]) -> list[Document]:
    """Return total and borrowed amounts by flavor, in the order of the spec.

    Flavors that were removed from the spec follow while workloads still hold quota in them.
    """
    nominal = {
        (quotas.name, quota.name): quota.nominal
        for group in queue.spec.resource_groups
        for quotas in group.flavors
        for quota in quotas.resources
    }
    keys = [*nominal, *sorted(key for key in usage if key not in nominal)]
    borrowed = {key: max(0, usage.get(key, 0) - nominal.get(key, 0)) for key in keys}
    return _by_flavor(
        (flavor, _amount(resource, usage.get((flavor, resource), 0)) | {"borrowed": format_amount(resource, over)})
        for (flavor, resource), over in borrowed.items()
    )


def _amounts(usage: Mapping[tuple[str, str], int]) -> list[Document]:
    return _by_flavor((flavor, _amount(resource, total)) for (flavor, resource), total in sorted(usage.items()))


def _amount(resource: str, total: int) -> Document:
    return {"name": resource, "total": format_amount(resource, total)}


def _by_flavor(entries: Iterable[tuple[str, Document]]) -> list[Document]:
    flavors: dict[str, list[Document]] = {}
    for flavor, entry in entries:
        flavors.setdefault(flavor, []).append(entry)
    return [{"name": flavor, "resources": resources} for flavor, resources in flavors.items()]


def _counts(numbers: QueueStatus) -> Document:
    return {
        "pendingWorkloads": numbers.pending,
        "reservingWorkloads": numbers.reserving,
        "admittedWorkloads": numbers.admitted,
    }


def _condition(kind: str, holds: bool, reason: str, message: str, generation: int) -> Document:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }
