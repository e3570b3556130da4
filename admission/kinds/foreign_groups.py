"""Groups of pods that other systems declare: what a pod says of its group, and the objects that say how large it is.

Their labels and annotations are read where the configuration names them, the group of Kubernetes itself always. Other
than with Kueue the number is the least that has to start together: more pods may come, and each queues by itself.
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
_MOST: Final = 99_999
"""Pods of a group."""


class GroupSize(NamedTuple):
    """The object that says how many pods a group needs."""

    group: str
    kind: str
    name: str
    part: str = ""
    """Which of the groups that it tells of; empty: it tells of one."""


class Declared(NamedTuple):
    """What a pod says of its group."""

    name: str
    needed: int
    """How many pods have to start together; 0: the pod does not say."""
    size: GroupSize | None
    """The object that says it; None: pods do."""

    @property
    def leaf(self) -> str:
        """The name of the PodGroup of `scheduling.k8s.io`, which may be in a CompositePodGroup; empty: it is none."""
        return self.size.name if self.size is not None and self.size[:2] == (NATIVE, POD_GROUP) else ""


@dataclass(frozen=True, slots=True)
class _Form:
    """What goes with the label or annotation that names a group."""

    numbers: tuple[str, ...] = ()
    """Labels or annotations with the number of pods; the first that is there counts."""
    told_by: tuple[str, str] | None = None
    """API group and kind of the object of the group's name that has the number."""


FOREIGN: Final[Mapping[str, _Form]] = {
    f"{_GANG}name": _Form((f"{_GANG}total-number", f"{_GANG}min-available")),
    f"{_LIGHT}/name": _Form((f"{_LIGHT}/min-available",)),
    _LIGHT: _Form(told_by=("scheduling.sigs.k8s.io", POD_GROUP)),
    "scheduling.x-k8s.io/pod-group": _Form(told_by=("scheduling.x-k8s.io", POD_GROUP)),
    "scheduling.k8s.io/group-name": _Form(told_by=("scheduling.volcano.sh", POD_GROUP)),
    f"{_YUNIKORN}app-id": _Form(),
    "applicationId": _Form(),
}
"""By the label or annotation that names a group, of Koordinator, scheduler-plugins, Volcano, YuniKorn."""


def declared(pod: Object, keys: Iterable[str]) -> Declared | None:
    """What a pod says of its group by the first of these `keys` that it has, else by its spec; None: it is in none."""
    for key in keys:
        if not (name := _value(pod, key)):
            continue
        form = FOREIGN[key]
        if form.told_by is not None:
            return Declared(name, 0, GroupSize(*form.told_by, name))
        if form.numbers:
            said = next(filter(None, (_value(pod, number) for number in form.numbers)), "")
            return Declared(name, number_of_pods(said), None)
        # Without task groups a YuniKorn application is no gang: its pods start one by one.
        if _value(pod, TASK_GROUPS) or _value(pod, _TASK_GROUP):
            return Declared(name, _of_task_groups(pod), None)
    return _native(pod["spec"])


def declared_faults(pod: Object, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(field path, message) of what is wrong in what a pod says of its group."""
    for key in keys:
        if not (name := _value(pod, key)):
            continue
        if not names.is_dns_subdomain(name):
            yield _path(pod, key), 'is no name: use lower-case letters, digits, "-" and "."'
        form = FOREIGN[key]
        if form.numbers and declared(pod, (key,)) == Declared(name, 0, None):
            where = next((number for number in form.numbers if _value(pod, number)), form.numbers[-1])
            yield _path(pod, where), "must say how many pods start together, from 1 to 99999"
        if not (form.numbers or form.told_by) and _value(pod, TASK_GROUPS) and not _of_task_groups(pod):
            yield _path(pod, TASK_GROUPS), "must be a JSON list of task groups, each with its minMember"
        return


def _native(spec: Mapping[str, Any]) -> Declared | None:
    """A field of the pod: of Kubernetes 1.35, else of later ones."""
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
    """Where it is; of what is missing, where its system has it."""
    metadata = pod["metadata"]
    is_label = key in (metadata.get("labels") or NOTHING)
    is_annotation = key in (metadata.get("annotations") or NOTHING)
    in_labels = is_label or (not is_annotation and key.startswith(_LIGHT))
    return f"metadata.{'labels' if in_labels else 'annotations'}[{key}]"


def number_of_pods(value: object) -> int:
    """A number, or its text; 0: it is none that a group can have."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < 6 else 0
    return value if isinstance(value, int) and 0 < value <= _MOST else 0


def _of_task_groups(pod: Object) -> int:
    """The pods of all task groups together; 0: they are not said, or not readable."""
    try:
        groups = orjson.loads(_value(pod, TASK_GROUPS) or "[]")
        members = [number_of_pods(group["minMember"]) for group in groups]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return 0
    return number_of_pods(sum(members)) if all(members) else 0
