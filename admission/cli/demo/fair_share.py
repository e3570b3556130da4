"""The second scene, fair sharing: teams borrow the cohort's quota by weight, and Jobs are evicted to reclaim it."""

from __future__ import annotations

import random
from typing import Final

from admission.cli.demo.plan import Nodes, Plan, PlannedJob, Team

_GIB: Final = 2**30
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_POD: Final = {"cpu": 1_000, "memory": _GIB}

# Name, weight, number of Jobs, and their arrival in real seconds after the start: the first team takes everything.
_TEAMS: Final = (("research", 1, 60, 0.0), ("students", 1, 40, 4.0), ("platform", 2, 50, 8.0))


def fair_share(*, speed: float = 60.0, seed: int = 1) -> Plan:
    """Return the plan: three teams with the quota of 4 of 30 nodes each; that of the other 18 belongs to the cohort.

    The first team borrows all of the cohort's quota. The teams that arrive later reclaim what exceeds its fair share:
    its Jobs are evicted, requeued as they were written, and run later.
    """
    chance = random.Random(seed)
    own = {resource: 4 * amount for resource, amount in _NODE.items()}
    return Plan(
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
