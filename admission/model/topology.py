"""Topology of a workload: what its pod sets request, and the domains that they are assigned.

A domain is a group of nodes that have the values of the levels' labels in common, such as a rack. Words and rules are
those of Kueue's topology-aware scheduling (KEP 2724).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label whose level has one node in each domain; it can only be the last level."""


class NodeTaint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class SliceLayer(NamedTuple):
    """A size of groups of pods, each of which has to be in one domain of a level."""

    level: str
    """The node label of the level."""
    size: int
    """Number of pods; 0: not given, which is a user's mistake."""


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a pod set requests of the topology: Kueue's `topologyRequest`. At most one of the first three is set."""

    required: str = ""
    """The level in one of whose domains all pods have to be; empty: none."""
    preferred: str = ""
    """The level in one of whose domains all pods should be, or else in as few as possible; empty: none."""
    unconstrained: bool = False
    """Whether the pods may be anywhere, as long as the nodes have room for them."""
    layers: tuple[SliceLayer, ...] = ()
    """Slices of the pod set, outermost first: each slice has to be in one domain of the layer's level."""

    @property
    def explicit(self) -> bool:
        """Whether anything is requested, so that only flavors with a topology can be assigned."""
        return bool(self.required or self.preferred or self.unconstrained or self.layers)


Values = tuple[str, ...]
"""The values of the levels' labels that name a domain."""


class DomainCount(NamedTuple):
    """A number of pods in a domain."""

    values: Values
    pods: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """The domains of a pod set's pods: Kueue's `topologyAssignment`, in the order of the domains' values."""

    levels: tuple[str, ...]
    """The node labels that `values` of the domains belong to; with a level of hostnames only that one."""
    domains: tuple[DomainCount, ...]


def pods_in(assignment: TopologyAssignment) -> int:
    """Return the number of pods of an assignment."""
    return sum(pods for _, pods in assignment.domains)
