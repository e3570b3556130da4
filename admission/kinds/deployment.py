"""Adapter for apps/v1 Deployment: each of its pods is a workload of its own; the object is only labelled.

The webhook copies the labels that name its queue and priority into its pod template. The Deployment itself is no
workload and is not watched: its pods are queued and hold quota.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self

from admission.kinds.common import NOTHING, quote
from admission.kinds.patches import additions, pointer
from admission.kinds.template_kind import TemplateKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Object

_METADATA: Final = ("spec", "template", "metadata")
_SELECTED: Final = (
    'is "{}", but spec.selector.matchLabels has "{}", which is immutable: use the same value, or recreate the '
    "Deployment with another selector"
)


@dataclass(frozen=True, slots=True)
class DeploymentKind(TemplateKind):
    """Adapter for apps/v1 Deployment (see `Kind`)."""

    group: ClassVar[str] = "apps"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "deployments"
    kind: ClassVar[str] = "Deployment"
    is_custom: ClassVar[bool] = False
    annotations: ClassVar[tuple[str, ...]] = ()

    @property
    def labelling(self) -> Self:
        """Itself."""
        return self

    def templates(self, obj: Object) -> list[Object]:
        """Return its only template."""
        return [obj["spec"]["template"]]

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """Return the faults in its labels, and labels that contradict its selector."""
        selected = (obj["spec"].get("selector") or NOTHING).get("matchLabels") or NOTHING
        differing = [
            (f"metadata.labels[{key}]", _SELECTED.format(quote(value), quote(selected[key])))
            for key, value in self.pod_labels(obj).items()
            if selected.get(key, value) != value
        ]
        return [*self.metadata_faults(obj), *differing]

    def gate(self, obj: Object) -> list[Object]:
        """Return the JSON patch by which the pods of a new object are queued; empty if they are."""
        return self.label_patch(obj, None)

    def pod_labels(self, obj: Object) -> dict[str, str]:
        """Return the labels of the object that its pods must have, too; empty if it is not queued."""
        labels = obj["metadata"].get("labels") or NOTHING
        return {key: labels[key] for key in self._keys if labels.get(key)} if self.queue_name(obj) else {}

    def conflicting_labels(self, new: Object, old: Object | None) -> list[str]:
        """Return the labels for which a request sets another value in the template than the object has."""
        has, had = _labels_of_pods(new), _labels_of_pods(old) if old is not None else {}
        return [key for key, value in self.pod_labels(new).items() if has.get(key, value) not in (value, had.get(key))]

    def label_patch(self, new: Object, old: Object | None) -> list[Object]:
        """Return the JSON patch that copies the object's labels into the template, and removes those it has lost.

        Labels that the object never had are the template's own and stay. So do labels of its selector: without them no
        pod may be created.
        """
        wanted, former = self.pod_labels(new), self.pod_labels(old) if old is not None else {}
        template: Mapping[str, Object] = new["spec"]["template"].get("metadata") or NOTHING
        has = _labels_of_pods(new)
        selected = (new["spec"].get("selector") or NOTHING).get("matchLabels") or NOTHING
        lost = [key for key in former if key not in wanted and has.get(key) == former[key] and key not in selected]
        return [
            *_added(template, wanted),
            *({"op": "remove", "path": pointer(*_METADATA, "labels", key)} for key in lost),
        ]

    @property
    def _keys(self) -> Iterable[str]:
        return (*self.conventions.queue_labels, *self.conventions.priority_labels)


def _added(metadata: Mapping[str, Object], labels: Mapping[str, str]) -> Iterable[Object]:
    """Return the operations that add the labels; absent or null parents are added with them."""
    if not labels:
        return ()
    if not metadata:
        return [{"op": "add", "path": pointer(*_METADATA), "value": {"labels": labels}}]
    return additions(metadata, {"labels": labels}, pointer(*_METADATA))


def _labels_of_pods(obj: Object) -> Mapping[str, str]:
    metadata = obj["spec"]["template"].get("metadata") or NOTHING
    labels: Mapping[str, str] = metadata.get("labels") or NOTHING
    return labels
