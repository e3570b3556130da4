"""The third scene: RayClusters, Volcano Jobs of TorchX, StatefulSets and Jobs in one cohort, started all-or-nothing."""

from __future__ import annotations

import random
from typing import Final

from admission.cli.demo.plan import Nodes, Plan, PlannedJob, Team

_GIB: Final = 2**30
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_POD: Final = {"cpu": 2_000, "memory": 2 * _GIB}

# Team, kind, number of objects, and pods of each.
_TEAMS: Final = (
    ("rayclusters", "RayCluster", 14, 7),
    ("torchx", "VolcanoJob", 14, 8),
    ("statefulsets", "StatefulSet", 14, 6),
    ("jobs", "Job", 12, 10),
)


def of_kinds(*, speed: float = 60.0, seed: int = 1) -> Plan:
    """Return the plan: four teams, each with one kind and the quota of 7 of 28 nodes, that lend idle quota."""
    chance = random.Random(seed)
    own = {resource: 7 * amount for resource, amount in _NODE.items()}
    return Plan(
        title=f"{sum(count for *_, count, _ in _TEAMS)} objects of four kinds, each started with all its pods",
        notes=(
            "Simulated KubeRay and Volcano operators run the RayClusters and the Volcano Jobs of TorchX.",
            "The pods of a StatefulSet form a pod group.",
        ),
        teams=tuple(Team(name, own, None, f"{name}-work", 0) for name, *_ in _TEAMS),
        nodes=Nodes(28, _NODE),
        jobs=tuple(
            PlannedJob(f"{name}-{number:02}", name, pods, _POD, round(180 * chance.uniform(0.8, 1.2), 1), kind=kind)
            for number in range(max(count for *_, count, _ in _TEAMS))
            for name, kind, count, pods in _TEAMS
            if number < count
        ),
        speed=speed,
        shown=("cpu",),
        kinds=("pod", "ray.io/raycluster", "batch.volcano.sh/job"),
        noun="objects",
    )
