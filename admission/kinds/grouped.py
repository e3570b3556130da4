"""Kinds without a suspend field whose pods are queued as groups: the webhook writes into their pod templates.

A new object's templates are given the queue label and the number of pods of a group, so that each pod is gated when it
is created, and the pods of one group are one workload (`pod_group`). The object itself is no workload. It is watched,
because it tells how many pods there are to be, when it is over, and that its controller will make a pod again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from admission.kinds.base import GATED_BY, HOLD, POD, QUEUE_NAME, SUBMITTED_BY, KindStatus, Object
from admission.kinds.common import NOTHING
from admission.kinds.grouping import FAST, TOTAL, group_of
from admission.kinds.patches import additions, merged, pointer
from admission.kinds.requests import check_resources
from admission.kinds.shapes import check_template
from admission.kinds.unchanged import UnchangedKind
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind, Outcome
    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet


class GroupTemplate(NamedTuple):
    """One pod template of an object."""

    path: tuple[str, ...]
    """Where it is, an index of a list as its digits."""
    template: Object


@dataclass(frozen=True, slots=True)
class GroupedKind(UnchangedKind):
    """What such kinds have in common (see `Kind`); one of them adds where its templates and its groups are."""

    group: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    plural: ClassVar[str]
    kind: ClassVar[str]
    is_custom: ClassVar[bool] = True
    tells_of_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = False
    watched_label: ClassVar[str] = ""
    pods_label: ClassVar[str] = ""
    annotations: ClassVar[tuple[str, ...]] = (SUBMITTED_BY, HOLD, GATED_BY)
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = ((), ())

    @abstractmethod
    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Its pod templates. Raises what an object of another form raises."""

    @abstractmethod
    def pods_of_a_group(self, obj: Object) -> int:
        """How many pods each of its groups is to have."""

    @abstractmethod
    def starts_by_the_first(self, obj: Object) -> bool:
        """Whether its controller makes the other pods of a group only when the first one runs."""

    @abstractmethod
    def owner_of(self, group: str) -> str:
        """The name that an object has whose group is called so; empty: none has."""

    @abstractmethod
    def has_group(self, obj: Object, group: str) -> bool:
        """Whether it asks for pods of this group, which is called as one of its own."""

    @abstractmethod
    def outcome(self, obj: Object) -> Outcome | None:
        """How it has ended; None: it may still make pods."""

    @abstractmethod
    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """(field path, message) of what keeps its pods from being queued as a whole."""

    def said_of_pods(self, obj: Object) -> list[Object]:
        """For each of its templates the labels and annotations that say which pods there will be (`declared_pods`).

        Empty where all pods of a group are made at once.
        """
        return []

    def makes(self, group: str, kind: str) -> bool:
        """Nothing that would be part of it: its pods are workloads."""
        return False

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """It is no workload: it has no gate, and only its end is told."""
        return KindStatus(
            suspended=False,
            active=False,
            started=False,
            stopped=False,
            counts=(),
            finished=self.outcome(obj),
            ready=False,
            ending=deleting,
            pod_priority_class="",
        )

    # --- what the webhook writes

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """What is wrong in labels, annotations and resources."""
        faults = [*self.metadata_faults(obj), *self.form_faults(obj)]
        for where, template in self.group_templates(obj):
            try:
                check_template(template, _text(where))
                check_resources(template.get("spec") or {}, path=f"{_text(where)}.spec")
            except Misconfigured as error:
                path, _, message = str(error).partition(": ")
                faults.append((path, message))
        return faults

    def gate(self, obj: Object) -> list[Object]:
        """The JSON patch that has the pods of a new object be gated, as one group; empty if that is so."""
        marks: Object = {
            "labels": {QUEUE_NAME: self.queue_name(obj)},
            "annotations": {TOTAL[0]: str(max(self.pods_of_a_group(obj), 1))},
        }
        if self.starts_by_the_first(obj):
            marks["annotations"][FAST[0]] = "true"
        said = self.said_of_pods(obj)
        return [
            patch
            for number, each in enumerate(self.group_templates(obj))
            for patch in _marked(each, merged(marks, said[number]) if said else marks)
        ]

    def is_gated(self, obj: Object) -> bool:
        """Whether its templates have what `gate` writes."""
        templates = self.templates(obj)
        return bool(templates) and all(map(_marks_of, templates))

    def tells_of_pods_of(self, obj: Object) -> bool:
        """Whether this object's pods are queued in groups, so that it has to be known."""
        return self.is_gated(obj) and not self.is_managed_elsewhere(obj)

    def keep_gated(self, new: Object, old: Object) -> list[Object]:
        """The JSON patch that keeps in all templates what `gate` has written into the old ones."""
        marks = _marks_of(self.templates(old)[0])
        return [patch for each in self.group_templates(new) for patch in _marked(each, marks)]

    def templates(self, obj: Object) -> list[Object]:
        """Its pod templates."""
        return [template for _, template in self.group_templates(obj)]

    # --- what is asked of workloads

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """None: its groups have them."""
        return ()


def belongs_to_groups(kind: Kind, obj: Object) -> bool:
    """Whether an object is no workload by itself: a pod that is in a group, or one whose pods are queued in groups."""
    return isinstance(kind, GroupedKind) or ((kind.group, kind.kind) == POD and bool(group_of(obj, kind.conventions)))


def _marks_of(template: Object) -> Object:
    """What `gate` has written into a template; empty if that is not all there."""
    metadata = template.get("metadata") or NOTHING
    labels, annotations = metadata.get("labels") or NOTHING, metadata.get("annotations") or NOTHING
    if QUEUE_NAME not in labels or TOTAL[0] not in annotations:
        return {}
    kept = {key: annotations[key] for key in (TOTAL[0], FAST[0]) if key in annotations}
    return {"labels": {QUEUE_NAME: labels[QUEUE_NAME]}, "annotations": kept}


def _marked(each: GroupTemplate, marks: Object) -> list[Object]:
    """Parents that are not there, or null, are added with what is in them."""
    metadata: Any = each.template.get("metadata")
    where = pointer(*each.path, "metadata")
    if not isinstance(metadata, dict):
        return [{"op": "add", "path": where, "value": marks}]
    return list(additions(metadata, marks, where))


def _text(path: Sequence[str]) -> str:
    return "".join(f"[{key}]" if key.isdecimal() else f".{key}" for key in path).lstrip(".")
