"""Base class of kinds without a suspend field whose pods are queued as groups, by marks in their pod templates.

The webhook writes the queue label and the number of pods of a group into the templates of a new object. So each pod is
gated when it is created, and the pods of one group are one workload (`pod_group`). The object itself is no workload. It
is watched for the number of pods that it is to have, for its end, and because its controller recreates pods.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from admission.kinds.base import POD, QUEUE_NAME, Object
from admission.kinds.common import NOTHING
from admission.kinds.grouping import FAST, TOTAL, group_of
from admission.kinds.patches import additions, merged, pointer
from admission.kinds.requests import check_resources
from admission.kinds.shapes import check_template
from admission.kinds.template_kind import TemplateKind
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission.kinds.base import Kind


class GroupTemplate(NamedTuple):
    """One pod template of an object."""

    path: tuple[str, ...]
    """Keys that lead to it, an index of a list as its digits."""
    template: Object


@dataclass(frozen=True, slots=True)
class GroupedKind(TemplateKind):
    """Common part of such kinds (see `Kind`); a subclass adds the templates, groups and outcome."""

    named_by: ClassVar[tuple[str, ...]] = ()
    """Labels by which its controller names the group of a pod: their values, joined by `-`. Empty: StatefulSets'."""

    @property
    def grouping(self) -> Self:
        """Itself."""
        return self

    @abstractmethod
    def group_templates(self, obj: Object) -> list[GroupTemplate]:
        """Return its pod templates. Raises AttributeError, KeyError or TypeError for an object of another form."""

    @abstractmethod
    def pods_of_a_group(self, obj: Object) -> int:
        """Return the number of pods of each of its groups."""

    @abstractmethod
    def starts_with_first_pod(self, obj: Object) -> bool:
        """Whether its controller creates the other pods of a group only when the first one runs."""

    @abstractmethod
    def owner_of(self, group: str) -> str:
        """Return the name of the object that a group of this name belongs to; empty: none can have it."""

    @abstractmethod
    def has_group(self, obj: Object, group: str) -> bool:
        """Whether the object has pods in this group, whose name is one of its own (`owner_of`)."""

    @abstractmethod
    def form_faults(self, obj: Object) -> Iterable[tuple[str, str]]:
        """Return (field path, message) of what keeps its pods from being queued as a group."""

    def pod_set_marks(self, obj: Object) -> list[Object]:
        """Return the labels and annotations of each template that declare the group's pod sets (`declared_pods`).

        Empty if all pods of a group are created together.
        """
        return []

    # --- for the webhook

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in labels, annotations and resources."""
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
        """Return the JSON patch by which the pods of a new object are gated, as a group; empty if they are."""
        marks: Object = {
            "labels": {QUEUE_NAME: self.queue_name(obj)},
            "annotations": {TOTAL[0]: str(max(self.pods_of_a_group(obj), 1))},
        }
        if self.starts_with_first_pod(obj):
            marks["annotations"][FAST[0]] = "true"
        pod_set_marks = self.pod_set_marks(obj)
        return [
            patch
            for number, each in enumerate(self.group_templates(obj))
            for patch in _marked(each, merged(marks, pod_set_marks[number]) if pod_set_marks else marks)
        ]

    def is_gated(self, obj: Object) -> bool:
        """Whether its templates have the marks that `gate` writes."""
        templates = self.templates(obj)
        return bool(templates) and all(map(_marks_of, templates))

    def has_grouped_pods(self, obj: Object) -> bool:
        """Whether this object's pods are queued in groups, so that it has to be watched."""
        return self.is_gated(obj) and not self.is_managed_elsewhere(obj)

    def keep_gated(self, new: Object, old: Object) -> list[Object]:
        """Return the JSON patch that keeps the marks of the old templates in all templates."""
        marks = _marks_of(self.templates(old)[0])
        return [patch for each in self.group_templates(new) for patch in _marked(each, marks)]

    def templates(self, obj: Object) -> list[Object]:
        """Return its pod templates."""
        return [template for _, template in self.group_templates(obj)]


def belongs_to_groups(kind: Kind, obj: Object) -> bool:
    """Whether an object is no workload by itself: a pod in a group, or an object whose pods are queued in groups."""
    return kind.grouping is not None or ((kind.group, kind.kind) == POD and bool(group_of(obj, kind.conventions)))


def _marks_of(template: Object) -> Object:
    """Return the marks that `gate` wrote into a template; empty if they are incomplete."""
    metadata = template.get("metadata") or NOTHING
    labels, annotations = metadata.get("labels") or NOTHING, metadata.get("annotations") or NOTHING
    if QUEUE_NAME not in labels or TOTAL[0] not in annotations:
        return {}
    kept = {key: annotations[key] for key in (TOTAL[0], FAST[0]) if key in annotations}
    return {"labels": {QUEUE_NAME: labels[QUEUE_NAME]}, "annotations": kept}


def _marked(each: GroupTemplate, marks: Object) -> list[Object]:
    """Return the JSON patch that adds the marks, the queue label and the group's number of pods, to a pod template."""
    metadata: Any = each.template.get("metadata")
    where = pointer(*each.path, "metadata")
    if not isinstance(metadata, dict):
        return [{"op": "add", "path": where, "value": marks}]
    return list(additions(metadata, marks, where))


def _text(path: Sequence[str]) -> str:
    return "".join(f"[{key}]" if key.isdecimal() else f".{key}" for key in path).lstrip(".")
