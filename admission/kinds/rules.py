"""Rules that name the queue of what its client gives no queue label: by namespace, kind and labels, the first wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.kinds.base import Kind


@dataclass(frozen=True, slots=True)
class QueueRule:
    """One rule. What is empty is not looked at."""

    queue: str
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """By group and name, as in the setting `integrations`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All of them have to be there, with these values."""

    def is_for(self, kind: Kind) -> bool:
        """Whether it is for objects of this kind."""
        return not self.kinds or f"{kind.group}/{kind.kind.lower()}".lstrip("/") in self.kinds

    def matches(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it is for this object."""
        return (
            self.is_for(kind)
            and (not self.namespaces or namespace in self.namespaces)
            and self.labels.items() <= labels.items()
        )


def first_match(
    rules: Iterable[QueueRule], kind: Kind, namespace: str, *labels: Mapping[str, str]
) -> tuple[int, QueueRule] | None:
    """The first rule that matches one of these labels of an object, and its position."""
    for number, rule in enumerate(rules):
        if any(rule.matches(kind, namespace, each) for each in labels):
            return number, rule
    return None
