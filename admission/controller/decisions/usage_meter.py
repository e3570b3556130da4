"""Measurement of what workloads use of what they hold, and notes about those that use nothing for a long time.

What pods use is read once a minute. A value stands for the time since the last one; while there is none, as Prometheus
is away, a pod has no sample, or there is no leader, it is not known what was used, which never counts as idle. Nothing
is evicted. Off unless `usageMetrics` is configured; then all pods are watched (`NodesAndPods`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.cluster.usage_sources import MetricsApi, Prometheus
from admission.controller.state.inbox import Told
from admission.controller.state.repeating import repeat
from admission.controller.state.triggers import Noted
from admission.kinds.pod_group import PodGroupKind
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.store.ledger.measured_usage import Measured
from admission.store.records import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from admission.cluster.client import Client
    from admission.cluster.usage_sources import PodUse
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.policy import UsageRules
    from admission.controller.state.tracked import Tracked
    from admission.kinds.pod import Occupant
    from admission.model.workload import Admission
    from admission.store.store import Store

log = logging.getLogger(__name__)

_HOUR: Final = 3600.0
_LONGEST: Final = 2.0
"""Intervals that a value stands for at most: nothing is known of the time of a missed one."""

_RETRY: Final = 1.0
"""Seconds until the next look if nothing can be decided yet."""


class UsageMeter:
    """Measures the workloads of one cluster while this replica leads.

    `workloads`: those that are not finished. `occupants`: returns what pods say about their workloads, by
    `namespace/name`; None: not all are known. `leads`: whether this replica decides now.
    """

    def __init__(
        self,
        store: Store,
        client: Client,
        inbox: Inbox,
        workloads: Callable[[], Iterable[Tracked]],
        occupants: Callable[[], Mapping[str, Occupant] | None],
        rules: UsageRules,
        *,
        leads: Callable[[], bool],
        epoch: int,
        faults: Faults,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._workloads = workloads
        self._rules = rules
        self._leads = leads
        self._epoch = epoch
        self._faults = faults
        self._occupants = occupants
        self._source = (
            MetricsApi(client)
            if rules.url is None
            else Prometheus(rules.url, rules.queries, token_file=rules.token_file, ca_file=rules.ca_file)
        )
        self._last: float | None = None
        """Time of the last look (Unix time, s); None: there was none as leader."""
        self._failures: dict[str, str] = {}
        """Why the use of a resource was not known at the last look, by resource."""
        self._idle = IdleTimes(rules)
        self._knows_told = False

    async def run(self) -> None:
        """Measure every `interval` seconds until cancelled."""
        await repeat(self.look, self._faults, every=self._rules.interval, name="the measurement of usage")

    async def look(self) -> float | None:
        """Read what pods use, and add it up for their workloads. Raises SluiceError.

        Returns the seconds until the next look, if these are not the usual ones.
        """
        pods = self._occupants()
        if not self._leads() or pods is None:
            self._last = None
            return min(_RETRY, self._rules.interval)
        if not self._knows_told:
            self._idle.told = await self._store.measured_usage.told()
            self._knows_told = True
        now = self._store.now()
        before, self._last = self._last, now
        read = await self._source.read()
        self._note_failures({name: str(found) for name, found in read.items() if isinstance(found, ClusterError)})
        if before is None:
            return None
        begins = max(before, now - _LONGEST * self._rules.interval)
        known = {name: found for name, found in read.items() if not isinstance(found, ClusterError)}
        used = self._by_workload(known, pods)
        rows: list[Measured] = []
        running: set[str] = set()
        for tracked in self._workloads():
            record = tracked.record
            if record.admission is None or record.admission.cluster or not tracked.holds_quota:
                continue
            running.add(tracked.uid)
            since = max(begins, record.admitted_at or begins)
            if since >= now or tracked.uid not in used:
                continue
            parts = [*parts_used(record.admission, used[tracked.uid])]
            for hour, seconds in _hours(since, now):
                rows += (
                    Measured(
                        hour, tracked.uid, record.admission.cluster_queue, record.workload.queue,
                        part.flavor, part.resource, part.measured * seconds, part.used * seconds,
                    )
                    for part in parts
                )  # fmt: skip
            if text := self._idle.add(tracked.uid, parts, now - since, record.admitted_at):
                self._inbox.put(Told(tracked.uid, Noted(IDLE, text)))
        self._idle.keep(running)
        await self._store.measured_usage.add(rows, epoch=self._epoch)
        return None

    def _note_failures(self, failures: Mapping[str, str]) -> None:
        for resource, text in failures.items():
            if resource not in self._failures:
                log.warning("what is used of %s is not known: %s", resource, text)
        for resource in self._failures.keys() - failures.keys():
            log.info("what is used of %s is known again", resource)
        self._failures = dict(failures)

    def _by_workload(
        self, read: Mapping[str, PodUse], occupants: Mapping[str, Occupant]
    ) -> dict[str, dict[str, tuple[int, float]]]:
        """Return (number of pods with a value, sum of these) by uid of the workload and resource."""
        namespaces = {tracked.uid: tracked.record.workload.namespace for tracked in self._workloads()}
        groups = {
            (tracked.record.workload.namespace, tracked.record.workload.name): tracked.uid
            for tracked in self._workloads()
            if tracked.record.workload.kind == PodGroupKind.kind
        }
        found: defaultdict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        for resource, pods in read.items():
            for key, value in pods.items():
                if (seen := occupants.get(key)) is None:
                    continue
                # A pod of another namespace only claims to be one of the workload's.
                named = (uid for uid in seen.uids if namespaces.get(uid) == seen.namespace)
                if (uid := next(named, groups.get((seen.namespace, seen.group)))) is not None:
                    number, total = found[uid].get(resource, (0, 0.0))
                    found[uid][resource] = number + 1, total + value
        return found


class Part(NamedTuple):
    """What a workload holds of a resource in a flavor, how much of it was measured, and how much of that is used."""

    flavor: str
    resource: str
    held: float
    measured: float
    used: float


def parts_used(admission: Admission, used: Mapping[str, tuple[int, float]]) -> Iterator[Part]:
    """Yield what is measured of an admission. `used`: by resource, the number of pods with a value, and their sum.

    If some of its pods have no value, the same share of what it holds is not measured. What is used beyond that does
    not count.
    """
    for resource, (pods, total) in used.items():
        held: defaultdict[str, int] = defaultdict(int)
        expected = 0
        for one in admission.pod_sets:
            if amount := one.usage.get(resource, 0):
                held[one.flavors.get(resource, "")] += amount
                expected += one.count
        if not expected:
            continue
        share = min(pods / expected, 1.0)
        in_use = min(total / (sum(held.values()) * share), 1.0)
        for flavor, whole in held.items():
            yield Part(flavor, resource, whole, whole * share, whole * share * in_use)


class IdleTimes:
    """For how long workloads have not used what they hold, and which of them were told about."""

    def __init__(self, rules: UsageRules) -> None:
        self._rules = rules
        self._seconds: dict[str, dict[str, float]] = {}
        """Seconds of known idleness since the last use, by workload and resource."""
        self.told: set[str] = set()
        self._admitted_at: dict[str, float | None] = {}
        """By workload."""

    def add(self, uid: str, parts: Iterable[Part], seconds: float, admitted_at: float | None) -> str:
        """Add the last `seconds` of a workload; return what is to be told now, once; empty: nothing."""
        rules = self._rules
        if rules.idle_after is None:
            return ""
        if self._admitted_at.setdefault(uid, admitted_at) != admitted_at:  # its pods began anew
            self._admitted_at[uid] = admitted_at
            self._seconds.pop(uid, None)
            self.told.discard(uid)
        sums: dict[str, list[float]] = {}
        for part in parts:
            if part.resource in rules.idle_resources:
                one = sums.setdefault(part.resource, [0.0, 0.0, 0.0])
                for index, value in enumerate((part.held, part.measured, part.used)):
                    one[index] += value
        idle = self._seconds.setdefault(uid, {})
        for resource, (held, measured, used) in sums.items():
            if used >= measured * rules.idle_below:
                idle.pop(resource, None)
                if not idle:
                    self.told.discard(uid)
            elif measured >= held * (1 - 1e-9):  # else pods of which nothing is known may use it
                idle[resource] = idle.get(resource, 0.0) + seconds
        due = {name: sums[name][0] for name, spent in idle.items() if spent >= rules.idle_after and name in sums}
        if not due or uid in self.told:
            return ""
        self.told.add(uid)
        return sentences.idle(due, max(idle[name] for name in due), rules.idle_below)

    def keep(self, uids: set[str]) -> None:
        """Forget all other workloads."""
        self._seconds = {uid: each for uid, each in self._seconds.items() if uid in uids}
        self._admitted_at = {uid: at for uid, at in self._admitted_at.items() if uid in uids}
        self.told &= uids


def _hours(begins: float, ends: float) -> Iterator[tuple[float, float]]:
    """Yield the hours that a time lies in, with the seconds in each (Unix times, s)."""
    while begins < ends:
        hour = begins // _HOUR * _HOUR
        until = min(hour + _HOUR, ends)
        yield hour, until - begins
        begins = until
