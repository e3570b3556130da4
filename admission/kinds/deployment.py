"""A Deployment: each of its pods is a workload of its own, and all that is done to it is that they are labelled.

The webhook copies the labels that name its queue and priority into its pod template. The object itself is no workload,
and nobody watches it: what is queued, and holds quota, are its pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from admission.kinds.base import KindStatus, Object
from admission.kinds.common import NOTHING, quote
from admission.kinds.patches import additions, pointer
from admission.kinds.unchanged import UnchangedKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.limits import NamespaceContext
    from admission.model.workload import PodSet

_METADATA: Final = ("spec", "template", "metadata")
_SELECTED: Final = (
    'is "{}", but spec.selector.matchLabels has "{}", which nobody can change: name the same, or create the Deployment '
    "anew with another selector"
)


@dataclass(frozen=True, slots=True)
class DeploymentKind(UnchangedKind):
    """The adapter for apps/v1 Deployment (see `Kind`)."""

    group: ClassVar[str] = "apps"
    versions: ClassVar[tuple[str, ...]] = ("v1",)
    plural: ClassVar[str] = "deployments"
    kind: ClassVar[str] = "Deployment"
    is_custom: ClassVar[bool] = False
    tells_of_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = False
    watched_label: ClassVar[str] = ""
    pods_label: ClassVar[str] = ""
    annotations: ClassVar[tuple[str, ...]] = ()
    manager: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = ((), ())

    def makes(self, group: str, kind: str) -> bool:
        """Nothing that would be part of it: its pods are workloads."""
        return False

    def status(self, obj: Object, *, deleting: bool) -> KindStatus:
        """It is no workload: it has no gate, and no end."""
        return KindStatus(
            suspended=False,
            active=False,
            started=False,
            stopped=False,
            counts=(),
            finished=None,
            ready=False,
            ending=deleting,
            pod_priority_class="",
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """None: each pod has its own."""
        return ()

    def templates(self, obj: Object) -> list[Object]:
        """The only one."""
        return [obj["spec"]["template"]]

    def faults(self, obj: Object) -> list[tuple[str, str]]:
        """What is wrong in its labels, and whether they name something else than its selector."""
        selected = (obj["spec"].get("selector") or NOTHING).get("matchLabels") or NOTHING
        differing = [
            (f"metadata.labels[{key}]", _SELECTED.format(quote(value), quote(selected[key])))
            for key, value in self.copied(obj).items()
            if selected.get(key, value) != value
        ]
        return [*self.metadata_faults(obj), *differing]

    def gate(self, obj: Object) -> list[Object]:
        """The JSON patch that has the pods of a new object be queued; empty if that is so."""
        return self.labelling(obj, None)

    def copied(self, obj: Object) -> dict[str, str]:
        """The labels of a queued object that its pods are to have, too; empty if it is not queued."""
        labels = obj["metadata"].get("labels") or NOTHING
        return {key: labels[key] for key in self._keys if labels.get(key)} if self.queue_name(obj) else {}

    def overruled(self, new: Object, old: Object | None) -> list[str]:
        """The labels for which a request wants something else in the template than the object itself has."""
        has, had = _labels_of_pods(new), _labels_of_pods(old) if old is not None else {}
        return [key for key, value in self.copied(new).items() if has.get(key, value) not in (value, had.get(key))]

    def labelling(self, new: Object, old: Object | None) -> list[Object]:
        """The JSON patch by which the template has the labels of the object, and those no more that it has lost.

        What it never had is its template's own, and so is what its selector has: no pod may be without that.
        """
        says, said = self.copied(new), self.copied(old) if old is not None else {}
        template: Mapping[str, Object] = new["spec"]["template"].get("metadata") or NOTHING
        has = _labels_of_pods(new)
        selected = (new["spec"].get("selector") or NOTHING).get("matchLabels") or NOTHING
        lost = [key for key in said if key not in says and has.get(key) == said[key] and key not in selected]
        return [
            *_added(template, says),
            *({"op": "remove", "path": pointer(*_METADATA, "labels", key)} for key in lost),
        ]

    @property
    def _keys(self) -> Iterable[str]:
        return (*self.conventions.queue_labels, *self.conventions.priority_labels)


def _added(metadata: Mapping[str, Object], labels: Mapping[str, str]) -> Iterable[Object]:
    """Parents that are not there, or null, are added with what is in them."""
    if not labels:
        return ()
    if not metadata:
        return [{"op": "add", "path": pointer(*_METADATA), "value": {"labels": labels}}]
    return additions(metadata, {"labels": labels}, pointer(*_METADATA))


def _labels_of_pods(obj: Object) -> Mapping[str, str]:
    metadata = obj["spec"]["template"].get("metadata") or NOTHING
    labels: Mapping[str, str] = metadata.get("labels") or NOTHING
    return labels
