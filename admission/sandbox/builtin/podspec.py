"""Defaulting and validation of a pod's spec, shared by pods and the pod templates of Jobs and other kinds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from admission.model.quantity import parse_quantity
from admission.sandbox.apiserver.errors import Cause, duplicate, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import key_fault, label_causes, label_fault

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_TAGGED_LATEST = re.compile(r"[^@]*:latest$")
_VOLUMES_WITH_MODE = ("configMap", "secret", "projected", "downwardAPI")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Resources that may be overcommitted; of any other the request must equal the limit.
_OVERCOMMITTED = frozenset(("cpu", "memory", "ephemeral-storage", "storage"))


def default_pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec, as the API server does for pods and templates alike."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in spec.get("containers", ()):
        _default_container(container)
    for key in ("initContainers", "ephemeralContainers"):
        for container in spec.get(key, ()):
            _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def _default_container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        reference = variable.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])


def _is_latest(image: str) -> bool:
    if "@" in image:
        return False
    return ":" not in image.rpartition("/")[2] or bool(_TAGGED_LATEST.match(image))


def _default_probe(probe: Object) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in _VOLUMES_WITH_MODE:
        if name in volume:
            volume[name].setdefault("defaultMode", 420)
    for source in volume.get("projected", {}).get("sources", ()):
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def pod_spec_causes(spec: Object, field: str) -> list[Cause]:
    """Return the validation errors of a pod's spec; `field` is its path."""
    causes = []
    containers = spec.get("containers", [])
    if not containers:
        causes.append(required(f"{field}.containers"))
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key, ())):
            causes += _container_causes(container, f"{field}.{key}[{index}]", names)
    if "nodeSelector" in spec:
        causes += label_causes(spec["nodeSelector"], f"{field}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations", ())):
        causes += _toleration_causes(toleration, f"{field}.tolerations[{index}]")
    causes += _claim_causes(spec, field)
    causes += _gate_causes(spec.get("schedulingGates", ()), f"{field}.schedulingGates")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        causes.append(invalid(f"{field}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"],
                              "must be greater than or equal to 0"))  # fmt: skip
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        causes.append(
            invalid(f"{field}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
        )
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(unsupported(f"{field}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never")))
    return causes


def _container_causes(container: Object, field: str, names: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{field}.name"))
    elif fault := label_fault(name):
        causes.append(invalid(f"{field}.name", name, fault))
    elif name in names:
        causes.append(duplicate(f"{field}.name", name))
    names.add(name)
    if not container.get("image"):
        causes.append(required(f"{field}.image"))
    resources = container.get("resources")
    if resources:
        causes += _resource_causes(resources, f"{field}.resources")
    for index, variable in enumerate(container.get("env", ())):
        if not variable.get("name"):
            causes.append(required(f"{field}.env[{index}].name"))
    return causes


def _resource_causes(resources: Object, field: str) -> list[Cause]:
    causes = []
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if parse_quantity(amount) < 0:
                causes.append(invalid(f"{field}.{kind}[{name}]", amount, "must be greater than or equal to 0"))
    for name, amount in requests.items():
        exact = (
            name not in _OVERCOMMITTED and not name.startswith("hugepages-") and not name.startswith("kubernetes.io/")
        )
        limit = limits.get(name)
        if limit == amount:
            continue
        if limit is not None and parse_quantity(amount) > parse_quantity(limit):
            causes.append(
                invalid(f"{field}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
            )
        elif exact and limit is not None and parse_quantity(amount) != parse_quantity(limit):
            causes.append(invalid(f"{field}.requests", amount, f"must be equal to {name} limit of {limit}"))
        elif exact and limit is None:
            causes.append(required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    return causes


def _toleration_causes(toleration: Object, field: str) -> list[Cause]:
    causes = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    if key and (fault := key_fault(key)):
        causes.append(invalid(f"{field}.key", key, fault))
    if not key and operator != "Exists":
        causes.append(invalid(f"{field}.operator", operator, "operator must be Exists when `key` is empty"))
    if operator not in ("Equal", "Exists"):
        causes.append(unsupported(f"{field}.operator", operator, ("Equal", "Exists")))
    effect = toleration.get("effect", "")
    if effect and effect not in _EFFECTS:
        causes.append(unsupported(f"{field}.effect", effect, _EFFECTS))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        causes.append(invalid(f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    return causes


def _claim_causes(spec: Object, field: str) -> list[Cause]:
    """Return the errors of `resourceClaims`, and of the containers that use them."""
    causes = []
    names: list[str] = []
    for index, claim in enumerate(spec.get("resourceClaims", ())):
        path, name = f"{field}.resourceClaims[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{path}.name"))
        elif fault := label_fault(name):
            causes.append(invalid(f"{path}.name", name, fault))
        elif name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.append(name)
        named = [claim[key] for key in ("resourceClaimName", "resourceClaimTemplateName") if key in claim]
        if len(named) > 1:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.append(invalid(path, claim, text))
        elif not named:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid(path, claim, text))
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key, ())):
            for number, used in enumerate(container.get("resources", {}).get("claims", ())):
                if used.get("name") not in names:
                    which = f": {', '.join(sorted(names))}" if names else " which is empty"
                    text = (
                        f'Not found: "{used.get("name")}": must be one of the names in pod.spec.resourceClaims{which}'
                    )
                    path = f"{field}.{key}[{index}].resources.claims[{number}]"
                    causes.append(Cause("FieldValueNotFound", path, text))
    return causes


def _gate_causes(gates: list[Object] | tuple[()], field: str) -> list[Cause]:
    causes = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        if fault := key_fault(name):
            causes.append(invalid(f"{field}[{index}]", name, fault))
        elif name in seen:
            causes.append(duplicate(f"{field}[{index}]", name))
        seen.add(name)
    return causes
