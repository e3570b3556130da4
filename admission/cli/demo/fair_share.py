"""The second scene: quota that nobody owns, shared by weight, and Jobs that are evicted for it and come back."""

from __future__ import annotations

import random
from typing import Final

from admission.cli.demo.plan import Nodes, Plan, PlannedJob, Team

_GIB: Final = 2**30
_NODE: Final = {"cpu": 10_000, "memory": 10 * _GIB}
_POD: Final = {"cpu": 1_000, "memory": _GIB}

# Name, weight, Jobs, and how many real seconds after the start they arrive: first one team takes everything.
_TEAMS: Final = (("research", 1, 60, 0.0), ("students", 1, 40, 4.0), ("platform", 2, 50, 8.0))


def fair_share(*, speed: float = 60.0, seed: int = 1) -> Plan:
    """Three teams with 4 of 30 nodes each; the other 18 are the cohort's, to be borrowed by weight.

    The team that comes first borrows all of them. Those that come later take back what is above its fair share: its
    Jobs are evicted, wait again as they were written, and run later.
    """
    chance = random.Random(seed)
    own = {resource: 4 * amount for resource, amount in _NODE.items()}
    return Plan(
        title="fair sharing: 150 Jobs of 10 pods, three teams with weights 1, 1 and 2",
        notes=("Of 30 nodes 18 belong to no team. Who borrows more than a fair share gives it back when others come.",),
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
