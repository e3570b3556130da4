"""Reader for the nodes and pods of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.engine import NodeChanged, PodBound, PodEnded, TopologyRules
from admission.engine.topology.nodes import NodeState, NodeTaint
from admission.engine.topology.placement import Rules
from admission.kinds.limits import NamespaceContext
from admission.kinds.requests import pod_requests
from admission.model.quantity import amount
from admission.simulate.scenario import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.events import TopologyEvent

_PREFIX = "kueue.x-k8s.io/podset-"
_OF_TOPOLOGY = tuple(
    f"{_PREFIX}{name}"
    for name in (
        "required-topology",
        "preferred-topology",
        "unconstrained-topology",
        "slice-required-topology",
        "slice-required-topology-constraints",
    )
)
"""Annotations of pods that were placed by topology, and are counted with their workload."""


def topology_rules(document: Mapping[str, Any]) -> TopologyRules | None:
    """Return how the workloads of a scenario are placed; None: the scenario has no topologies."""
    if not document.get("topologies"):
        return None
    gates = document.get("featureGates") or {}
    if not gates.get("TopologyAwareScheduling", True):
        return None
    fail_fast = gates.get("TASFailedNodeReplacementFailFast", True)
    again = gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True)
    return TopologyRules(Rules(mixed=gates.get("TASProfileMixed", True)), places_again=again, fail_fast=fail_fast)


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
    counted = counted_pod(manifest)
    return PodEnded(key_of(manifest)) if counted is None else PodBound(*counted)


def node_state(manifest: Mapping[str, Any]) -> NodeState:
    """Return what placement knows about a node."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in status.get("conditions") or ())
    return NodeState(
        metadata["name"],
        metadata.get("labels") or {},
        {name: amount(name, value) for name, value in (status.get("allocatable") or {}).items()},
        tuple(NodeTaint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in spec.get("taints") or ()),
        ready=ready,
        unschedulable=bool(spec.get("unschedulable")),
    )


def counted_pod(manifest: Mapping[str, Any]) -> tuple[str, str, Mapping[str, int]] | None:
    """Return key, node and requests of a pod that takes room on a node; None if it takes none beside its workload."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    annotations = manifest["metadata"].get("annotations") or {}
    ended = status.get("phase") in ("Succeeded", "Failed")
    if not spec.get("nodeName") or ended or any(name in annotations for name in _OF_TOPOLOGY):
        return None
    return key_of(manifest), spec["nodeName"], pod_requests(spec, NamespaceContext(), path="spec")
