"""Objects that run as a copy in another cluster: the copy, what shows that it is one, and what its object shows of it.

Pure functions. An object is dispatched if the field by which a kind names another controller (`managedBy`) says so: the
controllers of its own cluster then leave it alone, and Sluice alone writes its status. A copy names its origin by a
label and an annotation, which others can write, too: only the signature in it tells whether Sluice has made it.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.apimachinery.patches import json_patch
from admission.kinds.base import DISPATCHED, MANAGED, SUBMITTED_BY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Kind, Object, Observed

ORIGIN: Final = "sluice.dev/origin"
"""Label of a copy: the uid of the object that it is a copy of."""
ADMISSION: Final = "sluice.dev/origin-admission"
"""Annotation of a copy: the admission that it was made for, and its signature."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TTL: Final = "ttlSecondsAfterFinished"
"""Field that has a finished object deleted: a copy stays until its outcome is recorded, and ends with its object."""
_GENERATED: Final = ("controller-uid", "job-name")
"""Labels, with and without prefix, that the API server gives the pods of each Job."""


class Origin(NamedTuple):
    """What a copy was made for."""

    uid: str
    """Uid of the object that it is a copy of."""
    attempt: int
    """Its admission, which tells a copy from those of former admissions: when it began (Unix time, microseconds)."""


def attempt_of(admitted_at: float) -> int:
    """Return the number of the admission that began at this time (Unix time, s), as the database stores it."""
    return round(admitted_at * 1_000_000)


def copy_of(kind: Kind, obj: Object, start: Sequence[Object], origin: Origin, *, api_version: str, key: str) -> Object:
    """Return the copy of an object to be created: started, and without anything that belongs to its own cluster.

    `start`: the JSON patch that would start the object. `api_version`: of the copy. `key`: signs it.
    Raises PatchFailed.
    """
    started = json_patch(obj, [operation for operation in start if operation["op"] != "test"])
    metadata, conventions = obj["metadata"], kind.conventions
    own = {*conventions.queue_labels, *conventions.priority_labels, *conventions.time_labels, MANAGED, ORIGIN}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in own}
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name not in (_LAST_APPLIED, SUBMITTED_BY)
    }
    namespace, name = metadata["namespace"], metadata["name"]
    annotations[ADMISSION] = f"{origin.attempt}.{_signature(key, kind, namespace, name, origin)}"
    copy: Object = {
        "apiVersion": api_version,
        "kind": kind.kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {**labels, ORIGIN: origin.uid},
            "annotations": annotations,
        },
        "spec": _without(started["spec"], kind.manager[0][1:]),
    }
    spec = copy["spec"]
    for holder in (spec, spec.get("runPolicy")):
        if isinstance(holder, dict):
            holder.pop(_TTL, None)
    if (kind.group, kind.kind) == ("batch", "Job") and not spec.get("manualSelector"):
        _remove_generated(spec)
    return copy


def _without(value: Any, path: Sequence[str]) -> Any:
    """Return a copy of the containers along a path without the value that it leads to."""
    if not isinstance(value, dict) or not path:
        return value
    result = {name: dict(inner) if name == "runPolicy" else inner for name, inner in value.items()}
    if len(path) == 1:
        result.pop(path[0], None)
    elif path[0] in result:
        result[path[0]] = _without(result[path[0]], path[1:])
    return result


def _remove_generated(spec: Object) -> None:
    """Remove the selector of a Job and the labels of its pods, which are those of one uid."""
    spec.pop("selector", None)
    template = spec["template"]
    metadata = template.get("metadata") or {}
    own = {f"{prefix}{name}" for name in _GENERATED for prefix in ("", "batch.kubernetes.io/")}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in own}
    spec["template"] = {**template, "metadata": {**metadata, "labels": labels}}


def _signature(key: str, kind: Kind, namespace: str, name: str, origin: Origin) -> str:
    text = "\n".join((kind.group, kind.kind, namespace, name, origin.uid, str(origin.attempt)))
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def origin_of(kind: Kind, obj: Object, key: str) -> Origin | None:
    """Return what an object is a copy for; None: Sluice has not made it, whatever its labels say.

    `key`: with which copies in its cluster are signed.
    """
    metadata = obj["metadata"]
    uid = (metadata.get("labels") or {}).get(ORIGIN)
    if not uid or not key:
        return None
    number, _, signature = str((metadata.get("annotations") or {}).get(ADMISSION) or "").partition(".")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        return None
    origin = Origin(str(uid), int(number))
    expected = _signature(key, kind, metadata.get("namespace") or "", metadata["name"], origin)
    return origin if hmac.compare_digest(expected.encode(), signature.encode()) else None


def is_dispatched(kind: Kind, obj: Object) -> bool:
    """Whether an object is run by a copy of it in another cluster."""
    path = kind.manager[0]
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value in DISPATCHED


def without_status(kind: Kind, obj: Object) -> Object:
    """Return an object as it asks for pods: each copy of a dispatched one begins anew, whatever its status says."""
    return {**obj, "status": {}} if is_dispatched(kind, obj) else obj


def observed(kind: Kind, obj: Object, seen: Observed, copy: Observed | None, *, certain: bool) -> Observed:
    """Return the state of a dispatched object as that of its copy. Its own status says only whether it has finished.

    `seen`: as observed by its own fields. `copy`: its copy, as last seen; None: there is none. `certain`: whether that
    is known; if not, it may run.
    """
    plain = kind.observe(without_status(kind, obj))
    if copy is not None:
        return replace(
            plain,
            suspended=False,
            active=copy.finished is None or copy.active or copy.deleting,
            started=True,
            counts=copy.counts,
            ready=copy.ready,
            finished=None if copy.finished is None else seen.finished,
            is_dispatched=True,
        )
    if certain:
        return replace(plain, active=False, started=False, finished=seen.finished, is_dispatched=True)
    return replace(plain, suspended=False, active=True, started=True, finished=seen.finished, is_dispatched=True)


def status_patch(kind: Kind, obj: Object, copy: Object | None) -> list[Object]:
    """Return the JSON patch of the status of a dispatched object, so that it is that of its copy; empty: it is.

    Without a copy it is that of an object which is suspended.
    """
    status = obj.get("status") or {}
    is_job = (kind.group, kind.kind) == ("batch", "Job")
    if copy is not None:
        wanted = dict(copy.get("status") or {})
    elif not status.get("startTime") and not status.get("active"):
        return []
    else:
        wanted = {"conditions": [_suspended(status)]} if is_job else {}
    if is_job:  # the API server accepts no lower numbers than before
        for name in ("succeeded", "failed"):
            if most := max(wanted.get(name) or 0, status.get(name) or 0):
                wanted[name] = most
    if wanted == status:
        return []
    tests = [{"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}]
    return [*tests, {"op": "add", "path": "/status", "value": wanted}]


def _suspended(status: Mapping[str, Any]) -> Object:
    conditions = status.get("conditions") or ()
    known: Mapping[str, Any] = next((each for each in conditions if each.get("type") == "Suspended"), {})
    return {**known, "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
