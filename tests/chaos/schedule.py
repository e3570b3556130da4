"""Schedule of faults, drawn from a seed; data only.

Times are counted in phase changes of Jobs (each is observed waiting, running and ended), not in seconds, so that the
schedule does not depend on the speed of the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOVES = 3


class Fault(StrEnum):
    """Faults of processes and databases, and actions of users. The sandbox injects the faults of requests (`rules`)."""

    KILL_LEADER = "kill -9 of the leader"
    KILL_FOLLOWER = "kill -9 of a follower"
    FREEZE_LEADER = "the leader frozen past its lease"
    KILL_DATABASE = "the database server killed and started again"
    CUT_DATABASE = "all connections to the database terminated"
    CUT_WATCHES = "all watches reset"
    STEP_CLOCK = "a clock set"
    CHANGE_QUOTA = "quota changed through the API"
    HOLD = "a running Job put on hold by its user and released"
    DRAIN = "a ClusterQueue drained and resumed"
    NODE_FAILS = "a node not ready, its pods evicted, and ready again"
    NODE_GOES = "a node deleted with its pods, and created again"
    CUT_CLUSTER = "a cluster cut off for seconds"
    LOSE_CLUSTER = "a cluster cut off until it is given up"
    SLOW_CLUSTER = "the connection to a cluster slow"
    DISABLE_CLUSTER = "a cluster disabled or drained by an admin, and back"
    REBUILD_CLUSTER = "a cluster destroyed, and rebuilt under its name"
    SCALE = "what was dispatched given fewer pods by its user, and as many as before"
    DELETE_COPY = "the copy of a Job deleted by others, before its pods"
    ORPHAN_CLUSTER = "a Job deleted while the cluster of its copy is cut off for seconds, and submitted again"
    FORGE_COPY = "an object of others that says it is the copy of one that does not exist"
    EDIT_BUDGET = "a Budget cut, given another scope, or made anew"
    CHANGE_LIMIT = "limits of users changed"
    RESERVE = "quota reserved for seconds"
    CALENDAR = "quota of a team changed by its calendar for seconds"


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault that is due after `moment` phase changes of Jobs. `draw` (0 to 1) selects its target and extent."""

    moment: int
    fault: Fault
    draw: float


def schedule(*, seed: int, jobs: int, counts: Mapping[Fault, int]) -> tuple[ScheduledFault, ...]:
    """Return `counts` faults of each type at random times of a test with `jobs` Jobs.

    A hold comes first if there is any: it evicts a Job for sure while there are enough of them. On a slow machine all
    may have ended before the last faults are due.
    """
    chance = random.Random(seed)
    faults = [fault for fault in Fault for _ in range(counts.get(fault, 0))]
    chance.shuffle(faults)
    if Fault.HOLD in faults:
        faults.remove(Fault.HOLD)
        faults.insert(0, Fault.HOLD)
    moments = sorted(chance.sample(range(jobs // 10, _MOVES * jobs - jobs // 4), len(faults)))
    return tuple(ScheduledFault(moment, fault, chance.random()) for moment, fault in zip(moments, faults, strict=True))


def rules(*, seed: int, user: str, timeouts: int) -> dict[str, Any]:
    """Return the permanent faults of `user`'s requests, as a body for `POST /sandbox/faults`.

    `timeouts`: number of writes, served and not served, whose answer is delayed beyond any client's timeout.
    """

    def rule(do: str, probability: float, *, verb: str = "write", **more: Any) -> dict[str, Any]:
        return {"match": {"user": user, "verb": verb}, "do": do, "probability": probability, **more}

    return {
        "seed": seed,
        "rules": [
            rule("error", 0.02, code=500, when="before"),
            rule("error", 0.02, code=500, when="after"),
            rule("error", 0.02, code=504, when="after"),
            rule("error", 0.02, code=503, retryAfter=1),
            rule("error", 0.02, code=429, retryAfter=1),
            rule("error", 0.01, code=409),
            rule("drop", 0.02, when="before"),
            rule("drop", 0.02, when="after"),
            rule("delay", 0.02, seconds=2, when="after"),
            rule("delay", 0.01, seconds=2, when="before"),
            rule("delay", 0.01, seconds=70, when="after", limit=timeouts),
            rule("delay", 0.01, seconds=70, when="before", limit=timeouts),
            rule("error", 0.02, verb="get", code=500),
            rule("drop", 0.02, verb="get"),
            rule("error", 0.05, verb="list", code=503),
            rule("expired", 0.2, verb="watch"),
            rule("duplicate", 0.5, verb="watch", events=20),
            rule("reorder", 0.3, verb="watch", seconds=0.05),
            rule("closeWatches", 0.002, verb="watch", abrupt=True),
        ],
    }


def cut_watches(document: dict[str, Any], *, user: str) -> dict[str, Any]:
    """Return `document` with a rule that resets the open watches of `user` once."""
    cut = {"match": {"user": user, "verb": "watch"}, "do": "closeWatches", "abrupt": True, "limit": 8}
    return {**document, "rules": [*document["rules"], cut]}
