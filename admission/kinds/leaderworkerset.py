"""A LeaderWorkerSet: no suspend field, so its pods are gated; a leader and its workers are one group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds import paths
from admission.kinds.grouped import GroupedKind, GroupTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.base import Object, Outcome

_REPLICAS: Final = ("spec", "replicas")
_SIZE: Final = ("spec", "leaderWorkerTemplate", "size")


@dataclass(frozen=True, slots=True)
class LeaderWorkerSetKind(GroupedKind):
    """The adapter for leaderworkerset.x-k8s.io/v1 LeaderWorkerSet (see `Kind`)."""

    group: ClassVar[str] = "leaderworkerset.x-k8s.io"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "leaderworkersets"
    kind: ClassVar[str] = "LeaderWorkerSet"

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """That of the leaders, where there is one, and that of the workers."""
        spec = _template(obj)
        fields = [field for field in ("leaderTemplate", "workerTemplate") if spec.get(field)]
        return [GroupTemplate(("spec", "leaderWorkerTemplate", field), spec[field]) for field in fields]

    def pods_of_a_group(self, obj: Object) -> int:
        """A leader and its workers."""
        return paths.number(obj, _SIZE, 1) or 1

    def starts_by_the_first(self, obj: Object) -> bool:
        """Where the leader has to be ready before its workers are made."""
        return bool(obj["spec"].get("startupPolicy") == "LeaderReady")

    def owner_of(self, group: str) -> str:
        """What stands before the number of the group."""
        name, _, number = group.rpartition("-")
        return name if number.isascii() and number.isdecimal() and str(int(number)) == number else ""

    def has_group(self, obj: Object, group: str) -> bool:
        """Whether the number is one of its replicas."""
        return int(group.rpartition("-")[2]) < paths.number(obj, _REPLICAS, 1)

    def outcome(self, obj: Object) -> Outcome | None:
        """It runs until it is deleted."""
        return None

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """What is not a whole of pods."""
        if self.starts_by_the_first(obj) and _template(obj).get("leaderTemplate"):
            told = "a leader and workers of another form start as a whole: use LeaderCreated"
            yield "spec.startupPolicy", told
        found = [fault for path in (_REPLICAS, _SIZE) for fault in paths.number_fault(obj, path)]
        yield from found
        if not found and not 0 < self.pods_of_a_group(obj) < 100_000:
            yield "spec.leaderWorkerTemplate.size", "must be from 1 to 99999: a group is queued as a whole"


def _template(obj: Object) -> dict[str, Any]:
    template: dict[str, Any] = obj["spec"].get("leaderWorkerTemplate") or {}
    return template
