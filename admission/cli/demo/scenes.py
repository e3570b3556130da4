"""Plans of scenes: fair sharing by weight, kinds that start whole, and several clusters."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from admission.cli.demo.plan import Nodes, PlannedJob, ScenePlan, Team, three_teams
from admission.model.workload import LOCAL

_GIB: Final = 2**30
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_POD: Final = {"cpu": 1_000, "memory": _GIB}
_OTHERS: Final = ("b", "c")
"""Clusters beside the first one."""

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


def of_clusters(*, dispatches: bool, jobs: int, speed: float = 60.0) -> ScenePlan:
    """Return the plan: three clusters with one quota, in all of which Jobs are created; or in one that dispatches them.

    Each cluster has more nodes than its part of the quota needs, so that quota alone decides.
    """
    # So much quota that Jobs can fill all of it, also the part of each cluster.
    plan = three_teams(jobs=jobs, nodes=96 if dispatches else 100, speed=speed)
    names = (LOCAL,) if dispatches else (LOCAL, *_OTHERS)
    requests = {"cpu": 4_000 if dispatches else 2_000, "memory": 2 * _GIB}
    return replace(
        plan,
        title=f"{jobs} Jobs of 2 pods "
        + ("in one cluster, of which each is run by one of two others" if dispatches else "in three clusters"),
        notes=(
            "Sluice decides which cluster runs a Job, within a quota of 480 CPUs in each, and reports its status."
            if dispatches
            else "One Sluice decides for all of them, within one quota of 1000 CPUs; Jobs stay in their clusters.",
        ),
        nodes=Nodes(60, _NODE),
        jobs=tuple(
            replace(job, pods=2, requests=requests, cluster=names[number % len(names)])
            for number, job in enumerate(plan.jobs)
        ),
        others=_OTHERS,
        dispatches=dispatches,
    )
