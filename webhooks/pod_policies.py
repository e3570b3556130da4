"""ValidatingAdmissionPolicies for updates of pods: only Sluice ungates a pod or changes the labels that it counts by.

They are used together with webhooks as well: the API server evaluates them itself, so that updates of pods need no
webhook call and are not affected by an outage of Sluice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.base import MANAGED, POD, POD_SET
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.grouping import GATE
from admission.kinds.mcad import APP_WRAPPER
from webhooks.expressions import is_not_updated_by, label
from webhooks.policy_objects import VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

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
