"""Nominal quota over time, and whose it was: from all versions of ClusterQueues and LocalQueues."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import literal, select

from admission.model.queues import ClusterQueue, LocalQueue
from admission.store.database.instant import Instant
from admission.store.database.tables import queue_object_versions
from admission.store.ledger import usage_rows
from admission.store.ledger.usage import MICROSECONDS, QuotaKey
from admission.store.ledger.usage_reports import UsageRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import QuotaSteps
    from admission.store.ledger.usage_reports import Key
    from admission.store.ledger.usage_rows import Quotas

LABEL: Final = "label:"
"""Begin of a grouping by the values of a label: `label:cost-center`."""
_QUEUE_COLUMNS: Final = ("namespace", "local_queue", "cluster_queue")

Labels = dict[str, str]


class Lead(NamedTuple):
    """A LocalQueue led to a ClusterQueue from `begins` to `ends` (Unix times, s)."""

    namespace: str
    local_queue: str
    cluster_queue: str
    begins: float
    ends: float


class Span(NamedTuple):
    """A part of a report of which quota is summed up: one of its periods, or the whole, which has no name."""

    period: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """Nominal quotas from the creation of each ClusterQueue on, and which LocalQueues led to them, until some time."""

    quotas: Quotas
    leads: tuple[Lead, ...]
    labels: Mapping[tuple[str, str, str], Labels]
    """By kind, namespace and name of a queue: the labels that it had last."""

    def label(self, name: str, queue: Mapping[str, str | int], namespaces: Mapping[str, Mapping[str, str]]) -> str:
        """Return a label of the LocalQueue, else of its namespace, else of the ClusterQueue; empty if none has it.

        `queue` has the columns namespace, local_queue and cluster_queue; `namespaces` the labels of namespaces.
        """
        namespace, local_queue, cluster_queue = (str(queue[column]) for column in _QUEUE_COLUMNS)
        own = self.labels.get((LocalQueue.kind, namespace, local_queue), {})
        above = self.labels.get((ClusterQueue.kind, "", cluster_queue), {})
        return next((of[name] for of in (own, namespaces.get(namespace, {}), above) if name in of), "")

    def amount_seconds(self, start: float, end: float) -> dict[QuotaKey, float]:
        """Return each nominal quota times the time that it was that much."""
        begins, ends = usage_rows.micros(start), usage_rows.micros(end)
        sums = {key: _amount_micros(steps, begins, ends) for key, steps in self.quotas.items()}
        return {key: total / MICROSECONDS for key, total in sums.items() if total}


async def quota_history(database: Database, *, end: float) -> QuotaHistory:
    """Return the history until `end` (Unix time, s)."""
    async with database.read() as connection:
        return await _read(connection, end)


async def _read(connection: AsyncConnection, end: float) -> QuotaHistory:
    columns = queue_object_versions.c
    statement = select(columns.kind, columns.namespace, columns.name, columns.operation, columns.at, columns.labels,
                       columns.content).order_by(columns.id)  # fmt: skip
    statement = statement.where(
        columns.kind.in_([ClusterQueue.kind, LocalQueue.kind]), columns.at < literal(end, Instant())
    )
    leads: list[Lead] = []
    last: dict[tuple[str, str], Lead] = {}
    labels: dict[tuple[str, str, str], Labels] = {}
    now = 0.0
    for kind, namespace, name, operation, at, own, content in await connection.execute(statement):
        now = max(now, at)  # the order is that of the writes, because the clocks of replicas may differ
        labels[kind, namespace, name] = own
        if kind != LocalQueue.kind:
            continue
        if (before := last.pop((namespace, name), None)) is not None:
            leads.append(before._replace(ends=now))
        if operation != "delete":
            last[namespace, name] = Lead(namespace, name, content["spec"]["clusterQueue"], now, math.inf)
    quotas = await usage_rows.nominal_quotas(connection, before_creation=False)
    return QuotaHistory(quotas, (*leads, *last.values()), labels)


def by_labels(
    rows: Iterable[UsageRow],
    columns: Sequence[str],
    history: QuotaHistory,
    namespaces: Mapping[str, Mapping[str, str]],
) -> list[UsageRow]:
    """Return the sums of rows by `columns`, of which those with the prefix LABEL are labels of queues."""
    sums: defaultdict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])
    names: tuple[str, ...] = ()
    for row in rows:
        names = ("period", *columns) if "period" in row.group else tuple(columns)
        seconds = sums[tuple(_value(name, row.group, history, namespaces) for name in names)]
        seconds[0] += row.nominal_seconds
        seconds[1] += row.borrowed_seconds
    return [UsageRow(dict(zip(names, key, strict=True)), a, b) for key, (a, b) in sorted(sums.items())]


def with_quota(
    rows: Sequence[UsageRow],
    used: Iterable[UsageRow],
    columns: Sequence[str],
    where: Mapping[str, Collection[str]],
    spans: Sequence[Span],
    history: QuotaHistory,
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[list[UsageRow], list[UsageRow]]:
    """Return the rows of a report with quota and idle quota, among them groups without usage; and sums by resource.

    A group has the quota of its ClusterQueues: those that its LocalQueues led to. What several groups share is in the
    rows of each, and in the sums once. `used`: all usage by ClusterQueue, flavor and resource, from which idle quota
    follows. `where` filters as in `Reports.usage`.
    """
    periods = "period" in rows[0].group if rows else bool(spans and spans[0].period)
    names = ("period", *columns) if periods else tuple(columns)
    quota: dict[tuple[str, QuotaKey], tuple[float, float]] = {}
    held = {(str(row.group.get("period", "")), _quota_key(row)): row.nominal_seconds for row in used}
    groups: defaultdict[Key, set[tuple[str, QuotaKey]]] = defaultdict(set)
    by_queue = any(name in ("namespace", "local_queue") or name.startswith(LABEL) for name in (*columns, *where))
    for span in spans:
        queues: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for lead in history.leads:
            if lead.begins < span.end and span.start < lead.ends:
                queues[lead.cluster_queue].add((lead.namespace, lead.local_queue))
        for key, amount in history.amount_seconds(span.start, span.end).items():
            quota[span.period, key] = amount, max(0.0, amount - held.get((span.period, key), 0.0))
            for namespace, local_queue in queues[key.cluster_queue] if by_queue else (("", ""),):
                values = {"period": span.period, "namespace": namespace, "local_queue": local_queue, **key._asdict()}
                if all(values[name] in accepted for name, accepted in where.items() if name in values):
                    group = tuple(_value(name, values, history, namespaces) for name in names)
                    groups[group].add((span.period, key))
    found = {tuple(row.group.values()): row for row in rows}
    found |= {group: UsageRow(dict(zip(names, group, strict=True)), 0.0, 0.0) for group in groups.keys() - found.keys()}
    each = [_row(row, (quota[of] for of in groups.get(group, ()))) for group, row in sorted(found.items())]
    whole = {of: quota[of] for of_group in groups.values() for of in of_group}
    return each, [*_totals(each, whole)]


def _totals(rows: Sequence[UsageRow], quota: Mapping[tuple[str, QuotaKey], tuple[float, float]]) -> Iterator[UsageRow]:
    for resource in sorted({str(row.group["resource"]) for row in rows}):
        of = [row for row in rows if row.group["resource"] == resource]
        used = UsageRow(
            {"resource": resource}, sum(row.nominal_seconds for row in of), sum(row.borrowed_seconds for row in of)
        )
        yield _row(used, (amounts for (_, key), amounts in quota.items() if key.resource == resource))


def _row(row: UsageRow, quota: Iterable[tuple[float, float]]) -> UsageRow:
    amounts = [*quota]
    nominal, idle = (math.fsum(amount[place] for amount in amounts) for place in (0, 1))
    return replace(row, quota_seconds=nominal, idle_seconds=idle)


def _value(
    column: str,
    values: Mapping[str, str | int],
    history: QuotaHistory,
    namespaces: Mapping[str, Mapping[str, str]],
) -> str | int:
    if column.startswith(LABEL):
        return history.label(column.removeprefix(LABEL), values, namespaces)
    return values[column]


def _quota_key(row: UsageRow) -> QuotaKey:
    return QuotaKey(*(str(row.group[name]) for name in QuotaKey._fields))


def _amount_micros(steps: QuotaSteps, start: int, end: int) -> int:
    """Return the sum of quota times microseconds from `start` to `end`."""
    ends = [*(at for at, _ in steps[1:]), end]
    return sum(
        nominal * max(0, min(until, end) - max(at, start)) for (at, nominal), until in zip(steps, ends, strict=True)
    )
