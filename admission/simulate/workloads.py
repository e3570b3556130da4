"""Readers of a scenario: its Kueue Workloads (requests, quota held at the start, faults), nodes and pods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from admission.engine import NodeChanged, PodBound, PodEnded, TopologyRules
from admission.engine.topology.placement import Rules
from admission.engine.vocabulary import MISCONFIGURED, PENDING_EVALUATION
from admission.kinds.limits import NamespaceContext
from admission.kinds.placement import node_state, taken_by
from admission.kinds.templates import pod_set as read_template
from admission.model.errors import Misconfigured
from admission.model.quantity import amount
from admission.model.terms import NO_TERMS, Terms
from admission.model.topology_documents import topology_assignment, topology_request
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.simulate.scenario import key_of, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.engine.events import TopologyEvent
    from admission.engine.topology.nodes import NodeState

_PREFIX = "kueue.x-k8s.io"
_NO_LIMITS = NamespaceContext()


@dataclass(frozen=True, slots=True)
class ScenarioWorkload:
    """A workload of a scenario in its initial state."""

    workload: Workload
    admission: Admission | None
    """The quota that it holds at the start; None: it is pending."""
    at: float
    """Unix time (s) since when it holds quota."""
    evicting: bool
    """Whether it is being evicted."""
    inactive: bool
    """Whether it is finished or deactivated, and takes no part."""
    fault: tuple[str, str] | None
    """Reason and message if it cannot be admitted as it is."""


class WorkloadReader:
    """Reads the Workloads of one scenario, under its `featureGates`, `podsReadyRequeuingTimestamp` and LimitRanges."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._gates: Mapping[str, bool] = document.get("featureGates") or {}
        limits: dict[str, list[Mapping[str, Any]]] = {}
        for item in document.get("objects") or ():
            if item.get("kind") == "LimitRange":
                limits.setdefault(item["metadata"].get("namespace", ""), []).append(item)
        self._uids: dict[str, str] = {}
        for manifest in document.get("workloads") or ():
            key, uid = key_of(manifest), manifest["metadata"].get("uid") or key_of(manifest)
            # Some recorded test cases of Kueue use a uid twice.
            self._uids[key] = uid if uid not in self._uids.values() else f"{uid} {key}"
        self._contexts = {namespace: NamespaceContext(items) for namespace, items in limits.items()}
        self._waits_since_eviction = {"AdmissionCheck", "PodsReadyTimeout"}
        if document.get("podsReadyRequeuingTimestamp") == "Creation":
            self._waits_since_eviction.remove("PodsReadyTimeout")

    def read(self, manifest: Mapping[str, Any]) -> ScenarioWorkload:
        """Return the workload of a manifest, with its initial state."""
        metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
        conditions = {entry["type"]: entry for entry in status.get("conditions") or () if entry["status"] == "True"}
        evicted, reserved = conditions.get("Evicted"), conditions.get("QuotaReserved")
        own_fault = evicted is not None and evicted.get("reason") in self._waits_since_eviction
        annotations = metadata.get("annotations") or {}
        reclaimable = self._reclaimable(status)
        workload = Workload(
            uid=self._uids.get(key_of(manifest)) or metadata.get("uid") or key_of(manifest),
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            queue=spec.get("queueName", ""),
            priority=self._priority(spec, annotations),
            created=seconds(metadata.get("creationTimestamp")),
            pod_sets=tuple(
                self._pod_set(entry, number, reclaimable) for number, entry in enumerate(spec.get("podSets") or ())
            ),
            kind="Workload",
            queued_at=seconds(evicted["lastTransitionTime"]) if evicted is not None and own_fault else None,
            replaces=self._uids.get(annotations.get(f"{_PREFIX}/workload-slice-replacement-for", ""), ""),
            may_preempt=not self._gated(spec, status),
            terms=self._terms(metadata, conditions),
            max_seconds=spec.get("maximumExecutionTimeSeconds"),
        )
        holds = reserved is not None and bool(status.get("admission"))
        return ScenarioWorkload(
            workload,
            self._admission(status["admission"], reclaimable) if holds else None,
            seconds(reserved.get("lastTransitionTime")) if reserved is not None else 0.0,
            evicting=evicted is not None,
            inactive="Finished" in conditions or spec.get("active") is False or self._is_parent(metadata),
            fault=self._fault(metadata.get("namespace", ""), spec, status),
        )

    def _reclaimable(self, status: Mapping[str, Any]) -> dict[str, int]:
        if not self._gates.get("ReclaimablePods", True):
            return {}
        return {entry["name"]: entry["count"] for entry in status.get("reclaimablePods") or ()}

    def _priority(self, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> int:
        priority: int = spec.get("priority") or 0
        boost = annotations.get(f"{_PREFIX}/priority-boost", "") if self._gates.get("PriorityBoost") else ""
        return priority + int(boost) if boost.lstrip("-").isdecimal() else priority

    def _pod_set(self, entry: Mapping[str, Any], number: int, reclaimable: Mapping[str, int]) -> PodSet:
        # Limits matter for the validity of the pods only, which `_fault` checks.
        result = _read_pod_set(_without_limits(entry) if _has_limits(entry) else entry, number, _NO_LIMITS)
        group = (entry.get("topologyRequest") or {}).get("podSetGroupName") or result.group
        partial = self._gates.get("PartialAdmission", True)
        return replace(
            result,
            count=result.count - reclaimable.get(result.name, 0),
            min_count=result.min_count if partial else None,
            group=group,
            topology=topology_request(entry.get("topologyRequest")),
        )

    def _is_parent(self, metadata: Mapping[str, Any]) -> bool:
        """Whether only its variants are queued, in concurrent admission."""
        label = (metadata.get("labels") or {}).get(f"{_PREFIX}/concurrent-admission-parent")
        return label == "true" and bool(self._gates.get("ConcurrentAdmission"))

    def _terms(self, metadata: Mapping[str, Any], conditions: Mapping[str, Any]) -> Terms:
        """Return what makes a Workload a variant of another one, in concurrent admission."""
        if not self._gates.get("ConcurrentAdmission"):
            return NO_TERMS
        allowed = (metadata.get("annotations") or {}).get(f"{_PREFIX}/workload-allowed-resource-flavors")
        owners = (
            owner.get("uid", "")
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("kind") == "Workload" and owner.get("apiVersion", "").startswith(f"{_PREFIX}/")
        )
        # A sibling that only holds quota, and is not admitted, keeps nobody from being admitted.
        is_admitted = "Admitted" in conditions or "QuotaReserved" not in conditions
        flavors = tuple(name.strip() for name in allowed.split(",")) if allowed else ()
        return Terms(flavors=flavors, variant_of=next(owners, "") if is_admitted else "")

    def _gated(self, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        if not (self._gates.get("MultiKueueOrchestratedPreemption") or self._gates.get("ConcurrentAdmission")):
            return False
        opened = {entry["name"] for entry in status.get("preemptionGates") or () if entry.get("position") == "Open"}
        return any(gate["name"] not in opened for gate in spec.get("preemptionGates") or ())

    def _fault(self, namespace: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, str] | None:
        states = {entry.get("state") for entry in status.get("admissionChecks") or ()}
        if states & {"Retry", "Rejected"}:
            return PENDING_EVALUATION, "The workload has failed admission checks"
        context = self._contexts.get(namespace, _NO_LIMITS)
        for number, entry in enumerate(spec.get("podSets") or ()):
            if context is _NO_LIMITS and not _has_limits(entry):
                continue  # `_pod_set` has read the same
            try:
                _read_pod_set(entry, number, context)
            except Misconfigured as error:
                return MISCONFIGURED, str(error)
        return None

    def _admission(self, document: Mapping[str, Any], reclaimable: Mapping[str, int]) -> Admission:
        pod_sets = []
        for entry in document.get("podSetAssignments") or ():
            count = entry.get("count", 1)
            left = count - reclaimable.get(entry["name"], 0)
            usage = {name: amount(name, value) for name, value in (entry.get("resourceUsage") or {}).items()}
            if left != count:
                usage = {name: value // count * left for name, value in usage.items()}
            placed = entry.get("topologyAssignment")
            topology = None if placed is None else topology_assignment(placed)
            delayed = bool(entry.get("delayedTopologyRequest"))
            flavors = entry.get("flavors") or {}
            pod_sets.append(PodSetAssignment(entry["name"], flavors, usage, left, topology, delayed))
        return Admission(document["clusterQueue"], tuple(pod_sets))


def _read_pod_set(entry: Mapping[str, Any], number: int, context: NamespaceContext) -> PodSet:
    return read_template(
        entry.get("name", "main"),
        entry.get("template") or {},
        context,
        path=f"spec.podSets[{number}].template",
        count=entry.get("count", 1),
        min_count=entry.get("minCount"),
    )


def _has_limits(entry: Mapping[str, Any]) -> bool:
    spec = (entry.get("template") or {}).get("spec") or {}
    return any(
        (item.get("resources") or {}).get("limits")
        for field in ("containers", "initContainers")
        for item in spec.get(field) or ()
    )


def _without_limits(entry: Mapping[str, Any]) -> dict[str, Any]:
    template = entry.get("template") or {}
    spec = dict(template.get("spec") or {})
    for field in ("containers", "initContainers"):
        spec[field] = [
            {**item, "resources": {"requests": _requests(item.get("resources") or {})}}
            for item in spec.get(field) or ()
        ]
    return {**entry, "template": {**template, "spec": spec}}


def _requests(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    given = resources.get("requests")
    return given if given is not None else resources.get("limits") or {}


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


def written_node(manifest: Mapping[str, Any]) -> NodeState:
    """Return a node as its user has written it. Raises InvalidQuantity, where `node_state` leaves amounts out."""
    for resource, text in ((manifest.get("status") or {}).get("allocatable") or {}).items():
        amount(resource, text, field=f"nodes[{manifest['metadata']['name']}].status.allocatable[{resource}]")
    return node_state(manifest)


def topology_events(document: Mapping[str, Any]) -> Iterator[TopologyEvent]:
    """Yield the nodes and pods that a scenario begins with, as events for an engine that places pods."""
    if topology_rules(document) is None:
        return
    for manifest in document.get("nodes") or ():
        yield NodeChanged(written_node(manifest))
    for manifest in document.get("pods") or ():
        yield pod_event(manifest)


def pod_event(manifest: Mapping[str, Any]) -> PodBound | PodEnded:
    """Return what a pod in this state means for placement."""
    taken = taken_by(manifest)
    return PodEnded(key_of(manifest)) if taken is None else PodBound(key_of(manifest), *taken)
