"""Nominal quota over time, and whose it was: from all versions of ClusterQueues and LocalQueues."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import literal, select

from admission.model.queues import ClusterQueue, Cohort, LocalQueue
from admission.store.database.instant import Instant
from admission.store.database.tables import queue_object_versions
from admission.store.ledger import usage_rows
from admission.store.ledger.usage import MICROSECONDS, QuotaKey
from admission.store.ledger.usage_reports import UsageRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from admission.store.database.connection import Database
    from admission.store.ledger.usage import QuotaSteps
    from admission.store.ledger.usage_reports import Key
    from admission.store.records import Document

LABEL: Final = "label:"
"""Begin of a grouping by the values of a label: `label:cost-center`."""
_QUEUE_COLUMNS: Final = ("namespace", "local_queue", "cluster_queue")

Labels = dict[str, str]


class LeadPeriod(NamedTuple):
    """A LocalQueue led to a ClusterQueue from `begins` to `ends` (Unix times, s)."""

    namespace: str
    local_queue: str
    cluster_queue: str
    begins: float
    ends: float


class QuotaEvent(NamedTuple):
    """A change of a queue object at a time (Unix, s) that charts mark."""

    at: float
    kind: str
    namespace: str
    name: str
    type: str
    """Created, Deleted, QuotaChanged, Stopped or Resumed."""
    changes: tuple[tuple[str, str, int, int], ...] = ()
    """Of QuotaChanged: flavor, resource, nominal quota before and after (milli-CPU, else base units)."""


class Span(NamedTuple):
    """A part of a report of which quota is summed up: one of its periods, or the whole, which has no name."""

    period: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """Nominal quotas from the creation of each ClusterQueue on, and which LocalQueues led to them, until some time."""

    quotas: Mapping[QuotaKey, QuotaSteps]
    cohort_quotas: Mapping[QuotaKey, QuotaSteps]
    """Those of Cohorts' own; their name is in the place of the ClusterQueue's."""
    leads: tuple[LeadPeriod, ...]
    labels: Mapping[tuple[str, str, str], Labels]
    """By kind, namespace and name of a queue: the labels that it had last."""
    events: tuple[QuotaEvent, ...]
    """In order of time."""

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

    def nominal_steps(
        self, where: Mapping[str, Collection[str]], start: float, end: float
    ) -> dict[str, list[tuple[float, int]]]:
        """Return nominal quota by resource from `start` to `end` (Unix times, s): (since when, amount) of each change.

        `where` filters as in `Reports.usage`: by queues and namespaces it is the quota of the ClusterQueues that they
        led to. Without such filters the Cohorts' own quota is part of it.
        """
        queues = self._cluster_queues(where, start, end)
        of_cohorts = self.cohort_quotas if queues is None else {}
        first, last = usage_rows.micros(start), usage_rows.micros(end)
        changes: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for key, steps in (*self.quotas.items(), *of_cohorts.items()):
            accepted = (key._asdict()[name] in where[name] for name in ("flavor", "resource") if name in where)
            if not all(accepted) or (queues is not None and key.cluster_queue not in queues):
                continue
            before = 0
            for at, nominal in steps:
                if at < last:
                    changes[key.resource][max(at, first)] += nominal - before
                before = nominal
        return {resource: [*_sums(by_time)] for resource, by_time in sorted(changes.items())}

    def events_of(self, where: Mapping[str, Collection[str]], start: float, end: float) -> list[QuotaEvent]:
        """Return the events of these queues, `where` as in `nominal_steps`; of LocalQueues if it names such."""
        queues = self._cluster_queues(where, start, end)
        return [
            event
            for event in self.events
            if start < event.at < end
            and (
                (queues is None and event.kind != LocalQueue.kind)
                or (queues is not None and event.kind == ClusterQueue.kind and event.name in queues)
                or (event.kind == LocalQueue.kind
                and ("local_queue" in where or "namespace" in where)
                and event.name in where.get("local_queue", (event.name,))
                and event.namespace in where.get("namespace", (event.namespace,)))
            )
        ]  # fmt: skip

    def _cluster_queues(self, where: Mapping[str, Collection[str]], start: float, end: float) -> set[str] | None:
        """Return the ClusterQueues that filters select; None: all, because no filter names a queue."""
        if not {"cluster_queue", "local_queue", "namespace"} & where.keys():
            return None
        named = set(where.get("cluster_queue", ()))
        if not {"local_queue", "namespace"} & where.keys():
            return named
        led_to = {
            lead.cluster_queue
            for lead in self.leads
            if lead.begins < end
            and start < lead.ends
            and lead.local_queue in where.get("local_queue", (lead.local_queue,))
            and lead.namespace in where.get("namespace", (lead.namespace,))
        }
        return led_to & named if named else led_to


async def quota_history(database: Database, *, end: float, local_queues: bool) -> QuotaHistory:
    """Return the history until `end` (Unix time, s). `local_queues`: whether it has to know these."""
    columns = queue_object_versions.c
    statement = select(columns.kind, columns.namespace, columns.name, columns.operation, columns.at, columns.labels,
                       columns.content).order_by(columns.id)  # fmt: skip
    kinds = [ClusterQueue.kind, Cohort.kind, *([LocalQueue.kind] if local_queues else [])]
    async with database.read() as connection:
        found = await connection.execute(statement.where(columns.kind.in_(kinds), columns.at < literal(end, Instant())))
        versions = [_QuotaVersion(*row) for row in found]
    return await asyncio.to_thread(_history, versions)


def _history(versions: Iterable[_QuotaVersion]) -> QuotaHistory:
    quotas: dict[str, dict[QuotaKey, list[tuple[int, int]]]] = {ClusterQueue.kind: {}, Cohort.kind: {}}
    leads: list[LeadPeriod] = []
    labels: dict[tuple[str, str, str], Labels] = {}
    events: list[QuotaEvent] = []
    states: dict[tuple[str, str, str], _State] = {}
    now = 0.0
    for kind, namespace, name, operation, at, own, content in versions:
        now = max(now, at)  # the order is that of the writes, because the clocks of replicas may differ
        of = kind, namespace, name
        labels[of] = own
        before, after = states.get(of, _NONE), _NONE if operation == "delete" else _state(now, of, content)
        changes = _changes(before.quotas, after.quotas)
        for key, (_, nominal) in changes.items():
            quotas[kind].setdefault(key, []).append((usage_rows.micros(now), nominal))
        if before.leads_to:
            leads.append(LeadPeriod(namespace, name, before.leads_to, before.since, now))
        events += _events(now, of, before, after, changes)
        states[of] = after
    last = (
        LeadPeriod(namespace, name, state.leads_to, state.since, math.inf)
        for (_, namespace, name), state in states.items()
        if state.leads_to
    )
    return QuotaHistory(quotas[ClusterQueue.kind], quotas[Cohort.kind], (*leads, *last), labels, tuple(events))


class _QuotaVersion(NamedTuple):
    """A row of `queue_object_versions`."""

    kind: str
    namespace: str
    name: str
    operation: str
    at: float
    labels: Labels
    content: Document


class _State(NamedTuple):
    """What a version of a queue object says."""

    exists: bool
    since: float
    """Unix time (s)."""
    quotas: Mapping[QuotaKey, int]
    leads_to: str = ""
    is_stopped: bool = False


_NONE: Final = _State(exists=False, since=0.0, quotas={})


def _state(at: float, of: tuple[str, str, str], content: Document) -> _State:
    spec = content["spec"]
    quotas = {} if of[0] == LocalQueue.kind else dict(usage_rows.quotas_of(of[2], content))
    return _State(True, at, quotas, spec.get("clusterQueue", ""), spec.get("stopPolicy", "None") != "None")


def _changes(before: Mapping[QuotaKey, int], after: Mapping[QuotaKey, int]) -> dict[QuotaKey, tuple[int, int]]:
    both = {key: (before.get(key, 0), after.get(key, 0)) for key in sorted(before.keys() | after.keys())}
    return {key: amounts for key, amounts in both.items() if amounts[0] != amounts[1]}


def _events(
    at: float, of: tuple[str, str, str], before: _State, after: _State, changes: Mapping[QuotaKey, tuple[int, int]]
) -> Iterator[QuotaEvent]:
    """Yield what a write of a queue object has changed."""
    if not (before.exists and after.exists):
        yield QuotaEvent(at, *of, "Created" if after.exists else "Deleted")
        return
    if changes:
        yield QuotaEvent(
            at, *of, "QuotaChanged", tuple((key.flavor, key.resource, *both) for key, both in changes.items())
        )
    if before.is_stopped != after.is_stopped:
        yield QuotaEvent(at, *of, "Stopped" if after.is_stopped else "Resumed")


def _sums(changes: Mapping[int, int]) -> Iterator[tuple[float, int]]:
    total = 0
    for at, change in sorted(changes.items()):
        total += change
        if change:
            yield at / MICROSECONDS, total


def names_local_queues(columns: Iterable[str]) -> bool:
    """Whether groups or filters by these columns depend on the LocalQueues of quota."""
    return any(name in ("namespace", "local_queue") or name.startswith(LABEL) for name in columns)


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
    by_queue = names_local_queues((*columns, *where))
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
