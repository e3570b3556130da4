"""Admission policies about pods that exist: nobody but Sluice lets one run, or takes it from what holds its quota.

They are written beside webhooks, too: so nobody is called when pods are written, and no outage of Sluice is felt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.base import MANAGED, POD
from admission.kinds.declared import WORKLOAD_UID
from admission.kinds.grouping import GATE
from webhooks.expressions import label, not_by
from webhooks.policies import VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

PODS_GATED: Final = "pods.gated.sluice.dev"
PODS_KEEP: Final = "pods.keep.sluice.dev"

_GATED_TEXT: Final = (
    f"'the scheduling gate {GATE.name} and the label {MANAGED} are taken off by Sluice alone, when there is quota for "
    "the pod: sluice why ' + object.metadata.name + ' -n ' + object.metadata.namespace + '. To run it without a queue, "
    "create it anew without the queue label'"
)
_QUEUED_TEXT: Final = (
    f"'a pod keeps its queue label as long as it has the scheduling gate {GATE.name}: nobody would take that off then. "
    "Name another queue, or create it anew without the queue label'"
)
_RUNNING_TEXT: Final = (
    f"'the label {MANAGED} of a pod that has not ended is written by Sluice alone: by it the pod holds its quota'"
)
_LABEL_TEXT: Final = (
    f"the label {WORKLOAD_UID} of a pod that has not ended is written by Sluice alone: by it the pod holds its quota"
)

_UNENDED: Final = (
    "!(has(oldObject.status) && has(oldObject.status.phase) && oldObject.status.phase in ['Succeeded', 'Failed'])"
)


def pod_policies(kinds: Iterable[Kind], scope: Scope) -> list[Object]:
    """Those that these kinds need, each with its binding."""
    kinds = tuple(kinds)
    pods = [kind for kind in kinds if (kind.group, kind.kind) == POD]
    labelled = any(kind.pods_label == WORKLOAD_UID for kind in kinds)
    gated = (policy for kind in pods for policy in _gated(kind, scope))
    return [*gated, *(_keeping(scope) if labelled else ())]


def _gated(kind: Kind, scope: Scope) -> list[Object]:
    """What lets nobody take the gate from a pod that waits, nor from any that has not ended the label of queued pods.

    Sluice would delete a pod without its gate, but only after it had begun to run, and with the grace period that it
    asks for. A pod without the label is not watched: its quota would be free while it runs on. One that has left its
    queue, and kept its gate, would wait for ever.
    """

    def has_gate(variable: str) -> str:
        gates = f"{variable}.spec.schedulingGates"
        return f"(has({gates}) && {gates}.exists(gate, gate.name == '{GATE.name}'))"

    def is_queued(variable: str) -> str:
        named = (label(variable, key) for key in kind.conventions.queue_labels)
        return "(" + " || ".join(f"{each} != ''" for each in named) + ")"

    had, has = (label(variable, MANAGED) for variable in ("oldObject", "object"))
    freed = f"({has_gate('oldObject')} && !{has_gate('object')}) || ({had} != '' && {had} != {has} && {_UNENDED})"
    left = f"{is_queued('oldObject')} && !{is_queued('object')} && {has_gate('object')}"
    texts = f"!({freed}) ? {_QUEUED_TEXT} : {has_gate('oldObject')} ? {_GATED_TEXT} : {_RUNNING_TEXT}"
    return _policy(
        PODS_GATED,
        scope,
        MANAGED,
        # Mostly false: gates and these labels are changed seldom.
        conditions=[f"{freed} || ({left})", not_by(scope.own_usernames)],
        denied=validation("false", message_expression=texts),
    )


def _keeping(scope: Scope) -> list[Object]:
    """What lets nobody take a pod that runs away from the object that holds quota for it, by its label.

    It is looked for by that label alone, so that its quota would be free while it runs on.
    """
    had, has = (label(variable, WORKLOAD_UID) for variable in ("oldObject", "object"))
    return _policy(
        PODS_KEEP,
        scope,
        WORKLOAD_UID,
        conditions=[
            f"{had} != '' && {had} != {has}",
            not_by(scope.own_usernames),
            _UNENDED,
        ],
        denied=validation("false", message=_LABEL_TEXT),
    )


def _policy(name: str, scope: Scope, selected: str, *, conditions: Sequence[str], denied: Object) -> list[Object]:
    """A policy for updates of the pods that have, or had, the label `selected`, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "scope": "Namespaced"}
    constraints = {
        "namespaceSelector": scope.namespaces(),
        "objectSelector": {"matchExpressions": [{"key": selected, "operator": "Exists"}]},
        # Labels are writable through the status, too.
        "resourceRules": [{**rule, "resources": ["pods", "pods/status"]}],
    }
    return with_binding(VALIDATING, name, constraints, conditions=conditions, spec={"validations": [denied]})
