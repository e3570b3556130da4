"""Workloads of a past period with the quota that they held, from which the period can be replayed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from sys import intern
from typing import TYPE_CHECKING

from sqlalchemy import func, literal, select

from admission.model.workload import Admission, PodSetAssignment
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, head, transitions, workload_orders, workloads
from admission.store.records import State
from admission.store.workloads import loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.engine.policies.contract import PastAdmission
    from admission.store.records import QueueObjectVersion, WorkloadRecord

_ROWS = 5_000
"""Rows of the ledger that are converted without a pause."""


@dataclass(frozen=True, slots=True)
class Spell:
    """Quota that a workload held, unchanged, from `begins` until `ends`. Times are seconds since the epoch."""

    admission: Admission
    admitted_at: float
    """Start of the admission; before `begins` if the workload was resized since."""
    begins: float
    ends: float | None
    """None: it still holds the quota."""
    reason: str = ""
    """Why it ended: Succeeded, Preempted, Resized ..."""


@dataclass(frozen=True, slots=True)
class PastWorkload:
    """A workload as it is stored (without the quota that it holds), and all quota that it ever held, oldest first."""

    record: WorkloadRecord
    spells: tuple[Spell, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """What is known about a period. Times are seconds since the epoch."""

    start: float
    """As requested, or the time since when the ledger is complete."""
    end: float
    workloads: Sequence[PastWorkload]
    """All that existed in the period, in the order of their creation."""
    versions: Sequence[QueueObjectVersion]
    """All versions of queue objects until the end of the period, oldest first."""
    earlier: Sequence[PastAdmission]
    """Admissions before the period that policies count."""
    ordered: int
    """Number of workloads about which an admin gave an order (held, moved, ranked ...)."""
    stopping_seconds: float | None = None
    """For how long half of the evicted workloads held their quota until their pods had stopped; None: none was."""


async def kept_since(connection: AsyncConnection) -> float:
    """Return the time since when the ledger is complete (Unix time, s); 0: nothing was ever deleted from it."""
    return float((await connection.execute(select(head.c.pruned_to))).scalar_one() or 0.0)


async def ordered(connection: AsyncConnection, *, start: float, end: float) -> int:
    """Return the number of workloads between `start` and `end` (Unix times, s) about which an admin gave an order."""
    orders = select(func.count()).select_from(workload_orders.join(workloads)).where(loading.existed(start, end))
    return int((await connection.execute(orders)).scalar_one())


async def stopping_seconds(
    connection: AsyncConnection, workloads: Iterable[PastWorkload], *, start: float, end: float
) -> float | None:
    """Return the median time from an eviction between two Unix times (s) to the end of its spell; None: there is none.

    `workloads`: all that existed in this time.
    """
    columns = transitions.c
    within = columns.at >= literal(start, Instant()), columns.at < literal(end, Instant())
    statement = select(columns.workload_uid, columns.at).where(columns.state == State.EVICTING, *within)
    evicted: defaultdict[str, list[float]] = defaultdict(list)
    for uid, at in await connection.execute(statement.order_by(columns.id)):
        evicted[uid].append(at)
    found = []
    for one in workloads if evicted else ():
        times = evicted.get(one.record.workload.uid, ())
        for spell in one.spells if times else ():
            first = next((at for at in times if spell.begins <= at <= (spell.ends or at)), None)
            if first is not None and spell.ends is not None:
                found.append(spell.ends - first)
    return median(found) if found else None


async def past_workloads(connection: AsyncConnection, *, start: float, end: float) -> tuple[PastWorkload, ...]:
    """Return the workloads that existed at some time from `start` to `end` (Unix times, s)."""
    records = [record async for batch in loading.between(connection, start, end) for record in batch]
    dialect, columns = connection.dialect.name, admissions.c
    times = [loading.plain(column, dialect).label(column.name) for column in (columns.from_at, columns.to_at)]
    began = loading.plain(columns.began_at, dialect).label("began_at")
    known = select(workloads.c.uid).where(loading.existed(start, end))
    rows = await connection.stream(
        select(
            columns.workload_uid, *times, began, columns.end_reason, columns.cluster_queue, columns.pod_set,
            columns.resource, columns.flavor, columns.amount, columns.count,
        ).where(columns.workload_uid.in_(known)).order_by(columns.id)
    )  # fmt: skip
    spells: dict[tuple[str, float], _Spell] = {}
    async for batch in rows.partitions(_ROWS):
        for uid, begins, ends, admitted_at, reason, cluster_queue, *part in batch:
            if (spell := spells.get((uid, begins))) is None:
                spell = _Spell(
                    cluster_queue, begins if admitted_at is None else admitted_at, begins, ends, reason or ""
                )
                spells[uid, begins] = spell
            spell.add(*part)
    of: defaultdict[str, list[Spell]] = defaultdict(list)
    for (uid, _), spell in spells.items():
        of[uid].append(spell.value())
    return tuple(PastWorkload(record, tuple(of.get(record.workload.uid, ()))) for record in records)


class _Spell:
    """A spell of which rows are still being read, one for each pod set and resource."""

    def __init__(self, cluster_queue: str, admitted_at: float, begins: float, ends: float | None, reason: str) -> None:
        self._cluster_queue = cluster_queue
        self._times = admitted_at, begins, ends, reason
        self._pod_sets: dict[str, tuple[dict[str, str], dict[str, int], int]] = {}

    def add(self, pod_set: str, resource: str, flavor: str, amount: int, count: int) -> None:
        flavors, usage, _ = self._pod_sets.setdefault(pod_set, ({}, {}, count))
        if resource:
            usage[intern(resource)] = amount
        if flavor:
            flavors[intern(resource)] = intern(flavor)

    def value(self) -> Spell:
        pod_sets = tuple(PodSetAssignment(intern(name), *parts) for name, parts in self._pod_sets.items())
        return Spell(Admission(intern(self._cluster_queue), pod_sets), *self._times)
