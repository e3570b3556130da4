"""Rules that name the queue of what its client gives no queue label: by namespace, kind and labels, the first wins."""

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


LONGEST: Final = 63
"""Characters of the value of a label."""
_WITHOUT_GROUP: Final = ("", "apps")
"""The API groups whose kinds Kueue's configuration, and ours, names without it: `pod`, `statefulset`."""


def dotted(path: Sequence[str]) -> str:
    """As people write it, the key of an annotation in brackets."""
    *parents, key = path
    return ".".join(parents) + (f"[{key}]" if parents[-1] == "annotations" else f".{key}")


class Named(NamedTuple):
    """What an object says of its queue beside labels."""

    path: Path
    queue: Any
    """What is there, be it a name or not."""

    @property
    def where(self) -> str:
        """The path, as people write it."""
        return dotted(self.path)

    @property
    def fault(self) -> str:
        """What keeps it from being the value of a queue label; empty: nothing does."""
        if self.queue == "":
            return "is empty: name a LocalQueue, or leave it out"
        if isinstance(self.queue, str) and len(self.queue) <= LONGEST and names.is_dns_subdomain(self.queue):
            return ""
        told = quote(str(self.queue))
        return f'"{told}" is no LocalQueue: use lower-case letters, digits, "-" and ".", at most {LONGEST} characters'


@dataclass(frozen=True, slots=True)
class QueueRule:
    """One rule. What is empty is not looked at."""

    queue: str = ""
    """Empty: what the object says elsewhere than in a queue label, at the first of `places` that says it."""
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """By their names in `integrations.frameworks`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All of them have to be there, with these values."""
    group_name_from: tuple[str, ...] = ()
    """Labels of a pod by which those are one group that have the same values; without one of them it is in none."""
    pod_set_from: str = ""
    """The label of a pod that names its pod set in that group."""
    queue_annotations: tuple[str, ...] = ()
    """Annotations of other systems that name the queue, on an object or where its labels are looked at, too."""
    queue_fields: tuple[str, ...] = ()
    """Paths of fields of custom resources that name it."""

    def places(self, kind: Kind) -> list[Path]:
        """Where an object of this kind may name its queue."""
        parents = [("metadata",), *([kind.more_labels[:-1]] if kind.more_labels else [])]
        fields = [tuple(field.split(".")) for field in self.queue_fields] if kind.is_custom else []
        return [*((*parent, "annotations", key) for parent in parents for key in self.queue_annotations), *fields]

    def named(self, kind: Kind, obj: Object) -> Named | None:
        """Where the object itself names its queue; None: it does not."""
        found = [Named(path, value) for path in self.places(kind) if (value := paths.at(obj, path)) is not None]
        return next((each for each in found if each.queue != ""), found[0] if found else None)

    def is_for(self, kind: Kind) -> bool:
        """Whether it is for objects of this kind."""
        name = kind.kind.lower()
        return not self.kinds or (name if kind.group in _WITHOUT_GROUP else f"{kind.group}/{name}") in self.kinds

    def matches(self, kind: Kind, namespace: str, obj: Object) -> bool:
        """Whether it is for this object."""
        return (
            self.is_for(kind)
            and (not self.namespaces or namespace in self.namespaces)
            and self.labels.items() <= (obj["metadata"].get("labels") or NOTHING).items()
            and (bool(self.queue) or self.named(kind, obj) is not None)
        )

    def group_labels(self, kind: Kind, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that put a pod that it is for into its group; empty: it is in none, or says itself in which."""
        values = [labels.get(key, "") for key in self.group_name_from]
        if (kind.group, kind.kind) != POD or not values or not all(values) or first(labels, GROUP_NAME):
            return {}
        given = {GROUP_NAME[0]: ".".join(map(_as_name, values))}
        if (pod_set := labels.get(self.pod_set_from)) and POD_SET not in labels:
            given[POD_SET] = _plain(pod_set)
        return given


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """What is queued though it has no queue label of its own."""

    namespaces: LabelSelector | None = None
    """In those that it selects everything is; None: in none."""
    rules: tuple[QueueRule, ...] = ()

    def has_all_of(self, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether everything in a namespace with these labels is queued; None: there is no such namespace."""
        return (
            self.namespaces is not None and namespace_labels is not None and self.namespaces.matches(namespace_labels)
        )


EVERYTHING_IS_LABELLED: Final = Unlabelled()
"""What has no queue label is not queued."""


def _as_name(value: str) -> str:
    """A label's value as part of an object's name: as it is, or so changed that no two values become the same."""
    if names.is_dns_label(value):
        return value
    return f"{_plain(value)}-{sha256(value.encode()).hexdigest()[:8]}".lstrip("-")


def _plain(value: str) -> str:
    return re.sub("[^a-z0-9]+", "-", value.lower()).strip("-")


def first_match(rules: Iterable[QueueRule], kind: Kind, namespace: str, *forms: Object) -> tuple[int, QueueRule] | None:
    """The first rule that matches one of these forms of an object, and its number among those that name a queue."""
    number = 0
    for rule in rules:
        number += bool(rule.queue)
        if any(rule.matches(kind, namespace, each) for each in forms):
            return number, rule
    return None
