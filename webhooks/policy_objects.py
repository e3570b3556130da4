"""Assembly of admission policy objects: a policy with its binding, and validations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhooks.expressions import condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.kinds.base import Object

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
