"""Adapter for StatefulSet: no suspend field, so its pods are gated, as one group that follows `replicas` up and down.

Only labels and annotations are written into its template, and always the same: a changed template makes its controller
replace running pods, and clients that repeatedly apply the same manifest must not change anything.
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

    from admission.kinds.base import Object

_WHOLES: Final = frozenset({"AppWrapper", "LeaderWorkerSet"})
"""Kinds that are queued as a whole together with the StatefulSets that they create."""
_LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
"""Label in the templates of a LeaderWorkerSet's StatefulSets; that of a group's workers is owned by its leader Pod."""


@dataclass(frozen=True, slots=True)
class StatefulSetKind(GroupedKind):
    """Adapter for apps/v1 StatefulSet (see `Kind`)."""

    group: ClassVar[str] = "apps"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "statefulsets"
    kind: ClassVar[str] = "StatefulSet"
    is_custom: ClassVar[bool] = False
    more_labels: ClassVar[tuple[str, ...]] = ("spec", "template", "metadata", "labels")

    def is_managed_elsewhere(self, obj: Object) -> bool:
        """Whether its owner is queued as a whole, or its template names the group of its pods."""
        owner = controller_of(obj)
        labels = _template_labels(obj)
        if owner and (owner["kind"] in _WHOLES or (owner["kind"] == "Pod" and _LEADER_WORKER_SET in labels)):
            return True
        return bool(first(labels, GROUP_NAME))

    def queue_name(self, obj: Object) -> str:
        """Return the queue that its own label names, else that of its template."""
        named = GroupedKind.queue_name(self, obj)
        if named or self.is_managed_elsewhere(obj):
            return named
        excluded = obj["metadata"].get("namespace") in self.conventions.excluded_namespaces
        return "" if excluded else first(_template_labels(obj), self.conventions.queue_labels)

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Return its only template."""
        return [GroupTemplate(("spec", "template"), obj["spec"]["template"])]

    def pods_of_a_group(self, obj: Object) -> int:
        """Return the number of replicas (default 1)."""
        replicas: int | None = obj["spec"].get("replicas")
        return 1 if replicas is None else replicas

    def starts_with_first_pod(self, obj: Object) -> bool:
        """Always True: its pods are alike, and created one after the other with `OrderedReady`."""
        return True

    def owner_of(self, group: str) -> str:
        """Return the group's name: the object has the same."""
        return group

    def has_group(self, obj: Object, group: str) -> bool:
        """Whether it has pods: all are in its one group."""
        return self.pods_of_a_group(obj) > 0

    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """Return a fault if it has more pods than can be queued as a group."""
        if self.pods_of_a_group(obj) >= 100_000:
            yield "spec.replicas", "must be less than 100000: they are queued as a whole"


def _template_labels(obj: Object) -> dict[str, str]:
    metadata = obj["spec"]["template"].get("metadata") or NOTHING
    labels: dict[str, str] = metadata.get("labels") or NOTHING
    return labels
