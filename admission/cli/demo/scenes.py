"""Plans of two scenes: fair sharing, where teams borrow the cohort's quota by weight, and kinds that start whole."""

from __future__ import annotations

import random
from typing import Final

from admission.cli.demo.plan import Nodes, PlannedJob, ScenePlan, Team

_GIB: Final = 2**30
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_POD: Final = {"cpu": 1_000, "memory": _GIB}

# Name, weight, number of Jobs, and their arrival in real seconds after the start: the first team takes everything.
_TEAMS: Final = (("research", 1, 60, 0.0), ("students", 1, 40, 4.0), ("platform", 2, 50, 8.0))


def fair_share(*, speed: float = 60.0) -> ScenePlan:
    """Return the plan: three teams with the quota of 4 of 30 nodes each; that of the other 18 belongs to the cohort.

    The first team borrows all of the cohort's quota. The teams that arrive later reclaim what exceeds its fair share:
    its Jobs are evicted, requeued as they were written, and run later.
    """
    chance = random.Random(1)
    own = {resource: 4 * amount for resource, amount in _NODE.items()}
    return ScenePlan(
        title="fair sharing: 150 Jobs of 10 pods, three teams with weights 1, 1 and 2",
        notes=(
            "The quota of 18 of the 30 nodes belongs to the cohort, for any team to borrow.",
            "When other teams need it, Jobs of a team above its fair share are evicted, and run later.",
        ),
        teams=tuple(Team(name, own, None, f"{name}-jobs", 0, weight) for name, weight, _, _ in _TEAMS),
        nodes=Nodes(30, _NODE),
        jobs=tuple(
            PlannedJob(f"{name}-{number:02}", name, 10, _POD, round(180 * chance.uniform(0.8, 1.2), 1), arrival)
            for name, _, jobs, arrival in _TEAMS
            for number in range(jobs)
        ),
        speed=speed,
        shown=("cpu",),
        common={resource: 18 * amount for resource, amount in _NODE.items()},
        fair_sharing=True,
    )


_MEMBER: Final = {"cpu": 2_000, "memory": 2 * _GIB}

# Team, kind, number of objects, and pods of each.
_TEAMS_OF_KINDS: Final = (
    ("rayclusters", "RayCluster", 14, 7),
    ("torchx", "VolcanoJob", 14, 8),
    ("statefulsets", "StatefulSet", 14, 6),
    ("jobs", "Job", 12, 10),
)


def of_kinds(*, speed: float = 60.0) -> ScenePlan:
    """Return the plan: four teams, each with one kind and the quota of 7 of 28 nodes, that lend idle quota."""
    chance = random.Random(1)
    own = {resource: 7 * amount for resource, amount in _NODE.items()}
    return ScenePlan(
        title=f"{sum(count for *_, count, _ in _TEAMS_OF_KINDS)} objects of four kinds, each started with all its pods",
        notes=(
            "Simulated KubeRay and Volcano operators run the RayClusters and the Volcano Jobs of TorchX.",
            "The pods of a StatefulSet form a pod group.",
        ),
        teams=tuple(Team(name, own, None, f"{name}-work", 0) for name, *_ in _TEAMS_OF_KINDS),
        nodes=Nodes(28, _NODE),
        jobs=tuple(
            PlannedJob(f"{name}-{number:02}", name, pods, _MEMBER, round(180 * chance.uniform(0.8, 1.2), 1), kind=kind)
            for number in range(max(count for *_, count, _ in _TEAMS_OF_KINDS))
            for name, kind, count, pods in _TEAMS_OF_KINDS
            if number < count
        ),
        speed=speed,
        shown=("cpu",),
        kinds=("pod", "ray.io/raycluster", "batch.volcano.sh/job"),
        noun="objects",
    )
