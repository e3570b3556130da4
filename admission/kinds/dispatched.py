"""Objects that run as a copy in another cluster: the copy, what shows that it is one, and what its object shows of it.

Pure functions. The object itself must not run. Either the field by which a kind names another controller (`managedBy`)
says that it is dispatched: the controllers of its own cluster then leave it alone, it is unsuspended while its copy
runs, and has the status of that. Or it stays gated, an annotation says while its copy runs (`RUNS_IN`), and it gets the
last status of the copy. A copy names its origin by a label and an annotation, which others can write, too: only the
signature in it tells whether Sluice has made it.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.apimachinery.patches import json_patch
from admission.kinds import paths, ray
from admission.kinds.base import DISPATCHED, MANAGED, RENDERED, SUBMITTED_BY, WORKLOAD_UID
from admission.kinds.grouping import STARTED_WITH
from admission.kinds.patches import additions, annotated, pointer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Kind, Object, Observed, PodCount

ORIGIN: Final = "sluice.dev/origin"
"""Label of a copy: the uid of the object that it is a copy of."""
GROUP: Final = "sluice.dev/origin-group"
"""Label of a copy of a pod in a group: the uid of the group."""
ADMISSION: Final = "sluice.dev/origin-admission"
"""Annotation of a copy: the admission that it was made for, and its signature."""
RUNS_IN: Final = "sluice.dev/runs-in"
"""Annotation of a gated object: the cluster in which its copy runs."""
COPY: Final = "sluice.dev/copy"
"""Annotation of an object whose copy has begun to run: the uid of that, signed."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TTL: Final = "ttlSecondsAfterFinished"
"""Field that has a finished object deleted: a copy stays until its outcome is recorded, and ends with its object."""
_CONTENT: Final = ("type", "data", "binaryData")
"""Fields of a ConfigMap or Secret that are copied along. It may be changed later, so `immutable` is not."""


class Origin(NamedTuple):
    """What a copy was made for."""

    uid: str
    """Uid of the object that it is a copy of."""
    attempt: int
    """Its admission, which tells a copy from those of former admissions: when it began (Unix time, microseconds)."""
    group: str = ""
    """Uid of its pod group, which that admission is of; empty: it is in none."""

    @property
    def workload(self) -> str:
        """Uid of the workload that it is a copy for."""
        return self.group or self.uid


def attempt_of(admitted_at: float) -> int:
    """Return the number of the admission that began at this time (Unix time, s), as the database stores it."""
    return round(admitted_at * 1_000_000)


def copy_of(kind: Kind, obj: Object, start: Sequence[Object], origin: Origin, *, api_version: str, key: str) -> Object:
    """Return the copy of an object to be created: started, and without anything that belongs to its own cluster.

    `start`: the JSON patch that would start the object. `api_version`: of the copy. `key`: signs it.
    Raises PatchFailed.
    """
    started = _patched(obj, start)
    if kind.observe(started).suspended:  # kinds that are started by two requests
        started = _patched(started, kind.resume_patch(started))
    metadata, conventions = started["metadata"], kind.conventions
    own = {*conventions.queue_labels, *conventions.priority_labels, *conventions.time_labels, MANAGED, ORIGIN, GROUP}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in own}
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name not in (_LAST_APPLIED, SUBMITTED_BY, RUNS_IN, COPY)
    }
    namespace, name = metadata["namespace"], metadata["name"]
    own_labels, own_annotations = _marks(kind, key, namespace, name, origin)
    copy: Object = {
        "apiVersion": api_version,
        "kind": kind.kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {**labels, **own_labels},
            "annotations": {**annotations, **own_annotations},
        },
        "spec": _without(kind.copied_spec(started["spec"]), kind.manager[0][1:]),
    }
    spec = copy["spec"]
    for holder in (spec, spec.get("runPolicy")):
        if isinstance(holder, dict):
            holder.pop(_TTL, None)
    return copy


def _marks(kind: Kind, key: str, namespace: str, name: str, origin: Origin) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations by which a copy is watched, and known as one."""
    labels = {ORIGIN: origin.uid, **({GROUP: origin.group} if origin.group else {})}
    watched = {kind.watched_label: "true"} if kind.watched_label else {}
    if not kind.pods_label:  # it is a pod itself
        labels[WORKLOAD_UID] = origin.workload
    signature = _signed(key, (kind.group, kind.kind), namespace, name, origin)
    return {**watched, **labels}, {ADMISSION: signature}


def _patched(obj: Object, patch: Sequence[Object]) -> Object:
    """Return an object with a JSON patch applied, whatever that tests."""
    result: Object = json_patch(obj, [operation for operation in patch if operation["op"] != "test"])
    return result


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


def along_of(kind: str, source: Object, owner: Mapping[str, str], key: str) -> Object:
    """Return the copy of a ConfigMap or Secret to be created beside the copy that needs it, its `owner`.

    Of the source it has the content only: labels and annotations may mean something in the other cluster.
    """
    metadata = source["metadata"]
    namespace, name, origin = metadata["namespace"], metadata["name"], Origin(metadata["uid"], 0)
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {ORIGIN: origin.uid},
            "annotations": {ADMISSION: _signed(key, ("", kind), namespace, name, origin)},
            "ownerReferences": [dict(owner)],
        },
        **{field: source[field] for field in _CONTENT if source.get(field)},
    }


def along_patch(present: Object, wanted: Object) -> list[Object]:
    """Return the JSON patch after which an object that was copied along has the wanted content and owner, too."""
    metadata, to = present["metadata"], wanted["metadata"]
    references: list[Object] = list(metadata.get("ownerReferences") or ())
    known = {reference["uid"] for reference in references}
    references += [reference for reference in to["ownerReferences"] if reference["uid"] not in known]
    values: Object = {f"/{field}": wanted.get(field) for field in _CONTENT if field != "type"}
    before: Object = {f"/{field}": present.get(field) for field in _CONTENT if field != "type"}
    for path in ("labels", "annotations"):
        values[f"/metadata/{path}"] = {**(metadata.get(path) or {}), **to[path]}
        before[f"/metadata/{path}"] = metadata.get(path)
    values["/metadata/ownerReferences"] = references
    before["/metadata/ownerReferences"] = metadata.get("ownerReferences")
    changed = [
        {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
        for path, value in values.items()
        if (value or None) != (before[path] or None)
    ]
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
    return [_same(present), unchanged, *changed] if changed else []


def is_along(kind: str, obj: Object, key: str) -> bool:
    """Whether Sluice has made a ConfigMap or Secret by `along_of`, whatever its labels say."""
    return _origin(("", kind), obj, key) is not None


def _signed(key: str, kind: tuple[str, str], namespace: str, name: str, origin: Origin) -> str:
    """Return the value of the annotation `ADMISSION`. `kind`: API group and kind."""
    group = (origin.group,) if origin.group else ()
    text = "\n".join((*kind, namespace, name, origin.uid, str(origin.attempt), *group))
    return f"{origin.attempt}.{hmac.digest(key.encode(), text.encode(), 'sha256').hex()}"


def copy_note(kind: Kind, key: str, name: str, origin: Origin, uid: str) -> str:
    """Return the value of the annotation `COPY`. `name`: namespace/name. `origin`, `uid`: of the copy."""
    text = "\n".join(("copy", kind.group, kind.kind, name, origin.uid, str(origin.attempt), uid))
    return f"{uid}.{hmac.digest(key.encode(), text.encode(), 'sha256').hex()}"


def noted_copy(obj: Object) -> str:
    """Return what an object says of its copy; empty: nothing. Others can write that, too."""
    return str((obj["metadata"].get("annotations") or {}).get(COPY) or "")


def is_noted(note: str, kind: Kind, key: str, name: str, origin: Origin, uid: str) -> bool:
    """Whether Sluice has noted the object of this uid as the copy. The other arguments are those of `copy_note`."""
    return hmac.compare_digest(note.encode(), copy_note(kind, key, name, origin, uid).encode())


def took_its_place(note: str, kind: Kind, key: str, name: str, origin: Origin, uid: str) -> bool:
    """Whether Sluice has noted another copy than the object of this uid, which has the signature of that.

    The other arguments are those of `copy_note`.
    """
    noted = note.partition(".")[0]
    return bool(noted) and noted != uid and is_noted(note, kind, key, name, origin, noted)


def origin_of(kind: Kind, obj: Object, key: str) -> Origin | None:
    """Return what an object is a copy for; None: Sluice has not made it, whatever its labels say.

    `key`: with which copies in its cluster are signed.
    """
    return _origin((kind.group, kind.kind), obj, key)


def _origin(kind: tuple[str, str], obj: Object, key: str) -> Origin | None:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    uid = labels.get(ORIGIN)
    if not uid or not key:
        return None
    signed = str((metadata.get("annotations") or {}).get(ADMISSION) or "")
    number = signed.partition(".")[0]
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        return None
    origin = Origin(str(uid), int(number), str(labels.get(GROUP) or ""))
    expected = _signed(key, kind, metadata.get("namespace") or "", metadata["name"], origin)
    return origin if hmac.compare_digest(expected.encode(), signed.encode()) else None


def is_dispatched(kind: Kind, obj: Object) -> bool:
    """Whether an object says by its field that it is run by a copy of it in another cluster."""
    path = kind.manager[0]
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value in DISPATCHED


def autoscaler(obj: Object) -> str:
    """Return the path of the field for which an object gets more pods by itself while it runs; empty: it does not.

    In another cluster nobody would have these pods wait for quota.
    """
    components = paths.at(obj, ("spec", "components"))
    for number, component in enumerate(components if isinstance(components, list) else ()):  # of an AppWrapper
        if found := _autoscaler(paths.at(component, ("template",))):
            return f"spec.components[{number}].template.{found}"
    return _autoscaler(obj)


def _autoscaler(obj: Any) -> str:
    if not isinstance(obj, dict):
        return ""
    metrics = ("spec", "elasticPolicy", "metrics")
    is_elastic = str(obj.get("apiVersion")).startswith("kubeflow.org/") and bool(paths.at(obj, metrics))
    return ".".join(metrics) if is_elastic else ray.autoscaler(obj)


def runs_in(obj: Object) -> str:
    """Return the cluster in which the copy of a gated object runs; empty: none does."""
    return str((obj["metadata"].get("annotations") or {}).get(RUNS_IN) or "")


def without_status(kind: Kind, obj: Object) -> Object:
    """Return an object as it asks for pods: each copy of a dispatched one begins anew, whatever its status says."""
    return {**obj, "status": {}} if is_dispatched(kind, obj) else obj


def own_state(kind: Kind, obj: Object) -> Observed:
    """Return the state of an object by its own fields; it is suspended until the second write of its start."""
    seen = kind.observe(obj)
    return seen if is_dispatched(kind, obj) else replace(seen, suspended=not runs_in(obj))


def is_stray(kind: Kind, obj: Object) -> bool:
    """Whether others have ungated an object that is to stay gated while its copy runs."""
    if is_dispatched(kind, obj) or not kind.gate(obj):
        return False
    seen = kind.observe(obj)
    return not seen.suspended and seen.finished is None and not seen.deleting


def observed(kind: Kind, obj: Object, seen: Observed, copy: Observed | None, *, certain: bool) -> Observed:
    """Return the state of an object that has a copy, or is to get one, as that of its copy.

    Its own status says only whether it has finished, and if it stays gated, whether pods of it are in its own cluster.
    `seen`: as observed by its own fields. `copy`: its copy, as last seen; None: there is none. `certain`: whether that
    is known; if not, it may run.
    """
    says_so = is_dispatched(kind, obj)
    plain = replace(kind.observe(without_status(kind, obj)), is_dispatched=says_so)
    if copy is not None:
        return replace(
            plain,
            suspended=False,
            active=copy.finished is None or copy.active or copy.deleting,
            started=True,
            counts=_counts(plain, copy),
            ready=copy.ready,
            finished=None if copy.finished is None else seen.finished,
        )
    if certain:
        suspended = plain.suspended and (says_so or not runs_in(obj))
        active = not says_so and (seen.active or (kind.shows_copies and bool(status_patch(kind, obj, None))))
        return replace(plain, suspended=suspended, active=active, started=False, finished=seen.finished)
    return replace(plain, suspended=False, active=True, started=True, counts=(), finished=seen.finished)


def _counts(own: Observed, copy: Observed) -> tuple[PodCount, ...]:
    """Return the counts of a copy, and where its object asks for more that can still run, that number as a scale-up."""
    asked = {count.name: max(count.wanted, count.scale_up) for count in own.counts}

    def more(count: PodCount) -> int:
        wanted = asked.get(count.name, 0)
        return min(wanted, count.left) if own.kind.reports_pods and count.left is not None else wanted

    return tuple(count._replace(scale_up=more(count) if more(count) > count.wanted else 0) for count in copy.counts)


def marks_patch(kind: Kind, copy: Object, origin: Origin, key: str) -> list[Object]:
    """Return the JSON patch that gives a copy what shows that it is one, and the label by which its kind is watched."""
    metadata = copy["metadata"]
    labels, annotations = _marks(kind, key, metadata["namespace"], metadata["name"], origin)
    return [_same(copy), *additions(metadata, {"labels": labels, "annotations": annotations}, "/metadata")]


def begin_patch(kind: Kind, obj: Object, cluster: str, note: str, group: str) -> list[Object]:
    """Return the JSON patch of an object whose copy has begun to run in a cluster.

    `note`: see `copy_note`. `group`: uid of its pod group; empty: it is in none.
    """
    if is_dispatched(kind, obj):
        return [*kind.resume_patch(obj), *annotated(obj, {COPY: note})]
    return [_same(obj), *annotated(obj, {RUNS_IN: cluster, COPY: note, **({STARTED_WITH: group} if group else {})})]


def end_patch(kind: Kind, obj: Object) -> list[Object]:
    """Return the JSON patch of an object whose copy does not run any more: it is gated, and says so."""
    stop = kind.suspension.stop_patch(obj) if kind.suspension is not None and kind.gate(obj) else []
    annotations = obj["metadata"].get("annotations") or {}
    present = [name for name in (RUNS_IN, COPY, STARTED_WITH) if name in annotations]
    removals = [{"op": "remove", "path": pointer("metadata", "annotations", name)} for name in present]
    return [_same(obj), *stop, *removals]


def status_patch(kind: Kind, obj: Object, copy: Object | None) -> list[Object]:
    """Return the JSON patch of the status of a dispatched object, so that it is that of its copy; empty: it is.

    Without a copy it is that of an object which is suspended. One that stays gated gets the last status only, unless
    its kind `shows_copies`; if it is rendered by a child, the patch is for that.
    """
    status = obj.get("status") or {}
    if is_dispatched(kind, obj):
        # No controller says of one that has never run that it is suspended: kubectl would show a Job as Running.
        if copy is None and status and not status.get("startTime") and not status.get("active"):
            return []
    elif kind.shows_copies:
        pass
    elif copy is None or kind.observe(copy).finished is None or kind.observe(obj).finished is not None:
        return []
    elif kind.rendered_by is not None:
        wanted = kind.copied_status({}, copy.get("status") or {})
        return [_test_uid(obj[RENDERED]["uid"]), {"op": "add", "path": "/status", "value": wanted}]
    wanted = kind.copied_status(status, None if copy is None else copy.get("status") or {})
    if wanted == status:
        return []
    return [_same(obj), {"op": "add", "path": "/status", "value": wanted}]


def _same(obj: Object) -> Object:
    return _test_uid(obj["metadata"]["uid"])


def _test_uid(uid: str) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": uid}
