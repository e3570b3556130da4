"""Import of KAI's Queues (`scheduling.run.ai/v2`): cpu in milli-CPU, memory in megabytes; -1: no limit; not set: 0.

KAI's API has numbers only. Its users also write quantities ("800Gi"), which mean what they mean in Kubernetes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue
from admission.cli.commands.import_quotas.system import FoundQuotas, System, objects_of
from admission.model.quantity import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.cli.commands.import_quotas.fields import Fields
    from admission.model.manifests import Document

GROUP: Final = "scheduling.run.ai"
_TOP: Final = "kai-queues"
_NO_LIMIT: Final = -1
_MAX_WEIGHT: Final = 10**9
_RESOURCES: Final = {
    "gpu": ("nvidia.com/gpu", Fraction(1)),
    "cpu": ("cpu", Fraction(1, 1000)),
    "memory": ("memory", Fraction(10**6)),
}
"""Field -> resource, and the unit of the field's numbers in units of the resource."""
_NO_EQUIVALENT: Final = {
    "priority": "queues have no priorities; the closest equivalent is the weight for fair sharing",
    "preemptMinRuntime": "set preemptionProtection.withinClusterQueue.minAdmitDuration of the ClusterQueue",
    "reclaimMinRuntime": "set preemptionProtection.reclaimWithinCohort and .fairSharing of the ClusterQueue",
}
"""Field of a Queue's spec -> note."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the Queues; those without a parent get a common top queue, which bounds them by the capacity."""
    found = FoundQuotas([])
    for fields in objects_of(documents, GROUP, "Queue", found.skipped):
        found.queues.append(_queue(fields, namespaces))
    if found.queues:
        found.queues.insert(0, Queue(_TOP, "KAI's queues", is_inner=True))
    return found


def _queue(fields: Fields, namespaces: Sequence[str]) -> Queue:
    name, spec = fields.object("metadata").text("name"), fields.object("spec")
    parent = spec.text("parentQueue") or _TOP
    resources = spec.object("resources")
    guaranteed: dict[str, int] = {}
    limit: dict[str, int] = {}
    weights: dict[str, str] = {}
    notes: list[str] = []
    for key, (resource, unit) in _RESOURCES.items():
        values = resources.object(key)
        quota, maximum = (_amount(values, field, resource, unit, notes) for field in ("quota", "limit"))
        if quota == UNLIMITED:
            notes.append(f"{values.at('quota')}: -1 becomes no nominal quota: it can borrow whatever is idle")
        else:
            guaranteed[resource] = quota
        limit[resource] = maximum
        if not values.is_set("limit"):
            notes.append(f"{values.at('limit')}: not set, which means 0 in KAI: no {resource} can be used")
        weight = values.number("overQuotaWeight")
        if not 0 <= weight <= _MAX_WEIGHT:
            values.fail("overQuotaWeight", f"must be from 0 to {_MAX_WEIGHT}, but is {weight:g}")
        weights[key] = f"{weight:.9f}".rstrip("0").rstrip(".")
        notes += values.unread({})
    if len(set(weights.values())) > 1:
        kept = f"{resources.at('gpu.overQuotaWeight')}: {weights['gpu']} is the weight for all resources"
        notes.append(f"{kept}; those of cpu and memory are left out")
    spec.text("displayName")  # has no meaning for quota: read, so that there is no note on it
    return Queue(
        name,
        fields.subject,
        parent,
        spec.at("parentQueue"),
        guaranteed=guaranteed,
        limit=limit,
        weight=weights["gpu"],
        preemption=PREEMPTS,
        local_queues=tuple((namespace, name) for namespace in namespaces),
        notes=(*notes, *resources.unread({}), *spec.unread(_NO_EQUIVALENT)),
    )


def _amount(fields: Fields, name: str, resource: str, unit: Fraction, notes: list[str]) -> int:
    """Return a field as an amount; -1 is UNLIMITED. `notes` gets one on a quantity, or a rounded number of GPUs."""
    quantity = fields.quantity(name)
    if quantity is not None:
        notes.append(f"{fields.at(name)}: read as a quantity of {resource}; KAI's API accepts only numbers here")
        return fields.amount(name, resource, quantity)
    number = fields.number(name)
    if number == _NO_LIMIT:
        return UNLIMITED
    if number < 0:
        fields.fail(name, f"must be -1 (no limit), 0 or more, but is {number:g}")
    exact = Fraction(number) * unit
    found = fields.amount(name, resource, exact)
    if resource == "nvidia.com/gpu" and found < exact:
        notes.append(f"{fields.at(name)}: {number:g} is rounded down to {found}: quota is in whole devices")
    return found


SYSTEM: Final = System(
    "KAI", "Queues", "Queue of scheduling.run.ai", "kubectl get queues.scheduling.run.ai -o yaml", _read
)
