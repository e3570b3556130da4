"""Nodes and pods as placement by topology sees them: the parts that count of the objects of the API server."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from admission.engine.topology.nodes import NodeState
from admission.kinds import ranks, topology
from admission.kinds.base import KUEUE, MANAGED, POD_OWNER, WORKLOAD_UID
from admission.kinds.capacity import allocatable
from admission.kinds.grouping import ROLE, STARTED_WITH
from admission.kinds.limits import NamespaceContext
from admission.kinds.requests import pod_requests
from admission.model.errors import Misconfigured
from admission.model.topology import NodeTaint

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDED = ("Succeeded", "Failed")
_OF_CONTAINER = ("resources", "restartPolicy")
"""The fields of a container that its requests follow from."""
_OF_WORKLOAD = frozenset((WORKLOAD_UID, POD_OWNER, MANAGED, f"{KUEUE}podset"))
"""Labels one of which the pods of a placed workload have; Kueue's if it has started them."""
_NO_CONTEXT = NamespaceContext()


class SeenPod(NamedTuple):
    """A pod that is not terminated."""

    key: str
    """`namespace/name`."""
    uid: str
    version: str
    """Its resourceVersion."""
    node: str
    """The node that it is bound to; empty: none yet."""
    deleting: bool
    """Whether it is being deleted."""
    requests: Mapping[str, int] | None
    """What it takes of the node beside the workloads that are placed; None: it is of such a workload."""
    workload: str = ""
    """Uid of the workload that its labels name, if that is placed."""
    pod_set: str = ""
    """Its pod set in that workload, if the pods of that get their domains one by one; else empty."""
    gates: tuple[str, ...] = ()
    """Its scheduling gates, if it has the one of topology."""
    placed: ranks.PlacedPod | None = None
    """What its place follows from; None unless `pod_set` is set."""
    orphaned: bool = False
    """Whether `pod_set` is set, and its owner is gone."""


def node_state(manifest: Mapping[str, Any]) -> NodeState:
    """Return what placement knows about a node."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    ready = [entry["status"] for entry in status.get("conditions") or () if entry["type"] == "Ready"]
    return NodeState(
        metadata["name"],
        metadata.get("labels") or {},
        allocatable(manifest)[0],
        tuple(NodeTaint(taint["key"], taint.get("value") or "", taint["effect"]) for taint in spec.get("taints") or ()),
        ready="True" in ready,
        unschedulable=bool(spec.get("unschedulable")),
        reports=bool(ready),
    )


def taken_by(manifest: Mapping[str, Any]) -> tuple[str, Mapping[str, int]] | None:
    """Return node and requests of a pod that takes room on a node; None if it takes none beside its workload."""
    annotations = manifest["metadata"].get("annotations") or {}
    return _room_of(manifest) if topology.PLACED_ANNOTATIONS.isdisjoint(annotations) else None


def _room_of(manifest: Mapping[str, Any]) -> tuple[str, Mapping[str, int]] | None:
    """Return node and requests of a pod; None: it is not bound to a node, or has ended."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return None
    written = {field: spec[field] for field in ("resources", "overhead") if field in spec}
    for field in ("containers", "initContainers"):
        if field in spec:
            written[field] = [{key: one[key] for key in _OF_CONTAINER if key in one} for one in spec[field] or ()]
    return spec["nodeName"], _requests(orjson.dumps(written))


@lru_cache(maxsize=4096)
def _requests(written: bytes) -> Mapping[str, int]:
    """Return the requests of a pod with these fields. Many pods have the same: they share one result."""
    try:
        # The API server has admitted the pod: LimitRanges and RuntimeClasses are in its fields already.
        return pod_requests(orjson.loads(written), _NO_CONTEXT, path="spec")
    except Misconfigured:  # requests that are not understood take the pod's place only
        return {}


def seen_pod(manifest: dict[str, Any]) -> SeenPod | None:
    """Return what counts of a pod; None: nothing does, as it is terminated, or unbound and of no placed workload."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    if (manifest.get("status") or {}).get("phase") in _ENDED:
        return None
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    workload = pod_set = ""
    gates: tuple[str, ...] = ()
    placed = None
    if topology.PLACED_ANNOTATIONS.isdisjoint(annotations) or _OF_WORKLOAD.isdisjoint(labels):
        # Whoever annotates a pod that no queue knows takes room on its node all the same.
        taken = _room_of(manifest)
    else:
        taken = None
        workload = labels.get(WORKLOAD_UID) or labels.get(POD_OWNER) or ""
        pod_set = annotations.get(topology.POD_SET, "")
        if MANAGED in labels:
            workload, pod_set = annotations.get(STARTED_WITH, workload), annotations.get(ROLE, pod_set)
        if pod_set:
            gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ())
            gated = topology.GATE in gates
            selector = dict(spec.get("nodeSelector") or {})
            indexes = ranks.index_labels(manifest)
            placed = ranks.PlacedPod(metadata["uid"], indexes, gated, selector, ranks.offset_of(manifest))
    if not workload and taken is None:
        return None
    return SeenPod(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        metadata["resourceVersion"],
        spec.get("nodeName") or "",
        "deletionTimestamp" in metadata,
        None if taken is None else taken[1],
        workload,
        pod_set,
        gates,
        placed,
        bool(pod_set) and not metadata.get("ownerReferences"),
    )


def ungate_patch(pod: SeenPod, selector: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON patch that gives a gated pod the node selector of its domain and removes the gate."""
    assert pod.placed is not None, pod
    kept = [{"name": gate} for gate in pod.gates if gate != topology.GATE]
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/spec/schedulingGates", "value": [{"name": gate} for gate in pod.gates]},
        {"op": "add", "path": "/spec/nodeSelector", "value": {**pod.placed.selector, **selector}},
        {"op": "replace", "path": "/spec/schedulingGates", "value": kept}
        if kept
        else {"op": "remove", "path": "/spec/schedulingGates"},
    ]
