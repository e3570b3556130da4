"""Decision of the webhook: a function from an AdmissionReview request to its response.

One response gates the object, records the submitting user, and refuses objects that can never run, so that the API
server calls once for each request. It uses neither quota nor the database nor cluster state: equal requests get equal
responses. A change that only Sluice may make is reverted with a warning, never refused: operators and GitOps tools
write these fields in good faith, and a refusal would stop them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.kinds.added_labels import ADDED_LABELS, LABEL_KEYS, added_labels, annotation_value
from admission.kinds.admission_gates import gates_of
from admission.kinds.base import (
    DEFAULT_QUEUE,
    EMPTY_LABEL,
    START_WITH_OWNER,
    SUBMITTED_BY,
    SUBMITTER_GROUPS,
    Kind,
    Object,
)
from admission.kinds.children import claimed_owner
from admission.kinds.patches import pointer
from admission.kinds.registry import Kinds
from admission.kinds.rules import first_match
from admission.model.errors import Misconfigured
from webhooks import messages
from webhooks.errors import MalformedReview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.kinds.deployment import DeploymentKind
    from admission.kinds.grouped import GroupedKind
    from admission.kinds.rules import QueueRule


_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
"""Prefix of the user names of controllers, and of other programs in the cluster."""


_OF_KUBERNETES: Final = "system:"
"""Prefix of groups that are not recorded: everybody is in them, or they say nothing of the person."""
_MOST_GROUPS: Final = 16_384
"""Characters of recorded groups; those beyond are left out."""


class _Submitter(NamedTuple):
    """The values of the annotations that say who has submitted an object; None: it has no such annotation."""

    user: str | None
    groups: str | None


@dataclass(frozen=True, slots=True)
class _Request:
    """The fields of an AdmissionRequest that the decision depends on."""

    uid: str
    kind: Kind | None
    """None: the request is allowed without a decision."""
    namespace: str
    username: str
    submitter: _Submitter
    """Who has sent it, as the annotations are to say."""
    new: Object
    old: Object | None
    """None for a creation."""
    managed: bool
    """Whether the namespace is managed: objects without a queue label are queued, too."""


@dataclass(slots=True)
class _Answer:
    """The response under construction."""

    patch: list[Object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(field path, message) of each reason to refuse the request."""


class Reviewer:
    """Reviews objects of the given kinds.

    `own_usernames` are the user names of Sluice itself; only these users may start queued objects. `queue_exists`
    (namespace, name) returns from memory whether a LocalQueue exists; None: unknown. `rules` name the queue of objects
    without a queue label.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        own_usernames: Iterable[str],
        queue_exists: Callable[[str, str], bool] | None = None,
        rules: Iterable[QueueRule] = (),
        refuses_claims: bool = False,
    ) -> None:
        """`refuses_claims`: objects whose pods have `resourceClaims` wait, as no DeviceClass has a quota."""
        self._kinds = Kinds(kinds)
        self._by_resource = {(kind.group, kind.plural): kind for kind in self._kinds}
        self._own = frozenset(own_usernames)
        self._queue_exists = queue_exists
        self._rules = tuple(rules)
        self._refuses_claims = refuses_claims

    def review(self, review: Mapping[str, Any], *, managed: bool = False) -> Object:
        """Return the AdmissionReview with the response. Raises MalformedReview.

        `managed`: the namespace is managed, and objects without a queue label are queued, too.
        """
        try:
            request = self._parse(review, managed=managed)
            answer = self._answer(request)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedReview(f"the body is not an AdmissionReview of a Kubernetes object: {error!r}") from error
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
        # Sluice creates no objects: those that its user creates belong to another program, and are gated.
        by_sluice = operation == "UPDATE" and username in self._own
        # Labels and annotations can be written through the status subresource, too.
        other_subresource = request.get("subResource") not in (None, "", "status")
        if by_sluice or deleting or other_subresource or operation not in {"CREATE", "UPDATE"}:
            kind = None
        return _Request(
            uid=request["uid"],
            kind=kind,
            namespace=request.get("namespace") or "",
            username=username,
            submitter=_Submitter(username, _groups(request["userInfo"].get("groups") or ())),
            new=request["object"] if kind else {},
            old=request["oldObject"] if kind and operation == "UPDATE" else None,
            managed=managed,
        )

    def _answer(self, request: _Request) -> _Answer:
        """Return the answer; a custom resource with fields of other types than its kind has is refused.

        The API server calls webhooks before it compares an object with the schema of its CustomResourceDefinition.
        """
        if (kind := request.kind) is None:
            return _Answer()
        try:
            return self._decide(request, kind)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            if not kind.is_custom:
                raise
            return _Answer(faults=[("spec", f"has another form than a {kind.kind} has ({error!r})")])

    def _decide(self, request: _Request, kind: Kind) -> _Answer:
        answer = _Answer()
        new, old = request.new, request.old
        is_child = claimed_owner(kind, new, self._kinds) is not None
        if kind.labelling is not None:
            if not is_child:  # a child runs with its owner
                new = _label_pods(new, old, kind.labelling, answer)
                self._validate(new, request, kind, answer)
            return answer
        match = first_match(self._rules, kind, request.namespace, *filter(None, (new, old)))
        if match is not None:
            new = _add_queue_label_by_rule(new, old, kind, answer, *match)
        elif request.managed:
            new = _add_queue_label(new, old, kind, answer)
        if kind.grouping is not None:
            new = _keep_pods_gated(new, old, kind.grouping, request.submitter, answer)
        elif old is not None and not kind.gate(old):
            was_queued, is_queued = bool(kind.queue_name(old)), bool(kind.queue_name(new))
            if was_queued or is_queued:
                _keep_suspended(new, kind, answer, was_queued=was_queued, is_queued=is_queued, is_child=is_child)
            if is_queued:
                _set_submitter(new, _submitter(old) if was_queued else request.submitter, answer)
        elif old is not None:
            new = _keep_queue_label(new, old, kind, answer)
            if kind.queue_name(old):
                _limit_pods(new, old, kind, answer)
                _set_submitter(new, _submitter(old), answer)
            elif kind.queue_name(new):  # it was run by another controller (`managedBy`), and uses no quota yet
                _keep_suspended(new, kind, answer, was_queued=False, is_queued=True, is_child=is_child)
                _set_submitter(new, request.submitter, answer)
        elif kind.queue_name(new):
            _keep_suspended(new, kind, answer, was_queued=False, is_queued=True, is_child=is_child)
            _set_submitter(new, request.submitter, answer)
        _record_injected_labels(new, request, answer)
        if old is not None and kind.queue_name(old):
            new = _keep_admission_gates(new, old, kind, answer)
        if not answer.faults:
            self._validate(new, request, kind, answer)
        return answer

    def _validate(self, new: Object, request: _Request, kind: Kind, answer: _Answer) -> None:
        """Add faults and warnings about the object as it would be stored."""
        old, queue = request.old, kind.queue_name(new)
        if not queue:
            answer.faults = [
                (f"metadata.labels[{label}]", EMPTY_LABEL)
                for label in kind.conventions.queue_labels
                if _labels(new).get(label) == "" and (old is None or _labels(old).get(label) != "")
            ]
            if old is None and not request.managed:
                answer.warnings += messages.misspelled_labels(_labels(new), kind)
            return
        # Faults that a queued object had before do not count: its finalizers and labels must remain changeable.
        known = kind.faults(old) if old is not None and kind.queue_name(old) else []
        answer.faults = [fault for fault in kind.faults(new) if fault not in known]
        if old is not None and request.username.startswith(_SERVICE_ACCOUNT):
            # The kind's controller would repeat its update forever. The object waits, or runs on, with this fault.
            answer.warnings += [f"{path}: {message}" for path, message in answer.faults]
            answer.faults = []
        answer.warnings += kind.cautions(new) if old is None else []
        if self._refuses_claims and old is None and not answer.faults and _has_claims(new, kind):
            answer.warnings.append(messages.devices_without_quota(kind))
        enters_queue = old is None or kind.queue_name(old) != queue
        is_missing = self._queue_exists is not None and not self._queue_exists(request.namespace, queue)
        if enters_queue and not answer.faults and is_missing:
            answer.warnings.append(messages.missing_queue(_labels(new), kind, queue, request.namespace))


def _has_claims(obj: Object, kind: Kind) -> bool:
    try:
        return any((template.get("spec") or {}).get("resourceClaims") for template in kind.templates(obj))
    except Misconfigured:
        return False


def _add_queue_label_by_rule(
    new: Object, old: Object | None, kind: Kind, answer: _Answer, number: int, rule: QueueRule
) -> Object:
    """Add the queue label to an unlabelled object: its former one, or that of the rule; return the labelled object.

    `number` is the position of the rule in `integrations.rules`, from 1.
    """
    queue, source = rule.queue, f"rule {number} of integrations.rules"
    named = None if queue else next(filter(None, (rule.queue_reference(kind, each) for each in (new, old) if each)))
    if named is not None:
        queue, source = DEFAULT_QUEUE if named.fault else named.queue, named.where
    if old is None and not kind.queue_name(new) and (injected := rule.group_labels(kind, _labels(new))):
        answer.patch += [_set("labels", label, value) for label, value in injected.items()]
        new = {**new, "metadata": {**new["metadata"], "labels": {**_labels(new), **injected}}}
    queued = _add_queue_label(new, old, kind, answer, queue=queue, why=f"it is queued by {source}")
    if queued is not new and (old is None or not kind.queue_name(old)):
        if named is not None and named.fault:
            answer.faults.append((named.where, named.fault))
            return queued
        answer.warnings.append(messages.queued_by_rule(kind, queue, source))
    return queued


def _add_queue_label(
    new: Object,
    old: Object | None,
    kind: Kind,
    answer: _Answer,
    *,
    queue: str = DEFAULT_QUEUE,
    why: str = messages.EVERYTHING_IS_QUEUED,
) -> Object:
    """Add the queue label to an unlabelled object: the one that it had, or `queue`; return the labelled object.

    Objects that run without a queue are left to the controller. `why` is the reason in the warning.
    """
    if kind.queue_name(new) or (old is not None and kind.gate(old) and not kind.queue_name(old)):
        return new
    had = _labels(old) if old is not None else {}
    kept = {label: had[label] for label in kind.conventions.queue_labels if had.get(label)}
    wanted = kept or {kind.conventions.queue_labels[0]: queue}
    labelled = {**new, "metadata": {**new["metadata"], "labels": {**_labels(new), **wanted}}}
    if not kind.queue_name(labelled):  # not managed by Sluice, even with a queue label
        return new
    if "labels" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    answer.patch += [_set("labels", label, value) for label, value in wanted.items()]
    if kept:
        answer.warnings.append(messages.label_kept(kept, why))
    return labelled


def _keep_suspended(
    new: Object, kind: Kind, answer: _Answer, *, was_queued: bool, is_queued: bool, is_child: bool
) -> None:
    """Suspend the object; warn if it was queued before, because a user has unsuspended it then.

    New objects are normally unsuspended. `is_child`: the object claims an owner of a queued kind; the controller starts
    it if the claim is true and the owner may run.
    """
    gate = kind.gate(new)
    answer.patch += gate
    if gate and is_child and is_queued:
        _annotate(new, START_WITH_OWNER, "true", answer)
    elif gate and not is_queued:
        answer.warnings.append(messages.still_suspended(kind, gate))
    elif gate and was_queued:
        answer.warnings.append(messages.suspended_again(kind, gate))


def _keep_pods_gated(
    new: Object, old: Object | None, kind: GroupedKind, submitter: _Submitter, answer: _Answer
) -> Object:
    """Gate the pods of a new object as groups, and keep them gated; return the object with the labels that it keeps.

    Objects created before their kind was enabled are left as they are: their pods run.
    """
    if old is None:
        if kind.queue_name(new):
            answer.patch += kind.gate(new)
            _set_submitter(new, submitter, answer)
        return new
    if not kind.is_gated(old):
        if kind.queue_name(new) and not kind.queue_name(old):
            answer.warnings.append(messages.queued_too_late(kind))
        return new
    new = _keep_queue_label(new, old, kind, answer, advice="delete and recreate it")
    if kept := kind.keep_gated(new, old):
        answer.patch += kept
        answer.warnings.append(messages.pods_stay_queued(kind))
    _set_submitter(new, _submitter(old), answer)
    return new


def _label_pods(new: Object, old: Object | None, kind: DeploymentKind, answer: _Answer) -> Object:
    """Copy the queue label of a Deployment to its pod template; return the object with the labels that it keeps."""
    if old is not None and kind.queue_name(old):
        new = _add_queue_label(new, old, kind, answer, why=f"a {kind.kind} stays queued until it is deleted")
    answer.patch += kind.label_patch(new, old)
    answer.warnings += [messages.label_copied(kind, key) for key in kind.conflicting_labels(new, old)]
    return new


def _limit_pods(new: Object, old: Object, kind: Kind, answer: _Answer) -> None:
    """Keep a running object within the pods that it has quota for; a request that suspends it may change them."""
    if kind.scaling is not None and kind.gate(new):
        patch, warning = kind.scaling.limit(new, old)
        answer.patch += patch
        answer.warnings += [warning] if patch else []


def _keep_queue_label(
    new: Object, old: Object, kind: Kind, answer: _Answer, *, advice: str = "suspend it before you move it"
) -> Object:
    """Restore the queue labels of a running object, which holds quota of its queue; return it with these labels."""
    had, has = _labels(old), _labels(new)
    changed = [label for label in kind.conventions.queue_labels if had.get(label) != has.get(label)]
    if not changed:
        return new
    if "labels" not in new["metadata"]:
        answer.patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    answer.patch += [_set("labels", label, had.get(label)) for label in changed]
    answer.warnings.append(messages.queue_kept(kind, changed, advice))
    labels = {key: value for key, value in has.items() if key not in changed}
    labels |= {key: had[key] for key in changed if key in had}
    return {**new, "metadata": {**new["metadata"], "labels": labels}}


def _set_submitter(new: Object, submitter: _Submitter, answer: _Answer) -> None:
    """Set the annotations that say who has submitted the object, whatever their values in the request."""
    for key, requested, value in zip((SUBMITTED_BY, SUBMITTER_GROUPS), _submitter(new), submitter, strict=True):
        if requested == value:
            continue
        if requested is not None:
            answer.warnings.append(messages.submitter_kept(key))
        _annotate(new, key, value, answer)


def _groups(groups: Iterable[str]) -> str | None:
    """Return the value of SUBMITTER_GROUPS for a user with these groups."""
    text = ""
    for group in sorted({each for each in groups if each.strip() and not each.startswith(_OF_KUBERNETES)}):
        if "\n" not in group and len(text) + len(group) < _MOST_GROUPS:
            text += f"\n{group}" if text else group
    return text or None


def _keep_admission_gates(new: Object, old: Object, kind: Kind, answer: _Answer) -> Object:
    """Restore the annotation of admission gates if an update adds controllers to it; return the object with it."""
    key = kind.conventions.gate_annotation
    had, has = (each["metadata"].get("annotations") or {} for each in (old, new))
    if set(gates_of(has, key)) <= set(gates_of(had, key)):
        return new
    _annotate(new, key, had.get(key), answer)
    answer.warnings.append(messages.gates_kept(key))
    kept = {name: value for name, value in has.items() if name != key} | ({key: had[key]} if key in had else {})
    return {**new, "metadata": {**new["metadata"], "annotations": kept}}


def _record_injected_labels(new: Object, request: _Request, answer: _Answer) -> None:
    """Record in the annotation ADDED_LABELS which labels of the object, as stored, were injected by Sluice."""
    before = {} if request.old is None else added_labels(request.old)
    if new is request.new and not before:
        return
    has, requested, had = _labels(new), _labels(request.new), {} if request.old is None else _labels(request.old)

    def is_injected(key: str) -> bool:
        return key in before if has[key] == had.get(key) else has[key] != requested.get(key)

    value = annotation_value({key: has[key] for key in LABEL_KEYS if key in has and is_injected(key)})
    if value and (new["metadata"].get("annotations") or {}).get(ADDED_LABELS) != value:
        _annotate(new, ADDED_LABELS, value, answer)


def _annotate(new: Object, key: str, value: str | None, answer: _Answer) -> None:
    """Set an annotation, or remove it if the value is None."""
    added = {"op": "add", "path": "/metadata/annotations", "value": {}}
    if "annotations" not in new["metadata"] and added not in answer.patch:
        answer.patch.append(added)
    answer.patch.append(_set("annotations", key, value))


def _set(field: str, key: str, value: str | None) -> Object:
    """Return the JSON patch operation that sets a label or annotation, or removes it if the value is None."""
    path = pointer("metadata", field, key)
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def _submitter(obj: Object) -> _Submitter:
    annotations = obj["metadata"].get("annotations") or {}
    return _Submitter(annotations.get(SUBMITTED_BY), annotations.get(SUBMITTER_GROUPS))


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _status(faults: list[tuple[str, str]]) -> Object:
    """Return the Status of a refusal, as the API server builds it for an invalid object."""
    return {
        "code": 422,
        "reason": "Invalid",
        "message": "; ".join(f"{path}: {message}" for path, message in faults),
        "details": {
            "causes": [{"reason": "FieldValueInvalid", "field": path, "message": message} for path, message in faults]
        },
    }
