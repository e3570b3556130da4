"""The input of `usage`, read from the database: rows of the ledger, and nominal quota through time."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import ColumnElement, func, literal, or_, select

from admission.model.quantity import amount
from admission.model.queues import ClusterQueue
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, queue_object_versions, workloads
from admission.store.ledger.usage import MICROSECONDS, Holding, Pot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.ledger.usage import Steps
    from admission.store.records import Document

HOLDER = ("local_queue", "namespace", "submitted_by", "priority")
"""Columns of the ledger that say who held the quota."""
_OF_WORKLOADS: Mapping[str, ColumnElement[str]] = {
    "kind": func.coalesce(workloads.c.kind, ""),
    "workload": func.coalesce(workloads.c.name, admissions.c.workload_uid),
}
"""What workloads say of who held it: as long as the ledger has their rows, not in roll-ups."""
_PARTITION = 5_000

Quotas: TypeAlias = "dict[Pot, Steps]"


def holder(names: Collection[str]) -> tuple[str, ...]:
    """HOLDER, and those of `names` that only workloads say: what roll-ups do not divide by."""
    return (*HOLDER, *(name for name in _OF_WORKLOADS if name in names))


async def during(
    connection: AsyncConnection,
    start: float,
    end: float,
    *,
    holder: tuple[str, ...] = HOLDER,
    where: Mapping[str, Collection[str]] | None = None,
) -> list[Holding]:
    """The rows of the ledger that were in force at some time between `start` and `end`.

    `where` has, by column, the values that count; only columns of Pot leave out rows, as what is borrowed in a pot
    depends on all that is held in it.
    """
    columns = admissions.c
    statement = select(
        columns.cluster_queue, columns.flavor, columns.resource, columns.workload_uid, columns.pod_set,
        func.coalesce(columns.began_at, columns.from_at), columns.from_at, columns.to_at, columns.amount,
        *(_OF_WORKLOADS[name] if name in _OF_WORKLOADS else columns[name] for name in holder),
    ).where(columns.from_at < literal(end, Instant()), columns.amount > 0)  # fmt: skip
    statement = statement.where(
        *(columns[name].in_([*values]) for name, values in (where or {}).items() if name in Pot._fields)
    )
    if holder != HOLDER:
        statement = statement.outerjoin_from(admissions, workloads, workloads.c.uid == columns.workload_uid)
    found: list[Holding] = []
    for part in in_force(start):
        result = await connection.stream(statement.where(part))
        async for rows in result.partitions(_PARTITION):
            found += [
                Holding(
                    Pot(intern(cluster_queue), intern(flavor), intern(resource)),
                    (micros(began), uid, pod_set),
                    micros(from_at),
                    None if to_at is None else micros(to_at),
                    held,
                    tuple(intern(part) if isinstance(part, str) else part for part in whose),
                )
                for cluster_queue, flavor, resource, uid, pod_set, began, from_at, to_at, held, *whose in rows
            ]
    return found


async def nominal_quotas(connection: AsyncConnection) -> Quotas:
    """All nominal quotas that ever were, each with the times at which it changed."""
    columns = queue_object_versions.c
    statement = select(columns.name, columns.operation, columns.at, columns.content)
    rows = await connection.execute(statement.where(columns.kind == ClusterQueue.kind).order_by(columns.id))
    quotas: dict[Pot, list[tuple[int, int]]] = {}
    before: dict[str, dict[Pot, int]] = {}
    now = 0
    for name, operation, at, content in rows:
        now = max(now, micros(at))  # the clocks of replicas may differ; the order of writing does not
        granted = {} if operation == "delete" else dict(_granted(name, content))
        for pot in before.get(name, {}).keys() | granted.keys():
            if (nominal := granted.get(pot, 0)) != before.get(name, {}).get(pot, 0):
                quotas.setdefault(pot, []).append((now, nominal))
        before[name] = granted
    return dict(quotas)


async def changed_since(connection: AsyncConnection, revision: int, start: float, end: float) -> bool:
    """Whether anything that `usage` between `start` and `end` depends on was written after `revision`."""
    rows, versions = admissions.c, queue_object_versions.c
    before = literal(end, Instant())
    later = (rows.from_revision > revision) | (rows.to_revision > revision) & (rows.to_at < before)
    written = versions.revision > revision, versions.kind == ClusterQueue.kind, versions.at < before
    changes = [select(rows.id).where(part, rows.from_at < before, later) for part in in_force(start)] + [
        select(versions.id).where(*written)
    ]
    return bool(await connection.scalar(select(or_(*(one.exists() for one in changes)))))


def in_force(start: float) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """That a row was in force at `start` or later; in two parts, so that each is a range in an index."""
    return admissions.c.to_at > literal(start, Instant()), admissions.c.to_at.is_(None)


def micros(seconds: float) -> int:
    """An instant in microseconds; exact, for the database knows no shorter time."""
    return round(seconds * MICROSECONDS)


def _granted(name: str, content: Document) -> Iterator[tuple[Pot, int]]:
    for group in content["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                pot = Pot(intern(name), intern(flavor["name"]), intern(quota["name"]))
                yield pot, amount(quota["name"], quota["nominalQuota"])
