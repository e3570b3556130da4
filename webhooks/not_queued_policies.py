"""ValidatingAdmissionPolicies that warn of new objects with a queue label that are not queued, whatever their kind.

The API server evaluates them itself, also during an outage of Sluice, and they refuse nothing. One policy for each
queue label selects the objects by that label, so that no expression is evaluated for other objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from admission.kinds.base import QUEUE_NAME, Conventions
from webhooks.policy_objects import VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

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
