"""Admission policies that gate objects in the API server, in place of the webhook, unaffected by an outage of Sluice.

While Sluice is down, new objects wait and none is refused. Policies can neither warn nor check what needs more than the
object: changes that the webhook reverts with a warning are denied with a similar message, and the controller reports
faults of a Job. The expressions use only constructs that were tested with a Kubernetes 1.36 API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.kinds.abilities import suspend_fields
from admission.kinds.added_labels import ADDED_LABELS
from admission.kinds.base import (
    DEFAULT_QUEUE,
    EMPTY_LABEL,
    QUEUE_NAME,
    START_WITH_OWNER,
    SUBMITTED_BY,
    SUBMITTER_GROUPS,
)
from admission.kinds.patches import pointer
from admission.kinds.registry import holds_items
from webhooks.expressions import (
    ALIVE,
    add_patch,
    adds_no_gates,
    by_kind,
    claims_owner,
    has_empty_label,
    has_queue_label,
    has_value,
    is_not_raised,
    is_not_updated_by,
    is_queued,
    is_run_by_own_controller,
    is_suspended,
    is_suspended_everywhere,
    label,
    pod_count,
    queue_at,
    replaces_failed,
    requester_groups,
    submitter,
    submitter_groups,
    suspend_patches,
    touches_gated_fields,
)
from webhooks.validating_policies import MUTATING, VALIDATING, validation, with_binding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Object
    from webhooks.scope import Scope

_REQUESTER: Final = "request.userInfo.username"
_RUNNING: Final = (
    "'metadata.labels: the queue of a running ' + request.kind.kind + ' cannot be changed; "
    "suspend it before you move it'"
)
"""CEL expression of a message, as `_MORE_AT_A_TIME`; the other messages are plain text."""
_MORE_PODS: Final = (
    "spec.parallelism: a running Job gets no more pods than it has; suspend it in the same request to get more"
)
_MORE_AT_A_TIME: Final = (
    "'a running ' + request.kind.kind + ' cannot run more pods at a time than it has requested; "
    "suspend it in the same request to get more'"
)
_HANDED_OVER: Final = (
    "an object that another controller has run (managedBy) must be suspended when it joins a queue; "
    "suspend it in the same request"
)
_REPLACEMENT: Final = (
    "spec.podReplacementPolicy: Sluice sets it to Failed when it starts a Job, and it stays so while the Job runs; "
    "suspend the Job in the same request to change it"
)
_SUBMITTER: Final = f"metadata.annotations[{SUBMITTED_BY}]: only Sluice writes this annotation; leave it as it is"
_GROUPS: Final = f"metadata.annotations[{SUBMITTER_GROUPS}]: only Sluice writes this annotation; leave it as it is"
_LEAVES: Final = (
    "metadata.labels: everything in this namespace is queued; name another queue instead of removing the queue label"
)
_JOBS: Final = "jobs"
_OTHERS: Final = "kinds"
_GATE: Final = ".gate.sluice.dev"
GATE_POLICIES: Final = (f"{_JOBS}{_GATE}", f"{_OTHERS}{_GATE}")
"""Names of the policies that suspend objects at their creation: Jobs, and objects of other kinds."""


def has_policies(kind: Kind) -> bool:
    """Whether policies can gate a kind: it must have a suspend field. Other kinds are gated by webhooks."""
    return kind.suspension is not None and not holds_items(kind)


def policy_groups(kinds: Iterable[Kind]) -> list[tuple[Kind, ...]]:
    """Return the kinds gated by policies in the groups that share policies: Jobs, and all others.

    The names of the policies are therefore the same for all selections of kinds.
    """
    gated = [kind for kind in kinds if has_policies(kind)]
    jobs, others = tuple(filter(is_job, gated)), tuple(kind for kind in gated if not is_job(kind))
    return [group for group in (jobs, others) if group]


def is_job(kind: Kind) -> bool:
    """Whether the kind is the built-in Job of the API group batch."""
    return (kind.group, kind.kind) == ("batch", "Job")


def _suspended(variable: str, kinds: Sequence[Kind]) -> str:
    return by_kind(kinds, lambda kind: is_suspended(variable, suspend_fields(kind)))


def _waits(kinds: Sequence[Kind]) -> str:
    """CEL expression of the message that denies unsuspending a queued object."""
    field = by_kind(kinds, lambda kind: f"'{'.'.join(suspend_fields(kind)[0])}'")
    return (
        f"{field} + ': this ' + request.kind.kind + ' is queued, and only Sluice starts it, when there is quota; "
        "to see what it waits for: sluice why ' + object.metadata.name + ' -n ' + object.metadata.namespace"
    )


def gate_policies(kinds: Sequence[Kind], scope: Scope, *, owners: Sequence[Kind] = ()) -> list[Object]:
    """Return the policies, each followed by its binding, that gate objects with a queue label and keep them gated.

    `kinds` is one of the `policy_groups`; `owners` are all enabled kinds, whose objects may own objects of `kinds`.
    """
    namespaces = scope.namespaces()
    names_queue, queue = _queue_beside_labels(kinds, scope)
    created = _policy(
        MUTATING,
        f"{_name(kinds)}{_GATE}",
        kinds,
        namespaces,
        operations=["CREATE"],
        # Policies are evaluated again after a mutation: the condition excludes objects that are gated already.
        conditions=[
            f"({is_queued('object', kinds)} && !{_is_gated(kinds)})" + (f" || {names_queue}" if names_queue else "")
        ],
        spec=_suspend_mutation(queue, kinds, owners, where=names_queue),
    )
    joining = _policy(
        MUTATING,
        f"{_name(kinds)}.join.gate.sluice.dev",
        kinds,
        namespaces,
        operations=["UPDATE"],
        # The selector spares the API server CEL values for objects that keep their queue label: nearly all updates.
        objects=without_label(kinds[0]),
        conditions=[
            is_not_updated_by(scope.own_usernames),
            is_queued("object", kinds),
            f"{_suspended('oldObject', kinds)} && !{is_queued('oldObject', kinds)}",
        ],
        spec=_suspend_mutation("", kinds, owners),
    )
    keeping = _policy(
        VALIDATING,
        f"{_name(kinds)}.keep.sluice.dev",
        kinds,
        namespaces,
        operations=["CREATE", "UPDATE"],
        conditions=[
            is_not_updated_by(scope.own_usernames),
            f"[object, oldObject].exists(o, o != null && {has_queue_label('o', kinds[0])})",
            ALIVE,
            # New objects have been suspended by the mutating policy, so that there is rarely anything to deny.
            touches_gated_fields(
                *kinds, created=" || ".join([f"!{_suspended('object', kinds)}", *_empty_queue_labels("object", kinds)])
            ),
        ],
        spec={"variables": _variables(kinds), "validations": _validations(kinds)},
    )
    return [*created, *joining, *keeping]


def managed_gate_policies(kinds: Sequence[Kind], scope: Scope, *, owners: Sequence[Kind] = ()) -> list[Object]:
    """Return the policy that gates unlabelled objects in managed namespaces, and adds the default queue label."""
    names_queue, _ = _queue_beside_labels(kinds, scope)
    return _policy(
        MUTATING,
        f"{_name(kinds)}.managed.gate.sluice.dev",
        kinds,
        scope.managed_namespaces(),
        operations=["CREATE"],
        objects=without_label(kinds[0]),
        conditions=[unlabelled(*kinds), f"!{names_queue}" if names_queue else ""],
        spec=_suspend_mutation(f"'{DEFAULT_QUEUE}'", kinds, owners),
    )


def without_label(kind: Kind) -> Object:
    """Return the LabelSelector of objects without a queue label; an update matches by its old or its new object."""
    keys = kind.conventions.queue_labels
    return {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in keys]}


def _queue_beside_labels(kinds: Sequence[Kind], scope: Scope) -> tuple[str, str]:
    """Return the expressions for queues named by annotations or fields, by the rule that enables this.

    The first one: whether a new object without a queue label names a queue; the second one: the name. Both are empty
    without a rule of this kind.
    """
    rule = next((rule for rule in scope.rules if not rule.queue), None)
    if rule is None:
        return "", ""

    def names_queue(kind: Kind) -> str:
        return has_value("object", rule.places(kind)) if rule.places(kind) else "false"

    condition = f"({by_kind(kinds, names_queue)} && {unlabelled(*kinds)})"
    return condition, by_kind(kinds, lambda kind: queue_at("object", rule.places(kind)))


def unlabelled(*kinds: Kind) -> str:
    """Whether an object has no queue label, and its pods are created by its kind's own controller."""
    own = by_kind(kinds, lambda kind: is_run_by_own_controller("object", kind))
    return f"{own} && !{has_queue_label('object', kinds[0])}"


def managed_keep_policies(kinds: Sequence[Kind], scope: Scope) -> list[Object]:
    """Return the policy by which only Sluice starts objects in managed namespaces, and none leaves its queue."""
    return _policy(
        VALIDATING,
        f"{_name(kinds)}.managed.keep.sluice.dev",
        kinds,
        scope.managed_namespaces(),
        operations=["CREATE", "UPDATE"],
        conditions=[
            is_not_updated_by(scope.own_usernames),
            by_kind(kinds, lambda kind: is_run_by_own_controller("object", kind)),
            ALIVE,
            touches_gated_fields(*kinds, created=f"!{_suspended('object', kinds)}"),
        ],
        spec={
            "variables": _variables(kinds),
            "validations": [
                validation("!variables.wasSuspended || variables.suspended", message_expression=_waits(kinds)),
                validation("!variables.wasQueued || variables.queued", message=_LEAVES),
            ],
        },
    )


def _name(kinds: Sequence[Kind]) -> str:
    """Return the first part of the policies' names for one of the `policy_groups`."""
    return _JOBS if is_job(kinds[0]) else _OTHERS


def _queue_labels(kinds: Sequence[Kind]) -> tuple[str, ...]:
    return kinds[0].conventions.queue_labels


def _empty_queue_labels(variable: str, kinds: Sequence[Kind]) -> list[str]:
    """For each queue label: whether an object has it with an empty value."""
    return [has_empty_label(variable, key) for key in _queue_labels(kinds)]


def _is_gated(kinds: Sequence[Kind]) -> str:
    """Whether an object is as the mutation leaves it: the mutation would change nothing."""
    suspended = by_kind(kinds, lambda kind: is_suspended_everywhere("object", suspend_fields(kind)))
    recorded = f"{submitter('object')} == {_REQUESTER} && {submitter_groups('object')} == {requester_groups()}"
    return f"({recorded} && {suspended})"


def _variables(kinds: Sequence[Kind]) -> list[Object]:
    variables = {
        "suspended": _suspended("object", kinds),
        # A new object counts as suspended: it was not admitted, even if it is created unsuspended.
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
            f"{not_running} || variables.suspended || {pod_count('object')} <= {pod_count('oldObject')}",
            message=_MORE_PODS,
        ),
        validation(
            f"{not_running} || variables.suspended || !{replaces_failed('oldObject')} || {replaces_failed('object')}",
            message=_REPLACEMENT,
        ),
    ]
    return [
        validation(
            "!(variables.queued || variables.wasQueued) || !variables.wasSuspended || variables.suspended",
            message_expression=_waits(kinds),
        ),
        {
            "expression": f"!variables.wasQueued || {submitter('object')} == {submitter('oldObject')}",
            "message": _SUBMITTER,
        },
        {
            "expression": f"!variables.wasQueued || {submitter_groups('object')} == {submitter_groups('oldObject')}",
            "message": _GROUPS,
        },
        validation(f"{not_running} || ({same_labels})", message_expression=_RUNNING),
        # It joins by `managedBy`: labels cannot change, by the validation above.
        validation(
            "!variables.queued || variables.wasQueued || variables.wasSuspended || variables.suspended",
            message=_HANDED_OVER,
        ),
        *(
            validation(
                f"!variables.wasQueued || {adds_no_gates(key)}",
                message=f"metadata.annotations[{key}]: no controllers can be added after the creation; "
                "name all of them when you create the object",
            )
            for key in filter(None, [kinds[0].conventions.gate_annotation])
        ),
        # For most other kinds no expression gives the number of pods: the controller stops an object that has grown.
        *(of_jobs if is_job(kinds[0]) else [_bounded(kinds, not_running)]),
        *(
            {
                "expression": f"!{has_empty_label('object', key)} || "
                f"(oldObject != null && {has_empty_label('oldObject', key)})",
                "message": f"metadata.labels[{key}]: {EMPTY_LABEL}",
            }
            for key in labels
        ),
        # The mutating policy does not cover objects that join through the status, or had an empty queue label.
        {
            "expression": f"variables.wasQueued || !variables.queued || {submitter('object')} in ['', {_REQUESTER}]",
            "message": _SUBMITTER,
        },
        {
            "expression": "variables.wasQueued || !variables.queued || "
            f"{submitter_groups('object')} in ['', {requester_groups()}]",
            "message": _GROUPS,
        },
    ]


def _bounded(kinds: Sequence[Kind], not_running: str) -> Object:
    """The number of pods at a time must not rise while the object runs: its controller would not delete any of them."""
    by_one = by_kind(kinds, lambda kind: is_not_raised(() if kind.scaling is None else kind.scaling.most_pods))
    return validation(f"{not_running} || variables.suspended || {by_one}", message_expression=_MORE_AT_A_TIME)


def _suspend_mutation(queue: str, kinds: Sequence[Kind], owners: Sequence[Kind], *, where: str = "true") -> Object:
    """Return the mutation that suspends an object and records the submitting user.

    `queue`: CEL expression of the queue label that is added if `where` is true; empty: no label is added.

    An unsuspended object that claims an owner of a queued kind is marked by the annotation START_WITH_OWNER: the
    controller starts it if the claim is true.
    """
    submitted = pointer("metadata", "annotations", SUBMITTED_BY)
    groups = add_patch(pointer("metadata", "annotations", SUBMITTER_GROUPS), requester_groups())
    # Without groups an empty value replaces one that the user has written.
    differ = f"{submitter_groups('object')} != {requester_groups()}"
    patches = [_parent("annotations"), f"[{add_patch(submitted, _REQUESTER)}]", f"({differ} ? [{groups}] : [])"]
    if queue:
        record = add_patch(pointer("metadata", "annotations", ADDED_LABELS), f"'{QUEUE_NAME}=' + {queue}")
        labelled = add_patch(pointer("metadata", "labels", QUEUE_NAME), queue)
        injected = f"{_parent('labels')} + [{labelled}, {record}]"
        patches.append(injected if where == "true" else f"({where} ? {injected} : [])")
    claims = by_kind(kinds, lambda kind: claims_owner(kind, owners))
    if claims != "false":
        mark = add_patch(pointer("metadata", "annotations", START_WITH_OWNER), "'true'")
        patches.append(f"(!{_suspended('object', kinds)} && {claims} ? [{mark}] : [])")
    patches.append(by_kind(kinds, lambda kind: suspend_patches(suspend_fields(kind))))
    return {
        # Webhooks and policies called later may unsuspend the object.
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}}],
    }


def _parent(field: str) -> str:
    """Return the list of JSON patches that adds a missing map of the metadata, `labels` or `annotations`."""
    return f"(has(object.metadata.{field}) ? [] : [{add_patch(f'/metadata/{field}', '{}')}])"


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
    """Return a policy for objects of these kinds, and its binding; `objects` selects by labels, old or new ones."""
    rules: list[Object] = []
    for kind in kinds:
        rule = {"apiGroups": [kind.group], "apiVersions": list(kind.versions), "scope": "Namespaced"}
        rules.append({**rule, "operations": operations, "resources": [kind.plural]})
        if policy_kind == VALIDATING:  # labels and annotations can be written through the status
            rules.append({**rule, "operations": ["UPDATE"], "resources": [f"{kind.plural}/status"]})
    constraints = {"namespaceSelector": namespaces, "resourceRules": rules}
    if objects is not None:
        constraints["objectSelector"] = objects
    return with_binding(policy_kind, name, constraints, conditions=conditions, spec=spec)
