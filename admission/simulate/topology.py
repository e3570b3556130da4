"""Reader for the nodes and pods of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.engine import NodeChanged, PodBound, PodEnded, TopologyRules
from admission.engine.topology.placement import Rules
from admission.kinds.placement import node_state, taken_by
from admission.simulate.scenario import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.events import TopologyEvent


def topology_rules(document: Mapping[str, Any]) -> TopologyRules | None:
    """Return how the workloads of a scenario are placed; None: the scenario has no topologies."""
    if not document.get("topologies"):
        return None
    gates = document.get("featureGates") or {}
    if not gates.get("TopologyAwareScheduling", True):
        return None
    fail_fast = gates.get("TASFailedNodeReplacementFailFast", True)
    again = gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True)
    return TopologyRules(placement_rules(gates), places_again=again, fail_fast=fail_fast)


def placement_rules(gates: Mapping[str, bool]) -> Rules:
    """Return the algorithms of placement with these feature gates of Kueue."""
    return Rules(
        mixed=gates.get("TASProfileMixed", True),
        balanced=gates.get("TASBalancedPlacement", False),
        prefers=gates.get("TASRespectNodeAffinityPreferred", False),
        as_kueue=True,
    )


def topology_events(document: Mapping[str, Any]) -> Iterator[TopologyEvent]:
    """Yield the nodes and pods that a scenario begins with, as events for an engine that places pods."""
    if topology_rules(document) is None:
        return
    for manifest in document.get("nodes") or ():
        yield NodeChanged(node_state(manifest))
    for manifest in document.get("pods") or ():
        yield pod_event(manifest)


def pod_event(manifest: Mapping[str, Any]) -> PodBound | PodEnded:
    """Return what a pod in this state means for placement."""
    taken = taken_by(manifest)
    return PodEnded(key_of(manifest)) if taken is None else PodBound(key_of(manifest), *taken)
