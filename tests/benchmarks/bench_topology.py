"""Cost of a placement by topology: 100 to 10,000 nodes in three levels, in processor time of one core.

Then preemption (`bench_topology_preemption`), and `sluice serve` beside clusters of these sizes
(`bench_topology_cluster`).
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Iterator

from admission.engine.topology.counting import requests_of
from admission.engine.topology.nodes import NodeState, PodRules
from admission.engine.topology.placement import Placed, Question, Rules, place
from admission.engine.topology.state import PlacedPods, Topologies, TreeSpec
from admission.model.topology import HOSTNAME, SliceLayer, TopologyRequest
from tests.benchmarks import bench_topology_cluster, bench_topology_preemption
from tests.benchmarks.measure import Figure, at_most

SIZES = (100, 1_000, 10_000)
GPU = "nvidia.com/gpu"
GOAL = 3.0
"""Milliseconds of one placement with 10,000 nodes."""

_REQUESTS = {
    "required rack, 8 pods": (8, TopologyRequest(required="rack")),
    "preferred rack, 64 pods": (64, TopologyRequest(preferred="rack")),
    "unconstrained, 64 pods": (64, TopologyRequest(unconstrained=True)),
    "required block, slices of 8 in racks, 64 pods": (
        64,
        TopologyRequest(required="block", layers=(SliceLayer("rack", 8),)),
    ),
}


def cluster(nodes: int) -> Topologies:
    """Return the tree of a flavor with that many nodes of 8 GPUs: 16 in a rack, 40 racks in a block."""
    topologies = Topologies()
    topologies.set_flavors({"gpu": TreeSpec("default", ("block", "rack", HOSTNAME), {})})
    for number in range(nodes):
        rack, name = number // 16, f"node-{number:05}"
        labels = {"block": f"block-{rack // 40:02}", "rack": f"rack-{rack:03}", HOSTNAME: name}
        topologies.node_changed(NodeState(name, labels, {GPU: 8, "cpu": 96_000, "pods": 110}))
    return topologies


async def run() -> list[Figure]:
    """Measure placements of new demands, and of one demand, each of which changes the nodes for the next."""
    figures = []
    for size in SIZES:
        tracemalloc.start()
        topologies = cluster(size)
        memory = tracemalloc.get_traced_memory()[0] / 2**20
        tracemalloc.stop()
        figures.append(Figure(f"{size:,} nodes: memory of nodes and tree", f"{memory:.1f} MiB"))
        began = time.process_time()
        place(topologies.trees["gpu"], _question(1, TopologyRequest(required=HOSTNAME), cpu=1), Rules())
        figures.append(
            Figure(f"{size:,} nodes: first placement of all", f"{1e3 * (time.process_time() - began):.2f} ms")
        )
        for varied in (False, True):
            nodes = f"{size:,} nodes{', each with another amount free' if varied else ''}"
            if varied:
                _vary(topologies)
            for name, (count, request) in _REQUESTS.items():
                figures += _placements(topologies, f"{nodes}: {name}", count, request, judged=size == max(SIZES))
    return [*figures, *bench_topology_preemption.figures(), *await bench_topology_cluster.run()]


def _question(number: int, request: TopologyRequest, cpu: int) -> Question:
    return Question(number, requests_of({GPU: 2, "cpu": cpu}), request, PodRules())


def _vary(topologies: Topologies) -> None:
    """Bind a pod of others to each node, with requests of its own."""
    for number, node in enumerate(topologies.nodes_of()):
        topologies.pod_bound(str(number), node, {"cpu": 100 + number})


def _placements(
    topologies: Topologies, what: str, count: int, request: TopologyRequest, *, judged: bool
) -> Iterator[Figure]:
    """Yield the cost of the first placement of each of several demands, and of later ones of one demand."""
    tree, held = topologies.trees["gpu"], []
    first, later = [], []
    for number in range(20):
        began = time.process_time()
        place(tree, _question(count, request, 4_001 + number), Rules())
        first.append(1e3 * (time.process_time() - began))
    question = _question(count, request, 4_000)
    for _ in range(max(3, min(tree.total // 32, 50))):
        began = time.process_time()
        placed = place(tree, question, Rules())
        later.append(1e3 * (time.process_time() - began))
        if isinstance(placed, Placed):
            held.append([PlacedPods("gpu", placed.pods, question.requests)])
            topologies.hold(held[-1], 1)
    for pods in held:
        topologies.hold(pods, -1)
    tree.counts.clear()
    for which, spent in (("first of a demand", first), ("later ones", later[1:])):
        middle = statistics.median(spent)
        yield (
            at_most(f"{what}, {which}", middle, GOAL, "ms")
            if judged
            else Figure(f"{what}, {which}", f"{middle:.2f} ms")
        )
