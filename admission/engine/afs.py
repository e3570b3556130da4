"""Admission fair sharing: what each LocalQueue used lately, so that those that used less come first.

Usage is averaged with an exponential decay: consumed = old * 0.5^(t/halfLife) + current * (1 - 0.5^(t/halfLife)). As it
takes time to show, an admission costs an entry penalty at once: requests * (1 - 0.5^(samplingInterval/halfLife)).
Amounts are in cores, bytes and devices, as floats: they are only compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LocalQueueKey = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Kueue's configuration of it. Times in seconds; a half-life of 0 forgets all past usage."""

    half_life: float
    sampling_interval: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)

    def alpha(self, elapsed: float) -> float:
        """How much of the average a stretch of time makes up."""
        return 1.0 - 0.5 ** (elapsed / self.half_life) if self.half_life else 0.0


@dataclass(slots=True)
class Consumption:
    """The usage of one LocalQueue."""

    updated: float
    consumed: dict[str, float] = field(default_factory=dict)
    penalties: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Of admissions that did not count yet, by uid."""
    current: dict[str, int] = field(default_factory=dict)
    """What is held now, in the model's units: whole numbers, so that it does not matter in which order it came."""

    def penalty(self) -> dict[str, float]:
        """All penalties together."""
        total: dict[str, float] = {}
        for amounts in self.penalties.values():
            _add(total, amounts)
        return total


class Ledger:
    """The usage of all LocalQueues."""

    def __init__(self, config: AdmissionFairSharing) -> None:
        self._config = config
        self._entries: dict[LocalQueueKey, Consumption] = {}

    def entries(self, now: float) -> dict[LocalQueueKey, Consumption]:
        """All of them, as they are now."""
        return {key: self._at(key, now) for key in self._entries}

    def seed(self, key: LocalQueueKey, before: Consumption) -> None:
        """What a LocalQueue had consumed at some time before; what it holds now is not concerned."""
        known = self._entries.get(key)
        self._entries[key] = before
        if known is not None:
            self._at(key, known.updated).current = known.current

    def usage(self, key: LocalQueueKey, weight: float, now: float) -> float:
        """The weighted usage, divided by the LocalQueue's weight; infinite if that is 0."""
        if weight <= 0:
            return inf
        entry = self._at(key, now)
        amounts = dict(entry.consumed)
        _add(amounts, entry.penalty())
        weights = self._config.resource_weights
        return sum(weights.get(resource, 1.0) * amounts[resource] for resource in sorted(amounts)) / weight

    def admit(self, key: LocalQueueKey, uid: str, amounts: Mapping[str, int], now: float) -> None:
        """A workload of the LocalQueue holds quota from now on, and pays for it."""
        entry = self._at(key, now)
        _use(entry.current, amounts, 1)
        alpha = self._config.alpha(self._config.sampling_interval)
        entry.penalties[uid] = {resource: amount * alpha for resource, amount in _natural(amounts).items()}

    def hold(self, key: LocalQueueKey, amounts: Mapping[str, int], now: float) -> None:
        """It holds quota already, and paid before."""
        _use(self._at(key, now).current, amounts, 1)

    def free(self, key: LocalQueueKey, uid: str, amounts: Mapping[str, int], now: float) -> None:
        """It holds no quota any more."""
        entry = self._at(key, now)
        entry.penalties.pop(uid, None)
        _use(entry.current, amounts, -1)

    def _at(self, key: LocalQueueKey, now: float) -> Consumption:
        """The entry, brought forward to `now`; penalties that time has passed over count as consumed."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Consumption(now)
        elapsed = now - entry.updated
        if elapsed > 0:
            alpha = self._config.alpha(elapsed)
            kept = 1.0 - alpha if self._config.half_life else 0.0
            consumed = {resource: amount * kept for resource, amount in entry.consumed.items()}
            _add(consumed, {resource: amount * alpha for resource, amount in _natural(entry.current).items()})
            _add(consumed, entry.penalty())
            entry.consumed, entry.penalties, entry.updated = consumed, {}, now
        return entry


def _natural(amounts: Mapping[str, int]) -> dict[str, float]:
    return {resource: amount / 1000 if resource == "cpu" else float(amount) for resource, amount in amounts.items()}


def _use(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + sign * amount


def _add(total: dict[str, float], amounts: Mapping[str, float]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0.0) + amount
