"""Nodes as placement sees them: whether a flavor's tree contains a node, and whether pods can run on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.engine.matching import met, tolerates
from admission.model.topology import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.model.queues import FlavorToleration
    from admission.model.topology import NodeTaint
    from admission.model.workload import NodeRequirement, Toleration


@dataclass(frozen=True, slots=True)
class NodeState:
    """What placement has to know about a node."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    """Resource to amount, as in `admission.model.quantity`."""
    taints: tuple[NodeTaint, ...] = ()
    ready: bool = True
    """Whether its condition Ready is True."""
    unschedulable: bool = False
    """Whether it is cordoned."""
    reports: bool = True
    """Whether it has the condition Ready at all, True or not."""
    drained: bool = False
    """Whether a Drain keeps new pods away."""

    @property
    def hostname(self) -> str:
        """Its label of the hostname, which is its name unless somebody has changed that."""
        return self.labels.get(HOSTNAME, self.name)

    @property
    def usable(self) -> bool:
        """Whether new pods may be placed on it at all."""
        return self.ready and not self.unschedulable and not self.drained

    def values(self, selector: Mapping[str, str], levels: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return its domain in the tree of a flavor with these labels; None: it is not in the tree."""
        labels = self.labels
        if any(labels.get(key) != value for key, value in selector.items()):
            return None
        values = tuple(labels.get(level) for level in levels)
        return values if None not in values else None  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class PodRules:
    """Which nodes the pods of a pod set can run on. Hashable, so that counts can be cached by it."""

    tolerations: tuple[Toleration | FlavorToleration, ...] = ()
    """Those of the pods and of the flavor."""
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[NodeRequirement, ...], ...] | None = None
    """Required node affinity: terms, one of which must match."""
    preferences: tuple[tuple[int, tuple[NodeRequirement, ...]], ...] = ()
    """Preferred node affinity: (weight, term)."""

    def labels(self) -> tuple[str, ...]:
        """Return the labels of nodes that these rules look at, sorted."""
        terms = (*(self.affinity or ()), *(term for _, term in self.preferences))
        return tuple(sorted({key for key, _ in self.selector} | {one.key for term in terms for one in term}))

    def score(self, node: NodeState) -> int:
        """Return how much the pods prefer the node: the sum of the weights of the terms that match."""
        return sum(weight for weight, term in self.preferences if _matches(term, node.labels))

    def exclusion(self, node: NodeState) -> str:
        """Return why the pods cannot run on the node, as a word of Kueue's messages; "" if they can."""
        taint = untolerated(node.taints, self.tolerations)
        if taint is not None:
            return f'taint "{taint.key}={taint.value}:{taint.effect}"'
        if any(node.labels.get(key) != value for key, value in self.selector):
            return "nodeSelector"
        if self.affinity is not None and not any(_matches(term, node.labels) for term in self.affinity):
            return "affinity"
        return ""


def untolerated(
    taints: Iterable[NodeTaint], tolerations: tuple[Toleration | FlavorToleration, ...]
) -> NodeTaint | None:
    """Return the first taint that keeps pods with these tolerations from the node; None if there is none."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def _matches(term: tuple[NodeRequirement, ...], labels: Mapping[str, str]) -> bool:
    return bool(term) and all(_fulfilled(requirement, labels.get(requirement.key)) for requirement in term)


def _fulfilled(requirement: NodeRequirement, value: str | None) -> bool:
    if value is None:
        return requirement.operator in ("NotIn", "DoesNotExist")
    return met(requirement, value)
