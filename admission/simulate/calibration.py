"""From a start that was simulated to a range that holds as often as it says, by how far off earlier ones were.

Of estimates whose workloads still wait it is known that they were off by as much as those have waited, or by more: left
out, they would make ranges too early, for those that wait longest are known last. They count as censored observations
in the product-limit estimate (Kaplan and Meier 1958). Each range that has held, or has not, moves the next ones a
little, so that they hold as often as they say also where errors are of another kind than past ones (a quantile tracker,
as in conformal PID control: Angelopoulos, Candes and Tibshirani 2023).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST: Final = 30
"""So many past estimates have to be known before a range is told."""

MOST: Final = 2000
"""Past estimates that count."""

NEIGHBOURS: Final = 100
"""Of them those count whose simulated wait was most like the one in question. Of 300 the errors were too unlike: on a
whole trace (`python -m tests.benchmarks forecast`) 63 % started by p50, and its median error was twice as large."""

P50_STEP: Final = 0.02
P90_STEP: Final = 0.1
"""By how much one range moves the ends of the next ones, in the logarithm of the wait: of the few beyond p90 each says
more. Chosen on the first 1,200 pods of a trace (`python -m tests.benchmarks forecast`)."""

_P50: Final = 0.5
_P90: Final = 0.9
_FLOOR: Final = 30.0
"""Seconds added to both times before they are compared: how many times as long 2 s are as 1 s means nothing."""


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds from now."""

    p50: float
    """Half of the workloads with such an estimate start earlier ..."""
    p90: float
    """... and nine of ten earlier than this."""


@dataclass(slots=True)
class Claim:
    """A range that was told, and for which of its ends it is known whether it has held."""

    told: Range
    knows_p50: bool = False
    knows_p90: bool = False


class _Past(NamedTuple):
    """A past estimate, in logarithms."""

    error: float
    """How much larger the real wait was than the simulated one; at least, if it `waits`."""
    waits: bool
    simulated: float


class Calibration:
    """What was simulated for workloads that have started since, and how long they really waited."""

    def __init__(self) -> None:
        self._errors: deque[_Past] = deque(maxlen=MOST)
        self._held: deque[bool] = deque(maxlen=MOST)
        self._half = self._most = 0.0
        """By how much p50 and p90 are later than past errors say, in the logarithm of the wait."""

    def __len__(self) -> int:
        return len(self._errors)

    def learn(self, simulated: float, waited: float) -> None:
        """A workload has started `waited` seconds after an estimate, for which `simulated` ones were simulated."""
        self._errors.append(_past(simulated, waited, waits=False))

    def check(self, claim: Claim, waited: float, *, started: bool) -> None:
        """The workload for which a range was told has started after `waited` seconds, or still waits after so many.

        That a range has not held is known, and counts, before the workload starts.
        """
        p50_held, p90_held = waited <= claim.told.p50, waited <= claim.told.p90
        if not claim.knows_p50 and (started or not p50_held):
            claim.knows_p50 = True
            self._half += P50_STEP * (_P50 - p50_held)
        if not claim.knows_p90 and (started or not p90_held):
            claim.knows_p90 = True
            self._held.append(p90_held)
            self._most += P90_STEP * (_P90 - p90_held)

    @property
    def share_held(self) -> float | None:
        """The share of past estimates where the workload had started by p90; None while there are too few."""
        return sum(self._held) / len(self._held) if len(self._held) >= LEAST else None

    def ranges(self, simulated: dict[str, float], *, waiting: Iterable[tuple[float, float]] = ()) -> dict[str, Range]:
        """For each simulated wait, by uid; none while there are too few past ones to learn from.

        `waiting`: of workloads that still wait, what was simulated for them and how long they have waited since (s).
        """
        if len(self._errors) < LEAST:
            return {}
        still = [_past(*one, waits=True) for one in waiting]
        past = sorted([*self._errors, *still])
        known = sorted(one.simulated for one in self._errors)
        found: dict[int, tuple[float, float]] = {}
        told: dict[float, Range] = {}
        for wait in dict.fromkeys(simulated.values()):  # many are to start at the same moment
            at = _log(wait)
            step = round(at * 20)  # waits that differ by 5 % have the same neighbours
            if step not in found:
                first, last = _neighbourhood(known, step / 20)
                near = [one for one in past if first <= one.simulated <= last]
                found[step] = _quantile(near, _P50) + self._half, _quantile(near, _P90) + self._most
            half, most = found[step]
            p50, p90 = (max(exp(at + error) - _FLOOR, 0.0) for error in (half, max(half, most)))
            told[wait] = Range(p50, p90)
        return {uid: told[wait] for uid, wait in simulated.items()}


def _past(simulated: float, waited: float, *, waits: bool) -> _Past:
    return _Past(_log(waited) - _log(simulated), waits, _log(simulated))


def _log(seconds: float) -> float:
    return log(max(seconds, 0.0) + _FLOOR)


def _neighbourhood(known: Sequence[float], at: float) -> tuple[float, float]:
    """The least and the largest of the `NEIGHBOURS` that are nearest."""
    first = min(max(bisect_left(known, at) - NEIGHBOURS // 2, 0), max(len(known) - NEIGHBOURS, 0))
    return known[first], known[min(first + NEIGHBOURS, len(known)) - 1]


def _quantile(past: Sequence[_Past], share: float) -> float:
    """The error that this share of estimates is at most off by. `past` is in the order of errors.

    It is the product-limit estimate; where even the largest known error is less than that, the largest of all.
    """
    above, at_risk = 1.0, len(past)
    for one in past:
        if not one.waits:
            above *= 1.0 - 1.0 / at_risk
            if 1.0 - above >= share:
                return one.error
        at_risk -= 1
    return past[-1].error
