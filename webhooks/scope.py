"""Whom the gate is about: users, namespaces, and what names a queue in another way than by a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.kinds.base import Object
    from admission.kinds.rules import QueueRule


@dataclass(frozen=True, slots=True)
class Scope:
    """Whom the gate is about, be it webhooks or policies."""

    own_usernames: tuple[str, ...]
    """Those of Sluice itself, which alone may start what is queued."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    managed: tuple[Object, ...] | None = None
    """The `matchExpressions` of the namespaces in which Jobs are queued without a label, too; None: nowhere."""

    rules: tuple[QueueRule, ...] = ()
    """Which queue what has no queue label is for."""

    def namespaces(self) -> Object:
        """The LabelSelector of all namespaces in which Jobs with a queue label are gated."""
        return {"matchExpressions": [self._not_excluded()]}

    def managed_namespaces(self) -> Object:
        """The LabelSelector of the namespaces in which all Jobs are."""
        return {"matchExpressions": [*(self.managed or ()), self._not_excluded()]}

    def _not_excluded(self) -> Object:
        values = list(self.excluded_namespaces)
        return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}
