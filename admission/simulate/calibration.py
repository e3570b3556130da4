"""From a start that was simulated to a range that holds as often as it says, by how far off earlier ones were."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from math import exp, log
from typing import Final

LEAST: Final = 30
"""So many past estimates have to be known before a range is told."""

MOST: Final = 2000
"""Past estimates that count."""

NEIGHBOURS: Final = 300
"""Of them those count whose simulated wait was most like the one in question."""

_FLOOR: Final = 30.0
"""Seconds added to both times before they are compared: how many times as long 2 s are as 1 s means nothing."""


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds from now."""

    p50: float
    """Half of the workloads with such an estimate start earlier ..."""
    p90: float
    """... and nine of ten earlier than this."""


class Calibration:
    """What was simulated for workloads that have started since, and how long they really waited."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float]] = deque(maxlen=MOST)
        """The logarithm of a simulated wait, and how much larger that of the real one was."""
        self._held: deque[bool] = deque(maxlen=MOST)

    def __len__(self) -> int:
        return len(self._errors)

    def learn(self, simulated: float, waited: float) -> None:
        """A workload has started `waited` seconds after an estimate, for which `simulated` ones were simulated."""
        self._errors.append((_log(simulated), _log(waited) - _log(simulated)))

    def check(self, told: Range, waited: float) -> None:
        """A workload has started for which a range had been told."""
        self._held.append(waited <= told.p90)

    @property
    def share_held(self) -> float | None:
        """The share of past estimates where the workload had started by p90; None while there are too few."""
        return sum(self._held) / len(self._held) if len(self._held) >= LEAST else None

    def ranges(self, simulated: dict[str, float]) -> dict[str, Range]:
        """For each simulated wait, by uid; none while there are too few past ones to learn from."""
        if len(self._errors) < LEAST:
            return {}
        known = sorted(self._errors)
        found: dict[int, tuple[float, float]] = {}
        ranges = {}
        for uid, wait in simulated.items():
            at = _log(wait)
            step = round(at * 20)  # waits that differ by 5 % have the same neighbours
            if step not in found:
                found[step] = _quantiles(_nearest(known, step / 20))
            half, most = found[step]
            ranges[uid] = Range(max(exp(at + half) - _FLOOR, 0.0), max(exp(at + most) - _FLOOR, 0.0))
        return ranges


def _log(seconds: float) -> float:
    return log(max(seconds, 0.0) + _FLOOR)


def _nearest(known: list[tuple[float, float]], at: float) -> list[float]:
    first = min(max(bisect_left(known, (at,)) - NEIGHBOURS // 2, 0), max(len(known) - NEIGHBOURS, 0))
    return sorted(error for _, error in known[first : first + NEIGHBOURS])


def _quantiles(errors: list[float]) -> tuple[float, float]:
    return errors[len(errors) // 2], errors[min(int(len(errors) * 0.9), len(errors) - 1)]
