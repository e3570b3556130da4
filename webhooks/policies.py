"""The gate as admission policies: what the webhook does, in the API server itself, so that no outage of Sluice is felt.

What is created waits while Sluice is down, and nobody is refused for it. Policies can neither warn nor judge what needs
more than the object: what the webhook undoes with a warning they deny with the same sentence, and faults of a Job are
told by the controller. The forms are those that were tried at a Kubernetes 1.36 API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission.kinds.base import DEFAULT_QUEUE, EMPTY, QUEUE_NAME, SUBMITTED_BY
from webhooks.expressions import (
    ALIVE,
    decisive,
    is_own,
    is_queued,
    is_suspended,
    label,
    names_no_queue,
    not_by,
    pods,
    replaces_failed,
    shows_queue_label,
    submitter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Kind, Object
    from admission.kinds.rules import QueueRule

API: Final = "admissionregistration.k8s.io/v1"
MUTATING: Final = "MutatingAdmissionPolicy"
VALIDATING: Final = "ValidatingAdmissionPolicy"

_LABELS: Final = {"app.kubernetes.io/name": "sluice"}
_WAITS: Final = (
    "'this Job waits in a queue: Sluice starts it when there is quota; sluice why ' + object.metadata.name + ' -n ' + "
    "object.metadata.namespace"
)
_RUNNING: Final = "the queue of a running Job stays as it is; suspend it before you move it"
_MORE_PODS: Final = "a running Job gets no more pods than it has; suspend it in the same request to ask for more"
_REPLACEMENT: Final = "podReplacementPolicy of a running Job stays Failed, as its start has set it"
_OURS: Final = f"{SUBMITTED_BY} is written by Sluice alone"
_LEAVES: Final = "all Jobs of this namespace are queued: name another queue instead of taking the label away"


def are_written_for(kind: Kind) -> bool:
    """Whether there are policies for a kind: for Jobs; what else is queued is gated by webhooks."""
    return (kind.group, kind.kind) == ("batch", "Job")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whom the gate is about, be it webhooks or policies."""

    own_usernames: tuple[str, ...]
    """Those of Sluice itself, which alone may start what is queued."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    managed: tuple[Object, ...] | None = None
    """The `matchExpressions` of the namespaces in which Jobs are queued without a label, too; None: nowhere."""

    rules: tuple[QueueRule, ...] = ()
    """Which queue what has no queue label is for."""

    def namespaces(self) -> Object:
        """The LabelSelector of all namespaces in which Jobs with a queue label are gated."""
        return {"matchExpressions": [self._not_excluded()]}

    def managed_namespaces(self) -> Object:
        """The LabelSelector of the namespaces in which all Jobs are."""
        return {"matchExpressions": [*(self.managed or ()), self._not_excluded()]}

    def _not_excluded(self) -> Object:
        values = list(self.excluded_namespaces)
        return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}


def gate(kind: Kind, scope: Scope) -> list[Object]:
    """The policies, each with its binding, that gate Jobs with a queue label and keep them gated."""
    namespaces, name = scope.namespaces(), f"{kind.plural}.gate.sluice.dev"
    joins = f"(oldObject != null && {is_suspended('oldObject')} && !{is_queued('oldObject', kind)})"
    mutating = _policy(
        MUTATING,
        name,
        kind,
        namespaces,
        operations=["CREATE", "UPDATE"],
        conditions={
            "not-sluice": not_by(scope.own_usernames),
            "queued": is_queued("object", kind),
            "arrives": f"request.operation == 'CREATE' || {joins}",
        },
        spec=_suspends({}),
    )
    keeping = _policy(
        VALIDATING,
        f"{kind.plural}.keep.sluice.dev",
        kind,
        namespaces,
        operations=["CREATE", "UPDATE"],
        conditions={
            "not-sluice": not_by(scope.own_usernames),
            "queued": f"[object, oldObject].exists(o, o != null && {shows_queue_label('o', kind)})",
            "alive": ALIVE,
            "decisive": decisive(kind),
        },
        spec={"variables": _variables(kind), "validations": _validations(kind)},
    )
    return [*mutating, *keeping]


def managed_gate(kind: Kind, scope: Scope) -> list[Object]:
    """What gates Jobs without a queue label in managed namespaces: they are given the one of the default LocalQueue."""
    return _policy(
        MUTATING,
        f"{kind.plural}.managed.gate.sluice.dev",
        kind,
        scope.managed_namespaces(),
        operations=["CREATE"],
        conditions=unlabelled(kind),
        spec=_suspends({QUEUE_NAME: DEFAULT_QUEUE}),
    )


def unlabelled(kind: Kind) -> dict[str, str]:
    """The match conditions for what has no queue label and is one of Sluice's kind."""
    return {"unlabelled": f"{is_own('object', kind)} && !{shows_queue_label('object', kind)}"}


def managed_keeping(kind: Kind, scope: Scope) -> list[Object]:
    """What lets nobody but Sluice start a Job in managed namespaces, nor take one out of its queue."""
    return _policy(
        VALIDATING,
        f"{kind.plural}.managed.keep.sluice.dev",
        kind,
        scope.managed_namespaces(),
        operations=["CREATE", "UPDATE"],
        conditions={
            "not-sluice": not_by(scope.own_usernames),
            "job-controller": is_own("object", kind),
            "alive": ALIVE,
            "decisive": decisive(kind),
        },
        spec={
            "variables": _variables(kind),
            "validations": [
                _validation("!variables.wasSuspended || variables.suspended", message_expression=_WAITS),
                _validation("!variables.wasQueued || variables.queued", message=_LEAVES),
            ],
        },
    )


def _variables(kind: Kind) -> list[Object]:
    variables = {
        "suspended": is_suspended("object"),
        # What is new, and what asks to run at once, was never let in.
        "wasSuspended": f"oldObject == null || {is_suspended('oldObject')}",
        "queued": is_queued("object", kind),
        "wasQueued": f"oldObject != null && {is_queued('oldObject', kind)}",
    }
    return [{"name": name, "expression": expression} for name, expression in variables.items()]


def _validations(kind: Kind) -> list[Object]:
    labels = kind.conventions.queue_labels
    same_labels = " && ".join(f"{label('object', key)} == {label('oldObject', key)}" for key in labels)
    no_more = f"{pods('object')} <= {pods('oldObject')}"
    same_replacement = f"!{replaces_failed('oldObject')} || {replaces_failed('object')}"
    not_running = "!(variables.queued || variables.wasQueued) || variables.wasSuspended"
    return [
        _validation(
            "!(variables.queued || variables.wasQueued) || !variables.wasSuspended || variables.suspended",
            message_expression=_WAITS,
        ),
        {"expression": f"!variables.wasQueued || {submitter('object')} == {submitter('oldObject')}", "message": _OURS},
        _validation(f"{not_running} || ({same_labels})", message=_RUNNING),
        _validation(f"{not_running} || variables.suspended || {no_more}", message=_MORE_PODS),
        _validation(f"{not_running} || variables.suspended || {same_replacement}", message=_REPLACEMENT),
        *(
            {
                "expression": f"!{names_no_queue('object', key)} || "
                f"(oldObject != null && {names_no_queue('oldObject', key)})",
                "message": f"metadata.labels[{key}]: {EMPTY}",
            }
            for key in labels
        ),
    ]


def _validation(expression: str, *, message: str = "", message_expression: str = "") -> Object:
    says = {"message": message} if message else {"messageExpression": message_expression}
    return {"expression": expression, **says, "reason": "Forbidden"}


def _suspends(labels: Mapping[str, str]) -> Object:
    """The mutation that suspends a Job and notes who asked, beside giving it labels."""
    given = ", ".join(f"'{key}': '{value}'" for key, value in labels.items())
    metadata = f"annotations: {{'{SUBMITTED_BY}': request.userInfo.username}}"
    if given:
        metadata = f"labels: {{{given}}}, {metadata}"
    expression = f"Object{{metadata: Object.metadata{{{metadata}}}, spec: Object.spec{{suspend: true}}}}"
    return {
        # Others that come later may start what was gated.
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }


def _policy(
    policy_kind: str,
    name: str,
    kind: Kind,
    namespaces: Object,
    *,
    operations: list[str],
    conditions: Mapping[str, str],
    spec: Object,
) -> list[Object]:
    """A policy and its binding of the same name."""
    rule = {"apiGroups": [kind.group], "apiVersions": list(kind.versions), "scope": "Namespaced"}
    rules = [{**rule, "operations": operations, "resources": [kind.plural]}]
    if policy_kind == VALIDATING:  # labels and annotations are writable through the status, too
        rules.append({**rule, "operations": ["UPDATE"], "resources": [f"{kind.plural}/status"]})
    policy = {
        "apiVersion": API,
        "kind": policy_kind,
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": namespaces,
                "resourceRules": rules,
            },
            "matchConditions": [{"name": key, "expression": text} for key, text in conditions.items() if text],
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
