"""CEL expressions for match conditions and admission policies, in the dialect that API servers support since 1.30.

Functions return the text of an expression. `variable` is the CEL variable of an object: `object` or `oldObject`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from admission.kinds.base import KUEUE, SUBMITTED_BY, SUBMITTER_GROUPS
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.patches import pointer
from admission.kinds.rules import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.kinds.base import Kind, Object


ALIVE: Final = "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)"
"""CEL: the object is not being deleted."""

_OTHER_ROOTS: Final = {"spec", "status", "metadata"}
"""Fields of the root of an object that every API object may have."""

_NAME: Final = "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
"""Regular expression of LocalQueue names that can be the value of a label (at most 63 characters)."""

_DOMAINS: Final = {"sluice.dev/": "^sluice[.]dev/.*[Qq]ue", KUEUE: "^kueue[.]x-k8s[.]io/.*[Qq]ue"}
"""Regular expressions (RE2 and Python) of label keys that look like queue labels, by the domain of the key."""


def condition(name: str, *expressions: str) -> Object:
    """Return one match condition, the conjunction of the expressions; empty ones are left out.

    Pass cheap expressions, and those that are mostly false, first: an API server evaluates all match conditions of an
    entry even if one is false, but it stops a conjunction at the first false operand. In both cases an error counts
    only if nothing is false.
    """
    return {"name": name, "expression": " && ".join(f"({text})" for text in expressions if text)}


def has_queue_label(variable: str, kind: Kind) -> str:
    """Whether an object has a queue label; its value may be empty."""

    def has_one(*path: str) -> str:
        steps = [".".join((variable, *path[:depth])) for depth in range(2, len(path) + 1)]
        there = " && ".join(f"has({step})" for step in steps)
        named = " || ".join(f"'{key}' in {steps[-1]}" for key in kind.conventions.queue_labels)
        return f"({there} && ({named}))"

    own = has_one("metadata", "labels")
    return f"({own} || {has_one(*kind.more_labels)})" if kind.more_labels else own


def queue_like_pattern(kind: Kind) -> str:
    """Return the regular expression of label keys that look like a queue label of this kind, correct or misspelled."""
    known = kind.conventions.queue_labels
    return "|".join(like for domain, like in _DOMAINS.items() if any(key.startswith(domain) for key in known))


def has_queue_like_label(variable: str, kind: Kind) -> str:
    """Whether an object has a label that looks like a queue label, correct or misspelled."""
    labels = f"{variable}.metadata.labels"
    return f"(has({labels}) && {labels}.exists(key, key.matches('{queue_like_pattern(kind)}')))"


def by_kind(kinds: Sequence[Kind], expression: Callable[[Kind], str]) -> str:
    """Select `expression(kind)` by the resource of the request; the most frequent expression is the default."""
    names: dict[str, list[str]] = {}
    for kind in kinds:
        names.setdefault(expression(kind), []).append(f"{kind.group}/{kind.plural}")
    texts = sorted(names, key=lambda text: len(names[text]))
    result = texts.pop()
    for text in reversed(texts):
        quoted = orjson.dumps(names[text]).decode()
        result = f"(request.resource.group + '/' + request.resource.resource in {quoted} ? {text} : {result})"
    return result


def is_queued(variable: str, kinds: Sequence[Kind]) -> str:
    """Whether an object has a queue label with a value, and its pods are created by its kind's own controller."""
    named = " || ".join(f"{label(variable, key)} != ''" for key in kinds[0].conventions.queue_labels)
    return f"(({named}) && {by_kind(kinds, lambda kind: is_run_by_own_controller(variable, kind))})"


def has_empty_label(variable: str, key: str) -> str:
    """Whether an object has this label, with an empty value."""
    labels = f"{variable}.metadata.labels"
    return f"(has({labels}) && '{key}' in {labels} && {labels}['{key}'] == '')"


def is_run_by_own_controller(variable: str, kind: Kind) -> str:
    """Whether the kind's own controller creates the pods: the field that can name another one (managedBy) does not."""
    path, own = kind.manager
    if not path:
        return "true"
    steps = [".".join((variable, *path[:depth])) for depth in range(2, len(path) + 1)]
    has = " && ".join(f"has({step})" for step in steps)
    absent = f"!({has})" if len(steps) > 1 else f"!{has}"
    usual = f"== '{own[0]}'" if len(own) == 1 else f"in {list(own)}"
    return f"({absent} || {steps[-1]} {usual})"


def is_suspended(variable: str, paths: Sequence[Sequence[str]]) -> str:
    """Whether an object is suspended: the value of the first of these fields that is set; false if none is."""
    result = "false"
    for path in reversed(paths):
        result = f"({_has(variable, path)} ? {'.'.join((variable, *path))} : {result})"
    return result


def is_suspended_everywhere(variable: str, paths: Sequence[Sequence[str]]) -> str:
    """Whether all of these fields are true."""
    return " && ".join(f"{_has(variable, path)} && {'.'.join((variable, *path))}" for path in paths)


def suspend_patches(paths: Sequence[Sequence[str]]) -> str:
    """Return a list of JSON patch operations that set these fields to true, and add missing parents."""
    steps = []
    for path in paths:
        for depth in range(1, len(path)):
            absent = f"!{_has('object', path[:depth])}"
            steps.append(f"({absent} ? [{add_patch(pointer(*path[:depth]), '{}')}] : [])")
        steps.append(f"[{add_patch(pointer(*path), 'true')}]")
    return f"({' + '.join(steps)})"


def add_patch(path: str, value: str) -> str:
    """Return a JSON patch operation that adds the value of an expression."""
    return f"JSONPatch{{op: 'add', path: '{path}', value: {value}}}"


def has_value(variable: str, places: Iterable[Sequence[str]]) -> str:
    """Whether an object has a value at one of these paths. The last step of a path may be any map key."""
    return f"({' || '.join(_holds(variable, path) for path in places)})"


def queue_at(variable: str, places: Iterable[Sequence[str]]) -> str:
    """Return the first non-empty value at these paths, else an empty string.

    A value that is not the name of a LocalQueue is replaced by a message: no label can have it as its value, so that
    the API server refuses the object and shows the message.
    """
    result = "''"
    for path in reversed(list(places)):
        parent, key = ".".join((variable, *path[:-1])), path[-1]
        value = f"{parent}.{key}" if key.isidentifier() else f"{parent}['{key}']"
        name = f"({value}.matches('{_NAME}') ? {value} : '{dotted(path)} names no LocalQueue')"
        result = f"({_holds(variable, path)} && {value} != '' ? {name} : {result})"
    return result


def _holds(variable: str, path: Sequence[str]) -> str:
    if path[-1].isidentifier():
        return _has(variable, path)
    return f"({_has(variable, path[:-1])} && '{path[-1]}' in {'.'.join((variable, *path[:-1]))})"


def claims_owner(kind: Kind, kinds: Iterable[Kind]) -> str:
    """Whether the controller in the owner references is of one of `kinds` that creates objects of `kind`."""
    owners = [
        f"(o.kind == '{each.kind}' && o.apiVersion.startsWith('{each.group}/'))"
        for each in kinds
        if each.ownership is not None and each.ownership.makes(kind.group, kind.kind)
    ]
    references = "object.metadata.ownerReferences"
    claimed = f"{references}.exists(o, has(o.controller) && o.controller && ({' || '.join(owners)}))"
    return f"(has({references}) && {claimed})" if owners else "false"


def _has(variable: str, path: Sequence[str]) -> str:
    steps = [f"has({'.'.join((variable, *path[:depth]))})" for depth in range(1, len(path) + 1)]
    return f"({' && '.join(steps)})"


def label(variable: str, key: str) -> str:
    """Return the value of a label; empty if it is missing."""
    return _value(f"{variable}.metadata.labels", key)


def submitter(variable: str) -> str:
    """Return the value of the annotation SUBMITTED_BY; empty if it is missing."""
    return _value(f"{variable}.metadata.annotations", SUBMITTED_BY)


def submitter_groups(variable: str) -> str:
    """Return the value of the annotation SUBMITTER_GROUPS; empty if it is missing."""
    return _value(f"{variable}.metadata.annotations", SUBMITTER_GROUPS)


def requester_groups() -> str:
    """Return the value of the annotation SUBMITTER_GROUPS for the user of the request; empty: no annotation."""
    recorded = "request.userInfo.groups.filter(g, !g.startsWith('system:') && !g.contains('\\n'))"
    return f"(has(request.userInfo.groups) ? {recorded}.join('\\n') : '')"


def adds_no_gates(key: str) -> str:
    """Whether an update adds no controller to a comma-separated annotation, parsed as `admission_gates.gates_of` does.

    `split` and `trim` are in Kubernetes' CEL library of strings, which every API server with admission policies has.
    An unchanged annotation is compared as a whole: comparing thousands of names would exceed CEL's cost limit.
    """
    new, old = (_value(f"{variable}.metadata.annotations", key) for variable in ("object", "oldObject"))
    named, before = (f"({text}.trim() == '' ? [] : {text}.split(',').map(name, name.trim()))" for text in (new, old))
    return f"{new} == {old} || {named}.all(name, name in {before})"


def pod_count(variable: str) -> str:
    """Return the number of pods that a Job runs at a time: parallelism (default 1), at most completions."""
    spec = f"{variable}.spec"
    parallelism = f"(has({spec}.parallelism) ? {spec}.parallelism : 1)"
    bounded = f"has({spec}.completions) && {spec}.completions < {parallelism}"
    return f"({bounded} ? {spec}.completions : {parallelism})"


def is_not_raised(path: Sequence[str]) -> str:
    """Whether an update does not raise a number; removing it counts as raising. True for an empty path."""
    if not path:
        return "true"
    new, old = (".".join((variable, *path)) for variable in ("object", "oldObject"))
    return f"(!{_has('oldObject', path)} || ({_has('object', path)} && {new} <= {old}))"


def replaces_failed(variable: str) -> str:
    """Whether a Job replaces only finished pods: podReplacementPolicy is Failed."""
    field = f"{variable}.spec.podReplacementPolicy"
    return f"(has({field}) && {field} == 'Failed')"


def is_not_updated_by(usernames: Iterable[str]) -> str:
    """Whether a request is not an update by one of these users; an empty text for no users."""
    names = ", ".join(orjson.dumps(name).decode() for name in usernames)  # a name may have quotes in it
    return f"!(request.operation == 'UPDATE' && request.userInfo.username in [{names}])" if names else ""


def is_created_by_user(kinds: Iterable[Kind]) -> str:
    """Whether a pod may have been created by a user.

    False for pods of DaemonSets and mirror pods of nodes, which are not queued, and, where Jobs are queued, for pods of
    Jobs, which count with their Job unless they are in a group with other pods. Controllers are recognised by their
    user names; in clusters where they share one, Sluice's controller checks the pod's owner instead.
    """
    daemons, job = (f"'system:serviceaccount:kube-system:{name}-controller'" for name in ("daemon-set", "job"))
    by_node = "has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups"
    made = f"request.userInfo.username != {daemons} && !({by_node})"
    if not any((kind.group, kind.kind) == ("batch", "Job") for kind in kinds):
        return made
    grouped = " || ".join(f"{label('object', key)} != ''" for key in GROUP_NAME)
    return f"{made} && (request.userInfo.username != {job} || {grouped})"


def touches_gated_fields(*kinds: Kind, created: str = "true") -> str:
    """Whether an update changes spec, labels or annotations that the gate evaluates; for a creation: `created`."""

    def labels(variable: str) -> str:
        return f"(has({variable}.metadata.labels) ? {variable}.metadata.labels : {{}})"

    annotations = [f"{variable}.metadata.annotations" for variable in ("object", "oldObject")]
    roots = {root for kind in kinds if kind.suspension is not None for root in kind.suspension.roots} - _OTHER_ROOTS
    fields = " || ".join(_differs(root) for root in sorted({"spec", *roots}))
    differs = [
        # Through the status no other field is written.
        f"!has(request.subResource) && {f'({fields})' if roots else 'object.spec != oldObject.spec'}",
        f"{labels('object')} != {labels('oldObject')}",
        *(
            " != ".join(_value(each, key, missing="null") for each in annotations)
            for key in dict.fromkeys(key for kind in kinds for key in kind.annotations)
        ),
    ]
    return f"request.operation == 'CREATE' ? {created} : ({' || '.join(differs)})"


def _differs(field: str) -> str:
    """Whether an update changes a field of the root, which objects need not have."""
    new, old = (f"{variable}.{field}" for variable in ("object", "oldObject"))
    return f"has({new}) != has({old}) || (has({new}) && {new} != {old})"


def _value(values: str, key: str, *, missing: str = "''") -> str:
    return f"(has({values}) && '{key}' in {values} ? {values}['{key}'] : {missing})"
