"""A StatefulSet: no suspend field, so its pods are gated, as one group that follows `replicas` up and down.

Nothing but labels and annotations is written into its template, and always the same: another template would have its
controller replace pods that run, and clients that apply the same manifest again and again must change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from admission.kinds.children import controller_of
from admission.kinds.common import NOTHING, first
from admission.kinds.grouped import GroupedKind, GroupTemplate
from admission.kinds.grouping import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.base import Object, Outcome

_WHOLES: Final = frozenset({"AppWrapper", "LeaderWorkerSet"})
"""Kinds that are queued as a whole with the StatefulSets that they make."""


@dataclass(frozen=True, slots=True)
class StatefulSetKind(GroupedKind):
    """The adapter for apps/v1 StatefulSet (see `Kind`)."""

    group: ClassVar[str] = "apps"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "statefulsets"
    kind: ClassVar[str] = "StatefulSet"
    is_custom: ClassVar[bool] = False
    more_labels: ClassVar[tuple[str, ...]] = ("spec", "template", "metadata", "labels")

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """Whether it is part of what is queued as a whole, or its template says which group its pods are in."""
        owner = controller_of(obj)
        labels = _template_labels(obj)
        return bool(owner and owner["kind"] in _WHOLES) or bool(first(labels, GROUP_NAME))

    def queue_name(self, obj: Object) -> str:
        """By its own label, else by that of its template."""
        named = GroupedKind.queue_name(self, obj)
        if named or self.is_managed_elsewhere(obj):
            return named
        excluded = obj["metadata"].get("namespace") in self.conventions.excluded_namespaces
        return "" if excluded else first(_template_labels(obj), self.conventions.queue_labels)

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """The only one."""
        return [GroupTemplate(("spec", "template"), obj["spec"]["template"])]

    def pods_of_a_group(self, obj: Object) -> int:
        """All of its replicas."""
        replicas: int | None = obj["spec"].get("replicas")
        return 1 if replicas is None else replicas

    def starts_by_the_first(self, obj: Object) -> bool:
        """Always: all its pods are alike, and one after the other is made where the order is `OrderedReady`."""
        return True

    def owner_of(self, group: str) -> str:
        """Of the same name."""
        return group

    def has_group(self, obj: Object, group: str) -> bool:
        """All are in its one group; scaled to zero it has none."""
        return self.pods_of_a_group(obj) > 0

    def outcome(self, obj: Object) -> Outcome | None:
        """It runs until it is deleted."""
        return None

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """What is more than can be queued as a whole."""
        if self.pods_of_a_group(obj) >= 100_000:
            yield "spec.replicas", "must be less than 100000: they are queued as a whole"


def _template_labels(obj: Object) -> dict[str, str]:
    metadata = obj["spec"]["template"].get("metadata") or NOTHING
    labels: dict[str, str] = metadata.get("labels") or NOTHING
    return labels
