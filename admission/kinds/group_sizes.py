"""Objects of other systems that say how many pods of a group have to start together (see `foreign_groups`).

They are read only: nothing in them is Sluice's, and no webhook is called for them.
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

    from admission.kinds.base import Conventions, Object, Outcome


@dataclass(frozen=True, slots=True)
class GroupSizeKind(GroupedKind):
    """What they have in common (see `Kind`): no pod templates, and no pods of their own."""

    plural = "podgroups"
    kind = POD_GROUP
    number: ClassVar[tuple[str, ...]] = ("minMember",)
    """The path of the number, from the spec or a part of it."""
    parts: ClassVar[str] = ""
    """The list of named parts in the spec; empty: there is one, the spec itself."""

    def needed(self, obj: Object, part: str) -> int:
        """How many pods have to start together; 0: they need not."""
        found: Any = obj.get("spec") or NOTHING
        if self.parts:
            found = next((each for each in found.get(self.parts) or () if each.get("name") == part), NOTHING)
        for step in self.number:
            found = found.get(step) if isinstance(found, dict) else None
        return number_of_pods(found)

    def parent(self, obj: Object) -> str:
        """The name of the CompositePodGroup that it is in; empty: none."""
        return ""

    def priority_class(self, obj: Object) -> str:
        """The PriorityClass of the group as a whole; empty: its pods say it."""
        return str((obj.get("spec") or NOTHING).get("priorityClassName") or "")

    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """None."""
        return []

    def pods_of_a_group(self, obj: Object) -> int:
        """None: see `needed`."""
        return 0

    def starts_by_the_first(self, obj: Object) -> bool:
        """No."""
        return False

    def owner_of(self, group: str) -> str:
        """None: pods of a group are made by others."""
        return ""

    def has_group(self, obj: Object, group: str) -> bool:
        """It asks for none."""
        return False

    def outcome(self, obj: Object) -> Outcome | None:
        """It never ends."""
        return None

    def tells_of_pods_of(self, obj: Object) -> bool:
        """Always: it says how many there have to be."""
        return True

    def form_faults(self, obj: Object) -> Iterator[tuple[str, str]]:
        """None."""
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
    """Kinds that may be in a CompositePodGroup."""

    group = NATIVE

    def parent(self, obj: Object) -> str:
        """`spec.parentCompositePodGroupName`; a value that is no valid name of an object is ignored."""
        parent = (obj.get("spec") or NOTHING).get("parentCompositePodGroupName")
        return parent if isinstance(parent, str) and names.is_dns_subdomain(parent) else ""


class NativePodGroup(_InTree):
    """The PodGroup of Kubernetes 1.36 (v1alpha2) and 1.37 (v1beta1 and v1alpha3, with the same fields)."""

    versions = ("v1beta1", "v1alpha3", "v1alpha2")
    number = ("schedulingPolicy", "gang", "minCount")


class NativeCompositePodGroup(_InTree):
    """The CompositePodGroup of Kubernetes 1.37; its number is that of the child groups that start together."""

    versions = ("v1alpha3",)
    plural = "compositepodgroups"
    kind = COMPOSITE
    number = ("schedulingPolicy", "gang", "minGroupCount")


class NativeWorkload(GroupSizeKind):
    """The Workload of Kubernetes 1.35, which has its groups in itself."""

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
    """Those of Kubernetes itself, and of the labels that are read."""
    read = {FOREIGN[key].told_by for key in conventions.group_labels}
    return [each(conventions) for each in _ALL if each.group == NATIVE or (each.group, each.kind) in read]
