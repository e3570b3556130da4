"""Pod templates: what quota depends on in them, and injection and removal of node selectors and other additions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from admission.kinds import topology
from admission.kinds.requests import claims, pod_requests
from admission.model.errors import Misconfigured
from admission.model.topology import HOSTNAME
from admission.model.workload import NodeRequirement, PodSet, Toleration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import FlavorToleration, ResourceFlavor
    from admission.model.workload import PodSetAssignment

_POD_FIELDS = ("resources", "nodeSelector", "tolerations", "runtimeClassName", "overhead", "resourceClaims")
_CONTAINER_FIELDS = ("resources", "restartPolicy")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_MAPS = {
    "nodeSelector": ("spec", "node_selector"),
    "labels": ("metadata", "labels"),
    "annotations": ("metadata", "annotations"),
}
"""Maps of a template that an injection extends: (part of the template, attribute of `Addition`) by field."""
_LISTS = ("tolerations", "schedulingGates")
"""Lists of a pod's spec that an injection extends; scheduling gates also by Kueue, before Sluice took over."""


def digest_parts(template: Mapping[str, Any]) -> Object:
    """Return the part of a template that its pod set depends on, in the form of a template."""
    spec = template.get("spec") or {}
    part: Object = {field: spec[field] for field in _POD_FIELDS if field in spec}
    for field in ("containers", "initContainers"):
        if items := spec.get(field):
            part[field] = [{key: item[key] for key in _CONTAINER_FIELDS if key in item} for item in items]
    affinity = _node_affinity(spec)
    if required := affinity.get(_REQUIRED):
        part["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    if not topology.ANNOTATIONS.isdisjoint(annotations):
        kept = {key: annotations[key] for key in sorted(topology.ANNOTATIONS & annotations.keys())}
        if preferred := affinity.get(_PREFERRED):
            part.setdefault("affinity", {"nodeAffinity": {}})["nodeAffinity"][_PREFERRED] = preferred
        return {"metadata": {"annotations": kept}, "spec": part}
    return {"spec": part}


def pod_set(
    name: str,
    template: Mapping[str, Any],
    context: NamespaceContext,
    *,
    path: str,
    count: int,
    min_count: int | None = None,
    optional: tuple[str, ...] = (),
) -> PodSet:
    """Return the pod set of `count` pods of a template. Raises Misconfigured.

    `path`: the template's, for messages; empty for a pod. `optional`: see `PodSet`.
    """
    spec = template.get("spec") or {}
    requests = pod_requests(spec, context, path=_under(path, "spec"))
    scheduling: Mapping[str, Any] = {}
    if spec.get("runtimeClassName"):
        scheduling = context.runtime_classes[spec["runtimeClassName"]].get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    _merge(selector, scheduling.get("nodeSelector") or {}, path, "spec.nodeSelector", "the RuntimeClass")
    wanted, group = topology.request(topology.asked(template))
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
        preferences=_preferences(spec),
        group=group,
        topology=wanted,
        optional=optional,
        claims=claims(spec, path=_under(path, "spec")),
    )


class Addition(NamedTuple):
    """Additions to a pod template from one source; `who` names the source in messages."""

    who: str
    node_selector: Mapping[str, str]
    tolerations: tuple[FlavorToleration, ...]
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    gates: tuple[str, ...] = ()
    """Scheduling gates."""


def from_flavor(flavor: ResourceFlavor) -> Addition:
    """Return what sends pods to the nodes of a flavor."""
    return Addition(f'ResourceFlavor "{flavor.metadata.name}"', flavor.spec.node_labels, flavor.spec.tolerations)


def from_topology(assignment: PodSetAssignment, template: Mapping[str, Any], *, whole: bool = False) -> Addition | None:
    """Return what sends pods of this template to their domains; None: they are not placed by topology.

    If all of them have one domain, that is its node selector. Otherwise, and where the domain is a node, which may fail
    and be replaced, a scheduling gate holds each pod until it gets a node selector of its own. `whole`: one domain is
    always a node selector, as for a pod that is started by itself.
    """
    placed = assignment.topology
    if placed is None:
        return None
    annotations = dict[str, str]()
    if topology.PLACED_ANNOTATIONS.isdisjoint((template.get("metadata") or {}).get("annotations") or ()):
        annotations[topology.OWN_UNCONSTRAINED] = "true"
    if len(placed.domains) == 1 and (whole or placed.levels[-1] != HOSTNAME):
        return Addition(
            "the topology", dict(zip(placed.levels, placed.domains[0].values, strict=True)), (), {}, annotations
        )
    annotations[topology.POD_SET] = assignment.name
    return Addition("the topology", {}, (), {}, annotations, (topology.GATE,))


def of_admission(
    assignment: PodSetAssignment,
    flavors: Mapping[str, ResourceFlavor],
    updates: Iterable[PodSetUpdate],
    template: Mapping[str, Any],
    *,
    path: str,
    gates: bool = True,
    whole: bool = False,
) -> list[Addition]:
    """Return all that an admission adds to the template of a pod set: by its flavors, its checks and its topology.

    `gates`: whether the template can have scheduling gates. `whole`: see `from_topology`. Raises Misconfigured.
    """
    found = [from_flavor(flavors[name]) for name in dict.fromkeys(assignment.flavors.values())]
    found += [from_check(update) for update in updates if update.name == assignment.name]
    if (placed := from_topology(assignment, template, whole=whole)) is not None:
        if placed.gates and not gates:
            raise Misconfigured(
                f"{path}: has no field for scheduling gates, so that its pods can only be placed in one domain of a "
                "topology without hostnames; request a level that holds all of them by the annotation "
                f"{topology.REQUIRED_KEY}"
            )
        found.append(placed)
    return found


def from_check(update: PodSetUpdate) -> Addition:
    """Return the pod set update of an admission check."""
    return Addition("an admission check", update.node_selector, update.tolerations, update.labels, update.annotations)


def inject(template: Mapping[str, Any], additions: Iterable[Addition], *, path: str) -> tuple[Object, Object]:
    """Return the merge patch that makes all additions to a template, and the original of what it changes.

    Raises Misconfigured if the template or another addition has another value for one of the keys.
    """
    additions = list(additions)
    patch: Object = {}
    original: Object = {}
    for field, (part, source) in _MAPS.items():
        had = (template.get(part) or {}).get(field) or {}
        wanted = dict(had)
        for addition in additions:
            if extra := getattr(addition, source):
                _merge(wanted, extra, path, f"{part}.{field}", addition.who)
        if wanted != had:
            patch.setdefault(part, {})[field] = {key: value for key, value in wanted.items() if key not in had}
            original[field] = (template.get(part) or {}).get(field)
    gates = (template.get("spec") or {}).get("schedulingGates")
    added = [
        gate
        for name in dict.fromkeys(name for one in additions for name in one.gates)
        if (gate := {"name": name}) not in (gates or ())
    ]
    if added:
        patch.setdefault("spec", {})["schedulingGates"] = [*(gates or ()), *added]
        original["schedulingGates"] = gates
    present = (template.get("spec") or {}).get("tolerations")
    tolerations: list[Object] = list(present or ())
    for toleration in (_toleration_json(one) for addition in additions for one in addition.tolerations):
        if toleration not in tolerations:
            tolerations.append(toleration)
    if tolerations != (present or []):
        patch.setdefault("spec", {})["tolerations"] = tolerations
        original["tolerations"] = present
    return patch, original


def restore(template: Mapping[str, Any], original: Mapping[str, Any], injected: Mapping[str, Any]) -> Object:
    """Return the merge patch of a template that removes what is left of an injection; empty if nothing is.

    `injected` is the patch that `inject` returned. Values that were changed since then stay.
    """
    patch: Object = {}
    for field, (part, _) in _MAPS.items():
        added = (injected.get(part) or {}).get(field) or {}
        has = (template.get(part) or {}).get(field) or {}
        if ours := [key for key, value in added.items() if has.get(key) == value]:
            nothing_left = len(ours) == len(has) and original.get(field) is None
            patch.setdefault(part, {})[field] = None if nothing_left else dict.fromkeys(ours)
    for field in _LISTS:
        had = original.get(field) or []
        has = (template.get("spec") or {}).get(field) or []
        added = [item for item in (injected.get("spec") or {}).get(field) or () if item not in had]
        kept = [item for item in has if item not in added]
        if kept != has:
            patch.setdefault("spec", {})[field] = kept or original.get(field)
    return patch


def _under(path: str, field: str) -> str:
    """Return the path of a field of a template; a pod is its own template, with an empty path."""
    return f"{path}.{field}" if path else field


def _merge(selector: dict[str, str], added: Mapping[str, str], path: str, field: str, who: str) -> None:
    for key, value in added.items():
        if selector.setdefault(key, value) != value:
            where = f"{_under(path, field)}[{key}]"
            raise Misconfigured(f"{where}: is {selector[key]}, but {who} needs {value}; remove one of them")


def _toleration(item: Mapping[str, Any]) -> Toleration:
    return Toleration(
        item.get("key") or "",
        item.get("operator") or "Equal",
        item.get("value") or "",
        item.get("effect") or "",
        item.get("tolerationSeconds"),
    )


def _toleration_json(toleration: FlavorToleration) -> Object:
    return {key: value for key, value in toleration.model_dump(by_alias=True).items() if value not in ("", None)}


def _affinity(spec: Mapping[str, Any]) -> tuple[tuple[NodeRequirement, ...], ...] | None:
    required = _node_affinity(spec).get(_REQUIRED)
    return tuple(map(_term, required.get("nodeSelectorTerms") or ())) if required else None


def _preferences(spec: Mapping[str, Any]) -> tuple[tuple[int, tuple[NodeRequirement, ...]], ...]:
    preferred = _node_affinity(spec).get(_PREFERRED) or ()
    return tuple((each.get("weight") or 0, _term(each.get("preference") or {})) for each in preferred)


def _node_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return (spec.get("affinity") or {}).get("nodeAffinity") or {}


def _term(term: Mapping[str, Any]) -> tuple[NodeRequirement, ...]:
    return tuple(
        NodeRequirement(item["key"], item["operator"], tuple(item.get("values") or ()))
        for item in term.get("matchExpressions") or ()
    )
