"""Strategy for pods: defaulting, built-in admission plugins, validation; the subresources binding, eviction, resize."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.admission.limit_ranges import apply_limit_ranges
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.errors import Cause, forbidden, invalid
from admission.sandbox.apiserver.requests import DeleteOptions
from admission.sandbox.apiserver.selectors import matches_label_selector
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.builtin.podspec import default_pod_spec, pod_spec_causes

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import Call
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import ObjectVersion

# Tolerations of the DefaultTolerationSeconds plugin: pods tolerate an unreachable node for five minutes.
_DEFAULT_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
)
_FIXED_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NODE_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


class Pods(Strategy):
    """Strategy for core/v1 Pod."""

    announces_deletion = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        for key in ("containers", "initContainers"):
            for container in spec.get(key, ()):
                _requests_from_limits(container["resources"])

    def admit(self, registry: ObjectRegistry, new: Object, old: Object | None, subresource: str) -> None:
        if old is None:
            _resolve_priority(registry, new)
            apply_limit_ranges(registry, new)
        spec = new["spec"]
        if old is None or spec.get("tolerations") is not old["spec"].get("tolerations"):
            _add_tolerations(spec)

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        status: Object = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            condition = {
                "type": "PodScheduled", "status": "False", "lastProbeTime": None,
                "lastTransitionTime": registry.now(),
                "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
            }  # fmt: skip
            status["conditions"] = [condition]
        obj["status"] = status

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        causes = pod_spec_causes(spec, "spec")
        if spec.get("nodeName") and spec.get("schedulingGates"):
            causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return causes

    def prepare_spec_part(self, new: Object, old: Object, subresource: str) -> None:
        part = resized_spec if subresource == "resize" else with_ephemeral_containers
        new["spec"] = part(new["spec"], old["spec"])

    def validate_spec_part(self, new: Object, old: Object, subresource: str) -> list[Cause]:
        spec, before = new["spec"], old["spec"]
        if subresource != "resize" or spec == before:
            return []
        causes = pod_spec_causes(spec, "spec")
        if (quality := qos_class(before)) != qos_class(spec):
            causes.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))
        return [*causes, *resize_causes(spec, before)]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        spec, before = new["spec"], old["spec"]
        if spec is before or spec == before:
            return []
        if causes := pod_spec_causes(spec, "spec"):
            return causes
        known = {gate["name"] for gate in before.get("schedulingGates", ())}
        for index, gate in enumerate(spec.get("schedulingGates", ())):
            if gate["name"] not in known:
                text = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
                return [forbidden(f"spec.schedulingGates[{index}].name", text)]
        causes = [*_deadline_causes(spec, before), *_toleration_causes(spec, before)]
        gated = bool(before.get("schedulingGates"))
        if gated:
            causes += _narrowing_causes(spec, before)
        if not causes and _immutable_part(spec, gated=gated) != _immutable_part(before, gated=gated):
            causes.append(forbidden("spec", _FIXED_TEXT))
        return causes

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        quality, before = new.get("status", {}).get("qosClass"), old["status"].get("qosClass")
        if quality != before:
            return [invalid("status.qosClass", quality, "field is immutable")]
        return []

    def grace(self, obj: Object, requested: int | None) -> int:
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        default: int = obj["spec"]["terminationGracePeriodSeconds"]
        return max(0, default if requested is None else requested)


def _requests_from_limits(resources: Object) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.get("requests", {})
        missing = {name: amount for name, amount in limits.items() if name not in requests}
        if missing:
            resources["requests"] = {**requests, **missing}


def _resolve_priority(registry: ObjectRegistry, pod: Object) -> None:
    """Set priority and preemptionPolicy by the pod's PriorityClass or the global default (Priority plugin).

    Raises ApiError (403) if the class does not exist or the pod names another priority.
    """
    spec = pod["spec"]
    resource = registry.resources["", "v1", "pods"]
    pod_name = pod["metadata"].get("name", "")
    name = spec.get("priorityClassName", "")
    if name:
        found = registry.find("scheduling.k8s.io", "priorityclasses", "", name)
        if found is None:
            text = f'pods "{pod_name}" is forbidden: no PriorityClass with name {name} was found'
            raise errors.denied(text, resource, pod_name)
    else:
        classes = registry.store.collections["scheduling.k8s.io", "priorityclasses"].versions()
        found = next((version.obj for version in classes if version.obj.get("globalDefault")), {})
        if found:
            spec["priorityClassName"] = found["metadata"]["name"]
    priority = found.get("value", 0)
    if spec.get("priority", priority) != priority:
        text = (
            f'pods "{pod_name}" is forbidden: the integer value of priority ({spec["priority"]}) must not be '
            f"provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise errors.denied(text, resource, pod_name)
    spec["priority"] = priority
    spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")


def _add_tolerations(spec: Object) -> None:
    tolerations = spec.get("tolerations", [])
    missing = [
        wanted
        for wanted in _DEFAULT_TOLERATIONS
        if not any(
            toleration.get("key", wanted["key"]) == wanted["key"]
            and toleration.get("effect", "NoExecute") == "NoExecute"
            for toleration in tolerations
        )
    ]
    if missing:
        spec["tolerations"] = [*tolerations, *missing]


def qos_class(spec: Object) -> str:
    """Return the QoS class.

    Guaranteed if the requests and limits of cpu and memory are set and equal in all containers, BestEffort if none
    is set, Burstable otherwise.
    """
    containers = [
        container["resources"] for container in (*spec.get("containers", ()), *spec.get("initContainers", ()))
    ]
    amounts = [
        (resources.get("requests", {}).get(name), resources.get("limits", {}).get(name))
        for resources in containers
        for name in ("cpu", "memory")
    ]
    if all(request is None and limit is None for request, limit in amounts):
        return "BestEffort"
    return "Guaranteed" if all(limit is not None and request == limit for request, limit in amounts) else "Burstable"


def _deadline_causes(spec: Object, before: Object) -> list[Cause]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if old is not None and (new is None or new > old):
        return [invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")]
    return []


def _toleration_causes(spec: Object, before: Object) -> list[Cause]:
    """Check a change of tolerations: they can only be added, and their tolerationSeconds changed."""
    known = [_without_seconds(toleration) for toleration in spec.get("tolerations", ())]
    if all(_without_seconds(toleration) in known for toleration in before.get("tolerations", ())):
        return []
    return [forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _without_seconds(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _narrowing_causes(spec: Object, before: Object) -> list[Cause]:
    """Check a change of a gated pod's node selector and affinity: it may only restrict the set of nodes further."""
    selector, old_selector = spec.get("nodeSelector", {}), before.get("nodeSelector", {})
    if any(selector.get(key) != value for key, value in old_selector.items()):
        return [
            invalid(
                "spec.nodeSelector",
                selector,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            )
        ]
    terms, old_terms = _node_terms(spec), _node_terms(before)
    if not old_terms:
        return []
    if len(terms) != len(old_terms):
        return [invalid(_NODE_TERMS, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    causes = []
    for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
        for key in ("matchExpressions", "matchFields"):
            if any(expression not in term.get(key, ()) for expression in old_term.get(key, ())):
                text = "only additions are allowed (no mutations or deletions)"
                causes.append(invalid(f"{_NODE_TERMS}[{index}]", term, text))
    return causes


def _node_terms(spec: Object) -> list[Object]:
    required = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    terms: list[Object] = required.get("nodeSelectorTerms", [])
    return terms


def _immutable_part(spec: Object, *, gated: bool) -> Object:
    """Return a pod's spec without its mutable fields."""
    mutable = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if gated:
        mutable.append("nodeSelector")
    fixed = {key: value for key, value in spec.items() if key not in mutable}
    if gated:
        affinity = {key: value for key, value in fixed.pop("affinity", {}).items() if key != "nodeAffinity"}
        if affinity:
            fixed["affinity"] = affinity
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [{**container, "image": ""} for container in fixed[key]]
    return fixed


# ---------------------------------------------------------------------- subresources


async def bind(registry: ObjectRegistry, namespace: str, name: str, binding: Object, call: Call) -> None:
    """Bind a pod to a node (subresource binding); the node need not exist. Raises ApiError."""
    resource = registry.resources["", "v1", "pods"]
    node = binding.get("target", {}).get("name", "")
    if not node:
        raise errors.ApiError(500, "", "target.name: Required value")

    def change(current: ObjectVersion | None) -> Object:
        assert current is not None
        return _bound(registry, resource, current.obj, binding, node)

    await registry.update(resource, namespace, name, change, call, subresource="binding")


def _bound(registry: ObjectRegistry, resource: ServedResource, pod: Object, binding: Object, node: str) -> Object:
    spec, metadata = pod["spec"], pod["metadata"]
    name = metadata["name"]
    expected = binding["metadata"].get("uid")
    if expected and expected != metadata["uid"]:
        text = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {metadata['uid']}"
        raise errors.conflict(resource, name, text)
    if "deletionTimestamp" in metadata:
        raise _binding_conflict(resource, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _binding_conflict(resource, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _binding_conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates")
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": registry.now()}
    status = pod["status"]
    others = [item for item in status.get("conditions", ()) if item["type"] != "PodScheduled"]
    new_metadata = dict(metadata)
    if annotations := binding["metadata"].get("annotations"):
        new_metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return {
        **pod,
        "metadata": new_metadata,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def _binding_conflict(resource: ServedResource, name: str, text: str) -> errors.ApiError:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {text}'
    return errors.ApiError(409, "Conflict", message, details={"name": name, "kind": "pods/binding"})


async def evict(registry: ObjectRegistry, namespace: str, name: str, eviction: Object, call: Call) -> None:
    """Delete a pod unless a PodDisruptionBudget forbids it (subresource eviction). Raises ApiError."""
    resource = registry.resources["", "v1", "pods"]
    if eviction["metadata"].get("name", name) != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    pod = registry.find("", "pods", namespace, name)
    if pod is None:
        raise errors.not_found(resource, name)
    _check_budgets(registry, pod)
    options = eviction.get("deleteOptions", {})
    if options.get("dryRun"):
        call.dry_run = True
    target = {
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastProbeTime": None,
        "lastTransitionTime": registry.now(), "message": "Eviction API: evicting",
    }  # fmt: skip

    def change(current: ObjectVersion | None) -> Object:
        assert current is not None
        status = current.obj["status"]
        others = [item for item in status.get("conditions", ()) if item["type"] != "DisruptionTarget"]
        return {**current.obj, "status": {**status, "conditions": [*others, target]}}

    await registry.update(resource, namespace, name, change, call, subresource="eviction")
    delete = DeleteOptions(grace=options.get("gracePeriodSeconds"))
    await registry.delete(resource, namespace, name, delete, call)


def _check_budgets(registry: ObjectRegistry, pod: Object) -> None:
    """Raise ApiError (429) if a PodDisruptionBudget selects the pod and allows no disruption.

    No disruption controller runs here: a budget forbids evictions unless a test sets its `disruptionsAllowed`.
    """
    labels = pod["metadata"].get("labels", {})
    namespace = pod["metadata"]["namespace"]
    for version in registry.store.collections["policy", "poddisruptionbudgets"].versions(namespace):
        budget = version.obj
        if not matches_label_selector(budget.get("spec", {}).get("selector", {}), labels):
            continue
        if budget.get("status", {}).get("disruptionsAllowed", 0) > 0:
            continue
        name = budget["metadata"]["name"]
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} is still being processed by the server.",
        }
        raise errors.ApiError(
            429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [cause], "retryAfterSeconds": 10}, headers={"Retry-After": "10"},
        )  # fmt: skip


_LISTS = ("containers", "initContainers")
_RESIZED = ("resources", "resizePolicy")
_MUTABLE = ("cpu", "memory")


def resized_spec(spec: Object, before: Object) -> Object:
    """Return `before` with the resources and resizePolicy of the containers in `spec`.

    Containers with other names, or in another order, are returned as they are, so that `resize_causes` rejects them.
    """
    kept = dict(before)
    for key in _LISTS:
        new, old = spec.get(key, []), before.get(key, [])
        if _names(new) != _names(old):
            kept[key] = new
        elif key in before:
            kept[key] = [_resized(*pair) for pair in zip(new, old, strict=True)]
    return kept


def with_ephemeral_containers(spec: Object, before: Object) -> Object:
    """Return `before` with the ephemeral containers of `spec`."""
    kept = {name: value for name, value in before.items() if name != "ephemeralContainers"}
    return kept | {name: value for name, value in spec.items() if name == "ephemeralContainers"}


def resize_causes(spec: Object, before: Object) -> list[Cause]:
    """Check a spec of `resized_spec`: only cpu and memory of the same containers may change, and none be removed."""
    causes = [cause for key in _LISTS for cause in _order_causes(key, spec.get(key, []), before.get(key, []))]
    if causes:
        return causes
    pairs = [
        (f"spec.{key}[{index}].resources", new.get("resources", {}), old.get("resources", {}))
        for key in _LISTS
        for index, (new, old) in enumerate(zip(spec.get(key, ()), before.get(key, ()), strict=True))
    ]
    causes = [
        forbidden(f"{field}.{part}", f"resource {part} cannot be removed")
        for field, new, old in pairs
        for part in ("requests", "limits")
        if old.get(part, {}).keys() & {*_MUTABLE} - new.get(part, {}).keys()
    ]
    if any(_immutable_resources(new) != _immutable_resources(old) for _, new, old in pairs):
        causes.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return causes


def _names(containers: list[Object]) -> list[str]:
    return [container.get("name", "") for container in containers]


def _resized(new: Object, old: Object) -> Object:
    kept = {name: value for name, value in old.items() if name not in _RESIZED}
    return kept | {name: new[name] for name in _RESIZED if name in new}


def _order_causes(key: str, new: list[Object], old: list[Object]) -> list[Cause]:
    if len(new) != len(old):
        return [forbidden(f"spec.{key}", f"{key} may not be added or removed on resize")]
    return [
        forbidden(f"spec.{key}[{index}].name", f"{key} may not be renamed or reordered on resize")
        for index, (name, before) in enumerate(zip(_names(new), _names(old), strict=True))
        if name != before
    ]


def _immutable_resources(resources: Object) -> Object:
    amounts = {
        part: {name: amount for name, amount in resources.get(part, {}).items() if name not in _MUTABLE}
        for part in ("requests", "limits")
    }
    return {**resources, **amounts}
