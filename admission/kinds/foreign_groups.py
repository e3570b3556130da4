"""Pod groups of other systems: what a pod declares about its group, and the object that gives the group's size.

Labels and annotations of other systems are read if the configuration names them; the PodGroup of Kubernetes always is.
Unlike with Kueue, the number is a minimum that has to start together: further pods may come, and each queues by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.kinds.common import NOTHING
from admission.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.kinds.base import Object

_GANG: Final = "gang.scheduling.koordinator.sh/"
_LIGHT: Final = "pod-group.scheduling.sigs.k8s.io"
_YUNIKORN: Final = "yunikorn.apache.org/"
TASK_GROUPS: Final = f"{_YUNIKORN}task-groups"
_TASK_GROUP: Final = f"{_YUNIKORN}task-group-name"
NATIVE: Final = "scheduling.k8s.io"
POD_GROUP: Final = "PodGroup"
COMPOSITE: Final = "CompositePodGroup"
_MAX_PODS: Final = 99_999
"""Number of pods of a group at most."""


class GroupSize(NamedTuple):
    """Reference to the object that gives the number of pods that a group needs."""

    group: str
    kind: str
    name: str
    part: str = ""
    """Name of the part of the object that the group is, for objects with several groups; else empty."""


class Declared(NamedTuple):
    """What a pod declares about its group."""

    name: str
    needed: int
    """Number of pods that have to start together; 0: the pod does not give it."""
    size: GroupSize | None
    """The object that gives the number; None: the pods do."""

    @property
    def leaf(self) -> str:
        """Name of the PodGroup of `scheduling.k8s.io`, which may be in a CompositePodGroup; empty: it is none."""
        return self.size.name if self.size is not None and self.size[:2] == (NATIVE, POD_GROUP) else ""


@dataclass(frozen=True, slots=True)
class _Form:
    """Where the number of pods is found, for one label or annotation that names a group."""

    numbers: tuple[str, ...] = ()
    """Labels or annotations with the number of pods; the first one that is set applies."""
    size_kind: tuple[str, str] | None = None
    """API group and kind of the object that has the number, and the group's name."""


FOREIGN: Final[Mapping[str, _Form]] = {
    f"{_GANG}name": _Form((f"{_GANG}total-number", f"{_GANG}min-available")),
    f"{_LIGHT}/name": _Form((f"{_LIGHT}/min-available",)),
    _LIGHT: _Form(size_kind=("scheduling.sigs.k8s.io", POD_GROUP)),
    "scheduling.x-k8s.io/pod-group": _Form(size_kind=("scheduling.x-k8s.io", POD_GROUP)),
    "scheduling.k8s.io/group-name": _Form(size_kind=("scheduling.volcano.sh", POD_GROUP)),
    f"{_YUNIKORN}app-id": _Form(),
    "applicationId": _Form(),
}
"""By the label or annotation that names a group, of Koordinator, scheduler-plugins, Volcano and YuniKorn."""


def declared(pod: Object, keys: Iterable[str]) -> Declared | None:
    """Return a pod's group by the first of these `keys` that it has, else by its spec; None: it is in none."""
    for key in keys:
        if not (name := _value(pod, key)):
            continue
        form = FOREIGN[key]
        if form.size_kind is not None:
            return Declared(name, 0, GroupSize(*form.size_kind, name))
        if form.numbers:
            value = next(filter(None, (_value(pod, number) for number in form.numbers)), "")
            return Declared(name, number_of_pods(value), None)
        # Without task groups a YuniKorn application is not a gang: its pods start one by one.
        if _value(pod, TASK_GROUPS) or _value(pod, _TASK_GROUP):
            return Declared(name, _of_task_groups(pod), None)
    return _native(pod["spec"])


def declared_faults(pod: Object, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return (field path, message) of each error in what a pod declares about its group."""
    for key in keys:
        if not (name := _value(pod, key)):
            continue
        if not names.is_dns_subdomain(name):
            yield _path(pod, key), 'is no name: use lower-case letters, digits, "-" and "."'
        form = FOREIGN[key]
        if form.numbers and declared(pod, (key,)) == Declared(name, 0, None):
            where = next((number for number in form.numbers if _value(pod, number)), form.numbers[-1])
            yield _path(pod, where), "must say how many pods start together, from 1 to 99999"
        if not (form.numbers or form.size_kind) and _value(pod, TASK_GROUPS) and not _of_task_groups(pod):
            yield _path(pod, TASK_GROUPS), "must be a JSON list of task groups, each with its minMember"
        return


def _native(spec: Mapping[str, Any]) -> Declared | None:
    """Return the group in the pod's spec: `schedulingGroup`, or `workloadRef` of Kubernetes 1.35."""
    if name := (spec.get("schedulingGroup") or NOTHING).get("podGroupName"):
        return Declared(name, 0, GroupSize(NATIVE, POD_GROUP, name))
    if (of := spec.get("workloadRef")) and of.get("name") and of.get("podGroup"):
        parts = [of["name"], of["podGroup"], of.get("podGroupReplicaKey") or ""]
        return Declared("-".join(filter(None, parts)), 0, GroupSize(NATIVE, "Workload", of["name"], of["podGroup"]))
    return None


def _value(pod: Object, key: str) -> str:
    metadata = pod["metadata"]
    for values in (metadata.get("labels"), metadata.get("annotations")):
        if values and values.get(key):
            return str(values[key])
    return ""


def _path(pod: Object, key: str) -> str:
    """Return the field path of a label or annotation; of a missing one, where its system would have it."""
    metadata = pod["metadata"]
    is_label = key in (metadata.get("labels") or NOTHING)
    is_annotation = key in (metadata.get("annotations") or NOTHING)
    in_labels = is_label or (not is_annotation and key.startswith(_LIGHT))
    return f"metadata.{'labels' if in_labels else 'annotations'}[{key}]"


def number_of_pods(value: object) -> int:
    """Return a number of pods from an integer or its text; 0: it is not a valid one."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < 6 else 0
    return value if isinstance(value, int) and 0 < value <= _MAX_PODS else 0


def _of_task_groups(pod: Object) -> int:
    """Return the number of pods of all task groups together; 0: it is missing or invalid."""
    try:
        groups = orjson.loads(_value(pod, TASK_GROUPS) or "[]")
        members = [number_of_pods(group["minMember"]) for group in groups]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return 0
    return number_of_pods(sum(members)) if all(members) else 0
