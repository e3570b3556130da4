"""Pod templates, whatever object they are in: what quota depends on in them, and how a flavor gets in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.kinds.requests import pod_requests
from admission.model.errors import Misconfigured
from admission.model.workload import PodSet, Requirement, Toleration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.limits import NamespaceContext
    from admission.model.queues import FlavorToleration, ResourceFlavor

_POD_FIELDS = ("resources", "nodeSelector", "tolerations", "runtimeClassName", "overhead", "resourceClaims")
_CONTAINER_FIELDS = ("resources", "restartPolicy")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_GROUP = "kueue.x-k8s.io/podset-group-name"


def digest_parts(template: Mapping[str, Any]) -> Object:
    """The part of a template that its pod set depends on, itself in the form of a template."""
    spec = template.get("spec") or {}
    part: Object = {field: spec[field] for field in _POD_FIELDS if field in spec}
    for field in ("containers", "initContainers"):
        part[field] = [{key: item[key] for key in _CONTAINER_FIELDS if key in item} for item in spec.get(field) or ()]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required:
        part["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    if _GROUP in annotations:
        return {"metadata": {"annotations": {_GROUP: annotations[_GROUP]}}, "spec": part}
    return {"spec": part}


def pod_set(
    name: str,
    template: Mapping[str, Any],
    context: NamespaceContext,
    *,
    path: str,
    count: int,
    min_count: int | None = None,
) -> PodSet:
    """`count` pods of a template as quota sees them. `path` is the template's. Raises Misconfigured."""
    spec = template.get("spec") or {}
    requests = pod_requests(spec, context, path=f"{path}.spec")
    scheduling: Mapping[str, Any] = {}
    if spec.get("runtimeClassName"):
        scheduling = context.runtime_classes[spec["runtimeClassName"]].get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    _merge(selector, scheduling.get("nodeSelector") or {}, f"{path}.spec.nodeSelector", "the RuntimeClass")
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return PodSet(
        name=name,
        count=count,
        requests=requests,
        min_count=min_count,
        node_selector=selector,
        tolerations=tuple(
            _toleration(item) for item in (*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ()))
        ),
        affinity=_affinity(spec),
        group=annotations.get(_GROUP, ""),
    )


def inject(template: Mapping[str, Any], flavors: Iterable[ResourceFlavor], *, path: str) -> tuple[Object, Object]:
    """The merge patch of a template that sends its pods to the flavors' nodes, and the original of what it changes.

    Raises Misconfigured if the template or another flavor wants another value for one of the node labels.
    """
    spec = template.get("spec") or {}
    had = spec.get("nodeSelector") or {}
    selector = dict(had)
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    for flavor in flavors:
        _merge(selector, flavor.spec.node_labels, f"{path}.spec.nodeSelector", f'ResourceFlavor "{flavor.name}"')
        for toleration in map(_toleration_json, flavor.spec.tolerations):
            if toleration not in tolerations:
                tolerations.append(toleration)
    patch: Object = {}
    original: Object = {}
    if selector != had:
        patch["nodeSelector"] = {key: value for key, value in selector.items() if key not in had}
        original["nodeSelector"] = spec.get("nodeSelector")
    if tolerations != (spec.get("tolerations") or []):
        patch["tolerations"] = tolerations
        original["tolerations"] = spec.get("tolerations")
    return ({"spec": patch} if patch else {}), original


def restore(template: Mapping[str, Any], original: Mapping[str, Any]) -> Object:
    """The merge patch of a template that brings back what `inject` changed; empty if nothing is left to do."""
    spec = template.get("spec") or {}
    patch: Object = {}
    if "nodeSelector" in original:
        had, has = original["nodeSelector"], spec.get("nodeSelector")
        if has and not had:
            patch["nodeSelector"] = None
        elif (has or {}) != (had or {}):
            dropped = dict.fromkeys(key for key in has or {} if key not in had)
            patch["nodeSelector"] = {**dropped, **had}
    if "tolerations" in original and (spec.get("tolerations") or []) != (original["tolerations"] or []):
        patch["tolerations"] = original["tolerations"]
    return {"spec": patch} if patch else {}


def _merge(selector: dict[str, str], added: Mapping[str, str], path: str, who: str) -> None:
    for key, value in added.items():
        if selector.setdefault(key, value) != value:
            raise Misconfigured(f"{path}[{key}]: is {selector[key]}, but {who} needs {value}; remove one of them")


def _toleration(item: Mapping[str, Any]) -> Toleration:
    return Toleration(
        item.get("key") or "", item.get("operator") or "Equal", item.get("value") or "", item.get("effect") or ""
    )


def _toleration_json(toleration: FlavorToleration) -> Object:
    return {key: value for key, value in toleration.model_dump(by_alias=True).items() if value not in ("", None)}


def _affinity(spec: Mapping[str, Any]) -> tuple[tuple[Requirement, ...], ...] | None:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if not required:
        return None
    return tuple(
        tuple(
            Requirement(item["key"], item["operator"], tuple(item.get("values") or ()))
            for item in term.get("matchExpressions") or ()
        )
        for term in required.get("nodeSelectorTerms") or ()
    )
