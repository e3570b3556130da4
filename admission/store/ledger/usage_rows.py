"""Queries for the input of `usage`: rows of the ledger, and nominal quotas over time."""

from __future__ import annotations

import asyncio
from sys import intern
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Text, func, literal, or_, select, type_coerce

from admission.model.quantity import amount
from admission.model.queues import ClusterQueue
from admission.model.topology_documents import topology_assignment
from admission.store.database.dialects import parsed_json
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, queue_object_versions, workloads
from admission.store.ledger.usage import MICROSECONDS, Holding, QuotaKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import FromClause
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.ledger.usage import QuotaSteps
    from admission.store.records import Document

HOLDER_COLUMNS = ("local_queue", "namespace", "submitted_by", "priority")
"""Columns of the ledger and of the roll-ups by which usage is accounted."""
HOME: Final = "home"
"""Column of the cluster of a workload's object; empty if `retention` has deleted its record."""
_WORKLOAD_COLUMNS: Mapping[str, ColumnElement[str]] = {
    "kind": func.coalesce(workloads.c.kind, ""),
    "cluster": func.coalesce(admissions.c.cluster, workloads.c.cluster, ""),
    "workload": func.coalesce(workloads.c.name, admissions.c.workload_uid),
    HOME: func.coalesce(workloads.c.cluster, ""),
}
"""Further columns, joined from workloads; available for ledger rows only, not in roll-ups."""
LEVEL: Final = "level:"
"""Prefix of what stands for a column in reports by the domains of a topology: with the node label of their level."""
_BATCH = 5_000
"""Rows fetched at a time."""

Quotas: TypeAlias = "dict[QuotaKey, QuotaSteps]"

_Places: TypeAlias = "dict[tuple[str, str, float], dict[tuple[str, ...], int]]"
"""Workload, pod set and start of an admission to the number of its pods by domains, one of each level."""


def holder_columns(names: Collection[str]) -> tuple[str, ...]:
    """Return HOLDER_COLUMNS, those of `names` that are joined from workloads, and levels of topologies."""
    levels = sorted(name for name in names if name.startswith(LEVEL))
    return (*HOLDER_COLUMNS, *(name for name in _WORKLOAD_COLUMNS if name in names), *levels)


async def rows_in_force(
    connection: AsyncConnection,
    start: float,
    end: float,
    *,
    holder: tuple[str, ...] = HOLDER_COLUMNS,
    where: Mapping[str, Collection[str]] | None = None,
) -> list[Holding]:
    """Return the ledger rows that were in force at any time between `start` and `end` (Unix times, s).

    `where`: accepted values by column. Only columns of QuotaKey are used: rows of other holders are needed, because
    the borrowed part of usage depends on all admissions under the same quota. With levels in `holder`, which come last,
    rows are divided by the domains of their pods.
    """
    columns = admissions.c
    levels = tuple(name.removeprefix(LEVEL) for name in holder if name.startswith(LEVEL))
    places = await _places(connection, start, end, levels) if levels else {}
    holder = holder[: len(holder) - len(levels)]
    statement = select(
        columns.cluster_queue, columns.flavor, columns.resource, columns.workload_uid, columns.pod_set,
        func.coalesce(columns.began_at, columns.from_at), columns.from_at, columns.to_at, columns.amount,
        *(_WORKLOAD_COLUMNS[name] if name in _WORKLOAD_COLUMNS else columns[name] for name in holder),
    ).where(columns.from_at < literal(end, Instant()), columns.amount > 0)  # fmt: skip
    statement = statement.where(
        *(columns[name].in_([*values]) for name, values in (where or {}).items() if name in QuotaKey._fields)
    )
    if holder != HOLDER_COLUMNS:
        statement = statement.outerjoin_from(admissions, workloads, workloads.c.uid == columns.workload_uid)
    found: list[Holding] = []
    for part in in_force(start):
        result = await connection.stream(statement.where(part))
        async for rows in result.partitions(_BATCH):
            for cluster_queue, flavor, resource, uid, pod_set, began, from_at, to_at, held, *whose in rows:
                one = Holding(
                    QuotaKey(intern(cluster_queue), intern(flavor), intern(resource)),
                    (micros(began), uid, pod_set),
                    micros(from_at),
                    None if to_at is None else micros(to_at),
                    held,
                    tuple(intern(part) if isinstance(part, str) else part for part in whose),
                )
                if levels:
                    at = places.get((uid, pod_set, from_at)) or {("",) * len(levels): 1}
                    found += _divided(one, at)
                else:
                    found.append(one)
    return found


async def _places(connection: AsyncConnection, start: float, end: float, levels: tuple[str, ...]) -> _Places:
    """Return where the pods of admissions in force between `start` and `end` were, if they were placed by topology."""
    columns = admissions.c
    statement = select(
        columns.workload_uid, columns.pod_set, columns.from_at, type_coerce(columns.topology, Text)
    ).where(columns.topology.is_not(None), columns.from_at < literal(end, Instant()), lasts(admissions))
    found: _Places = {}
    for part in in_force(start):
        async for rows in (await connection.stream(statement.where(part))).partitions(_BATCH):
            found.update(await asyncio.to_thread(_pods_of, rows, levels))
    return found


def _pods_of(rows: Iterable[Sequence[Any]], levels: tuple[str, ...]) -> _Places:
    return {(uid, pod_set, from_at): _pods_at(document, levels) for uid, pod_set, from_at, document in rows}


def _pods_at(document: str, levels: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Return the number of pods in each domain of these levels; levels that an assignment does not have are empty."""
    assignment = topology_assignment(parsed_json(document))
    at = [assignment.levels.index(level) if level in assignment.levels else -1 for level in levels]
    pods: dict[tuple[str, ...], int] = {}
    for values, count in assignment.domains:
        names = tuple(intern(values[index]) if index >= 0 else "" for index in at)
        pods[names] = pods.get(names, 0) + count
    return pods


def _divided(one: Holding, pods: Mapping[tuple[str, ...], int]) -> Iterator[Holding]:
    """Yield a row for each domain, with its share of the amount by the number of pods."""
    total, before, given = sum(pods.values()), 0, 0
    for names, count in pods.items():
        before += count
        upto = one.amount * before // total
        yield one._replace(amount=upto - given, holder=(*one.holder, *names))
        given = upto


async def nominal_quotas(connection: AsyncConnection) -> Quotas:
    """Return the nominal quotas of all time: the changes of each, in order of time.

    The first version of a ClusterQueue counts for the time before it, too: only workloads that were taken over from
    another system can have held its quota then.
    """
    columns = queue_object_versions.c
    statement = select(columns.name, columns.operation, columns.at, columns.content)
    rows = await connection.execute(statement.where(columns.kind == ClusterQueue.kind).order_by(columns.id))
    quotas: dict[QuotaKey, list[tuple[int, int]]] = {}
    before: dict[str, dict[QuotaKey, int]] = {}
    now = 0
    for name, operation, at, content in rows:
        now = max(now, micros(at))  # the order is that of the writes, because the clocks of replicas may differ
        since = now if name in before else 0
        quotas_now = {} if operation == "delete" else dict(quotas_of(name, content))
        for quota_key in before.get(name, {}).keys() | quotas_now.keys():
            if (nominal := quotas_now.get(quota_key, 0)) != before.get(name, {}).get(quota_key, 0):
                quotas.setdefault(quota_key, []).append((since, nominal))
        before[name] = quotas_now
    return dict(quotas)


async def changed_since(connection: AsyncConnection, revision: int, start: float, end: float) -> bool:
    """Whether a write after `revision` has changed the input of `usage` between `start` and `end`."""
    rows, versions = admissions.c, queue_object_versions.c
    before = literal(end, Instant())
    later = (rows.from_revision > revision) | (rows.to_revision > revision) & (rows.to_at < before)
    written = versions.revision > revision, versions.kind == ClusterQueue.kind, versions.at < before
    changes = [select(rows.id).where(part, rows.from_at < before, later) for part in in_force(start)] + [
        select(versions.id).where(*written)
    ]
    return bool(await connection.scalar(select(or_(*(one.exists() for one in changes)))))


def in_force(start: float) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return two conditions, either of which selects rows in force after `start`, so that each is an index range."""
    return admissions.c.to_at > literal(start, Instant()), admissions.c.to_at.is_(None)


def lasts(rows: FromClause) -> ColumnElement[bool]:
    """Return a condition for rows of admissions that were in force for any time: one pod set has one of these at most.

    Two changes of an admission in one commit leave a row that ends when it starts, and another one that starts then.
    """
    return or_(rows.c.to_at.is_(None), rows.c.to_at > rows.c.from_at)


def micros(seconds: float) -> int:
    """Return an instant in microseconds, exactly: the database has microsecond resolution."""
    return round(seconds * MICROSECONDS)


def quotas_of(name: str, content: Document) -> Iterator[tuple[QuotaKey, int]]:
    """Yield the nominal quotas of a version of a ClusterQueue or Cohort."""
    for group in content["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                quota_key = QuotaKey(intern(name), intern(flavor["name"]), intern(quota["name"]))
                yield quota_key, amount(quota["name"], quota.get("currentQuota") or quota["nominalQuota"])
