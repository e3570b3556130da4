"""Replay of a past period: its workloads arrive again when they did, under the queue objects of then or other ones.

A workload runs as long as it did. Where that is not known, because it was still running or had never started, it runs
as long as similar ones. Not replayed are orders of admins about single workloads, and waits for admission checks; the
quota that a workload held while it waited for its checks counts as run time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine import (
    NamespaceChanged,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.model.queues import quota_changes, quotas_at
from admission.simulate.durations import Durations
from admission.simulate.estimator import OUTCOMES
from admission.simulate.virtual_time import SHORTEST_STOPPING, STOPPING_SECONDS, VirtualTime
from admission.store.workloads.past import Spell
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from admission.engine import Event, Policy
    from admission.model.queues import QueueObject
    from admission.store.records import QueueObjectVersion
    from admission.store.workloads.past import Past, PastWorkload

LONGEST_MOMENT: Final = 60.0
"""Seconds: events so close together are decided together in the longest periods, so that starts agree to a minute."""
MOMENTS: Final = 50_000
"""Times at which a period of up to a month is decided at most: some 50 s apart in a month, 2 s in a day."""

ObjectKey: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(slots=True)
class Course:
    """How a workload fared: when it arrived, and the quota that it held. Times are seconds since the epoch."""

    past: PastWorkload
    spells: list[Spell]
    run_seconds: float | None = None
    """Seconds for which it holds quota until it is done; None: not known, it is estimated."""
    leaves_at: float = inf
    """When its user deletes it, whether or not it runs; infinite: never."""

    @property
    def arrives_at(self) -> float:
        """When it was queued: when it was created, unless the cluster's clock is ahead of Sluice's."""
        record, spells = self.past.record, self.past.spells
        first = spells[0].admitted_at if spells else record.queued_at
        return min(record.workload.created, record.queued_at, first)


class Timeline:
    """The queue objects over time: those that are `proposed` always, all others as they were.

    Quotas of proposed objects change with their calendars; those of others have been written as they changed.
    """

    def __init__(
        self, versions: Sequence[QueueObjectVersion], proposed: Sequence[QueueObject], start: float, end: float
    ) -> None:
        replaced = {key_of(obj) for obj in proposed}
        self.first: dict[ObjectKey, QueueObject] = {}
        """The objects at the start."""
        self.changes: list[tuple[float, QueueObject, bool]] = []
        """Later changes: time, object, whether it was deleted."""
        for version in versions:
            key, deleted = key_of(version.object), version.operation == "delete"
            if key in replaced:
                continue
            if version.at > start:
                self.changes.append((version.at, version.object, deleted))
            elif deleted:
                self.first.pop(key, None)
            else:
                self.first[key] = version.object
        self.first.update((key_of(obj), quotas_at(obj, start)) for obj in proposed)
        self.changes += ((at, changed, False) for obj in proposed for at, changed in quota_changes(obj, start, end))
        self.changes.sort(key=lambda change: change[0])


def key_of(obj: QueueObject) -> ObjectKey:
    """Return the key of a queue object."""
    return obj.kind, obj.metadata.namespace, obj.metadata.name


class Replay:
    """One replay of a period."""

    def __init__(
        self,
        past: Past,
        policy: Policy,
        timeline: Timeline,
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> None:
        """`namespaces`: namespace to its labels."""
        self._past = past
        self._timeline = timeline
        self._namespaces = namespaces
        known = past.stopping_seconds
        stopping = STOPPING_SECONDS if known is None else max(known, SHORTEST_STOPPING)
        self._time = VirtualTime(policy, past.start, stopping=stopping)
        self._durations = Durations()
        self.courses = {one.record.workload.uid: _course(one) for one in past.workloads}
        """By uid."""
        self.estimated = 0
        """Number of workloads whose run time had to be estimated."""
        self._open: dict[str, Spell] = {}
        """Spells that have not ended."""
        self._evicted_for: dict[str, str] = {}
        for course in self.courses.values():
            if course.run_seconds is not None:
                self._durations.learn(course.past.record.workload, course.run_seconds)

    def run(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Play the whole period; `progress` is called with its share that is done, from 0 to 1."""
        past, time = self._past, self._time
        time.engine.seed(list(past.earlier), now=past.start)
        time.load(self._first_events())
        for at, obj, deleted in self._timeline.changes:
            time.schedule(at, QueueObjectDeleted(*key_of(obj)) if deleted else QueueObjectChanged(obj))
        for uid, course in self.courses.items():
            if course.arrives_at > past.start:
                time.schedule(course.arrives_at, _pending(course.past))
            if course.leaves_at < inf:
                time.schedule(course.leaves_at, WorkloadGone(uid))
        while True:
            decisions = time.settle()
            for admit in decisions.admitted:
                uid = admit.workload.uid
                self._open[uid] = Spell(admit.admission, time.now, time.now, None)
                time.end(time.now + self._run_seconds(uid), uid)
            self._evicted_for.update((evict.workload.uid, evict.reason) for evict in decisions.evicted)
            processed = time.advance(past.end, within=min((past.end - past.start) / MOMENTS, LONGEST_MOMENT))
            if processed is None:
                break
            for at, event in processed:
                if isinstance(event, WorkloadGone):
                    self._close(event.uid, at)
            progress((time.now - past.start) / (past.end - past.start))
        for uid, spell in self._open.items():
            self.courses[uid].spells.append(spell)

    def _first_events(self) -> Iterator[Event]:
        start = self._past.start
        for name, labels in self._namespaces.items():
            yield NamespaceChanged(name, labels)
        for obj in self._timeline.first.values():
            yield QueueObjectChanged(obj)
        for uid, course in self.courses.items():
            if course.arrives_at > start:
                continue
            held = next((one for one in course.past.spells if one.begins <= start < (one.ends or inf)), None)
            if held is None:
                yield _pending(course.past)
                continue
            yield WorkloadAdmitted(course.past.record.workload, held.admission, at=held.admitted_at)
            self._open[uid] = Spell(held.admission, held.admitted_at, held.begins, None)
            self._time.end(max(held.admitted_at + self._run_seconds(uid), start), uid)

    def _close(self, uid: str, at: float) -> None:
        spell = self._open.pop(uid, None)
        if spell is not None:
            reason = self._evicted_for.pop(uid, "")
            course = self.courses[uid]
            course.spells.append(Spell(spell.admission, spell.admitted_at, spell.begins, at, reason))

    def _run_seconds(self, uid: str) -> float:
        course = self.courses[uid]
        if course.run_seconds is None and course.leaves_at == inf:
            self.estimated += 1
            last = course.past.spells[-1] if course.past.spells else None
            elapsed = 0.0 if last is None else max((last.ends or self._past.end) - last.admitted_at, 0.0)
            rest = self._durations.remaining(course.past.record.workload, elapsed=elapsed)
            course.run_seconds = inf if rest is None else elapsed + rest
        return inf if course.run_seconds is None else course.run_seconds


def _course(past: PastWorkload) -> Course:
    record, course = past.record, Course(past, [])
    if record.finished_at is not None:
        if record.outcome in OUTCOMES and past.spells:
            last = past.spells[-1]
            course.run_seconds = (last.ends or record.finished_at) - last.admitted_at
        else:
            course.leaves_at = record.finished_at
    return course


def _pending(past: PastWorkload) -> WorkloadPending:
    record = past.record
    never = record.finished_at is None and not past.spells
    on_hold = never and (not record.active or record.reason in BLOCKING_REASONS)
    workload = replace(record.workload, queued_at=None)  # as it was before it was evicted for its own fault
    return WorkloadPending(workload, on_hold=on_hold or not workload.pod_sets)
