"""Policies beside the webhooks, too, which the API server evaluates: updates of pods, scale, and what is not queued.

They need no webhook call, and are not affected by an outage of Sluice:

- Only Sluice ungates a pod or changes the labels that it counts by.
- A running object gets no more pods by the scale subresource. A webhook cannot refuse that: it gets a Scale, which has
  neither the queue label nor the suspend field. A policy can read the object itself, as its parameter. All objects of
  the kind in the namespace of the request are its parameters, one after the other, and the object that is scaled is
  among them. Without such a policy, before Kubernetes 1.30, the object is evicted when it has more pods than quota.
- Users are warned of new objects with a queue label that are not queued, whatever their kind. Nothing is refused. One
  policy for each queue label selects the objects by that label, so that no expression is evaluated for other objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from admission.kinds import all_kinds, frameworks_known
from admission.kinds.abilities import has_scale, suspend_fields
from admission.kinds.base import MANAGED, POD, POD_SET, QUEUE_NAME, WORKLOAD_UID, Conventions
from admission.kinds.grouping import GATE
from admission.kinds.mcad import APP_WRAPPER
from webhooks.expressions import condition, is_not_updated_by, is_queued, is_suspended, label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

API: Final = "admissionregistration.k8s.io/v1"
MUTATING: Final = "MutatingAdmissionPolicy"
VALIDATING: Final = "ValidatingAdmissionPolicy"

_LABELS: Final = {"app.kubernetes.io/name": "sluice"}


def validation(expression: str, *, message: str = "", message_expression: str = "") -> Object:
    """Return a validation: a request for which the expression is false is refused with the message."""
    text = {"message": message} if message else {"messageExpression": message_expression}
    return {"expression": expression, **text, "reason": "Forbidden"}


def with_binding(
    policy_kind: str, name: str, constraints: Object, *, conditions: Sequence[str], spec: Object
) -> list[Object]:
    """Return a policy and its binding of the same name."""
    policy = {
        "apiVersion": API,
        "kind": policy_kind,
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", **constraints},
            "matchConditions": [condition("queued", *conditions)],
            **spec,
        },
    }
    binding = {
        "apiVersion": API,
        "kind": f"{policy_kind}Binding",
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {"policyName": name} | ({"validationActions": ["Deny"]} if policy_kind == VALIDATING else {}),
    }
    return [policy, binding]


PODS_GATED: Final = "pods.gated.sluice.dev"
PODS_KEEP: Final = "pods.keep.sluice.dev"

_GATED_MESSAGE: Final = (
    f"'spec.schedulingGates: only Sluice removes the scheduling gate {GATE.name} and the label {MANAGED}, when it "
    "admits the pod; to see what the pod waits for: sluice why ' + object.metadata.name + ' -n ' + "
    "object.metadata.namespace + '; to run it without a queue, delete it and create it again without the queue label'"
)
"""CEL expression of a message, as the next two."""
_QUEUED_MESSAGE: Final = (
    f"'metadata.labels: a pod with the scheduling gate {GATE.name} must keep its queue label, because Sluice ungates "
    "queued pods only; name another queue, or delete the pod and create it again without the queue label'"
)
_RUNNING_MESSAGE: Final = (
    f"'metadata.labels[{MANAGED}]: only Sluice changes this label before the pod has finished, because Sluice counts "
    "the quota of the pod by it; leave the label as it is'"
)
_COUNTED_BY: Final = (WORKLOAD_UID, POD_SET, APP_WRAPPER)
"""Labels of the pods of a workload; those of a pod set are counted by the second."""
_COUNTED_MESSAGE: Final = (
    f"metadata.labels: only Sluice changes the labels {', '.join(_COUNTED_BY)} of a pod of a workload before the pod "
    "has finished, because Sluice counts the quota of the pod by them; leave them as they are"
)

_UNFINISHED: Final = (
    "!(has(oldObject.status) && has(oldObject.status.phase) && oldObject.status.phase in ['Succeeded', 'Failed'])"
)


def pod_policies(kinds: Iterable[Kind], scope: Scope) -> list[Object]:
    """Return the policies that these kinds need, each followed by its binding."""
    kinds = tuple(kinds)
    pods = [kind for kind in kinds if (kind.group, kind.kind) == POD]
    labelled = any(kind.pods_label == WORKLOAD_UID for kind in kinds)
    gated = (policy for kind in pods for policy in _gated(kind, scope))
    return [*gated, *(_keeping(scope) if labelled else ())]


def _gated(kind: Kind, scope: Scope) -> list[Object]:
    """Return the policy for queued pods: only Sluice removes the scheduling gate or changes the label MANAGED.

    Sluice deletes a pod that was ungated without quota, but only after it has started, and with the grace period of
    the pod. A pod without the label is not watched, so that its quota would be released while it still runs. A gated
    pod that left its queue would wait forever.
    """

    def has_gate(variable: str) -> str:
        gates = f"{variable}.spec.schedulingGates"
        return f"(has({gates}) && {gates}.exists(gate, gate.name == '{GATE.name}'))"

    def is_queued(variable: str) -> str:
        named = (label(variable, key) for key in kind.conventions.queue_labels)
        return "(" + " || ".join(f"{each} != ''" for each in named) + ")"

    had, has = (label(variable, MANAGED) for variable in ("oldObject", "object"))
    freed = f"({has_gate('oldObject')} && !{has_gate('object')}) || ({had} != '' && {had} != {has} && {_UNFINISHED})"
    left = f"{is_queued('oldObject')} && !{is_queued('object')} && {has_gate('object')}"
    message = f"!({freed}) ? {_QUEUED_MESSAGE} : {has_gate('oldObject')} ? {_GATED_MESSAGE} : {_RUNNING_MESSAGE}"
    return _policy(
        PODS_GATED,
        scope,
        MANAGED,
        # Sluice's own updates, which are most of those that change a gate, end at the first expression.
        conditions=[is_not_updated_by(scope.own_usernames), f"{freed} || ({left})"],
        denied=validation("false", message_expression=message),
    )


def _keeping(scope: Scope) -> list[Object]:
    """Return the policy that keeps the labels `_COUNTED_BY` of unfinished pods.

    Sluice finds the pods of a workload, and of a pod set, by these labels alone: without them the quota of a running
    pod would be released.
    """
    changed = " || ".join(f"{label('oldObject', key)} != {label('object', key)}" for key in _COUNTED_BY)
    return _policy(
        PODS_KEEP,
        scope,
        WORKLOAD_UID,
        conditions=[
            is_not_updated_by(scope.own_usernames),
            f"{label('oldObject', WORKLOAD_UID)} != '' && ({changed})",
            _UNFINISHED,
        ],
        denied=validation("false", message=_COUNTED_MESSAGE),
    )


def _policy(name: str, scope: Scope, selected: str, *, conditions: Sequence[str], denied: Object) -> list[Object]:
    """Return a policy for updates of pods that have, or had, the label `selected`, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "scope": "Namespaced"}
    constraints = {
        "namespaceSelector": scope.namespaces(),
        "objectSelector": {"matchExpressions": [{"key": selected, "operator": "Exists"}]},
        # Labels can be written through the status subresource, too.
        "resourceRules": [{**rule, "resources": ["pods", "pods/status"]}],
    }
    return with_binding(VALIDATING, name, constraints, conditions=conditions, spec={"validations": [denied]})


def scale_policy_names() -> list[str]:
    """Return the names of the policies of all kinds that Sluice knows."""
    return [_scale_policy_name(kind) for kind in all_kinds(frameworks=frameworks_known()) if has_scale(kind)]


def scaled_versions(kinds: Iterable[Kind]) -> set[str]:
    """Return the API versions, such as `kubeflow.org/v1`, whose resources decide which of the kinds have a policy."""
    return {f"{kind.group}/{version}" for kind in kinds if has_scale(kind) for version in kind.versions}


def _scale_policy_name(kind: Kind) -> str:
    return f"{kind.plural}.scale.sluice.dev"


def scale_policies(kinds: Iterable[Kind], scope: Scope, served: Collection[str]) -> list[Object]:
    """Return the policies, each followed by its binding. `served`: resources of their `scaled_versions`."""
    policies: list[Object] = []
    for kind in kinds:
        resource = f"{kind.plural}/scale"
        if not has_scale(kind) or resource not in served:
            continue
        raised = " > ".join(
            f"(has({each}.spec) && has({each}.spec.replicas) ? {each}.spec.replicas : 0)"
            for each in ("object", "oldObject")
        )
        is_running = f"!{is_suspended('params', suspend_fields(kind))}"
        is_it = f"params.metadata.name == request.name && {is_queued('params', [kind])} && {is_running}"
        rule = {
            "apiGroups": [kind.group],
            "apiVersions": [*kind.versions],
            "operations": ["UPDATE"],
            "resources": [resource],
            "scope": "Namespaced",
        }
        message = (
            f"spec.replicas: a running {kind.kind} gets no more pods than it has quota for; to ask for more, suspend "
            "it and change the number in one request"
        )
        policy, binding = with_binding(
            VALIDATING,
            _scale_policy_name(kind),
            {"namespaceSelector": scope.namespaces(), "resourceRules": [rule]},
            conditions=[raised, is_not_updated_by(scope.own_usernames)],
            spec={
                # What it lets pass the controller evicts.
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": f"{kind.group}/{kind.versions[0]}", "kind": kind.kind},
                "validations": [validation(f"!({is_it})", message=message)],
            },
        )
        binding["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
        policies += [policy, binding]
    return policies


_NAMES: Final = {key: f"{key.partition('/')[0]}.told.sluice.dev" for key in Conventions().queue_labels}
NOT_QUEUED_POLICIES: Final = tuple(_NAMES.values())
"""Names of the policies, one for each queue label of Sluice and Kueue; labels of other systems have none."""

_REFERENCES: Final = "object.metadata.ownerReferences"
_HAS_OWNER: Final = f"has({_REFERENCES}) && {_REFERENCES}.exists(o, has(o.controller) && o.controller)"
_OFF: Final = "request.kind.kind + 's are off in Sluice, so this ' + request.kind.kind + ' runs without quota'"
_UNKNOWN: Final = (
    "'Sluice does not queue a ' + request.kind.kind + ' itself: only those of its pods or Jobs are queued that get a "
    "queue label, in its template or by its controller'"
)
"""CEL expressions of messages."""


def not_queued_policies(kinds: Sequence[Kind], off: Iterable[Kind], scope: Scope) -> list[Object]:
    """Return the policies, each followed by its binding. `kinds` are queued, `off` are known and not queued."""
    keys = next((kind.conventions.queue_labels for kind in kinds), (QUEUE_NAME,))
    known = orjson.dumps([f"{kind.group}/{kind.plural}" for kind in off]).decode()
    is_off = f"request.resource.group + '/' + request.resource.resource in {known}"
    named = " || ".join(f"'{key}' in t.metadata.labels" for key in keys)
    named = f"(has(t.metadata) && has(t.metadata.labels) && ({named}))"
    # Of unknown kinds those are told of whose template, or template of Jobs, is where built-in kinds have it.
    templates = (
        "has(object.spec) && ["
        "has(object.spec.template) && has(object.spec.template.spec) && has(object.spec.template.spec.containers) ? "
        "[object.spec.template] : [], has(object.spec.jobTemplate) ? [object.spec.jobTemplate] : []"
        f"].exists(found, found.exists(t, !{named}))"
    )
    policies: list[Object] = []
    for number, key in enumerate(keys):
        if key not in _NAMES:
            continue
        absent = [{"key": each, "operator": "DoesNotExist"} for each in keys[:number]]
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "scope": "Namespaced"}
        constraints = {
            "matchPolicy": "Exact",
            "namespaceSelector": scope.namespaces(),
            "objectSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}, *absent]},
            "resourceRules": [{**rule, "resources": ["*"]}],
            "excludeResourceRules": [{**rule, "apiGroups": [kind.group], "resources": [kind.plural]} for kind in kinds],
        }
        policy, binding = with_binding(
            VALIDATING,
            _NAMES[key],
            constraints,
            conditions=[f"!({_HAS_OWNER})"],
            spec={
                "failurePolicy": "Ignore",
                "validations": [
                    validation(f"!({is_off})", message_expression=_OFF),
                    validation(f"{is_off} || !({templates})", message_expression=_UNKNOWN),
                ],
            },
        )
        binding["spec"]["validationActions"] = ["Warn"]
        policies += [policy, binding]
    return policies
