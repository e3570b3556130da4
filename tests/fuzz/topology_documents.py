"""The floor: nodes in blocks and racks of the fuzz's cluster, and what a Job may request of them."""

from __future__ import annotations

from itertools import product
from typing import Any

from admission.model.quantity import parse_quantity
from tests.fuzz.documents import BY_RACK, FLOOR

Object = dict[str, Any]

BLOCK, RACK, HOST = "sluice.test/block", "sluice.test/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)
_PREFIX = "sluice.dev/podset-"
REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE = (
    f"{_PREFIX}{name}"
    for name in (
        "required-topology",
        "preferred-topology",
        "unconstrained-topology",
        "slice-required-topology",
        "slice-size",
    )
)
CPUS = 2
"""CPUs of each node."""
_HOSTS = {BLOCK: 4, RACK: 2, HOST: 1}
"""Number of nodes in a domain of each level."""
NODES = {
    f"floor-{block}{rack}{host}": {
        "sluice.test/pool": FLOOR,
        BLOCK: f"b{block}",
        RACK: f"b{block}r{rack}",
        HOST: f"floor-{block}{rack}{host}",
    }
    for block, rack, host in product(range(2), repeat=3)
}

NODES |= {
    f"{BY_RACK}-{rack}{host}": {
        "sluice.test/pool": BY_RACK,
        BLOCK: "c",
        RACK: f"c-r{rack}",
        HOST: f"{BY_RACK}-{rack}{host}",
    }
    for rack, host in product(range(2), repeat=2)
}
"""Labels by node: two blocks of two racks of two nodes, and one block of two racks of two nodes."""


def topology(name: str) -> Object:
    levels = [{"nodeLabel": level} for level in (LEVELS if name == FLOOR else LEVELS[:2])]
    return {"apiVersion": "sluice.dev/v1", "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}


def floor_node(name: str) -> Object:
    amounts = {"cpu": str(CPUS), "memory": "1000Gi", "pods": "110", "nvidia.com/gpu": "1000"}
    return {
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": NODES[name]},
        # Pods that no queue has placed do not come here.
        "spec": {"taints": [{"key": "sluice.test/tainted", "effect": "NoSchedule"}]},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def fits_floor(queue: str, placed: Object, pods: int, cpu: str) -> bool:
    """Return whether pods with these annotations fit on the empty floor of a queue."""
    if queue == BY_RACK and HOST in placed.values():
        return False
    on_a_node = int(CPUS / parse_quantity(cpu))
    level = placed.get(REQUIRED, BLOCK)
    domains = 1 if REQUIRED in placed or queue == BY_RACK else 2
    if SLICE_LEVEL not in placed:
        return pods <= domains * _HOSTS[level] * on_a_node
    size, inner = int(placed[SLICE_SIZE]), placed[SLICE_LEVEL]
    if pods % size or _HOSTS[inner] > _HOSTS[level]:
        return False
    slices = domains * _HOSTS[level] // _HOSTS[inner] * (_HOSTS[inner] * on_a_node // size)
    return pods // size <= slices
