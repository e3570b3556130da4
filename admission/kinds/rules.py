"""Rules that assign a queue to objects without a queue label, by namespace, kind and labels; the first match wins."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths
from admission.kinds.base import POD
from admission.kinds.common import NOTHING, first, quote
from admission.kinds.declared_pods import POD_SET
from admission.kinds.grouping import GROUP_NAME
from admission.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from admission.kinds.base import Kind, Object
    from admission.kinds.paths import Path
    from admission.model.base import LabelSelector


MAX_LABEL_VALUE: Final = 63
"""Maximum length of a label's value, in characters."""
_WITHOUT_GROUP: Final = ("", "apps")
"""API groups whose kinds are named without the group in Kueue's configuration and ours: `pod`, `statefulset`."""


def dotted(path: Sequence[str]) -> str:
    """Return a path for messages, with the key of an annotation in brackets."""
    *parents, key = path
    return ".".join(parents) + (f"[{key}]" if parents[-1] == "annotations" else f".{key}")


def framework(kind: Kind) -> str:
    """Return the name of a kind in the setting `integrations.frameworks`."""
    name = kind.kind.lower()
    return name if kind.group in _WITHOUT_GROUP else f"{kind.group}/{name}"


class QueueReference(NamedTuple):
    """A queue name that an object has elsewhere than in a queue label."""

    path: Path
    queue: Any
    """The value at the path, valid or not."""

    @property
    def where(self) -> str:
        """The path, for messages."""
        return dotted(self.path)

    @property
    def fault(self) -> str:
        """Why it cannot be the value of a queue label, as a message; empty: it can."""
        if self.queue == "":
            return "is empty: name a LocalQueue, or leave it out"
        if isinstance(self.queue, str) and len(self.queue) <= MAX_LABEL_VALUE and names.is_dns_subdomain(self.queue):
            return ""
        shown, allowed = quote(str(self.queue)), 'use lower-case letters, digits, "-" and "."'
        return f'"{shown}" is no LocalQueue: {allowed}, at most {MAX_LABEL_VALUE} characters'


@dataclass(frozen=True, slots=True)
class QueueRule:
    """One rule. Empty criteria match everything."""

    queue: str = ""
    """LocalQueue; empty: the one that the object names at the first of `places` with a value."""
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds, by their names in `integrations.frameworks`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the object must have, all with these values."""
    group_name_from: tuple[str, ...] = ()
    """Labels of a pod whose values together name its group; a pod without one of them is in no group."""
    pod_set_from: str = ""
    """Label of a pod that names its pod set in that group."""
    queue_annotations: tuple[str, ...] = ()
    """Annotations of other systems that name the queue, wherever labels of the object are read."""
    queue_fields: tuple[str, ...] = ()
    """Paths of fields of custom resources that name the queue, for example `spec.queue`."""

    def places(self, kind: Kind) -> list[Path]:
        """Return the paths at which an object of this kind may name its queue."""
        parents = [("metadata",), *([kind.more_labels[:-1]] if kind.more_labels else [])]
        fields = [tuple(field.split(".")) for field in self.queue_fields] if kind.is_custom else []
        return [*((*parent, "annotations", key) for parent in parents for key in self.queue_annotations), *fields]

    def queue_reference(self, kind: Kind, obj: Object) -> QueueReference | None:
        """Return where the object itself names its queue; None: it does not."""
        found = [
            QueueReference(path, value) for path in self.places(kind) if (value := paths.at(obj, path)) is not None
        ]
        return next((each for each in found if each.queue != ""), found[0] if found else None)

    def is_for(self, kind: Kind) -> bool:
        """Whether the rule applies to objects of this kind."""
        return not self.kinds or framework(kind) in self.kinds

    def matches(self, kind: Kind, namespace: str, obj: Object) -> bool:
        """Whether the rule applies to this object."""
        return (
            self.is_for(kind)
            and (not self.namespaces or namespace in self.namespaces)
            and self.labels.items() <= (obj["metadata"].get("labels") or NOTHING).items()
            and (bool(self.queue) or self.queue_reference(kind, obj) is not None)
        )

    def group_labels(self, kind: Kind, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that assign a pod to its group; empty: it is in none, or names its group itself."""
        values = [labels.get(key, "") for key in self.group_name_from]
        if (kind.group, kind.kind) != POD or not values or not all(values) or first(labels, GROUP_NAME):
            return {}
        group = {GROUP_NAME[0]: _shortened(".".join(map(_as_name, values)))}
        if (pod_set := labels.get(self.pod_set_from)) and POD_SET not in labels:
            group[POD_SET] = _plain(pod_set)
        return group


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """Which objects without a queue label are queued."""

    namespaces: LabelSelector | None = None
    """Selector of namespaces in which everything is queued; None: there are none."""
    rules: tuple[QueueRule, ...] = ()

    def has_all_of(self, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether everything in a namespace with these labels is queued. None: the namespace does not exist."""
        return (
            self.namespaces is not None and namespace_labels is not None and self.namespaces.matches(namespace_labels)
        )


EVERYTHING_IS_LABELLED: Final = Unlabelled()
"""Setting by which objects without a queue label are not queued."""


def _as_name(value: str) -> str:
    """Return a label's value as part of an object's name: unchanged if valid, else with a hash that keeps it unique."""
    if names.is_dns_label(value):
        return value
    return f"{_plain(value)}-{sha256(value.encode()).hexdigest()[:8]}".lstrip("-")


def _shortened(name: str) -> str:
    """Return the name as the value of a label: if it is too long, its beginning with a hash that keeps it unique."""
    if len(name) <= MAX_LABEL_VALUE:
        return name
    return f"{name[: MAX_LABEL_VALUE - 9].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"


def _plain(value: str) -> str:
    return re.sub("[^a-z0-9]+", "-", value.lower()).strip("-")


def first_match(rules: Iterable[QueueRule], kind: Kind, namespace: str, *forms: Object) -> tuple[int, QueueRule] | None:
    """Return the first rule that matches one of these versions of an object, and its number.

    Rules that name a queue are numbered from 1; one that does not has the number of the last before it.
    """
    number = 0
    for rule in rules:
        number += bool(rule.queue)
        if any(rule.matches(kind, namespace, each) for each in forms):
            return number, rule
    return None
