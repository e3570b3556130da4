"""The decisions of the webhooks, as functions from an AdmissionReview to an AdmissionReview.

They gate and they note who asked; they know no quota, no database and no cluster state, so that the same request always
gets the same answer. Where a user tries what only Sluice may do, the attempt is undone and answered with a warning,
never refused: operators and GitOps tools write these fields in good faith, and a refusal would stop them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from admission.kinds.base import SUBMITTED_BY, Kind, Object
from admission.kinds.patches import pointer
from webhooks.errors import MalformedReview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


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


@dataclass(slots=True)
class _Answer:
    patch: list[Object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)


class Reviewer:
    """Reviews objects of the given kinds.

    `own_usernames` are those of Sluice itself, which alone may start what is queued. `queue_exists` (namespace, name)
    answers from memory whether there is such a LocalQueue; None: nobody knows.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        own_usernames: Iterable[str],
        queue_exists: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._kinds = {(kind.group, kind.plural): kind for kind in kinds}
        self._own = frozenset(own_usernames)
        self._queue_exists = queue_exists

    def mutate(self, review: Mapping[str, Any]) -> Object:
        """Gate what is queued and note who submitted it. Raises MalformedReview."""
        return self._answer(review, self._mutate)

    def validate(self, review: Mapping[str, Any]) -> Object:
        """Refuse what can never run, with the path of each fault. Raises MalformedReview."""
        return self._answer(review, self._validate)

    def _answer(self, review: Mapping[str, Any], decide: Callable[[_Request, Kind], _Answer]) -> Object:
        try:
            request = self._parse(review)
            answer = decide(request, request.kind) if request.kind is not None else _Answer()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedReview(f"the body is no AdmissionReview of a Kubernetes object: {error!r}") from error
        response: Object = {"uid": request.uid, "allowed": not answer.faults}
        if answer.faults:
            response["status"] = _status(answer.faults)
        if answer.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(answer.patch)).decode()
        if answer.warnings:
            response["warnings"] = answer.warnings
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    def _parse(self, review: Mapping[str, Any]) -> _Request:
        request = review["request"]
        resource, operation = request["resource"], request["operation"]
        username = request["userInfo"].get("username") or ""
        kind = self._kinds.get((resource["group"], resource["resource"]))
        # Sluice changes objects but never creates any: what its user creates is somebody's who shares that user.
        ours = operation == "UPDATE" and username in self._own
        if ours or request.get("subResource") or operation not in {"CREATE", "UPDATE"}:
            kind = None
        return _Request(
            uid=request["uid"],
            kind=kind,
            namespace=request.get("namespace") or "",
            username=username,
            new=request["object"] if kind else {},
            old=request["oldObject"] if kind and operation == "UPDATE" else None,
        )

    def _mutate(self, request: _Request, kind: Kind) -> _Answer:
        answer = _Answer()
        new, old = request.new, request.old
        if old is not None and not kind.gate(old):
            was_queued = bool(kind.queue_name(old))
            if kind.queue_name(new):
                _keep_waiting(new, kind, answer, warn=was_queued)
                _note_submitter(new, _submitter(old) if was_queued else request.username, answer)
        elif old is not None:
            _keep_queue(new, old, kind, answer)
            if kind.queue_name(old):
                _note_submitter(new, _submitter(old), answer)
        elif kind.queue_name(new):
            _keep_waiting(new, kind, answer, warn=False)
            _note_submitter(new, request.username, answer)
        return answer

    def _validate(self, request: _Request, kind: Kind) -> _Answer:
        answer = _Answer()
        new, old = request.new, request.old
        queue = kind.queue_name(new)
        if not queue or "deletionTimestamp" in new["metadata"]:
            return answer
        # What was accepted once must not keep finalizers and labels from being changed for ever.
        known = kind.faults(old) if old is not None else []
        answer.faults = [fault for fault in kind.faults(new) if fault not in known]
        arrives = old is None or kind.queue_name(old) != queue
        if arrives and self._queue_exists is not None and not self._queue_exists(request.namespace, queue):
            answer.warnings.append(
                f'there is no LocalQueue "{queue}" in namespace "{request.namespace}" yet: the {kind.kind} waits for it'
            )
        return answer


def _keep_waiting(new: Object, kind: Kind, answer: _Answer, *, warn: bool) -> None:
    """Gate it; a new object that asks to run at once is the normal case, one that waited was let in by someone."""
    gate = kind.gate(new)
    answer.patch += gate
    if gate and warn:
        answer.warnings.append(f"only Sluice starts a queued {kind.kind}: it was suspended again and keeps its place")


def _keep_queue(new: Object, old: Object, kind: Kind, answer: _Answer) -> None:
    """Whatever runs holds the quota of the queue that it started from."""
    had, has = _labels(old), _labels(new)
    changed = [label for label in kind.conventions.queue_labels if had.get(label) != has.get(label)]
    if not changed:
        return
    if "labels" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    answer.patch += [_set("labels", label, had.get(label)) for label in changed]
    answer.warnings.append(f"the queue of a running {kind.kind} stays as it is; suspend it before you move it")


def _note_submitter(new: Object, user: str | None, answer: _Answer) -> None:
    """Write the user down, whatever the request says; None: nobody was ever noted."""
    given = _submitter(new)
    if given == user:
        return
    if given is not None:
        answer.warnings.append(f"only Sluice writes the annotation {SUBMITTED_BY}: the given value was not kept")
    if "annotations" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    answer.patch.append(_set("annotations", SUBMITTED_BY, user))


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
