"""The decision of the webhook, as a function from an AdmissionReview to an AdmissionReview.

It gates, it notes who asked, and it refuses what can never run, all in one answer: the API server calls once for each
request. It knows no quota, no database and no cluster state, so that the same request always gets the same answer.
Where a user tries what only Sluice may do, the attempt is undone and answered with a warning, never refused: operators
and GitOps tools write these fields in good faith, and a refusal would stop them.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import orjson

from admission.kinds.added_labels import ADDED_LABELS, LABEL_KEYS, added_labels, annotation_value
from admission.kinds.admission_gates import gates_of
from admission.kinds.base import DEFAULT_QUEUE, EMPTY_LABEL, START_WITH_OWNER, SUBMITTED_BY, Kind, Object
from admission.kinds.children import claimed_owner
from admission.kinds.deployment import DeploymentKind
from admission.kinds.grouped import GroupedKind
from admission.kinds.patches import pointer
from admission.kinds.registry import Kinds
from admission.kinds.rules import first_match
from webhooks.errors import MalformedReview
from webhooks.expressions import queue_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from admission.kinds.rules import QueueRule


@dataclass(frozen=True, slots=True)
class _Request:
    """The part of an AdmissionRequest that decides."""

    uid: str
    kind: Kind | None
    """None: there is nothing to decide."""
    namespace: str
    username: str
    new: Object
    old: Object | None
    """None: the object is created."""
    managed: bool
    """Whether its namespace is one in which everything is queued."""


@dataclass(slots=True)
class _Answer:
    patch: list[Object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)


class Reviewer:
    """Reviews objects of the given kinds.

    `own_usernames` are those of Sluice itself, which alone may start what is queued. `queue_exists` (namespace, name)
    answers from memory whether there is such a LocalQueue; None: nobody knows. `rules` name the queue of what has no
    queue label.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        own_usernames: Iterable[str],
        queue_exists: Callable[[str, str], bool] | None = None,
        rules: Iterable[QueueRule] = (),
    ) -> None:
        self._kinds = Kinds(kinds)
        self._by_resource = {(kind.group, kind.plural): kind for kind in self._kinds}
        self._own = frozenset(own_usernames)
        self._queue_exists = queue_exists
        self._rules = tuple(rules)

    def review(self, review: Mapping[str, Any], *, managed: bool = False) -> Object:
        """Gate what is queued, note who submitted it, refuse what can never run. Raises MalformedReview.

        `managed`: in the object's namespace what has no queue label is queued, too.
        """
        try:
            request = self._parse(review, managed=managed)
            answer = self._decide(request, request.kind) if request.kind is not None else _Answer()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedReview(f"the body is no AdmissionReview of a Kubernetes object: {error!r}") from error
        response: Object = {"uid": request.uid, "allowed": not answer.faults}
        if answer.faults:
            response["status"] = _status(answer.faults)
        elif answer.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(answer.patch)).decode()
        if answer.warnings:
            response["warnings"] = answer.warnings
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    def _parse(self, review: Mapping[str, Any], *, managed: bool) -> _Request:
        request = review["request"]
        resource, operation = request["resource"], request["operation"]
        username = request["userInfo"].get("username") or ""
        kind = self._by_resource.get((resource["group"], resource["resource"]))
        deleting = operation == "UPDATE" and "deletionTimestamp" in request["object"]["metadata"]
        # Sluice changes objects but never creates any: what its user creates is somebody's who shares that user.
        ours = operation == "UPDATE" and username in self._own
        # Labels and annotations are writable through the status, too.
        elsewhere = request.get("subResource") not in (None, "", "status")
        if ours or deleting or elsewhere or operation not in {"CREATE", "UPDATE"}:
            kind = None
        return _Request(
            uid=request["uid"],
            kind=kind,
            namespace=request.get("namespace") or "",
            username=username,
            new=request["object"] if kind else {},
            old=request["oldObject"] if kind and operation == "UPDATE" else None,
            managed=managed,
        )

    def _decide(self, request: _Request, kind: Kind) -> _Answer:
        answer = _Answer()
        new, old = request.new, request.old
        is_child = claimed_owner(kind, new, self._kinds) is not None
        if isinstance(kind, DeploymentKind):
            if not is_child:  # what is part of another runs with it
                new = _label_pods(new, old, kind, answer)
                self._judge(new, request, kind, answer)
            return answer
        ruled = first_match(self._rules, kind, request.namespace, *filter(None, (new, old)))
        if ruled is not None:
            new = _keep_queued_by_rule(new, old, kind, answer, *ruled)
        elif request.managed:
            new = _keep_queued(new, old, kind, answer)
        if isinstance(kind, GroupedKind):
            new = _keep_grouped(new, old, kind, request.username, answer)
        elif old is not None and not kind.gate(old):
            was_queued, is_queued = bool(kind.queue_name(old)), bool(kind.queue_name(new))
            if was_queued or is_queued:
                _keep_waiting(new, kind, answer, was_queued=was_queued, is_queued=is_queued, is_child=is_child)
            if is_queued:
                _note_submitter(new, _submitter(old) if was_queued else request.username, answer)
        elif old is not None:
            new = _keep_queue(new, old, kind, answer)
            if kind.queue_name(old):
                _keep_size(new, old, kind, answer)
                _note_submitter(new, _submitter(old), answer)
            elif kind.queue_name(new):  # another controller's until now (`managedBy`), which nobody has charged
                _keep_waiting(new, kind, answer, was_queued=False, is_queued=True, is_child=is_child)
                _note_submitter(new, request.username, answer)
        elif kind.queue_name(new):
            _keep_waiting(new, kind, answer, was_queued=False, is_queued=True, is_child=is_child)
            _note_submitter(new, request.username, answer)
        _note_given(new, request, answer)
        if old is not None and kind.queue_name(old):
            new = _keep_gates(new, old, kind, answer)
        if not answer.faults:
            self._judge(new, request, kind, answer)
        return answer

    def _judge(self, new: Object, request: _Request, kind: Kind, answer: _Answer) -> None:
        """Note what is wrong with the object as it would be stored."""
        old, queue = request.old, kind.queue_name(new)
        if not queue:
            answer.faults = [
                (f"metadata.labels[{label}]", EMPTY_LABEL)
                for label in kind.conventions.queue_labels
                if _labels(new).get(label) == "" and (old is None or _labels(old).get(label) != "")
            ]
            if old is None and not request.managed:
                answer.warnings += _misspelled(new, kind)
            return
        # What was accepted in a queue once must not keep finalizers and labels from being changed for ever.
        known = kind.faults(old) if old is not None and kind.queue_name(old) else []
        answer.faults = [fault for fault in kind.faults(new) if fault not in known]
        arrives = old is None or kind.queue_name(old) != queue
        if arrives and not answer.faults and self._queue_exists and not self._queue_exists(request.namespace, queue):
            answer.warnings.append(
                f'there is no LocalQueue "{queue}" in namespace "{request.namespace}" yet: the {kind.kind} waits for it'
            )


def _misspelled(new: Object, kind: Kind) -> list[str]:
    """Of labels that look as if they should name a queue, and do not."""
    known, like = kind.conventions.queue_labels, queue_like(kind)
    return [
        f"the label {key} of this {kind.kind} names no queue; did you mean {_nearest(key, known)}?"
        for key in _labels(new)
        if key not in known and re.search(like, key)
    ]


def _nearest(key: str, known: Sequence[str]) -> str:
    return next(iter(get_close_matches(key, known, n=1)), known[0])


def _keep_queued_by_rule(
    new: Object, old: Object | None, kind: Kind, answer: _Answer, number: int, rule: QueueRule
) -> Object:
    """What has no queue label is for the queue that it was for, or for that of the rule. The object with its labels."""
    queue, by = rule.queue, f"rule {number} of integrations.rules"
    named = None if queue else next(filter(None, (rule.queue_reference(kind, each) for each in (new, old) if each)))
    if named is not None:
        queue, by = DEFAULT_QUEUE if named.fault else named.queue, named.where
    if old is None and not kind.queue_name(new) and (given := rule.group_labels(kind, _labels(new))):
        answer.patch += [_set("labels", label, value) for label, value in given.items()]
        new = {**new, "metadata": {**new["metadata"], "labels": {**_labels(new), **given}}}
    queued = _keep_queued(new, old, kind, answer, queue=queue, why=f"it is queued by {by}")
    if queued is not new and (old is None or not kind.queue_name(old)):
        if named is not None and named.fault:
            answer.faults.append((named.where, named.fault))
            return queued
        answer.warnings.append(f'it has no queue label, and is queued in LocalQueue "{queue}" by {by}')
    return queued


def _keep_queued(
    new: Object,
    old: Object | None,
    kind: Kind,
    answer: _Answer,
    *,
    queue: str = DEFAULT_QUEUE,
    why: str = "everything in this namespace is queued",
) -> Object:
    """Where everything is queued: what names no queue is for the one that it was for, or for the default one.

    What runs without a queue is for the controller to take in. The object with the labels that it gets.
    """
    if kind.queue_name(new) or (old is not None and kind.gate(old) and not kind.queue_name(old)):
        return new
    had = _labels(old) if old is not None else {}
    kept = {label: had[label] for label in kind.conventions.queue_labels if had.get(label)}
    wanted = kept or {kind.conventions.queue_labels[0]: queue}
    labelled = {**new, "metadata": {**new["metadata"], "labels": {**_labels(new), **wanted}}}
    if not kind.queue_name(labelled):  # it is none of ours, whatever its labels
        return new
    if "labels" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    answer.patch += [_set("labels", label, value) for label, value in wanted.items()]
    if kept:
        answer.warnings.append(f"{why}: the queue label was kept; name another queue instead")
    return labelled


def _keep_waiting(
    new: Object, kind: Kind, answer: _Answer, *, was_queued: bool, is_queued: bool, is_child: bool
) -> None:
    """Gate it; a new object that asks to run at once is the normal case, one that waited was let in by someone.

    `is_child`: it claims an owner that may be queued. If that is true, and the owner may run, the controller starts it.
    """
    gate = kind.gate(new)
    answer.patch += gate
    if gate and is_child and is_queued:
        _annotate(new, START_WITH_OWNER, "true", answer)
    elif gate and not is_queued:
        answer.warnings.append(
            f"a {kind.kind} leaves its queue suspended: it was suspended again; unsuspend it in another request"
        )
    elif gate and was_queued:
        answer.warnings.append(f"only Sluice starts a queued {kind.kind}: it was suspended again and keeps its place")


def _keep_grouped(new: Object, old: Object | None, kind: GroupedKind, username: str, answer: _Answer) -> Object:
    """Have the pods of a new object gated in groups, and keep them so. The object with the labels that it keeps.

    What was there before its kind was queued is left as it is: its pods run.
    """
    if old is None:
        if kind.queue_name(new):
            answer.patch += kind.gate(new)
            _note_submitter(new, username, answer)
        return new
    if not kind.is_gated(old):
        if kind.queue_name(new) and not kind.queue_name(old):
            answer.warnings.append(f"a {kind.kind} is queued from its creation on: delete it, and create it anew")
        return new
    new = _keep_queue(new, old, kind, answer, help_="delete it, and create it in another one")
    if kept := kind.keep_gated(new, old):
        answer.patch += kept
        answer.warnings.append(f"the pods of a queued {kind.kind} stay queued: what its templates say of that was kept")
    _note_submitter(new, _submitter(old), answer)
    return new


def _label_pods(new: Object, old: Object | None, kind: DeploymentKind, answer: _Answer) -> Object:
    """Have its pods queue where it says itself. The object with the labels that it keeps."""
    if old is not None and kind.queue_name(old):
        new = _keep_queued(new, old, kind, answer, why=f"a queued {kind.kind} stays queued until it is deleted")
    answer.patch += kind.label_patch(new, old)
    answer.warnings += [
        f"the pods of this {kind.kind} were given its own label {key}: change that one, not spec.template"
        for key in kind.conflicting_labels(new, old)
    ]
    return new


def _keep_size(new: Object, old: Object, kind: Kind, answer: _Answer) -> None:
    """What runs has quota for the pods that it has; whoever suspends it may change what it asks for."""
    if kind.gate(new):
        patch, warning = kind.limit(new, old)
        answer.patch += patch
        answer.warnings += [warning] if patch else []


def _keep_queue(
    new: Object, old: Object, kind: Kind, answer: _Answer, *, help_: str = "suspend it before you move it"
) -> Object:
    """Whatever runs holds the quota of the queue that it started from. The object with the labels that it keeps."""
    had, has = _labels(old), _labels(new)
    changed = [label for label in kind.conventions.queue_labels if had.get(label) != has.get(label)]
    if not changed:
        return new
    if "labels" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    answer.patch += [_set("labels", label, had.get(label)) for label in changed]
    answer.warnings.append(f"the queue of a running {kind.kind} stays as it is; {help_}")
    labels = {key: value for key, value in has.items() if key not in changed}
    labels |= {key: had[key] for key in changed if key in had}
    return {**new, "metadata": {**new["metadata"], "labels": labels}}


def _note_submitter(new: Object, user: str | None, answer: _Answer) -> None:
    """Write the user down, whatever the request says; None: nobody was ever noted."""
    given = _submitter(new)
    if given == user:
        return
    if given is not None:
        answer.warnings.append(f"only Sluice writes the annotation {SUBMITTED_BY}: the given value was not kept")
    _annotate(new, SUBMITTED_BY, user, answer)


def _keep_gates(new: Object, old: Object, kind: Kind, answer: _Answer) -> Object:
    """Controllers may be taken off those that hold what is queued, and none be added. The object as it is then."""
    key = kind.conventions.gate_annotation
    had, has = (each["metadata"].get("annotations") or {} for each in (old, new))
    if set(gates_of(has, key)) <= set(gates_of(had, key)):
        return new
    _annotate(new, key, had.get(key), answer)
    answer.warnings.append(f"{key} names no further controllers after the creation: it stays as it was")
    kept = {name: value for name, value in has.items() if name != key} | ({key: had[key]} if key in had else {})
    return {**new, "metadata": {**new["metadata"], "annotations": kept}}


def _note_given(new: Object, request: _Request, answer: _Answer) -> None:
    """Write down which labels of the object, as it is to be stored, are from Sluice and not from its user."""
    before = {} if request.old is None else added_labels(request.old)
    if new is request.new and not before:
        return
    has, asked, had = _labels(new), _labels(request.new), {} if request.old is None else _labels(request.old)

    def is_given(key: str) -> bool:
        return key in before if has[key] == had.get(key) else has[key] != asked.get(key)

    note = annotation_value({key: has[key] for key in LABEL_KEYS if key in has and is_given(key)})
    if note and (new["metadata"].get("annotations") or {}).get(ADDED_LABELS) != note:
        _annotate(new, ADDED_LABELS, note, answer)


def _annotate(new: Object, key: str, value: str | None, answer: _Answer) -> None:
    """None: without the annotation."""
    added = {"op": "add", "path": "/metadata/annotations", "value": {}}
    if "annotations" not in new["metadata"] and added not in answer.patch:
        answer.patch.append(added)
    answer.patch.append(_set("annotations", key, value))


def _set(field: str, key: str, value: str | None) -> Object:
    path = pointer("metadata", field, key)
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def _submitter(obj: Object) -> str | None:
    value: str | None = (obj["metadata"].get("annotations") or {}).get(SUBMITTED_BY)
    return value


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _status(faults: list[tuple[str, str]]) -> Object:
    return {
        "code": 422,
        "reason": "Invalid",
        "message": "; ".join(f"{path}: {message}" for path, message in faults),
        "details": {
            "causes": [{"reason": "FieldValueInvalid", "field": path, "message": message} for path, message in faults]
        },
    }
