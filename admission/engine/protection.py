"""Times of workloads at which they may be preempted: protection since their admission, and time slices.

Protection is an extension of Kueue, with the rules of its KEP 9876, off unless a ClusterQueue has
`preemptionProtection`. The ClusterQueue of the workload that would be preempted decides, whoever the preemptor is. A
workload that is protected is no candidate; when the protection ends that alone has kept one from being preempted,
pending workloads are tried again.

So they are when a time slice ends (`preemption.timeSlice`, an extension, too): from then on workloads of the same
priority in the same ClusterQueue may preempt it, and it queues behind them. In Kueue a controller beside it lowers the
priority of what has run for some time (`priority-boost`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from admission.model.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine.clusterqueue import Held
    from admission.model.queues import ClusterQueueSpec, MinimumRuntime

Claim: TypeAlias = Literal["own", "reclaim", "share"]
"""By which a preemptor asks for quota: it is in the same ClusterQueue, reclaims its own quota, or has a lower share."""

_MOST_TIMES: Final = 20
"""Preemptions of a workload that are remembered (`AfterPreemptions.times`)."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The protection of a ClusterQueue's workloads; times in seconds."""

    seconds: dict[Claim, float]
    """Since its admission, by the claim of the preemptor."""
    times: int
    """Preemptions after which a workload is protected longer; 0: that is off."""
    within: float
    """The time before its admission in which these preemptions count."""
    longer: float
    """Since its admission, if it was preempted so often."""

    @classmethod
    def of(cls, spec: ClusterQueueSpec) -> Protection | None:
        """Return the protection in a ClusterQueue with this spec; None: there is none."""
        given = spec.preemption_protection
        if given is None:
            return None
        again = given.after_preemptions
        return cls(
            {
                "own": _seconds(given.within_cluster_queue),
                "reclaim": _seconds(given.reclaim_within_cohort),
                "share": _seconds(given.fair_sharing),
            },
            again.times if again is not None else 0,
            parse_duration(again.within) if again is not None else 0.0,
            parse_duration(again.min_admit_duration) if again is not None else 0.0,
        )


def _seconds(rule: MinimumRuntime | None) -> float:
    return 0.0 if rule is None else parse_duration(rule.min_admit_duration)


class PastPreemptions:
    """When workloads were preempted that have not finished."""

    def __init__(self) -> None:
        self._at: dict[str, deque[float]] = {}
        """By uid: Unix times (s), in order."""

    def add(self, uid: str, at: float) -> None:
        """Note a preemption."""
        self._at.setdefault(uid, deque(maxlen=_MOST_TIMES)).append(at)

    def count(self, uid: str, since: float, until: float) -> int:
        """Return how often a workload was preempted in a time."""
        return sum(since <= at <= until for at in self._at.get(uid, ()))

    def forget(self, uid: str) -> None:
        """Forget a workload that does not queue any more."""
        self._at.pop(uid, None)


class Guard:
    """Protection in one quota tree, at one time."""

    def __init__(self, past: PastPreemptions, now: float = 0.0, *, lost: frozenset[str] = frozenset()) -> None:
        """`lost`: clusters in which nothing can be stopped now: preemption there would have no effect."""
        self._past = past
        self._lost = lost
        self.now = now
        """Unix time (s)."""
        self.ends_at: float | None = None
        """When the first protection or time slice ends without which a workload could be preempted; None: none does."""

    def covers(self, held: Held, claim: Claim) -> bool:
        """Whether a workload, which is a candidate otherwise, must not be preempted now."""
        if (held.admission.cluster or held.workload.cluster) in self._lost and not held.evicting:
            return True
        end = self.until(held, (claim,))
        return not held.evicting and self._lasts(end)

    def gives_way(self, held: Held, time_slice: float, *, put_back_at: float | None) -> bool:
        """Whether a workload has run for so many seconds, so that another of its priority may preempt it.

        `put_back_at`: when that was put at the end of the queue, if it was; it has its next turn one slice later. Else
        the first that comes would have each of many restarted, of which one takes the place of the next.
        """
        since = began_at(held) if put_back_at is None else max(began_at(held), put_back_at)
        return held.evicting or not self._lasts(since + time_slice)

    def _lasts(self, end: float) -> bool:
        """Whether a time at whose end workloads are to be tried again is not over."""
        if end <= self.now:
            return False
        self.ends_at = end if self.ends_at is None else min(self.ends_at, end)
        return True

    def until(self, held: Held, claims: Iterable[Claim] = ("own", "reclaim", "share")) -> float:
        """Return when the protection of a workload ends or has ended (Unix time, s); 0: it has none."""
        protection = held.queue.protection
        if protection is None:
            return 0.0
        since = began_at(held)
        seconds = max(protection.seconds[claim] for claim in claims)
        if self.is_preempted_often(held):
            seconds = max(seconds, protection.longer)
        return since + seconds if seconds else 0.0

    def is_preempted_often(self, held: Held) -> bool:
        """Whether a workload is protected longer for its preemptions."""
        protection = held.queue.protection
        if protection is None or not protection.times:
            return False
        counted = self._past.count(held.workload.uid, held.admitted_at - protection.within, held.admitted_at)
        return counted >= protection.times


def began_at(held: Held) -> float:
    """Return when a workload was admitted, or its checks were ready (Unix time, s)."""
    return max(held.admitted_at, held.cleared_at)
