"""Calibration of estimated starts: turns a simulated wait into a range (p50, p90), by the errors of past estimates.

Of an estimate whose workload is still pending only a lower bound of the error is known. Without these, ranges would be
too early, because the longest waits are known last. They count as censored observations in the product-limit estimate
(Kaplan and Meier 1958). Each range that held, or did not, shifts the next ones a little, so that 50 % and 90 % hold
even when errors change over time (a quantile tracker, as in conformal PID control: Angelopoulos, Candes and Tibshirani
2023).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_SAMPLES: Final = 30
"""Past estimates that are needed before a range is reported."""

MAX_SAMPLES: Final = 2000
"""Most recent past estimates that are kept."""

NEIGHBOURS: Final = 100
"""Past estimates that are used for a range: those with the most similar simulated wait. With 300 the errors were too
different: on a whole trace (`python -m tests.benchmarks forecast`) 63 % started by p50, and the median error of p50 was
twice as large."""

P50_STEP: Final = 0.02
P90_STEP: Final = 0.1
"""Step by which one range shifts the next ones, in the logarithm of the wait; larger for p90, as few starts are beyond
it. Chosen on the first 1,200 pods of a trace (`python -m tests.benchmarks forecast`)."""

_P50: Final = 0.5
_P90: Final = 0.9
_FLOOR: Final = 30.0
"""Seconds added to both waits before their ratio is taken, so that 2 s instead of 1 s is no error of 100 %."""


@dataclass(frozen=True, slots=True)
class Range:
    """Estimated wait, in seconds from now."""

    p50: float
    """Half of the workloads with this estimate start earlier."""
    p90: float
    """Nine of ten workloads with this estimate start earlier."""


@dataclass(slots=True)
class ReportedRange:
    """A range that was reported, and whether it is known yet if its p50 and p90 held."""

    range: Range
    p50_known: bool = False
    p90_known: bool = False

    def document(self) -> list[float | bool]:
        """Return its values as JSON, for `restored`."""
        return [self.range.p50, self.range.p90, self.p50_known, self.p90_known]

    @classmethod
    def restored(cls, document: Sequence[Any]) -> ReportedRange:
        """Return the range of a document."""
        p50, p90, p50_known, p90_known = document
        return cls(Range(p50, p90), p50_known, p90_known)


class _Past(NamedTuple):
    """A past estimate, in logarithms of seconds (with `_FLOOR` added)."""

    error: float
    """Actual wait minus simulated wait; a lower bound if the workload still `waits`."""
    waits: bool
    simulated: float
    """The simulated wait."""


class Calibration:
    """Errors of past estimates: simulated and actual waits of workloads that have started since."""

    def __init__(self) -> None:
        self._errors: deque[_Past] = deque(maxlen=MAX_SAMPLES)
        self._p90_held: deque[bool] = deque(maxlen=MAX_SAMPLES)
        """Of reported ranges: whether the workload had started by p90."""
        self._p50_shift = self._p90_shift = 0.0
        """Correction that is added to the quantiles of past errors, in the logarithm of the wait."""

    def __len__(self) -> int:
        return len(self._errors)

    def document(self) -> dict[str, Any]:
        """Return what was learned as JSON, for `restore`."""
        return {
            "errors": [[past.error, past.simulated] for past in self._errors],
            "p90Held": [*self._p90_held],
            "shifts": [self._p50_shift, self._p90_shift],
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Replace what was learned."""
        self._errors.extend(_Past(error, waits=False, simulated=simulated) for error, simulated in document["errors"])
        self._p90_held.extend(document["p90Held"])
        self._p50_shift, self._p90_shift = document["shifts"]

    def learn(self, simulated: float, waited: float) -> None:
        """Record that a workload has started `waited` seconds after an estimate of `simulated` seconds."""
        self._errors.append(_past(simulated, waited, waits=False))

    def check(self, reported: ReportedRange, waited: float, *, started: bool) -> None:
        """Record whether a range held, for a workload that has `started` or still waits after `waited` seconds.

        That a range did not hold is known, and counts, before the workload starts.
        """
        p50_held, p90_held = waited <= reported.range.p50, waited <= reported.range.p90
        if not reported.p50_known and (started or not p50_held):
            reported.p50_known = True
            self._p50_shift += P50_STEP * (_P50 - p50_held)
        if not reported.p90_known and (started or not p90_held):
            reported.p90_known = True
            self._p90_held.append(p90_held)
            self._p90_shift += P90_STEP * (_P90 - p90_held)

    @property
    def share_held(self) -> float | None:
        """The share of past estimates where the workload had started by p90; None while there are too few."""
        return sum(self._p90_held) / len(self._p90_held) if len(self._p90_held) >= MIN_SAMPLES else None

    def ranges(self, simulated: dict[str, float], *, waiting: Iterable[tuple[float, float]] = ()) -> dict[str, Range]:
        """Return the ranges for simulated waits (s), by uid; empty while there are too few past estimates.

        `waiting`: (simulated wait, wait so far), in seconds, of workloads that still wait since their estimate.
        """
        if len(self._errors) < MIN_SAMPLES:
            return {}
        still = [_past(*one, waits=True) for one in waiting]
        past = sorted([*self._errors, *still])
        known = sorted(one.simulated for one in self._errors)
        found: dict[int, tuple[float, float]] = {}
        ranges: dict[float, Range] = {}
        for wait in dict.fromkeys(simulated.values()):  # many workloads start at the same simulated time
            at = _log(wait)
            step = round(at * 20)  # waits that differ by 5 % have the same neighbours
            if step not in found:
                first, last = _neighbourhood(known, step / 20)
                near = [one for one in past if first <= one.simulated <= last]
                found[step] = _quantile(near, _P50) + self._p50_shift, _quantile(near, _P90) + self._p90_shift
            half, most = found[step]
            p50, p90 = (max(exp(at + error) - _FLOOR, 0.0) for error in (half, max(half, most)))
            ranges[wait] = Range(p50, p90)
        return {uid: ranges[wait] for uid, wait in simulated.items()}


def _past(simulated: float, waited: float, *, waits: bool) -> _Past:
    return _Past(_log(waited) - _log(simulated), waits, _log(simulated))


def _log(seconds: float) -> float:
    return log(max(seconds, 0.0) + _FLOOR)


def _neighbourhood(known: Sequence[float], at: float) -> tuple[float, float]:
    """Return the smallest and the largest of the `NEIGHBOURS` simulated waits nearest to `at`."""
    first = min(max(bisect_left(known, at) - NEIGHBOURS // 2, 0), max(len(known) - NEIGHBOURS, 0))
    return known[first], known[min(first + NEIGHBOURS, len(known)) - 1]


def _quantile(past: Sequence[_Past], share: float) -> float:
    """Return the quantile of the errors, by the product-limit estimate. `past` is sorted by error.

    If the known errors do not reach the quantile: the largest error or lower bound.
    """
    above, at_risk = 1.0, len(past)
    for one in past:
        if not one.waits:
            above *= 1.0 - 1.0 / at_risk
            if 1.0 - above >= share:
                return one.error
        at_risk -= 1
    return past[-1].error
