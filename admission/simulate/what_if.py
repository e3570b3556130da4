"""What-if: a past period as it happened, as its replay has it, and as it would have been under other queue objects.

The replay without changes shows how far replays can be trusted: what is not recorded, such as how long evicted pods
took to stop, is missing in both. Compare the changed replay with it, not with what happened.

In a replay workloads arrive again when they did. Each runs as long as it did. Where that is not known, because it was
still running or had never started, it runs as long as similar ones. Not replayed are orders of admins about single
workloads, and waits for admission checks; the quota that a workload held while it waited for its checks counts as run
time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.engine import (
    BudgetAccounts,
    Budgets,
    Engine,
    NamespaceChanged,
    PastAdmission,
    Policy,
    QueueObjectChanged,
    QueueObjectDeleted,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.vocabulary import PREEMPTED
from admission.model.errors import InvalidObject
from admission.model.quantity import format_amount
from admission.model.queues import ClusterQueue, Cohort, LocalQueue, quota_changes, quotas_at
from admission.model.quotas import with_quotas
from admission.simulate.durations import Durations
from admission.simulate.estimator import OUTCOMES
from admission.simulate.virtual_time import SHORTEST_STOPPING, STOPPING_SECONDS, VirtualTime
from admission.store.ledger.usage import MICROSECONDS, Holding, QuotaKey, usage
from admission.store.workloads.past import Spell
from admission.store.workloads.replay import BLOCKING_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from admission.engine import Event
    from admission.model.budgets import Sum
    from admission.model.queues import QueueObject
    from admission.model.quotas import ResourceQuota
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

    def last(self) -> dict[ObjectKey, QueueObject]:
        """Return the objects at the end."""
        found = dict(self.first)
        for _, obj, deleted in self.changes:
            if deleted:
                found.pop(key_of(obj), None)
            else:
                found[key_of(obj)] = obj
        return found


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
        time.load(self._first_objects())
        time.engine.seed(list(past.earlier), now=past.start)
        time.load(self._first_workloads())
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

    def _first_objects(self) -> Iterator[Event]:
        for name, labels in self._namespaces.items():
            yield NamespaceChanged(name, labels)
        for obj in self._timeline.first.values():
            yield QueueObjectChanged(obj)

    def _first_workloads(self) -> Iterator[Event]:
        start = self._past.start
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


AGREES_WITHIN: Final = 60.0
"""Seconds by which the start of a workload may differ between a replay and what happened, and still agree ..."""
AGREES_WITHIN_SHARE: Final = 0.1
"""... or this share of its wait."""

MOST_TIMES: Final = 64
"""Up to so many times the current quota are searched for a goal."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of workloads that waited in the period, in seconds from their arrival until they first held quota.

    Of workloads that had not started at the end it is only known that they wait longer: they count with the time that
    they have waited.
    """

    workloads: int
    waiting: int
    """How many had not started at the end."""
    mean: float
    p50: float
    p90: float
    longest: float
    preemptions: int
    """Number of times that they were preempted."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Quota of one flavor and resource over the period, in amount (milli-CPU, else base units) times seconds."""

    flavor: str
    resource: str
    quota: float
    """Nominal quota of all ClusterQueues and Cohorts together."""
    used: float
    borrowed: float
    """The part of `used` beyond the nominal quota of the ClusterQueue that used it."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What a Budget of the end of the period charges for the quota of the whole period."""

    budget: str
    sums: tuple[Sum, ...]
    """For each of its resources what is spent, and as the limit the hours of the period of the Budget at the end."""


@dataclass(frozen=True, slots=True)
class CourseSummary:
    """How one course of the period went."""

    all: Waits
    queues: Mapping[str, Waits]
    """By ClusterQueue."""
    users: Mapping[str, Waits]
    resources: tuple[ResourceUse, ...]
    budgets: tuple[BudgetUse, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well the replay without changes agrees with what happened."""

    started: int
    """Workloads that started in both."""
    agree: int
    """Those of them whose start differs by `AGREES_WITHIN` seconds at most, or by that share of their wait."""
    estimated: int
    """Workloads whose run time was estimated."""
    ordered: int
    """Workloads that an admin held, moved or ranked, which is not replayed."""
    misdated: int
    """Workloads that Sluice saw more than `AGREES_WITHIN` seconds after they were created or had quota, because it did
    not run or clocks differ: it is not known when they would have been queued."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A period in three ways. Times are seconds since the epoch."""

    start: float
    end: float
    happened: CourseSummary
    replayed: CourseSummary
    changed: CourseSummary | None
    """None: no changes were proposed."""
    agreement: Agreement


def what_if(
    past: Past,
    policy: Policy,
    proposed: Sequence[QueueObject],
    namespaces: Mapping[str, Mapping[str, str]],
    *,
    progress: Callable[[float], None] = lambda _: None,
) -> Comparison:
    """Compare a period as it happened, replayed, and replayed with the `proposed` queue objects in place of theirs.

    `namespaces`: namespace to its labels. `progress` is called with the share that is done, from 0 to 1.
    """
    past = _from_first_object(past)
    as_it_was = Timeline(past.versions, (), past.start, past.end)
    plays = 2 if proposed else 1
    replayed = Replay(past, policy, as_it_was, namespaces)
    replayed.run(lambda share: progress(share / plays))
    changed = None
    if proposed:
        timeline = Timeline(past.versions, proposed, past.start, past.end)
        again = Replay(past, policy, timeline, namespaces)
        again.run(lambda share: progress((1 + share) / plays))
        changed = _account(past, again.courses, timeline)
    happened = {uid: replace(course, spells=list(course.past.spells)) for uid, course in replayed.courses.items()}
    return Comparison(
        past.start,
        past.end,
        _account(past, happened, as_it_was),
        _account(past, replayed.courses, as_it_was),
        changed,
        _agreement(past, happened, replayed),
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """A wished wait: nine of ten workloads of a ClusterQueue start within `p90` seconds."""

    cluster_queue: str
    flavor: str
    resource: str
    """Of the nominal quota that may be raised for it."""
    p90: float


@dataclass(frozen=True, slots=True)
class NeededQuota:
    """The lowest nominal quota with which a goal would have been met, in amounts (milli-CPU, else base units)."""

    current: int
    needed: int | None
    """None: not even with `MOST_TIMES` the current quota, so something else is in the way."""
    tried: tuple[tuple[int, Waits], ...]
    """Each quota that was tried, in ascending order, with the waits of the ClusterQueue's workloads."""


def quota_needed(
    past: Past,
    policy: Policy,
    goal: Goal,
    proposed: Sequence[QueueObject],
    namespaces: Mapping[str, Mapping[str, str]],
    *,
    progress: Callable[[float], None] = lambda _: None,
) -> NeededQuota:
    """Search the nominal quota that a goal needs, by replays of the period with the `proposed` queue objects.

    Raises InvalidObject if the ClusterQueue has no such quota.
    """
    past = _from_first_object(past)
    latest = Timeline(past.versions, proposed, past.start, past.end).last()
    queue = latest.get((ClusterQueue.kind, "", goal.cluster_queue))
    if not isinstance(queue, ClusterQueue):
        raise InvalidObject([("clusterQueue", f'there was no ClusterQueue "{goal.cluster_queue}" at the end')])
    current = _nominal(queue, goal)
    if current is None:
        text = f"ClusterQueue {goal.cluster_queue} has no quota of {goal.resource} in flavor {goal.flavor}"
        raise InvalidObject([("flavor", text)])
    step = 1000 if goal.resource == "cpu" else 1
    tried: dict[int, Waits] = {}

    def is_met(nominal: int) -> bool:
        timeline = Timeline(past.versions, (*proposed, _with_nominal(queue, goal, nominal)), past.start, past.end)
        replay = Replay(past, policy, timeline, namespaces)
        replay.run(lambda share: progress((len(tried) + share) / (len(tried) + share + 3)))
        found = _account(past, replay.courses, timeline).queues.get(goal.cluster_queue)
        waits = tried[nominal] = _Waited().waits() if found is None else found
        return waits.p90 <= goal.p90

    def answer(needed: int | None) -> NeededQuota:
        return NeededQuota(current, needed, tuple(sorted(tried.items())))

    if is_met(current):
        return answer(current)
    low, high = current, max(2 * current, step)
    while not is_met(high):
        if high >= MOST_TIMES * max(current, step):
            return answer(None)
        low, high = high, 2 * high
    while high - low > max(step, high // 50):
        middle = (low + high) // 2 // step * step
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return answer(high)


def _nominal(queue: ClusterQueue, goal: Goal) -> int | None:
    quotas = (one for group in queue.spec.resource_groups for one in group.flavors if one.name == goal.flavor)
    return next((one.nominal for flavor in quotas for one in flavor.resources if one.name == goal.resource), None)


def _with_nominal(queue: ClusterQueue, goal: Goal, nominal: int) -> ClusterQueue:
    """Return the ClusterQueue with another nominal quota."""
    text = format_amount(goal.resource, nominal)

    def wanted(flavor: str, quota: ResourceQuota) -> ResourceQuota:
        if (flavor, quota.name) != (goal.flavor, goal.resource):
            return quota
        return quota.model_copy(update={"nominal_quota": text, "current_quota": None})

    groups = with_quotas(queue.spec.resource_groups, wanted)
    return queue.model_copy(update={"spec": queue.spec.model_copy(update={"resource_groups": groups})})


def _from_first_object(past: Past) -> Past:
    """Let the period begin when there was the first queue object, so that averages are over that time."""
    first = min((version.at for version in past.versions), default=past.start)
    return past if first <= past.start else replace(past, start=min(first, past.end))


def _account(past: Past, courses: Mapping[str, Course], timeline: Timeline) -> CourseSummary:
    led_to = {
        (obj.metadata.namespace, obj.metadata.name): obj.spec.cluster_queue
        for obj in (*timeline.first.values(), *(obj for _, obj, deleted in timeline.changes if not deleted))
        if isinstance(obj, LocalQueue)
    }
    everything = _Waited()
    queues: defaultdict[str, _Waited] = defaultdict(_Waited)
    users: defaultdict[str, _Waited] = defaultdict(_Waited)
    holdings: list[Holding] = []
    for uid, course in courses.items():
        spells, workload = course.spells, course.past.record.workload
        holdings += (holding for spell in spells for holding in _holdings(uid, spell))
        before = any(spell.begins <= past.start < (spell.ends or inf) for spell in course.past.spells)
        if before or course.arrives_at >= past.end:
            continue  # it did not wait in the period, or only for quota that it had already
        within = [spell for spell in spells if spell.admitted_at < past.end]
        queue = within[0].admission.cluster_queue if within else led_to.get((workload.namespace, workload.queue), "")
        for group in (everything, queues[queue], users[workload.user]):
            group.add(course.arrives_at, within, min(past.end, course.leaves_at))
    quotas = _quotas(timeline, past.start)
    resources = _resources(past, holdings, quotas)
    return CourseSummary(
        everything.waits(),
        {name: group.waits() for name, group in sorted(queues.items())},
        {name: group.waits() for name, group in sorted(users.items())},
        resources,
        _budgets(past, courses, timeline),
    )


class _Waited:
    """Waits of a group of workloads, before they are summed up."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._waiting = 0
        self._preemptions = 0

    def add(self, arrived: float, spells: Sequence[Spell], until: float) -> None:
        """Add a workload with the quota that it held; `until`: when it left, or the period ended."""
        self._seconds.append(max((spells[0].admitted_at if spells else until) - arrived, 0.0))
        self._waiting += not spells
        self._preemptions += sum(spell.reason == PREEMPTED and (spell.ends or inf) <= until for spell in spells)

    def waits(self) -> Waits:
        seconds = sorted(self._seconds)
        count = len(seconds)
        if not count:
            return Waits(0, 0, 0.0, 0.0, 0.0, 0.0, 0)
        half, nine = (seconds[math.ceil(share * count) - 1] for share in (0.5, 0.9))  # nearest rank
        return Waits(count, self._waiting, sum(seconds) / count, half, nine, seconds[-1], self._preemptions)


def _holdings(uid: str, spell: Spell) -> Iterable[Holding]:
    begins, ends = _micros(spell.begins), None if spell.ends is None else _micros(spell.ends)
    for pod_set in spell.admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            key = QuotaKey(spell.admission.cluster_queue, flavor, resource)
            order = _micros(spell.admitted_at), uid, pod_set.name
            yield Holding(key, order, begins, ends, pod_set.usage.get(resource, 0), ())


_Steps: TypeAlias = "dict[tuple[str, str, str, str], list[tuple[int, int]]]"
"""Kind and name of a ClusterQueue or Cohort, flavor, resource; to the nominal quota since a time (microseconds)."""


def _quotas(timeline: Timeline, start: float) -> _Steps:
    steps: _Steps = {}
    for at, obj, deleted in (*((start, obj, False) for obj in timeline.first.values()), *timeline.changes):
        if not isinstance(obj, ClusterQueue | Cohort):
            continue
        now = {
            (obj.kind, obj.metadata.name, flavor.name, quota.name): quota.nominal
            for group in (() if deleted else obj.spec.resource_groups)
            for flavor in group.flavors
            for quota in flavor.resources
        }
        gone = {key for key in steps if key[:2] == (obj.kind, obj.metadata.name)} - now.keys()
        for key, nominal in (*now.items(), *((key, 0) for key in gone)):
            steps.setdefault(key, []).append((_micros(at), nominal))
    return steps


def _resources(past: Past, holdings: Iterable[Holding], quotas: _Steps) -> tuple[ResourceUse, ...]:
    start, end = _micros(past.start), _micros(past.end)
    total: defaultdict[tuple[str, str], int] = defaultdict(int)
    for (_, _, flavor, resource), steps in quotas.items():
        for (begins, nominal), (ends, _) in zip(steps, [*steps[1:], (end, 0)], strict=True):
            total[flavor, resource] += nominal * max(min(ends, end) - max(begins, start), 0)
    of_queues = {QuotaKey(*key[1:]): steps for key, steps in quotas.items() if key[0] == ClusterQueue.kind}
    used: defaultdict[tuple[str, str], int] = defaultdict(int)
    borrowed: defaultdict[tuple[str, str], int] = defaultdict(int)
    for account, amount in usage(holdings, of_queues, start=start, end=end).items():
        place = account.quota_key.flavor, account.quota_key.resource
        used[place] += amount.total
        borrowed[place] += amount.borrowed
    return tuple(
        ResourceUse(*place, total[place] / MICROSECONDS, used[place] / MICROSECONDS, borrowed[place] / MICROSECONDS)
        for place in sorted(total.keys() | used.keys())
    )


def _budgets(past: Past, courses: Mapping[str, Course], timeline: Timeline) -> tuple[BudgetUse, ...]:
    """Return what the Budgets charge for the quota of a course, by the scopes and prices of its end."""
    engine = Engine(Policy(policies=(Budgets(),)))
    for obj in timeline.last().values():
        engine.observe(QueueObjectChanged(obj), now=past.end)
    (accounts,) = engine.policies
    assert isinstance(accounts, BudgetAccounts)
    if accounts.idle:
        return ()
    charged = accounts.charged(_admissions(courses), past.start, past.end)
    return tuple(BudgetUse(name, tuple(sums)) for name, sums in charged)


def _admissions(courses: Mapping[str, Course]) -> Iterator[PastAdmission]:
    for uid, course in courses.items():
        workload = course.past.record.workload
        for spell in course.spells:
            for pod_set in spell.admission.pod_sets:
                for resource, flavor in pod_set.flavors.items():
                    amount, place = pod_set.usage.get(resource, 0), spell.admission.cluster_queue
                    yield PastAdmission(
                        uid, workload.user, workload.namespace, workload.queue, place, flavor, resource, amount,
                        spell.begins, spell.ends, resized=False, groups=workload.groups,
                    )  # fmt: skip


def _agreement(past: Past, happened: Mapping[str, Course], replayed: Replay) -> Agreement:
    started = agree = misdated = 0
    for uid, course in happened.items():
        record, spells, again = course.past.record, course.spells, replayed.courses[uid].spells
        earliest = min([record.workload.created, *(spell.admitted_at for spell in spells[:1])])
        misdated += record.queued_at - earliest > AGREES_WITHIN
        if not spells or not again or not past.start <= spells[0].admitted_at < past.end:
            continue
        started += 1
        wait = spells[0].admitted_at - course.arrives_at
        differs = abs(again[0].admitted_at - spells[0].admitted_at)
        agree += differs <= max(AGREES_WITHIN, AGREES_WITHIN_SHARE * wait)
    return Agreement(started, agree, replayed.estimated, past.ordered, misdated)


def _micros(at: float) -> int:
    return round(at * MICROSECONDS)
