"""What workloads used of what they held, by hour: sums beside those of the ledger, in the same unit.

The leader adds what it measures (`controller/decisions/usage_meter`). Time for which nothing is known is in no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sqlalchemy import func, literal, select

from admission.store.database.dialects import insert
from admission.store.database.instant import Instant
from admission.store.database.tables import head, measured_usage, transitions, workloads
from admission.store.errors import StaleEpoch
from admission.store.records import IDLE, State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from admission.store.database.connection import Database

_BATCH: Final = 1_000
"""Rows of a transaction, so that decisions do not wait for long."""
_ROWS = measured_usage.c
COLUMNS: Final = {
    **{name: _ROWS[name] for name in ("cluster_queue", "local_queue", "flavor", "resource")},
    **{name: workloads.c[name] for name in ("namespace", "submitted_by", "kind")},
    "workload": workloads.c.name,
}
"""Columns that sums can be grouped and filtered by, named as in usage reports."""

Key: TypeAlias = "tuple[str, ...]"


class Measured(NamedTuple):
    """A part of an hour in which the use of a resource was known."""

    hour: float
    """Start of the hour (Unix time, s)."""
    workload_uid: str
    cluster_queue: str
    local_queue: str
    flavor: str
    resource: str
    measured_seconds: float
    """What it held, times how long, in the ledger's unit."""
    used_seconds: float
    """The part of it that was used."""


class MeasuredUsage:
    """The rows of `measured_usage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[Measured], *, epoch: int) -> None:
        """Add to the sums. Raises StaleEpoch if another leader has taken over, and may have added the same time."""
        keys = [column.name for column in measured_usage.primary_key]
        for first in range(0, len(rows), _BATCH):
            async with self._database.write() as connection:
                current = await connection.scalar(select(head.c.epoch).with_for_update())
                if current != epoch:
                    raise StaleEpoch(f"this Sluice is no longer the leader (its epoch is {epoch}); nothing was added")
                statement = insert(connection.dialect.name, measured_usage)
                sums = {name: _ROWS[name] + statement.excluded[name] for name in ("measured_seconds", "used_seconds")}
                statement = statement.on_conflict_do_update(index_elements=keys, set_=sums)
                await connection.execute(statement, [row._asdict() for row in rows[first : first + _BATCH]])

    async def sums(
        self, by: Sequence[str], *, start: float, end: float, where: Mapping[str, Collection[str]]
    ) -> dict[Key, tuple[float, float]]:
        """Return measured and used amount-seconds by the values of the columns `by` (of COLUMNS).

        Of full hours: from that of `start` to that before `end` (Unix times, s).
        """
        columns = [COLUMNS[name] for name in by]
        totals = func.sum(_ROWS.measured_seconds), func.sum(_ROWS.used_seconds)
        statement = (
            select(*columns, *totals)
            .join_from(measured_usage, workloads, workloads.c.uid == _ROWS.workload_uid)
            .where(_ROWS.hour >= literal(start, Instant()), _ROWS.hour < literal(end, Instant()))
            .where(*(COLUMNS[name].in_([*values]) for name, values in where.items()))
            .group_by(*columns)
        )
        async with self._database.read() as connection:
            return {tuple(key): (known, used) for *key, known, used in await connection.execute(statement)}

    async def is_known(self, start: float, end: float) -> bool:
        """Whether anything was measured between two Unix times (s)."""
        within = _ROWS.hour >= literal(start, Instant()), _ROWS.hour < literal(end, Instant())
        async with self._database.read() as connection:
            return (await connection.execute(select(_ROWS.hour).where(*within).limit(1))).first() is not None

    async def told(self) -> set[str]:
        """Return the running workloads of which their history says that they were idle, since their admission."""
        columns = transitions.c
        statement = (
            select(workloads.c.uid)
            .join_from(workloads, transitions, columns.workload_uid == workloads.c.uid)
            .where(workloads.c.state == State.ADMITTED, columns.reason == IDLE)
            .where(columns.at >= workloads.c.admitted_at)
        )
        async with self._database.read() as connection:
            return {*await connection.scalars(statement)}
