"""Preemption by workloads that are placed by topology, among 700 candidates that fill 9,800 nodes.

Processor time of one cycle of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

from admission.engine import (
    Engine,
    NamespaceChanged,
    NodeChanged,
    Policy,
    QueueObjectChanged,
    TopologyRules,
    WorkloadAdmitted,
    WorkloadPending,
)
from admission.engine.topology.nodes import NodeState
from admission.model.manifests import parse_manifest
from admission.model.topology import HOSTNAME, DomainCount, TopologyAssignment, TopologyRequest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.serving.runtime import tune, without_garbage
from tests.benchmarks.measure import Figure, at_most
from tests.queue_objects import cluster_queue, local_queue, manifest, topology

CANDIDATES = 700
_GPU = "nvidia.com/gpu"
_PODS = 14
"""Pods of a candidate, each of which takes a whole node."""
NODES = CANDIDATES * _PODS
_GOAL = 100.0
"""Milliseconds of a decision."""

_RACK, _BLOCK, _ANYWHERE = (
    TopologyRequest(required="rack"),
    TopologyRequest(required="block"),
    TopologyRequest(unconstrained=True),
)
_URGENT = {
    "a rack": ((16, _RACK, ""),),
    "half a block": ((320, _BLOCK, ""),),
    "64 nodes anywhere": ((64, _ANYWHERE, ""),),
    "a rack, for a leader and workers": ((1, _RACK, "group"), (15, _RACK, "group")),
    "half a block, for a leader and workers": ((1, _BLOCK, "group"), (319, _BLOCK, "group")),
    "a rack each, for two pod sets": ((1, _RACK, ""), (15, _RACK, "")),
    "a whole rack each, for two pod sets": ((16, _RACK, ""), (16, _RACK, "")),
    "half a block each, for two pod sets": ((320, _BLOCK, ""), (320, _BLOCK, "")),
    "64 nodes anywhere and a rack": ((64, _ANYWHERE, ""), (16, _RACK, "")),
    "a rack and 64 nodes anywhere": ((16, _RACK, ""), (64, _ANYWHERE, "")),
    "a rack and half a block": ((16, _RACK, ""), (320, _BLOCK, "")),
    "a rack each, for two leaders and their workers": tuple(
        (pods, _RACK, group) for group in ("a", "b") for pods in (1, 15)
    ),
    "half a block, for a leader and workers, and a rack": ((1, _BLOCK, "a"), (319, _BLOCK, "a"), (16, _RACK, "")),
}
"""The pod sets of each: pods, topology, and the group of a leader with its workers."""


def figures() -> Iterator[Figure]:
    """Yield the cost of one cycle for each urgent workload: with neighbours side by side, and spread over all racks."""
    tune()  # as `serve` does
    for scattered in (False, True):
        for what, pod_sets in _URGENT.items():
            with without_garbage():
                engine = _full_cluster(scattered=scattered)
            # The tree has been used before, by pods that would not fit into an empty rack either.
            _submit(engine, "other", ((40, _RACK, ""),), gpus=4)
            urgent = _submit(engine, "urgent", pod_sets)
            began = time.process_time()
            decisions = engine.cycle(4.0)
            spent = 1e3 * (time.process_time() - began)
            evicted = sum(evict.preemptor == urgent for evict in decisions.evicted)
            where = "scattered over all racks" if scattered else "side by side"
            name = f"preemption for {what} among {CANDIDATES} candidates, {where} ({evicted} preempted)"
            yield at_most(name, spent, _GOAL, "ms", digits=0)


def _submit(engine: Engine, name: str, asked: tuple[tuple[int, TopologyRequest, str], ...], *, gpus: int = 8) -> str:
    pod_sets = tuple(
        PodSet(f"pods-{number}", pods, {_GPU: gpus}, topology=request, group=group)
        for number, (pods, request, group) in enumerate(asked)
    )
    engine.observe(WorkloadPending(Workload(name, "ns", name, name, 1, 2.0, pod_sets)), now=2.0)
    if name == "other":
        engine.cycle(3.0)
    return name


def _full_cluster(*, scattered: bool) -> Engine:
    engine = Engine(Policy(topology=TopologyRules()))
    engine.observe(NamespaceChanged("ns", {}), now=0.0)
    for document in _queues():
        engine.observe(QueueObjectChanged(parse_manifest(document)), now=0.0)
    for number in range(NODES):
        rack, name = number // 16, f"node-{number:05}"
        labels = {"pool": "gpu", "block": f"block-{rack // 40:02}", "rack": f"rack-{rack:03}", HOSTNAME: name}
        engine.observe(NodeChanged(NodeState(name, labels, {_GPU: 8, "pods": 110})), now=0.0)
    order = list(range(NODES))
    if scattered:
        Random(1).shuffle(order)
    for number in range(CANDIDATES):
        nodes = sorted(order[number * _PODS : (number + 1) * _PODS])
        places = TopologyAssignment((HOSTNAME,), tuple(DomainCount((f"node-{node:05}",), 1) for node in nodes))
        assigned = PodSetAssignment("main", {_GPU: "gpu"}, {_GPU: 8 * _PODS}, _PODS, places)
        pod_sets = (PodSet("main", _PODS, {_GPU: 8}, topology=TopologyRequest(unconstrained=True)),)
        held = Workload(f"w{number}", "ns", f"w{number}", "research", 0, 0.0, pod_sets)
        engine.observe(WorkloadAdmitted(held, Admission("research", (assigned,)), float(number)), now=1.0)
    engine.settle(1.0)
    return engine


def _queues() -> Iterator[dict[str, Any]]:
    yield topology("dc", "block", "rack", HOSTNAME)
    yield manifest("ResourceFlavor", "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"})
    for name in ("research", "urgent", "other"):
        quotas = {"gpu": {_GPU: 8 * NODES if name != "research" else 0}}
        yield cluster_queue(name, quotas=quotas, cohortName="all", preemption={"reclaimWithinCohort": "Any"})
        yield local_queue(name, "ns", name)
