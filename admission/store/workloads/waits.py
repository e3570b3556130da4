"""Waits of workloads for their first quota, and the reasons for which they waited, by which objectives are judged."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import and_, func, literal, select

from admission.model.durations import parse_duration
from admission.model.queues import ClusterQueue, LocalQueue, Objective
from admission.store.database.dialects import in_list
from admission.store.database.instant import Instant
from admission.store.database.tables import (
    admissions,
    head,
    queue_object_versions,
    queue_objects,
    transitions,
    workloads,
)
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from admission.store.database.connection import Database

_UIDS: Final = 500
"""Workloads whose history is read by one statement."""
_UNEXPLAINED: Final = "PendingEvaluation"
"""Reason of a workload before its first transition says another one."""


class Wait(NamedTuple):
    """The wait of a workload for its first quota. Times are seconds since the epoch."""

    uid: str
    cluster_queue: str
    """That which gave it quota first; if none did, the one to which its LocalQueue leads now."""
    arrived: float
    until: float
    """When it got quota or left the queue; if it does neither, when the waits were read."""
    started: bool
    left: bool
    """Whether it left the queue without quota."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason for which workloads waited that missed an objective."""

    reason: str
    seconds: float
    """Sum of the times for which it was the reason, of all these workloads."""
    workloads: int
    """How many it kept waiting at some time."""


@dataclass(frozen=True, slots=True)
class ObjectiveOutcome:
    """How an objective was met by the workloads of a ClusterQueue that arrived in some time."""

    workloads: int
    """Those that count: they started, or waited for longer than the wished wait."""
    met: int
    """Those that started within the wished wait."""
    waiting: int
    """Those that have not started; they count with the time that they have waited."""
    wait: float
    """The wait (s) within which the percentile of the objective started."""
    obstacles: tuple[Obstacle, ...]
    """What was in the way of those that missed it, the longest first."""

    @property
    def share(self) -> float:
        """The share of workloads that met it, from 0 to 1; 1 if there were none."""
        return self.met / self.workloads if self.workloads else 1.0


@dataclass(frozen=True, slots=True)
class ObjectiveOutcomes:
    """How objectives were met in consecutive times."""

    kept_since: float
    """Since when the database has all workloads (Unix time, s); what arrived before may be missing."""
    found: Mapping[tuple[str, int], ObjectiveOutcome]
    """By ClusterQueue and index of the time. Those without workloads that count are missing."""


async def outcomes(
    database: Database, objectives: Mapping[tuple[str, int], Objective], bounds: Sequence[float], *, now: float
) -> ObjectiveOutcomes:
    """Return how objectives were met by what arrived between consecutive `bounds` (Unix times, s).

    `objectives`: by ClusterQueue and index of the time. `now`: until when what waits has waited.
    """
    names = {name for name, _ in objectives}
    found, kept_since = await _waits(database, names, start=bounds[0], end=bounds[-1], now=now)
    wished = {of: parse_duration(one.wait) for of, one in objectives.items()}
    groups: defaultdict[tuple[str, int], list[Wait]] = defaultdict(list)
    for wait in found:
        of = wait.cluster_queue, next(index for index, end in enumerate(bounds[1:]) if wait.arrived < end)
        if of in wished and (wait.started or wait.until - wait.arrived > wished[of]):
            groups[of].append(wait)
    missed = [each for of, waits in groups.items() for each in waits if not _meets(each, wished[of])]
    reasons = await _reasons(database, missed)
    return ObjectiveOutcomes(
        kept_since, {of: _outcome(waits, objectives[of], wished[of], reasons) for of, waits in sorted(groups.items())}
    )


def _meets(wait: Wait, wished: float) -> bool:
    return wait.started and wait.until - wait.arrived <= wished


def _outcome(
    waits: Sequence[Wait], objective: Objective, wished: float, reasons: Mapping[str, Mapping[str, float]]
) -> ObjectiveOutcome:
    seconds = sorted(each.until - each.arrived for each in waits)
    sums: defaultdict[str, float] = defaultdict(float)
    numbers: defaultdict[str, int] = defaultdict(int)
    for each in waits:
        for reason, waited in reasons.get(each.uid, {}).items():
            sums[reason] += waited
            numbers[reason] += 1
    return ObjectiveOutcome(
        len(waits),
        sum(_meets(each, wished) for each in waits),
        sum(not each.started and not each.left for each in waits),
        seconds[math.ceil(len(seconds) * objective.percentile / 100) - 1],  # nearest rank
        tuple(Obstacle(name, sums[name], numbers[name]) for name in sorted(sums, key=lambda name: (-sums[name], name))),
    )


async def _waits(
    database: Database, cluster_queues: Collection[str], *, start: float, end: float, now: float
) -> tuple[list[Wait], float]:
    """Return the waits of workloads that arrived from `start` until `end` (Unix times, s), and since when all are kept.

    Those that never waited for quota are left out: what ran already when Sluice first saw it.
    """
    first = (
        select(func.min(admissions.c.id)).where(admissions.c.workload_uid == workloads.c.uid).correlate(workloads)
    ).scalar_subquery()
    leads = and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == workloads.c.namespace,
        queue_objects.c.name == workloads.c.local_queue,
    )
    queue = func.coalesce(admissions.c.cluster_queue, queue_objects.c.cluster_queue)
    columns = workloads.c
    rows = workloads.outerjoin(admissions, admissions.c.id == first).outerjoin(queue_objects, leads)
    statement = (
        select(columns.uid, queue, columns.created_at, admissions.c.began_at, admissions.c.from_at,
               columns.state, columns.finished_at)
        .select_from(rows)
        .where(columns.created_at >= literal(start, Instant()), columns.created_at < literal(end, Instant()))
        .order_by(columns.created_at, columns.uid)
    )  # fmt: skip
    async with database.read() as connection:
        kept_since = (await connection.execute(select(head.c.pruned_to))).scalar_one()
        of_queues = in_list(connection.dialect.name, queue, sorted(cluster_queues))
        fetched = (await connection.execute(statement.where(of_queues))).all()

    def convert() -> list[Wait]:
        found = []
        for uid, name, arrived, began_at, from_at, state, finished_at in fetched:
            started = from_at if began_at is None else began_at
            left = finished_at if state == State.FINISHED else None
            until = now if started is None and left is None else left if started is None else started
            found.append(Wait(uid, name, arrived, max(until, arrived), started is not None, left is not None))
        return found

    return await asyncio.to_thread(convert), kept_since or 0.0


async def _reasons(database: Database, waits: Sequence[Wait]) -> dict[str, dict[str, float]]:
    """Return for how many seconds each reason kept each workload waiting, by uid."""
    found: dict[str, dict[str, float]] = {}
    columns = transitions.c
    for begin in range(0, len(waits), _UIDS):
        some = {each.uid: each for each in waits[begin : begin + _UIDS]}
        statement = select(columns.workload_uid, columns.at, columns.reason).where(columns.state == State.PENDING)
        async with database.read() as connection:
            these = in_list(connection.dialect.name, columns.workload_uid, sorted(some))
            ordered = statement.where(these).order_by(columns.workload_uid, columns.id)
            rows = (await connection.execute(ordered)).all()
        of: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for uid, at, reason in rows:
            of[uid].append((at, reason))
        found |= {uid: _spent(wait, of[uid]) for uid, wait in some.items()}
    return found


def _spent(wait: Wait, steps: Iterable[tuple[float, str]]) -> dict[str, float]:
    """Return the seconds of each reason of a wait, from the times since when they held, oldest first."""
    sums: defaultdict[str, float] = defaultdict(float)
    since, reason = wait.arrived, _UNEXPLAINED
    for at, following in (*steps, (wait.until, "")):
        at = min(max(at, since), wait.until)
        sums[reason] += at - since
        since, reason = at, following
    return {name: seconds for name, seconds in sums.items() if seconds > 0}


class Wish(NamedTuple):
    """The objective that a ClusterQueue had from a time on."""

    since: float
    """Unix time (s)."""
    objective: Objective | None
    """None: it had none any more."""


async def wishes(database: Database) -> dict[str, list[Wish]]:
    """Return the objectives that each ClusterQueue ever had, the oldest first; of those that had one."""
    columns = queue_object_versions.c
    objective = columns.content[("spec", "objective")]
    statement = select(columns.name, columns.operation, columns.at, objective).where(columns.kind == ClusterQueue.kind)
    async with database.read() as connection:
        rows = (await connection.execute(statement.order_by(columns.id))).all()
    found: defaultdict[str, list[Wish]] = defaultdict(list)
    for name, operation, at, content in rows:
        held = None if operation == "delete" or content is None else Objective.model_validate(content)
        steps = found[name] if held is not None else found.get(name, [])
        if held != (steps[-1].objective if steps else None):
            # The order is that of the writes, because the clocks of replicas may differ.
            steps.append(Wish(max(at, steps[-1].since) if steps else at, held))
    return dict(found)


def wish_of(steps: Sequence[Wish], end: float) -> tuple[float, Objective] | None:
    """Return the objective that held before `end`, or that which was the first one, if it was set later, and its begin.

    None: there was none any more. `steps` of `wishes`.
    """
    before = [step for step in steps if step.since < end]
    since, objective = before[-1] if before else steps[0]
    return None if objective is None else (since, objective)


def objectives_of(queues: Iterable[ClusterQueue]) -> dict[str, Objective]:
    """Return the objectives of those ClusterQueues that have one, by name."""
    return {one.name: one.spec.objective for one in queues if one.spec.objective is not None}
