"""Strategies for apps/v1: defaulting and validation of ReplicaSets, Deployments and StatefulSets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, forbidden, invalid, required, unsupported
from admission.sandbox.apiserver.metadata import annotation_causes, label_causes
from admission.sandbox.apiserver.selectors import matches_label_selector
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.builtin.podspec import default_pod_spec, pod_spec_causes

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_QUARTER = "25%"
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%')"
_NOT_NEGATIVE = "must be greater than or equal to 0"
_COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_MUTABLE_IN_STATEFULSETS = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_STATEFULSET_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


class _ReplicatedStrategy(Strategy):
    """Common strategy of the kinds with `spec.replicas` and a pod template."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        default_pod_spec(spec["template"]["spec"])

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return _spec_causes(obj["spec"])


class ReplicaSets(_ReplicatedStrategy):
    """Strategy for apps/v1 ReplicaSet."""

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return [*_spec_causes(new["spec"]), *_selector_change_causes(new, old)]


class Deployments(_ReplicatedStrategy):
    """Strategy for apps/v1 Deployment."""

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            limits = strategy.setdefault("rollingUpdate", {})
            limits.setdefault("maxUnavailable", _QUARTER)
            limits.setdefault("maxSurge", _QUARTER)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        return [*_spec_causes(obj["spec"]), *_strategy_causes(obj["spec"]["strategy"])]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return [*self.validate_create(registry, new), *_selector_change_causes(new, old)]


class StatefulSets(_ReplicatedStrategy):
    """Strategy for apps/v1 StatefulSet."""

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        kept = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        kept.setdefault("whenDeleted", "Retain")
        kept.setdefault("whenScaled", "Retain")

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        obj["status"] = {"replicas": 0, "availableReplicas": 0}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec, causes = obj["spec"], []
        policy = spec["podManagementPolicy"]
        if policy not in ("OrderedReady", "Parallel"):
            causes.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
        kind = spec["updateStrategy"]["type"]
        if kind not in ("OnDelete", "RollingUpdate"):
            causes.append(unsupported("spec.updateStrategy.type", kind, ("OnDelete", "RollingUpdate")))
        return [*causes, *_spec_causes(spec)]

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        causes = self.validate_create(registry, new)
        fixed, before = (
            {key: value for key, value in obj["spec"].items() if key not in _MUTABLE_IN_STATEFULSETS}
            for obj in (new, old)
        )
        return causes if fixed == before else [*causes, forbidden("spec", _STATEFULSET_TEXT)]


class ControllerRevisions(Strategy):
    """Strategy for apps/v1 ControllerRevision, an earlier template of a StatefulSet."""

    has_generation = False

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("data") == old.get("data") else [invalid("data", new.get("data"), "field is immutable")]


def _spec_causes(spec: Object) -> list[Cause]:
    causes = [invalid(f"spec.{key}", spec[key], _NOT_NEGATIVE) for key in _COUNTS if spec.get(key, 0) < 0]
    selector, template = spec.get("selector"), spec["template"]
    labels = template["metadata"].get("labels") or {}
    if selector is None:
        causes.append(required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(invalid("spec.selector", selector, "empty selector is invalid for deployment"))
    if selector is None or not matches_label_selector(selector, labels):
        text = "`selector` does not match template `labels`"
        causes.append(invalid("spec.template.metadata.labels", labels or None, text))
    return [*causes, *_template_causes(template)]


def _template_causes(template: Object) -> list[Cause]:
    metadata, spec = template["metadata"], template["spec"]
    causes = label_causes(metadata.get("labels") or {}, "spec.template.labels")
    causes += annotation_causes(metadata.get("annotations") or {}, "spec.template.annotations")
    causes += pod_spec_causes(spec, "spec.template.spec")
    policy = spec["restartPolicy"]
    if policy in ("Never", "OnFailure"):
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if "activeDeadlineSeconds" in spec:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    return causes


def _selector_change_causes(new: Object, old: Object) -> list[Cause]:
    selector = new["spec"].get("selector")
    if selector == old["spec"].get("selector"):
        return []
    return [invalid("spec.selector", selector, "field is immutable")]


def _strategy_causes(strategy: Object) -> list[Cause]:
    kind, field = strategy["type"], "spec.strategy.rollingUpdate"
    if kind == "Recreate" and "rollingUpdate" in strategy:
        return [forbidden(field, "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        return [] if kind == "Recreate" else [unsupported("spec.strategy.type", kind, ("Recreate", "RollingUpdate"))]
    limits, causes = strategy["rollingUpdate"], []
    for key in ("maxUnavailable", "maxSurge"):
        value = limits[key]
        if isinstance(value, str) and not _PERCENT.fullmatch(value):
            causes.append(invalid(f"{field}.{key}", value, _PERCENT_TEXT))
        elif isinstance(value, int) and value < 0:
            causes.append(invalid(f"{field}.{key}", value, _NOT_NEGATIVE))
    if all(limits[key] in (0, "0%") for key in ("maxUnavailable", "maxSurge")):
        text = "may not be 0 when `maxSurge` is 0"
        causes.append(invalid(f"{field}.maxUnavailable", limits["maxUnavailable"], text))
    return causes
