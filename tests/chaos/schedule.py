"""What goes wrong and when, drawn from a seed: the same seed gives the same storm. Data only.

Moments are counted in moves of Jobs (each is seen to wait, to run and to end), not in seconds, so that a slow machine
has the same storm as a fast one.
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
    """What is done to the processes; what is done to their requests, the sandbox does (`rules`)."""

    KILL_LEADER = "kill -9 of the leader"
    KILL_FOLLOWER = "kill -9 of a follower"
    FREEZE_LEADER = "the leader frozen past its lease"
    KILL_DATABASE = "the database server killed and started again"
    CUT_DATABASE = "all connections to the database cut"
    CUT_WATCHES = "all watches cut"
    STEP_CLOCK = "a clock set"
    CHANGE_QUOTA = "quota changed through the API"
    HOLD = "a running Job held by its user, and let go"
    DRAIN = "a ClusterQueue stopped, drained and opened again"


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, when so many moves of Jobs were seen. `draw` (0 to 1) decides what the fault leaves open."""

    moment: int
    fault: Fault
    draw: float


def schedule(*, seed: int, jobs: int, counts: Mapping[Fault, int]) -> tuple[Strike, ...]:
    """As many strikes of each fault as `counts` says, at random moments of a storm of so many Jobs."""
    chance = random.Random(seed)
    faults = [fault for fault in Fault for _ in range(counts.get(fault, 0))]
    chance.shuffle(faults)
    moments = sorted(chance.sample(range(jobs // 10, _MOVES * jobs - jobs // 4), len(faults)))
    return tuple(Strike(moment, fault, chance.random()) for moment, fault in zip(moments, faults, strict=True))


def rules(*, seed: int, user: str, timeouts: int) -> dict[str, Any]:
    """What the API server does to requests of `user` all the time, as `POST /sandbox/faults` wants it.

    `timeouts`: how many writes are not answered for longer than any client waits, done or not.
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
    """`document`, and all watches of `user` that are open now are cut off once."""
    cut = {"match": {"user": user, "verb": "watch"}, "do": "closeWatches", "abrupt": True, "limit": 8}
    return {**document, "rules": [*document["rules"], cut]}
