"""Cost of a placement by topology: 100 to 10,000 nodes in three levels, in processor time of one core.

Then `sluice serve` beside the largest cluster (`bench_topology_cluster`).
"""

from __future__ import annotations

import statistics
import time
import tracemalloc

from admission.engine.topology.counting import requests_of
from admission.engine.topology.nodes import NodeState, PodRules
from admission.engine.topology.placement import Placed, Question, Rules, place
from admission.engine.topology.state import PlacedPods, Topologies, TreeSpec
from admission.model.topology import HOSTNAME, SliceLayer, TopologyRequest
from tests.benchmarks import bench_topology_cluster
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
    """Measure placements one after the other, each of which is held, so that the next has to count its nodes anew."""
    figures = []
    for size in SIZES:
        tracemalloc.start()
        topologies = cluster(size)
        memory = tracemalloc.get_traced_memory()[0] / 2**20
        tracemalloc.stop()
        figures.append(Figure(f"{size:,} nodes: memory of nodes and tree", f"{memory:.1f} MiB"))
        for name, (count, request) in _REQUESTS.items():
            question = Question(count, requests_of({GPU: 2, "cpu": 4_000}), request, PodRules())
            first, later = _placements(topologies, question, size // 32)
            figures.append(Figure(f"{size:,} nodes: {name}, first", f"{first:.2f} ms"))
            what = f"{size:,} nodes: {name}, later ones"
            middle = statistics.median(later)
            figures.append(
                at_most(what, middle, GOAL, "ms") if size == max(SIZES) else Figure(what, f"{middle:.2f} ms")
            )
    return figures + await bench_topology_cluster.run()


def _placements(topologies: Topologies, question: Question, number: int) -> tuple[float, list[float]]:
    tree, spent, held = topologies.trees["gpu"], [], []
    for _ in range(max(3, min(number, 50))):
        started = time.process_time()
        placed = place(tree, question, Rules())
        spent.append(1e3 * (time.process_time() - started))
        if isinstance(placed, Placed):
            held.append([PlacedPods("gpu", placed.pods, question.requests)])
            topologies.hold(held[-1], 1)
    for pods in held:
        topologies.hold(pods, -1)
    return spent[0], spent[1:]
