"""Admission fair sharing: workloads of LocalQueues, or of users, with less recent usage come first (Kueue's KEP 4136).

Usage is an average with exponential decay: consumed = old * 0.5^(t/halfLife) + current * (1 - 0.5^(t/halfLife)). An
admission affects it only after some time, so it immediately adds an entry penalty, which counts until the average is
next updated: requests * (1 - 0.5^(samplingInterval/halfLife)). Amounts are floats in cores, bytes and devices, as they
are only compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine.policies.contract import AdmissionPolicy, PolicyEvent, SharerOrder
from admission.model.workload import person_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
    from admission.engine.pending_item import LocalQueueKey, SharerKey
    from admission.engine.policies.contract import EngineView, PastAdmission
    from admission.model.queues import ClusterQueueSpec, LocalQueueSpec

HALF_LIVES: Final = 20
"""Half-lives after which past usage is not read from the ledger any more: a millionth of it would count."""


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Kueue's configuration `admissionFairSharing`. Times in seconds; a half-life of 0 forgets all past usage."""

    half_life: float
    sampling_interval: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Resource to its weight; 1 for resources that are not named."""

    def start(self, view: EngineView) -> RecentUsage:
        """Create the usage of all LocalQueues, none so far."""
        return RecentUsage(self, view)

    def alpha(self, elapsed: float) -> float:
        """Return the weight of the last `elapsed` seconds in the average, 0 to 1."""
        return 1.0 - 0.5 ** (elapsed / self.half_life) if self.half_life else 0.0


UsageKey: TypeAlias = tuple[str, str] | tuple[str, str, str]
"""A LocalQueue (namespace, name), or a user in a ClusterQueue: ("", ClusterQueue, `person_of` the user)."""


@dataclass(frozen=True, slots=True)
class SharerUsed(PolicyEvent):
    """The recent usage of a LocalQueue or a user at an earlier time, in cores, bytes and devices."""

    key: UsageKey
    consumed: Mapping[str, float]
    at: float
    """Seconds since the epoch."""
    penalties: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Uid of a workload to its entry penalty by resource, of admissions that do not count in `consumed` yet."""


class RecentUsage(AdmissionPolicy):
    """The policy: orders LocalQueues or users in ClusterQueues with `admissionMode: UsageBasedAdmissionFairSharing`."""

    def __init__(self, config: AdmissionFairSharing, view: EngineView) -> None:
        self._config = config
        self._view = view
        self._averages = UsageAverages(config)
        self.history = HALF_LIVES * config.half_life

    def entries(self) -> dict[LocalQueueKey, Consumption]:
        """Return the current usage of each LocalQueue."""
        found = self._averages.entries(self._view.now)
        return {(key[0], key[1]): entry for key, entry in found.items() if len(key) == 2}

    def seed(self, admissions: Iterable[PastAdmission]) -> None:
        """Add the share of each past admission in the average, as if this engine had run all the time.

        Exception: a penalty decays here from the admission on, in a running engine from the next change on.
        """
        for row in admissions:
            spec = self._view.cluster_queue_spec(row.cluster_queue)
            # An admission that continues with fewer pods was charged its penalty before.
            charged = spec is not None and _is_usage_based(spec) and not row.resized
            for key in (row.namespace, row.local_queue), ("", row.cluster_queue, person_of(row.user, row.namespace)):
                self._averages.add_past(key, row, charged=charged, now=self._view.now)

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Set the past usage of a LocalQueue or user; its current usage is not changed."""
        if isinstance(event, SharerUsed):
            before = Consumption(event.at, dict(event.consumed), dict(event.penalties))
            self._averages.replace_past(event.key, before)

    def events(self) -> list[PolicyEvent]:
        """Return a SharerUsed for each LocalQueue, and for each user in a ClusterQueue."""
        return [
            SharerUsed(key, dict(entry.consumed), entry.updated, dict(entry.penalties))
            for key, entry in self._averages.entries(self._view.now).items()
        ]

    def order(self, name: str, queue: ClusterQueueSpec) -> SharerOrder | None:
        """Return the weighted usage of a LocalQueue or user as key, for a ClusterQueue with usage-based admission."""
        if not _is_usage_based(queue):
            return None
        return (
            SharerOrder(True, partial(self._of_user, name))
            if _is_by_user(queue)
            else SharerOrder(False, self._weighted)
        )

    def _of_user(self, cluster_queue: str, key: SharerKey) -> float:
        return self._averages.usage(("", cluster_queue, key[1]), 1.0, self._view.now)

    def _weighted(self, key: LocalQueueKey) -> float:
        spec = self._view.local_queues.get(key)
        return self._averages.usage(key, _weight(spec), self._view.now)

    def usages(self) -> dict[LocalQueueKey, float]:
        """Return the weighted usage of each ordered LocalQueue as of the last event, without updating averages."""
        found = {}
        for key, spec in self._view.local_queues.items():
            queue = self._view.cluster_queue_spec(spec.cluster_queue)
            if queue is not None and _is_usage_based(queue) and not _is_by_user(queue):
                found[key] = self._averages.peek(key, _weight(spec), self._view.now)
        return found

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count the workload's quota; a new admission of a usage-based ClusterQueue adds the entry penalty."""
        amounts = held.by_resource()
        for key in _keys(held):
            if restored or not _is_usage_based(held.queue.spec):
                self._averages.hold(key, amounts, self._view.now)
            else:
                self._averages.admit(key, held.workload.uid, amounts, self._view.now)

    def release(self, held: Held) -> None:
        """Stop counting the workload's quota; a penalty that is not in the average yet is removed."""
        for key in _keys(held):
            self._averages.free(key, held.workload.uid, held.by_resource(), self._view.now)


@dataclass(slots=True)
class Consumption:
    """The usage of one LocalQueue or user."""

    updated: float
    """When the average was last updated, in seconds since the epoch."""
    consumed: dict[str, float] = field(default_factory=dict)
    """Resource to its average, in cores, bytes and devices."""
    penalties: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Uid of a workload to its entry penalty by resource, of admissions since `updated`."""
    current: dict[str, int] = field(default_factory=dict)
    """Resource to the quota held now, in the model's integer units: sums are exact, whatever the order of events."""

    def penalty(self) -> dict[str, float]:
        """Return the sum of all penalties, by resource."""
        total: dict[str, float] = {}
        for amounts in self.penalties.values():
            _add(total, amounts)
        return total


class UsageAverages:
    """The decaying averages of all LocalQueues and users. Times are seconds since the epoch and never go back."""

    def __init__(self, config: AdmissionFairSharing) -> None:
        self._config = config
        self._penalty = config.alpha(config.sampling_interval)
        self._entries: dict[UsageKey, Consumption] = {}

    def entries(self, now: float) -> dict[UsageKey, Consumption]:
        """Return all usage, updated to `now`."""
        return {key: self._at(key, now) for key in self._entries}

    def add_past(self, key: UsageKey, row: PastAdmission, *, charged: bool, now: float) -> None:
        """Add a past admission to the average, with its entry penalty if it was `charged`.

        An amount held from t1 to t2 contributes amount * (0.5^((now-t2)/halfLife) - 0.5^((now-t1)/halfLife)) now.
        """
        half_life = self._config.half_life
        before = min(0.5 ** ((now - row.from_at) / half_life), 1.0)
        after = 1.0 if row.to_at is None else 0.5 ** (max(now - row.to_at, 0.0) / half_life)
        counts = after - before
        if charged:
            counts += self._penalty * before
        natural = row.amount / 1000 if row.resource == "cpu" else float(row.amount)
        _add(self._at(key, now).consumed, {row.resource: natural * counts})

    def replace_past(self, key: UsageKey, before: Consumption) -> None:
        """Set average and penalties as of `before.updated`; the current usage stays."""
        known = self._entries.get(key)
        self._entries[key] = before
        if known is not None:
            self._at(key, known.updated).current = known.current

    def usage(self, key: UsageKey, weight: float, now: float) -> float:
        """Return the usage, weighted by resource and divided by the LocalQueue's weight; infinite if that is 0."""
        return self._weighted(self._at(key, now), weight) if weight > 0 else inf

    def peek(self, key: UsageKey, weight: float, now: float) -> float:
        """Return `usage` without updating the average: the rounding of an extra update could change the queue order."""
        if weight <= 0:
            return inf
        entry = replace(self._entries.get(key) or Consumption(now))
        self._update(entry, now)
        return self._weighted(entry, weight)

    def _weighted(self, entry: Consumption, weight: float) -> float:
        amounts = dict(entry.consumed)
        _add(amounts, entry.penalty())
        weights = self._config.resource_weights
        return sum(weights.get(resource, 1.0) * amounts[resource] for resource in sorted(amounts)) / weight

    def admit(self, key: UsageKey, uid: str, amounts: Mapping[str, int], now: float) -> None:
        """Count a new admission, with its entry penalty."""
        entry = self._at(key, now)
        _use(entry.current, amounts, 1)
        entry.penalties[uid] = {resource: amount * self._penalty for resource, amount in _natural(amounts).items()}

    def hold(self, key: UsageKey, amounts: Mapping[str, int], now: float) -> None:
        """Count an admission without entry penalty."""
        _use(self._at(key, now).current, amounts, 1)

    def free(self, key: UsageKey, uid: str, amounts: Mapping[str, int], now: float) -> None:
        """Stop counting an admission."""
        entry = self._at(key, now)
        entry.penalties.pop(uid, None)
        _use(entry.current, amounts, -1)

    def _at(self, key: UsageKey, now: float) -> Consumption:
        """Return the usage updated to `now`; penalties of admissions before `now` are added to the average."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Consumption(now)
        self._update(entry, now)
        return entry

    def _update(self, entry: Consumption, now: float) -> None:
        elapsed = now - entry.updated
        if elapsed > 0:
            alpha = self._config.alpha(elapsed)
            kept = 1.0 - alpha if self._config.half_life else 0.0
            consumed = {resource: amount * kept for resource, amount in entry.consumed.items()}
            _add(consumed, {resource: amount * alpha for resource, amount in _natural(entry.current).items()})
            _add(consumed, entry.penalty())
            entry.consumed, entry.penalties, entry.updated = consumed, {}, now


def _weight(spec: LocalQueueSpec | None) -> float:
    return 1.0 if spec is None or spec.fair_sharing is None else spec.fair_sharing.value


def _is_usage_based(queue: ClusterQueueSpec) -> bool:
    scope = queue.admission_scope
    return scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"


def _is_by_user(queue: ClusterQueueSpec) -> bool:
    scope = queue.admission_scope
    return scope is not None and scope.between == "Users"


def _keys(held: Held) -> tuple[UsageKey, UsageKey]:
    """Return those whose usage a workload is: its LocalQueue, and its user in its ClusterQueue."""
    return held.local_queue, ("", held.queue.name, person_of(held.workload.user, held.workload.namespace))


def _natural(amounts: Mapping[str, int]) -> dict[str, float]:
    """Convert the model's amounts to cores, bytes and devices."""
    return {resource: amount / 1000 if resource == "cpu" else float(amount) for resource, amount in amounts.items()}


def _use(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + sign * amount


def _add(total: dict[str, float], amounts: Mapping[str, float]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0.0) + amount
