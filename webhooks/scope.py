"""Scope of the gate: exempt users, namespaces, and rules that name the queue of objects without a queue label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.kinds.base import Object
    from admission.kinds.rules import QueueRule


@dataclass(frozen=True, slots=True)
class Scope:
    """Users, namespaces and rules that decide what is gated, by webhooks as well as by policies."""

    own_usernames: tuple[str, ...]
    """User names of Sluice itself; only these users may start queued objects."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    """Namespaces in which nothing is gated."""
    managed: tuple[Object, ...] | None = None
    """`matchExpressions` for labels of managed namespaces, where unlabelled Jobs are queued; None: there are none."""

    rules: tuple[QueueRule, ...] = ()
    """Rules that name the queue of objects without a queue label; the first match counts."""
    by_label: tuple[str, ...] = ()
    """Names of the kinds of which objects without a queue label are not gated, even in managed namespaces."""

    def namespaces(self) -> Object:
        """Return the LabelSelector of the namespaces in which objects with a queue label are gated."""
        return {"matchExpressions": [self._not_excluded()]}

    def managed_namespaces(self) -> Object:
        """Return the LabelSelector of the managed namespaces, in which objects without a queue label are gated, too."""
        return {"matchExpressions": [*(self.managed or ()), self._not_excluded()]}

    def _not_excluded(self) -> Object:
        values = list(self.excluded_namespaces)
        return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}
