"""CEL for what the gate looks at in a Job: only what every API server since 1.30 knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from admission.kinds.base import KUEUE, SUBMITTED_BY
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.patches import pointer
from admission.kinds.rules import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from admission.kinds.base import Kind, Object


ALIVE: Final = "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)"
"""Whether an object is not being deleted."""

_NAME: Final = "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
"""What the name of a LocalQueue looks like that a label can have."""

_DOMAINS: Final = {"sluice.dev/": "^sluice[.]dev/.*[Qq]ue", KUEUE: "^kueue[.]x-k8s[.]io/.*[Qq]ue"}
"""What keys of labels look like by which somebody wants a Job queued, in the syntax of RE2 and of Python."""


def condition(name: str, *expressions: str) -> Object:
    """The match condition that all of these hold; empty ones are left out. What is cheap, or mostly false, comes first.

    One, for an API server evaluates each match condition to its end, whatever the others say, but nothing after what
    is false in a conjunction. An error counts in either only where nothing is false.
    """
    return {"name": name, "expression": " && ".join(f"({text})" for text in expressions if text)}


def shows_queue_label(variable: str, kind: Kind) -> str:
    """Whether an object has a queue label, be it empty."""

    def has_one(*path: str) -> str:
        steps = [".".join((variable, *path[:depth])) for depth in range(2, len(path) + 1)]
        there = " && ".join(f"has({step})" for step in steps)
        named = " || ".join(f"'{key}' in {steps[-1]}" for key in kind.conventions.queue_labels)
        return f"({there} && ({named}))"

    own = has_one("metadata", "labels")
    return f"({own} || {has_one(*kind.more_labels)})" if kind.more_labels else own


def queue_like(kind: Kind) -> str:
    """A regular expression for the keys of labels that look like a queue label, be they rightly written or not."""
    known = kind.conventions.queue_labels
    return "|".join(like for domain, like in _DOMAINS.items() if any(key.startswith(domain) for key in known))


def shows_odd_queue_label(variable: str, kind: Kind) -> str:
    """Whether an object has a label that looks like a queue label."""
    labels = f"{variable}.metadata.labels"
    return f"(has({labels}) && {labels}.exists(key, key.matches('{queue_like(kind)}')))"


def by_kind(kinds: Sequence[Kind], expression: Callable[[Kind], str]) -> str:
    """What differs between kinds: the expression of that which a request is about."""
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
    """Whether an object names a queue, and is one that Sluice starts."""
    named = " || ".join(f"{label(variable, key)} != ''" for key in kinds[0].conventions.queue_labels)
    return f"(({named}) && {by_kind(kinds, lambda kind: is_own(variable, kind))})"


def names_no_queue(variable: str, key: str) -> str:
    """Whether a queue label is there and empty."""
    labels = f"{variable}.metadata.labels"
    return f"(has({labels}) && '{key}' in {labels} && {labels}['{key}'] == '')"


def is_own(variable: str, kind: Kind) -> str:
    """Whether the kind's own controller makes its pods, by the field that may name another one."""
    path, own = kind.manager
    if not path:
        return "true"
    steps = [".".join((variable, *path[:depth])) for depth in range(2, len(path) + 1)]
    has = " && ".join(f"has({step})" for step in steps)
    absent = f"!({has})" if len(steps) > 1 else f"!{has}"
    usual = f"== '{own[0]}'" if len(own) == 1 else f"in {list(own)}"
    return f"({absent} || {steps[-1]} {usual})"


def is_suspended(variable: str, paths: Sequence[Sequence[str]]) -> str:
    """Whether it makes no pods: by the first of these fields that is there."""
    result = "false"
    for path in reversed(paths):
        result = f"({_has(variable, path)} ? {'.'.join((variable, *path))} : {result})"
    return result


def is_suspended_everywhere(variable: str, paths: Sequence[Sequence[str]]) -> str:
    """Whether each of these fields is there, and set."""
    return " && ".join(f"{_has(variable, path)} && {'.'.join((variable, *path))}" for path in paths)


def suspending(paths: Sequence[Sequence[str]]) -> str:
    """The list of JSON patches that set these fields of the object, and their parents where they are not there."""
    steps = []
    for path in paths:
        for depth in range(1, len(path)):
            absent = f"!{_has('object', path[:depth])}"
            steps.append(f"({absent} ? [{patch_of(pointer(*path[:depth]), '{}')}] : [])")
        steps.append(f"[{patch_of(pointer(*path), 'true')}]")
    return f"({' + '.join(steps)})"


def patch_of(path: str, value: str) -> str:
    """A JSON patch that adds what an expression gives."""
    return f"JSONPatch{{op: 'add', path: '{path}', value: {value}}}"


def there_is(variable: str, places: Iterable[Sequence[str]]) -> str:
    """Whether there is anything at one of these paths. The last step may be any key."""
    return f"({' || '.join(_holds(variable, path) for path in places)})"


def queue_of(variable: str, places: Iterable[Sequence[str]]) -> str:
    """The first name at one of these paths, else empty; for what is no name, a sentence that no label can have."""
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
    """Whether an object names as its controller one of a kind that may be queued, and that makes such objects."""
    owners = [
        f"(o.kind == '{each.kind}' && o.apiVersion.startsWith('{each.group}/'))"
        for each in kinds
        if each.makes(kind.group, kind.kind)
    ]
    references = "object.metadata.ownerReferences"
    claimed = f"{references}.exists(o, has(o.controller) && o.controller && ({' || '.join(owners)}))"
    return f"(has({references}) && {claimed})" if owners else "false"


def _has(variable: str, path: Sequence[str]) -> str:
    steps = [f"has({'.'.join((variable, *path[:depth]))})" for depth in range(1, len(path) + 1)]
    return f"({' && '.join(steps)})"


def label(variable: str, key: str) -> str:
    """The value of a label, empty if it is not there."""
    return _value(f"{variable}.metadata.labels", key)


def submitter(variable: str) -> str:
    """Who is noted to have submitted it; empty if nobody is."""
    return _value(f"{variable}.metadata.annotations", SUBMITTED_BY)


def names_no_more_gates(key: str) -> str:
    """Whether an annotation of controllers has no names that it had not, read as `admission_gates.gates_of` does.

    `split` and `trim` are of Kubernetes' library of strings, which all API servers have that know policies. Names that
    stay as they are are not compared one by one: thousands of them would exceed what an expression may cost.
    """
    new, old = (_value(f"{variable}.metadata.annotations", key) for variable in ("object", "oldObject"))
    named, before = (f"({text}.trim() == '' ? [] : {text}.split(',').map(name, name.trim()))" for text in (new, old))
    return f"{new} == {old} || {named}.all(name, name in {before})"


def pods(variable: str) -> str:
    """How many pods a Job has at a time."""
    spec = f"{variable}.spec"
    parallelism = f"(has({spec}.parallelism) ? {spec}.parallelism : 1)"
    bounded = f"has({spec}.completions) && {spec}.completions < {parallelism}"
    return f"({bounded} ? {spec}.completions : {parallelism})"


def raises_nothing(path: Sequence[str]) -> str:
    """Whether a number, without which there is no bound, is not raised. True for no path."""
    if not path:
        return "true"
    new, old = (".".join((variable, *path)) for variable in ("object", "oldObject"))
    return f"(!{_has('oldObject', path)} || ({_has('object', path)} && {new} <= {old}))"


def replaces_failed(variable: str) -> str:
    """Whether it makes pods only for those that have ended."""
    field = f"{variable}.spec.podReplacementPolicy"
    return f"(has({field}) && {field} == 'Failed')"


def not_by(usernames: Iterable[str]) -> str:
    """Whether a request is no update by one of these users; empty if that is always so."""
    names = ", ".join(orjson.dumps(name).decode() for name in usernames)  # a name may have quotes in it
    return f"!(request.operation == 'UPDATE' && request.userInfo.username in [{names}])" if names else ""


def made_by_users(kinds: Iterable[Kind]) -> str:
    """Whether a pod is made by somebody who may be anybody.

    A DaemonSet's pods and those that a node mirrors are not for a queue, and those of a Job count with it, where Jobs
    are queued, but for those that are in a group with other pods. In clusters whose controllers share one user name the
    controller looks at the owner instead.
    """
    daemons, job = (f"'system:serviceaccount:kube-system:{name}-controller'" for name in ("daemon-set", "job"))
    by_node = "has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups"
    made = f"request.userInfo.username != {daemons} && !({by_node})"
    if not any((kind.group, kind.kind) == ("batch", "Job") for kind in kinds):
        return made
    grouped = " || ".join(f"{label('object', key)} != ''" for key in GROUP_NAME)
    return f"{made} && (request.userInfo.username != {job} || {grouped})"


def decisive(*kinds: Kind, created: str = "true") -> str:
    """Whether an update touches anything that the gate looks at, or a creation is `created`."""

    def labels(variable: str) -> str:
        return f"(has({variable}.metadata.labels) ? {variable}.metadata.labels : {{}})"

    annotations = [f"{variable}.metadata.annotations" for variable in ("object", "oldObject")]
    differs = [
        "!has(request.subResource) && object.spec != oldObject.spec",  # through the status no spec is written
        f"{labels('object')} != {labels('oldObject')}",
        *(
            " != ".join(_value(each, key, missing="null") for each in annotations)
            for key in dict.fromkeys(key for kind in kinds for key in kind.annotations)
        ),
    ]
    return f"request.operation == 'CREATE' ? {created} : ({' || '.join(differs)})"


def _value(values: str, key: str, *, missing: str = "''") -> str:
    return f"(has({values}) && '{key}' in {values} ? {values}['{key}'] : {missing})"
