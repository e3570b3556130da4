"""The `status` of queue objects, computed at each read from other objects and the ledger, in Kueue's field names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from admission.model.names import STOP_REASON
from admission.model.quantity import format_amount
from admission.model.queues import AdmissionCheck, ClusterQueue, ResourceFlavor
from admission.store.records import QueueStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from admission.api.http.responses import Document
    from admission.model.queues import LocalQueue
    from admission.store.store import Store

NO_WORKLOADS: Final = QueueStatus()
"""The numbers of a queue that no workload is in."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the activity of queues depends on beside themselves."""

    flavors: AbstractSet[str]
    """The names of all ResourceFlavors."""
    checks: AbstractSet[str]
    """The names of all AdmissionChecks."""
    cluster_queues: Mapping[str, ClusterQueue]
    """All of them, by name; only LocalQueues ask."""


_LAST: WeakKeyDictionary[Store, dict[bool, Surroundings]] = WeakKeyDictionary()
"""Of each store, with and without ClusterQueues: equal ones are the same, so that a thousand queues compare quickly."""


async def surroundings_of(store: Store, cluster_queues: Iterable[ClusterQueue] = ()) -> Surroundings:
    """What is in the database now, with the ClusterQueues that were read already."""
    flavor, check = ResourceFlavor.kind, AdmissionCheck.kind
    names = await store.queues.names(flavor, check)
    found = Surroundings(names[flavor], names[check], {queue.name: queue for queue in cluster_queues})
    last = _LAST.setdefault(store, {})
    key = bool(found.cluster_queues)
    if found != last.get(key):
        last[key] = found
    return last[key]


def missing_flavors(queue: ClusterQueue, surroundings: Surroundings) -> list[str]:
    """The flavors that the ClusterQueue has quota in and that do not exist."""
    named = (quotas.name for group in queue.spec.resource_groups for quotas in group.flavors)
    return [name for name in named if name not in surroundings.flavors]


def missing_checks(queue: ClusterQueue, surroundings: Surroundings) -> list[str]:
    """The admission checks that the ClusterQueue asks for and that do not exist."""
    strategy = queue.spec.admission_checks_strategy
    return [rule.name for rule in strategy.admission_checks if rule.name not in surroundings.checks] if strategy else []


def cluster_queue_status(queue: ClusterQueue, numbers: QueueStatus, surroundings: Surroundings) -> Document:
    """The status of a ClusterQueue."""
    reason, message = _activity(queue, surroundings)
    usage = _flavor_usage(queue, numbers.usage or {})
    return {
        "conditions": [_condition("Active", reason == "Ready", reason, message, queue.metadata.generation)],
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        **_counts(numbers),
    }


def local_queue_status(queue: LocalQueue, numbers: QueueStatus, surroundings: Surroundings) -> Document:
    """The status of a LocalQueue."""
    target = surroundings.cluster_queues.get(queue.spec.cluster_queue)
    if queue.spec.stop_policy != "None":
        reason, message = "Stopped", f"LocalQueue is stopped{_why(queue)}"
    elif target is None:
        reason, message = "ClusterQueueDoesNotExist", f"there is no ClusterQueue {queue.spec.cluster_queue}"
    elif _activity(target, surroundings)[0] != "Ready":
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


def is_answered_by_kueue(check: AdmissionCheck) -> bool:
    """Whether its controller is one of those inside of Kueue, which answer to Kueue alone."""
    return check.spec.controller_name.startswith("kueue.x-k8s.io/")


def admission_check_status(check: AdmissionCheck, answered: bool) -> Document:
    """The status of an AdmissionCheck; `answered`: whether its controller was heard of."""
    controller, generation = check.spec.controller_name, check.metadata.generation
    if answered:
        condition = _condition("Active", True, "Active", f"{controller} answers it", generation)
    elif is_answered_by_kueue(check):
        text = f"{controller} is a part of Kueue and does not answer to Sluice; workloads would wait for ever"
        condition = _condition("Active", False, "NoController", text, generation)
    else:
        text = f"{controller} has not answered for any workload yet"
        condition = _condition("Active", False, "NotAnswered", text, generation) | {"status": "Unknown"}
    return {"conditions": [condition]}


def _activity(queue: ClusterQueue, surroundings: Surroundings) -> tuple[str, str]:
    """Reason and message of the condition Active, in Kueue's words; the reason is Ready if it is."""
    found = []
    if queue.spec.stop_policy != "None":
        found.append(("Stopped", f"is stopped{_why(queue)}"))
    if missing := missing_flavors(queue, surroundings):
        found.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {', '.join(missing)}"))
    if missing := missing_checks(queue, surroundings):
        found.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {', '.join(missing)}"))
    if not found:
        return "Ready", "Can admit new workloads"
    return found[0][0], f"Can't admit new workloads: {', '.join(message for _, message in found)}."


def _why(queue: ClusterQueue | LocalQueue) -> str:
    """The reason for which it was stopped, if one was given."""
    reason = queue.metadata.annotations.get(STOP_REASON)
    return f" ({reason})" if reason else ""


def _flavor_usage(queue: ClusterQueue, usage: Mapping[tuple[str, str], int]) -> list[Document]:
    """Total and borrowed amounts by flavor: those of the spec in its order, then what is still held in others."""
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
