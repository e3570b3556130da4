"""Kinds of other systems whose objects give the number of pods of a group (see `foreign_groups`).

Their objects are only read: Sluice never changes them, and no webhook is called for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from admission.kinds.common import NOTHING
from admission.kinds.foreign_groups import COMPOSITE, FOREIGN, NATIVE, POD_GROUP, number_of_pods
from admission.kinds.grouped import GroupedKind, GroupTemplate
from admission.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Conventions, Object


@dataclass(frozen=True, slots=True)
class GroupSizeKind(GroupedKind):
    """Base class of these kinds (see `Kind`), without pod templates and pods of their own."""

    plural = "podgroups"
    kind = POD_GROUP
    number: ClassVar[tuple[str, ...]] = ("minMember",)
    """Path of the number, from the spec or the part of it."""
    parts: ClassVar[str] = ""
    """Field of the spec with the list of named parts; empty: the spec itself is the only part."""

    def needed(self, obj: Object, part: str) -> int:
        """Return the number of pods that have to start together; 0: any number may start."""
        found: Any = obj.get("spec") or NOTHING
        if self.parts:
            found = next((each for each in found.get(self.parts) or () if each.get("name") == part), NOTHING)
        for step in self.number:
            found = found.get(step) if isinstance(found, dict) else None
        return number_of_pods(found)

    def parent(self, obj: Object) -> str:
        """Return the name of the CompositePodGroup that the group is in; empty: none."""
        return ""

    def priority_class(self, obj: Object) -> str:
        """Return the PriorityClass of the group as a whole; empty: that of its pods applies."""
        return str((obj.get("spec") or NOTHING).get("priorityClassName") or "")

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Return []: it has no pod templates."""
        return []

    def pods_of_a_group(self, obj: Object) -> int:
        """Return 0: see `needed`."""
        return 0

    def starts_with_first_pod(self, obj: Object) -> bool:
        """Return False: it has no controller that creates pods."""
        return False

    def owner_of(self, group: str) -> str:
        """Return "": the pods of its group belong to other objects."""
        return ""

    def has_group(self, obj: Object, group: str) -> bool:
        """Return False: it has no pods."""
        return False

    def has_grouped_pods(self, obj: Object) -> bool:
        """Return True: it gives the size of a group."""
        return True

    def form_faults(self, obj: Object) -> Iterator[tuple[str, str]]:
        """Yield nothing."""
        return iter(())


class SchedulerPluginsPodGroup(GroupSizeKind):
    """The PodGroup of scheduler-plugins."""

    group = "scheduling.x-k8s.io"
    versions = ("v1alpha1",)


class SigsPodGroup(GroupSizeKind):
    """The PodGroup of Koordinator, and of earlier scheduler-plugins."""

    group = "scheduling.sigs.k8s.io"
    versions = ("v1alpha1",)


class VolcanoPodGroup(GroupSizeKind):
    """The PodGroup of Volcano."""

    group = "scheduling.volcano.sh"
    versions = ("v1beta1",)


class _InTree(GroupSizeKind):
    """Base class of kinds whose groups may be in a CompositePodGroup."""

    group = NATIVE

    def parent(self, obj: Object) -> str:
        """Return `spec.parentCompositePodGroupName`; a value that is not a valid object name is ignored."""
        parent = (obj.get("spec") or NOTHING).get("parentCompositePodGroupName")
        return parent if isinstance(parent, str) and names.is_dns_subdomain(parent) else ""


class NativePodGroup(_InTree):
    """The PodGroup of Kubernetes 1.36 (v1alpha2) and 1.37 (v1beta1 and v1alpha3, with the same fields)."""

    versions = ("v1beta1", "v1alpha3", "v1alpha2")
    number = ("schedulingPolicy", "gang", "minCount")


class NativeCompositePodGroup(_InTree):
    """The CompositePodGroup of Kubernetes 1.37; its number is that of child groups that start together."""

    versions = ("v1alpha3",)
    plural = "compositepodgroups"
    kind = COMPOSITE
    number = ("schedulingPolicy", "gang", "minGroupCount")


class NativeWorkload(GroupSizeKind):
    """The Workload of Kubernetes 1.35, which contains its groups."""

    group = NATIVE
    versions = ("v1alpha1",)
    plural = "workloads"
    kind = "Workload"
    number = ("policy", "gang", "minCount")
    parts = "podGroups"


_ALL: Final = (
    NativePodGroup,
    NativeCompositePodGroup,
    NativeWorkload,
    SchedulerPluginsPodGroup,
    SigsPodGroup,
    VolcanoPodGroup,
)


def size_kinds(conventions: Conventions) -> list[GroupSizeKind]:
    """Return the kinds of Kubernetes itself, and those of the labels that the configuration names."""
    read = {FOREIGN[key].size_kind for key in conventions.group_labels}
    return [each(conventions) for each in _ALL if each.group == NATIVE or (each.group, each.kind) in read]
