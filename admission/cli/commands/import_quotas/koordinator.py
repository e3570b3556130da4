"""Import of Koordinator's ElasticQuotas (`scheduling.sigs.k8s.io`): a tree by labels, with weights in annotations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.fields import Fields
from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue
from admission.cli.commands.import_quotas.system import FoundQuotas, System, objects_of
from admission.model.names import is_dns_label
from admission.model.quantity import format_amount
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.model.manifests import Document

GROUP: Final = "scheduling.sigs.k8s.io"
_PREFIX: Final = "quota.scheduling.koordinator.sh/"
_ROOT: Final = "koordinator-root-quota"
_NOT_QUEUES: Final = {
    _ROOT: "is the whole cluster; specify its capacity with --capacity",
    "koordinator-system-quota": "is for system pods, which are not queued",
    "koordinator-default-quota": "is for pods without a quota, which are not queued",
}
"""Name of an ElasticQuota that Koordinator creates itself -> why it is skipped."""
_NO_EQUIVALENT: Final = {
    "tree-id": "a tree for a group of nodes is a ResourceFlavor in Sluice; create one with the labels of these nodes",
    "total-resource": "the capacity of the nodes is specified with --capacity",
    "admission": "which workloads may use the quota depends on namespaces and permissions only",
    "resource-keys": "all resources that are named have quota",
    "ignore-default-tree": "has no equivalent",
    "max-strict-check-resource-keys": "all limits are enforced",
}
"""Label or annotation, without its prefix -> note."""


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> FoundQuotas:
    """Read the ElasticQuotas; those without a parent get Koordinator's root, which bounds them by the capacity."""
    found = FoundQuotas([])
    for fields in objects_of(documents, GROUP, "ElasticQuota", found.skipped):
        name = fields.object("metadata").text("name")
        if name in _NOT_QUEUES:
            found.skipped.append((f"elasticquota/{name}", _NOT_QUEUES[name]))
        else:
            found.queues.append(_queue(fields, name, namespaces))
    if found.queues:
        found.queues.insert(0, Queue(_ROOT, f'ElasticQuota "{_ROOT}"', is_inner=True))
    return found


def _queue(fields: Fields, name: str, namespaces: Sequence[str]) -> Queue:
    metadata, spec = fields.object("metadata"), fields.object("spec")
    labels, annotations = metadata.object("labels"), metadata.object("annotations")
    guaranteed, limit = spec.amounts("min"), spec.amounts("max", limits=True)
    notes = spec.unread({})
    weight, weight_notes = _weight(annotations, limit)
    notes += weight_notes
    parent = labels.text(f"{_PREFIX}parent") or _ROOT
    lends = labels.text(f"{_PREFIX}allow-lent-resource") != "false"
    is_inner = labels.text(f"{_PREFIX}is-parent") == "true"
    own_namespaces = _namespaces(annotations)
    for part in (labels, annotations):
        for key in part:
            short = key.removeprefix(_PREFIX)
            if short in _NO_EQUIVALENT and short != key:
                notes.append(f"{part.at(f'[{key}]')}: {_NO_EQUIVALENT[short]}")
    return Queue(
        name,
        fields.subject,
        parent,
        labels.at(f"[{_PREFIX}parent]"),
        guaranteed=guaranteed,
        limit=limit,
        not_lent={} if lends else guaranteed,
        weight=weight,
        preemption=PREEMPTS,
        is_inner=is_inner,
        local_queues=tuple((namespace, name) for namespace in dict.fromkeys((*namespaces, *own_namespaces))),
        notes=tuple(notes),
    )


def _weight(annotations: Fields, limit: dict[str, int]) -> tuple[str, list[str]]:
    """Return the weight, and notes on it: the shared weight of cpu, which defaults to the limit of cpu."""
    text = annotations.text(f"{_PREFIX}shared-weight")
    path = annotations.at(f"[{_PREFIX}shared-weight]")
    if not text:
        return (format_amount("cpu", limit["cpu"]) if limit.get("cpu") else ""), []
    shares = _json(annotations, "shared-weight", text)
    if not isinstance(shares, dict):
        annotations.fail(f"[{_PREFIX}shared-weight]", "must be a JSON object of resources")
    amounts = Fields({"shares": shares}, subject=annotations.subject, path=path).amounts("shares")
    if "cpu" not in amounts:
        return "", [f"{path}: has no cpu, whose share would be the weight: left out"]
    others = [resource for resource in amounts if resource != "cpu"]
    notes = [f"{path}: the share of cpu is the weight for all resources; that of others is left out"] if others else []
    return format_amount("cpu", amounts["cpu"]), notes


def _namespaces(annotations: Fields) -> list[str]:
    """Return the namespaces that the annotation lists, each of which gets a LocalQueue. Raises InvalidObject."""
    text = annotations.text(f"{_PREFIX}namespaces")
    if not text:
        return []
    found = _json(annotations, "namespaces", text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        annotations.fail(f"[{_PREFIX}namespaces]", "must be a JSON list of namespaces")
    for name in found:
        if not is_dns_label(name):
            annotations.fail(f"[{_PREFIX}namespaces]", f'"{clean(name)}" is not a valid namespace name')
    return found


def _json(annotations: Fields, name: str, text: str) -> object:
    """Parse the JSON of an annotation, named without its prefix. Raises InvalidObject."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        annotations.fail(f"[{_PREFIX}{name}]", f"is not valid JSON ({error})")
    return found


SYSTEM: Final = System(
    "Koordinator",
    "ElasticQuotas",
    "ElasticQuota of scheduling.sigs.k8s.io",
    "kubectl get elasticquotas.scheduling.sigs.k8s.io -A -o yaml",
    _read,
)
