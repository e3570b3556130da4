"""The gate as admission policies: what the webhook does, in the API server itself, so that no outage of Sluice is felt.

What is created waits while Sluice is down, and nobody is refused for it. Policies can neither warn nor judge what needs
more than the object: what the webhook undoes with a warning they deny with the same sentence, and faults of a Job are
told by the controller. The forms are those that were tried at a Kubernetes 1.36 API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.added_labels import ADDED_LABELS
from admission.kinds.base import DEFAULT_QUEUE, EMPTY_LABEL, QUEUE_NAME, START_WITH_OWNER, SUBMITTED_BY
from admission.kinds.declared import DeclaredKind
from admission.kinds.patches import pointer
from admission.kinds.registry import holds_items
from webhooks.expressions import (
    ALIVE,
    by_kind,
    claims_owner,
    condition,
    decisive,
    is_own,
    is_queued,
    is_suspended,
    is_suspended_everywhere,
    label,
    names_no_more_gates,
    names_no_queue,
    not_by,
    patch_of,
    pods,
    queue_of,
    raises_nothing,
    replaces_failed,
    shows_queue_label,
    submitter,
    suspending,
    there_is,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

API: Final = "admissionregistration.k8s.io/v1"
MUTATING: Final = "MutatingAdmissionPolicy"
VALIDATING: Final = "ValidatingAdmissionPolicy"

_REQUESTER: Final = "request.userInfo.username"
_LABELS: Final = {"app.kubernetes.io/name": "sluice"}
_WAITS: Final = (
    "'this ' + request.kind.kind + ' waits in a queue: Sluice starts it when there is quota; sluice why ' + "
    "object.metadata.name + ' -n ' + object.metadata.namespace"
)
_RUNNING: Final = "'the queue of a running ' + request.kind.kind + ' stays as it is; suspend it before you move it'"
_MORE_PODS: Final = "a running Job gets no more pods than it has; suspend it in the same request to ask for more"
_MORE_AT_A_TIME: Final = (
    "'a running ' + request.kind.kind + ' runs no more pods at a time than it has asked for; ' + "
    "'suspend it in the same request to ask for more'"
)
_HANDED_OVER: Final = "what another controller has run joins its queue suspended: suspend it in the same request"
_REPLACEMENT: Final = "podReplacementPolicy of a running Job stays Failed, as its start has set it"
_OURS: Final = f"{SUBMITTED_BY} is written by Sluice alone"
_LEAVES: Final = "everything in this namespace is queued: name another queue instead of taking the label away"


def are_written_for(kind: Kind) -> bool:
    """Whether there are policies for a kind: for what has a suspend field; what else is queued is gated by webhooks."""
    return is_job(kind) or (isinstance(kind, DeclaredKind) and not holds_items(kind))


def sorts(kinds: Iterable[Kind]) -> list[tuple[Kind, ...]]:
    """The kinds that policies are written for, as they share them: Jobs, and all others.

    So the names of the policies are always the same, whatever kinds are on.
    """
    written = [kind for kind in kinds if are_written_for(kind)]
    jobs, others = tuple(filter(is_job, written)), tuple(kind for kind in written if not is_job(kind))
    return [sort for sort in (jobs, others) if sort]


def is_job(kind: Kind) -> bool:
    """Whether it is batch/v1 Job."""
    return (kind.group, kind.kind) == ("batch", "Job")


def _fields(kind: Kind) -> tuple[tuple[str, ...], ...]:
    """Where the suspend field is, in each version of the definition."""
    return (kind.form.suspend, *kind.form.suspend_older) if isinstance(kind, DeclaredKind) else (("spec", "suspend"),)


def _suspended(variable: str, kinds: Sequence[Kind]) -> str:
    return by_kind(kinds, lambda kind: is_suspended(variable, _fields(kind)))


def gate(kinds: Sequence[Kind], scope: Scope, *, owners: Sequence[Kind] = ()) -> list[Object]:
    """The policies, each with its binding, that gate what has a queue label and keep it gated.

    `kinds`: those of one of the `sorts`; `owners`: all that are on, of whose objects one of these may be a part.
    """
    namespaces = scope.namespaces()
    named, queue = _named(kinds, scope)
    created = _policy(
        MUTATING,
        f"{_name(kinds)}.gate.sluice.dev",
        kinds,
        namespaces,
        operations=["CREATE"],
        # What is mutated goes through all policies once more, and needs nothing then.
        conditions=[f"({is_queued('object', kinds)} && !{_is_gated(kinds)})" + (f" || {named}" if named else "")],
        spec=_suspends(queue, kinds, owners, where=named),
    )
    joining = _policy(
        MUTATING,
        f"{_name(kinds)}.join.gate.sluice.dev",
        kinds,
        namespaces,
        operations=["UPDATE"],
        # So an API server makes no CEL values of what had a queue label and keeps it: of nearly all updates.
        objects=without_label(kinds[0]),
        conditions=[
            not_by(scope.own_usernames),
            is_queued("object", kinds),
            f"{_suspended('oldObject', kinds)} && !{is_queued('oldObject', kinds)}",
        ],
        spec=_suspends("", kinds, owners),
    )
    keeping = _policy(
        VALIDATING,
        f"{_name(kinds)}.keep.sluice.dev",
        kinds,
        namespaces,
        operations=["CREATE", "UPDATE"],
        conditions=[
            not_by(scope.own_usernames),
            f"[object, oldObject].exists(o, o != null && {shows_queue_label('o', kinds[0])})",
            ALIVE,
            # The gate has suspended what is created, so that there is mostly nothing to deny.
            decisive(*kinds, created=" || ".join([f"!{_suspended('object', kinds)}", *_unnamed("object", kinds)])),
        ],
        spec={"variables": _variables(kinds), "validations": _validations(kinds)},
    )
    return [*created, *joining, *keeping]


def managed_gate(kinds: Sequence[Kind], scope: Scope, *, owners: Sequence[Kind] = ()) -> list[Object]:
    """What gates what has no queue label in managed namespaces: it is given the one of the default LocalQueue."""
    named, _ = _named(kinds, scope)
    return _policy(
        MUTATING,
        f"{_name(kinds)}.managed.gate.sluice.dev",
        kinds,
        scope.managed_namespaces(),
        operations=["CREATE"],
        objects=without_label(kinds[0]),
        conditions=[unlabelled(*kinds), f"!{named}" if named else ""],
        spec=_suspends(f"'{DEFAULT_QUEUE}'", kinds, owners),
    )


def without_label(kind: Kind) -> Object:
    """The LabelSelector of what has no queue label, or of an update, had or has none."""
    keys = kind.conventions.queue_labels
    return {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in keys]}


def _named(kinds: Sequence[Kind], scope: Scope) -> tuple[str, str]:
    """Whether what is created names its queue elsewhere than in a label, and the expression for its name; or empty."""
    rule = next((rule for rule in scope.rules if not rule.queue), None)
    if rule is None:
        return "", ""

    def there(kind: Kind) -> str:
        return there_is("object", rule.places(kind)) if rule.places(kind) else "false"

    named = f"({by_kind(kinds, there)} && {unlabelled(*kinds)})"
    return named, by_kind(kinds, lambda kind: queue_of("object", rule.places(kind)))


def unlabelled(*kinds: Kind) -> str:
    """Whether an object has no queue label and is one of Sluice's kinds."""
    own = by_kind(kinds, lambda kind: is_own("object", kind))
    return f"{own} && !{shows_queue_label('object', kinds[0])}"


def managed_keeping(kinds: Sequence[Kind], scope: Scope) -> list[Object]:
    """What lets nobody but Sluice start anything in managed namespaces, nor take it out of its queue."""
    return _policy(
        VALIDATING,
        f"{_name(kinds)}.managed.keep.sluice.dev",
        kinds,
        scope.managed_namespaces(),
        operations=["CREATE", "UPDATE"],
        conditions=[
            not_by(scope.own_usernames),
            by_kind(kinds, lambda kind: is_own("object", kind)),
            ALIVE,
            decisive(*kinds, created=f"!{_suspended('object', kinds)}"),
        ],
        spec={
            "variables": _variables(kinds),
            "validations": [
                validation("!variables.wasSuspended || variables.suspended", message_expression=_WAITS),
                validation("!variables.wasQueued || variables.queued", message=_LEAVES),
            ],
        },
    )


def _name(kinds: Sequence[Kind]) -> str:
    return "jobs" if is_job(kinds[0]) else "kinds"


def _queue_labels(kinds: Sequence[Kind]) -> tuple[str, ...]:
    return kinds[0].conventions.queue_labels


def _unnamed(variable: str, kinds: Sequence[Kind]) -> list[str]:
    """For each queue label whether an object has it, and it is empty."""
    return [names_no_queue(variable, key) for key in _queue_labels(kinds)]


def _is_gated(kinds: Sequence[Kind]) -> str:
    """Whether an object is as the mutation leaves it, so that it would change nothing."""
    suspended = by_kind(kinds, lambda kind: is_suspended_everywhere("object", _fields(kind)))
    return f"({submitter('object')} == {_REQUESTER} && {suspended})"


def _variables(kinds: Sequence[Kind]) -> list[Object]:
    variables = {
        "suspended": _suspended("object", kinds),
        # What is new, and what asks to run at once, was never let in.
        "wasSuspended": f"oldObject == null || {_suspended('oldObject', kinds)}",
        "queued": is_queued("object", kinds),
        "wasQueued": f"oldObject != null && {is_queued('oldObject', kinds)}",
    }
    return [{"name": name, "expression": expression} for name, expression in variables.items()]


def _validations(kinds: Sequence[Kind]) -> list[Object]:
    labels = _queue_labels(kinds)
    same_labels = " && ".join(f"{label('object', key)} == {label('oldObject', key)}" for key in labels)
    not_running = "!(variables.queued || variables.wasQueued) || variables.wasSuspended"
    of_jobs = [
        validation(
            f"{not_running} || variables.suspended || {pods('object')} <= {pods('oldObject')}", message=_MORE_PODS
        ),
        validation(
            f"{not_running} || variables.suspended || !{replaces_failed('oldObject')} || {replaces_failed('object')}",
            message=_REPLACEMENT,
        ),
    ]
    return [
        validation(
            "!(variables.queued || variables.wasQueued) || !variables.wasSuspended || variables.suspended",
            message_expression=_WAITS,
        ),
        {"expression": f"!variables.wasQueued || {submitter('object')} == {submitter('oldObject')}", "message": _OURS},
        validation(f"{not_running} || ({same_labels})", message_expression=_RUNNING),
        # By `managedBy`, for labels stay as they are.
        validation(
            "!variables.queued || variables.wasQueued || variables.wasSuspended || variables.suspended",
            message=_HANDED_OVER,
        ),
        *(
            validation(
                f"!variables.wasQueued || {names_no_more_gates(key)}",
                message=f"{key} names no further controllers after the creation",
            )
            for key in filter(None, [kinds[0].conventions.gate_annotation])
        ),
        # Of most other kinds no expression says how many pods there are: the controller stops what has grown.
        *(of_jobs if is_job(kinds[0]) else [_bounded(kinds, not_running)]),
        *(
            {
                "expression": f"!{names_no_queue('object', key)} || "
                f"(oldObject != null && {names_no_queue('oldObject', key)})",
                "message": f"metadata.labels[{key}]: {EMPTY_LABEL}",
            }
            for key in labels
        ),
        # Who joins through the status, or has had an empty queue name, is not mutated.
        {
            "expression": f"variables.wasQueued || !variables.queued || {submitter('object')} in ['', {_REQUESTER}]",
            "message": _OURS,
        },
    ]


def _bounded(kinds: Sequence[Kind], not_running: str) -> Object:
    """What says how many pods run at a time keeps to that while it runs: its controller would end none of them."""
    by_one = by_kind(
        kinds, lambda kind: raises_nothing(kind.form.most_pods) if isinstance(kind, DeclaredKind) else "true"
    )
    return validation(f"{not_running} || variables.suspended || {by_one}", message_expression=_MORE_AT_A_TIME)


def validation(expression: str, *, message: str = "", message_expression: str = "") -> Object:
    """What must hold, else a request is refused with the message."""
    says = {"message": message} if message else {"messageExpression": message_expression}
    return {"expression": expression, **says, "reason": "Forbidden"}


def _suspends(queue: str, kinds: Sequence[Kind], owners: Sequence[Kind], *, where: str = "true") -> Object:
    """The mutation that suspends an object and notes who asked.

    `queue`: the expression for the queue label that it is given, `where` that holds; empty: it is given none.

    What would run at once, and claims an owner that may be queued, gets the mark by which the controller starts it.
    """
    submitted = pointer("metadata", "annotations", SUBMITTED_BY)
    parts = [_parent("annotations"), f"[{patch_of(submitted, _REQUESTER)}]"]
    if queue:
        noted_as = patch_of(pointer("metadata", "annotations", ADDED_LABELS), f"'{QUEUE_NAME}=' + {queue}")
        labelled = patch_of(pointer("metadata", "labels", QUEUE_NAME), queue)
        given = f"{_parent('labels')} + [{labelled}, {noted_as}]"
        parts.append(given if where == "true" else f"({where} ? {given} : [])")
    claims = by_kind(kinds, lambda kind: claims_owner(kind, owners))
    if claims != "false":
        mark = patch_of(pointer("metadata", "annotations", START_WITH_OWNER), "'true'")
        parts.append(f"(!{_suspended('object', kinds)} && {claims} ? [{mark}] : [])")
    parts.append(by_kind(kinds, lambda kind: suspending(_fields(kind))))
    return {
        # Others that come later may start what was gated.
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(parts)}}],
    }


def _parent(field: str) -> str:
    return f"(has(object.metadata.{field}) ? [] : [{patch_of(f'/metadata/{field}', '{}')}])"


def _policy(
    policy_kind: str,
    name: str,
    kinds: Sequence[Kind],
    namespaces: Object,
    *,
    operations: list[str],
    objects: Object | None = None,
    conditions: Sequence[str],
    spec: Object,
) -> list[Object]:
    """A policy for objects of these kinds, and its binding. `objects` selects by labels, of the old or the new."""
    rules: list[Object] = []
    for kind in kinds:
        rule = {"apiGroups": [kind.group], "apiVersions": list(kind.versions), "scope": "Namespaced"}
        rules.append({**rule, "operations": operations, "resources": [kind.plural]})
        if policy_kind == VALIDATING:  # labels and annotations are writable through the status, too
            rules.append({**rule, "operations": ["UPDATE"], "resources": [f"{kind.plural}/status"]})
    constraints = {"namespaceSelector": namespaces, "resourceRules": rules}
    if objects is not None:
        constraints["objectSelector"] = objects
    return with_binding(policy_kind, name, constraints, conditions=conditions, spec=spec)


def with_binding(
    policy_kind: str, name: str, constraints: Object, *, conditions: Sequence[str], spec: Object
) -> list[Object]:
    """A policy and its binding of the same name."""
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
