"""Adapter for LeaderWorkerSet: no suspend field, so its pods are gated; a leader and its workers are one group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds import paths
from admission.kinds.grouped import GroupedKind, GroupTemplate
from admission.kinds.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.base import Object

_LABEL: Final = "leaderworkerset.sigs.k8s.io/"
_REPLICAS: Final = ("spec", "replicas")
_SIZE: Final = ("spec", "leaderWorkerTemplate", "size")


@dataclass(frozen=True, slots=True)
class LeaderWorkerSetKind(GroupedKind):
    """Adapter for leaderworkerset.x-k8s.io/v1 LeaderWorkerSet (see `Kind`)."""

    group: ClassVar[str] = "leaderworkerset.x-k8s.io"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "leaderworkersets"
    kind: ClassVar[str] = "LeaderWorkerSet"
    named_by: ClassVar[tuple[str, ...]] = (
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index",
    )

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Return the leaders' template, if there is one, and the workers'."""
        spec = _template(obj)
        fields = [field for field in ("leaderTemplate", "workerTemplate") if spec.get(field)]
        return [GroupTemplate(("spec", "leaderWorkerTemplate", field), spec[field]) for field in fields]

    def pods_of_a_group(self, obj: Object) -> int:
        """Return the size: a leader and its workers."""
        return paths.number(obj, _SIZE, 1) or 1

    def starts_with_first_pod(self, obj: Object) -> bool:
        """Whether the leader must be ready before its workers are created."""
        return bool(obj["spec"].get("startupPolicy") == "LeaderReady")

    def owner_of(self, group: str) -> str:
        """Return the part of the group's name before its number."""
        name, _, number = group.rpartition("-")
        return name if number.isascii() and number.isdecimal() and str(int(number)) == number else ""

    def has_group(self, obj: Object, group: str) -> bool:
        """Whether the group's number is below the number of replicas."""
        return int(group.rpartition("-")[2]) < paths.number(obj, _REPLICAS, 1)

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """Return what keeps its pods from being queued as groups."""
        if self.starts_with_first_pod(obj) and _template(obj).get("leaderTemplate"):
            fault = "a leader and workers of another form start as a whole: use LeaderCreated"
            yield "spec.startupPolicy", fault
        found = [fault for path in (_REPLICAS, _SIZE) for fault in paths.number_fault(obj, path)]
        yield from found
        if not found and not 0 < self.pods_of_a_group(obj) < 100_000:
            yield "spec.leaderWorkerTemplate.size", "must be from 1 to 99999: a group is queued as a whole"


def places(obj: Object) -> list[Place]:
    """Return the pods of all groups by their templates, for an object that contains a LeaderWorkerSet."""
    groups, size, spec = paths.number(obj, _REPLICAS, 1), paths.number(obj, _SIZE, 1), _template(obj)
    has_leader = bool(spec.get("leaderTemplate"))
    counts = {"leaderTemplate": groups if has_leader else 0, "workerTemplate": groups * (size - has_leader)}
    return [
        Place(field, f"spec.leaderWorkerTemplate.{field}", spec.get(field) or {}, count, ())
        for field, count in counts.items()
        if count
    ]


def _template(obj: Object) -> dict[str, Any]:
    template: dict[str, Any] = obj["spec"].get("leaderWorkerTemplate") or {}
    return template
