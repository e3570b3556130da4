"""Koordinator's ElasticQuotas (`scheduling.sigs.k8s.io`): a tree by labels, shares and namespaces in annotations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas.fields import Fields
from admission.cli.commands.import_quotas.quota_tree import PREEMPTS, Queue
from admission.cli.commands.import_quotas.system import Found, System, objects_of
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
    _ROOT: "is all of the cluster; say what that is by --capacity",
    "koordinator-system-quota": "is for system pods, which are not queued",
    "koordinator-default-quota": "is for pods of no quota, which are not queued",
}
_LOST: Final = {
    "tree-id": "trees for groups of nodes are ResourceFlavors here; give their node labels to one, and quota in it",
    "total-resource": "what the nodes have is said by --capacity",
    "admission": "what may use the quota is decided by namespaces and rights alone",
    "resource-keys": "all resources that are named have quota",
    "ignore-default-tree": "has no equivalent",
    "max-strict-check-resource-keys": "all limits are kept",
}


def _read(documents: Iterable[Document], namespaces: Sequence[str]) -> Found:
    found = Found([])
    for fields in objects_of(documents, GROUP, "ElasticQuota", found.skipped):
        name = fields.object("metadata").text("name")
        if name in _NOT_QUEUES:
            found.skipped.append((f"elasticquota/{name}", _NOT_QUEUES[name]))
        else:
            found.queues.append(_queue(fields, name, namespaces))
    if found.queues:
        found.queues.insert(0, Queue(_ROOT, f'ElasticQuota "{_ROOT}"', inner=True))
    return found


def _queue(fields: Fields, name: str, namespaces: Sequence[str]) -> Queue:
    metadata, spec = fields.object("metadata"), fields.object("spec")
    labels, annotations = metadata.object("labels"), metadata.object("annotations")
    guaranteed, limit = spec.amounts("min"), spec.amounts("max", limits=True)
    notes = spec.losses({})
    share, told = _weight(annotations, limit)
    notes += told
    parent = labels.text(f"{_PREFIX}parent") or _ROOT
    lends = labels.text(f"{_PREFIX}allow-lent-resource") != "false"
    inner = labels.text(f"{_PREFIX}is-parent") == "true"
    listed = _namespaces(annotations)
    for part in (labels, annotations):
        for key in part:
            short = key.removeprefix(_PREFIX)
            if short in _LOST and short != key:
                notes.append(f"{part.at(f'[{key}]')}: {_LOST[short]}")
    return Queue(
        name,
        fields.subject,
        parent,
        labels.at(f"[{_PREFIX}parent]"),
        guaranteed=guaranteed,
        limit=limit,
        kept={} if lends else guaranteed,
        weight=share,
        preemption=PREEMPTS,
        inner=inner,
        doors=tuple((namespace, name) for namespace in dict.fromkeys((*namespaces, *listed))),
        notes=tuple(notes),
    )


def _weight(annotations: Fields, limit: dict[str, int]) -> tuple[str, list[str]]:
    """The share of cpu, which is the limit of it if no other is given."""
    text = annotations.text(f"{_PREFIX}shared-weight")
    path = annotations.at(f"[{_PREFIX}shared-weight]")
    if not text:
        return (format_amount("cpu", limit["cpu"]) if limit.get("cpu") else ""), []
    shares = _json(annotations, "shared-weight", text)
    if not isinstance(shares, dict):
        annotations.fail(f"[{_PREFIX}shared-weight]", "must be a JSON object of resources")
    amounts = Fields({"shares": shares}, subject=annotations.subject, path=path).amounts("shares")
    if "cpu" not in amounts:
        return "", [f"{path}: has no cpu, whose share is the weight here: left out"]
    others = [resource for resource in amounts if resource != "cpu"]
    told = [f"{path}: the share of cpu is the weight for all resources; that of others is left out"] if others else []
    return format_amount("cpu", amounts["cpu"]), told


def _namespaces(annotations: Fields) -> list[str]:
    text = annotations.text(f"{_PREFIX}namespaces")
    if not text:
        return []
    found = _json(annotations, "namespaces", text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        annotations.fail(f"[{_PREFIX}namespaces]", "must be a JSON list of namespaces")
    for name in found:
        if not is_dns_label(name):
            annotations.fail(f"[{_PREFIX}namespaces]", f'"{clean(name)}" is no name of a namespace')
    return found


def _json(annotations: Fields, name: str, text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        annotations.fail(f"[{_PREFIX}{name}]", f"is no JSON ({error})")
    return found


SYSTEM: Final = System(
    "Koordinator",
    "ElasticQuotas",
    "ElasticQuota of scheduling.sigs.k8s.io",
    "kubectl get elasticquotas.scheduling.sigs.k8s.io -A -o yaml",
    _read,
)
