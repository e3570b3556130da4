"""Objects that have a queue label and are not queued, and why: they run without quota, unexpectedly to their users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths
from admission.kinds.base import MANAGED, POD
from admission.kinds.children import controller_of
from admission.kinds.common import NOTHING, first
from admission.kinds.deployment import DeploymentKind
from admission.kinds.grouped import GroupedKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from admission.kinds.base import Conventions, Kind, Object

WITHOUT_QUOTA: Final = "it runs without quota"


class NotQueued(NamedTuple):
    """An object with a queue label that is not queued."""

    kind: str
    namespace: str
    name: str
    uid: str
    why: str
    """Such as "has a queue label, but JobSets are off: it runs without quota"."""

    @property
    def sentence(self) -> str:
        """Return a sentence that names the object."""
        return f"{self.kind} {self.namespace}/{self.name} {self.why}"


def not_queued(kind: Kind, obj: Object, *, is_on: bool, known: Collection[tuple[str, str]]) -> NotQueued | None:
    """Return why an object of a kind is not queued; None: it is, has no queue label, has ended, or is up to its owner.

    `is_on`: whether the kind is queued. `known`: API group and kind of all kinds that Sluice knows, whether they are
    queued or not: objects that such an object owns are part of it.
    """
    metadata = obj["metadata"]
    if "deletionTimestamp" in metadata or not has_queue_label(kind, obj) or _has_owner(kind, obj, known):
        return None
    why = _why(kind, obj, is_on=is_on)
    if not why or kind.is_managed_elsewhere(obj) or kind.observe(obj).finished is not None:
        return None
    return NotQueued(kind.kind, metadata["namespace"], metadata["name"], metadata["uid"], why)


def _why(kind: Kind, obj: Object, *, is_on: bool) -> str:
    namespace = obj["metadata"]["namespace"]
    if not is_on:
        return off(kind.kind)
    if namespace in kind.conventions.excluded_namespaces:
        return f"has a queue label, but nothing is queued in namespace {namespace}: {WITHOUT_QUOTA}"
    if isinstance(kind, GroupedKind):
        is_queued = kind.is_gated(obj)
    elif isinstance(kind, DeploymentKind):
        is_queued = kind.pod_labels(obj).items() <= _labels_at(obj, ("spec", "template", "metadata", "labels")).items()
    else:
        is_queued = (kind.group, kind.kind) != POD or MANAGED in _labels_at(obj, ("metadata", "labels"))
    if is_queued:
        return ""
    return (
        f"has a queue label, but was created while {kind.kind}s were not queued: {WITHOUT_QUOTA} until it is recreated"
    )


def off(kind: str) -> str:
    """Return why objects of a kind that is not queued are not queued. `kind`: for example "JobSet"."""
    return f"has a queue label, but {kind}s are off: {WITHOUT_QUOTA}"


def has_queue_label(kind: Kind, obj: Object) -> bool:
    """Whether an object names a queue by a label, whatever becomes of it."""
    found = _has_value(_labels_at(obj, ("metadata", "labels")), kind.conventions)
    return found or bool(kind.more_labels and _has_value(_labels_at(obj, kind.more_labels), kind.conventions))


def _has_owner(kind: Kind, obj: Object, known: Collection[tuple[str, str]]) -> bool:
    """Whether another object decides about this one; whoever creates pods is told of instead of these."""
    owner = controller_of(obj)
    if owner is None or (kind.group, kind.kind) == POD:
        return owner is not None
    return (str(owner["apiVersion"]).rpartition("/")[0], owner["kind"]) in known


def _has_value(labels: Mapping[str, str], conventions: Conventions) -> bool:
    return bool(first(labels, conventions.queue_labels))


def _labels_at(obj: Object, path: tuple[str, ...]) -> Mapping[str, str]:
    labels: Any = paths.at(obj, path)
    return labels if isinstance(labels, dict) else NOTHING
