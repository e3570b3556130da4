"""Rows as records: all unfinished workloads at a start, single workloads and pages later."""

from __future__ import annotations

import logging
from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from sqlalchemy import JSON, Double, Text, bindparam, cast, extract, func, select, type_coerce

from admission.engine.vocabulary import MISCONFIGURED
from admission.model.pod_set_documents import pod_set
from admission.model.text import clean
from admission.model.workload import Admission, PodSetAssignment, Workload
from admission.store.database.dialects import in_list
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, pod_sets, transitions, workloads
from admission.store.records import DEQUEUED, Eviction, State, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.workload import PodSet

log = logging.getLogger(__name__)

WORKLOAD = select(*(type_coerce(c, Text).label(c.name) if isinstance(c.type, JSON) else c for c in workloads.c))
"""Its rows are what `records` takes."""
UNFINISHED = workloads.c.state != bindparam("finished", State.FINISHED.value, literal_execute=True)
"""Written out in the statement, so that the partial index serves it."""
_PIECE = 1_000
"""Rows that are made into records in one go: some ten milliseconds."""
_ENDED = 20_000
"""Finished workloads of which a start reads the uids: more than an API server's watch lags behind."""
_LINES = 20_000
"""Lines of the story in which a start looks for what was written last."""

_STATES = {state.value: state for state in State}

_Assigned: TypeAlias = tuple[dict[str, str], dict[str, int], int]
_Held: TypeAlias = dict[str, tuple[str, dict[str, _Assigned]]]
"""By uid: the ClusterQueue, and the assignment of each pod set by its name."""


async def unfinished(
    connection: AsyncConnection, faults: dict[str, Exception] | None = None
) -> AsyncIterator[list[WorkloadRecord]]:
    """All workloads that are not finished, oldest first, piece by piece: between two of them others have their turn.

    Of a row that cannot be read the record has what can be; its uid, and why, is noted in `faults`.
    """
    shapes = await connection.run_sync(_shapes, select(workloads.c.shape).where(UNFINISHED).distinct())
    held: _Held = {}
    async for some in (await connection.stream(_HOLDING)).partitions(_PIECE):
        _gather(held, some)
    columns = [_plain(column, connection.dialect.name) for column in workloads.c]
    faults = {} if faults is None else faults
    result = await connection.stream(
        select(*columns).where(UNFINISHED).order_by(workloads.c.created_at, workloads.c.uid)
    )
    async for rows in result.partitions(_PIECE):
        yield [_record_or_remains(row, shapes, held, faults) for row in rows]


def _plain(column: Column[Any], dialect: str) -> ColumnElement[Any]:
    """The column, its instants as seconds already: the database makes a million of them sooner than Python.

    JSON is read later, row by row: one that cannot be read must not keep the others from being read.
    """
    if isinstance(column.type, JSON):
        return type_coerce(column, Text)
    if not isinstance(column.type, Instant):
        return column
    if dialect == "sqlite":
        return type_coerce(column, Double) / 1_000_000.0
    return cast(extract("epoch", column), Double)


async def ended(connection: AsyncConnection) -> tuple[str, ...]:
    """The uids of the last that are finished and cannot come back, as those can whose queue label was removed.

    Oldest end first.
    """
    columns = workloads.c
    statement = (
        select(columns.uid)
        .where(columns.state == State.FINISHED, columns.outcome != DEQUEUED)
        .order_by(columns.revision.desc())
        .limit(_ENDED)
    )
    newest_first = (await connection.execute(statement)).scalars().all()
    return tuple(reversed(newest_first))


async def last_written(connection: AsyncConnection) -> dict[str, float]:
    """When the last line of a workload's story was written, by uid, of those that wait or are being evicted.

    Only the newest `_LINES` lines are looked at: it costs the same however much history there is.
    """
    columns = transitions.c
    newest = (
        select(columns.workload_uid, columns.state, _plain(columns.at, connection.dialect.name).label("at"))
        .order_by(columns.id.desc())
        .limit(_LINES)
        .subquery()
    )
    unstarted = newest.c.state.in_((State.PENDING.value, State.EVICTING.value))
    statement = select(newest.c.workload_uid, func.max(newest.c.at)).where(unstarted).group_by(newest.c.workload_uid)
    return {uid: float(at) for uid, at in await connection.execute(statement)}


def records(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[WorkloadRecord, ...]:
    """The records of a few rows of `WORKLOAD`, in the same order."""
    shapes = _shapes(connection, {row.shape for row in rows})
    holders = [row.uid for row in rows if row.state in _HOLDING_STATES]
    held = _held(connection, holders) if holders else {}
    return tuple(_record_or_remains(row, shapes, held, {}) for row in rows)


def _shapes(connection: Connection, names: Any) -> dict[str, tuple[PodSet, ...] | Exception]:
    """The pod sets of each shape by its name, or the error with which they cannot be read."""
    rows = connection.execute(
        select(*(column for column in pod_sets.c if column.name != "spec"), type_coerce(pod_sets.c.spec, Text))
        .where(pod_sets.c.shape.in_(names))
        .order_by(pod_sets.c.shape, pod_sets.c.position)
    )
    shapes: dict[str, tuple[PodSet, ...] | Exception] = {}
    for row in rows.mappings():
        name, before = row["shape"], shapes.get(row["shape"], ())
        if not isinstance(before, Exception):
            try:
                shapes[name] = (*before, pod_set({**row, "spec": _document(row["spec"])}))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                shapes[name] = error
    return shapes


_HOLDING_STATES = (State.ADMITTED.value, State.EVICTING.value)
_HOLDING = (
    select(
        admissions.c.workload_uid, admissions.c.pod_set, admissions.c.resource, admissions.c.flavor,
        admissions.c.amount, admissions.c.count, admissions.c.cluster_queue,
    )
    .where(admissions.c.to_at.is_(None))
    .order_by(admissions.c.id)
)  # fmt: skip
"""The rows of admissions that are open in the ledger."""


def _held(connection: Connection, uids: list[str]) -> _Held:
    found: _Held = {}
    _gather(
        found, connection.execute(_HOLDING.where(in_list(connection.dialect.name, admissions.c.workload_uid, uids)))
    )
    return found


def _gather(found: _Held, rows: Iterable[Sequence[Any]]) -> None:
    for uid, name, resource, flavor, amount, count, cluster_queue in rows:
        sets = found.setdefault(uid, (cluster_queue, {}))[1]
        flavors, usage, _ = sets.setdefault(name, ({}, {}, count))
        if resource:
            usage[intern(resource)] = amount
        if flavor:
            flavors[intern(resource)] = intern(flavor)


def _admission(held: tuple[str, dict[str, _Assigned]]) -> Admission:
    queue, sets = held
    return Admission(intern(queue), tuple(map(_assignment, sets.items())))


def _assignment(item: tuple[str, _Assigned]) -> PodSetAssignment:
    name, (flavors, usage, count) = item
    return PodSetAssignment(intern(name), flavors, usage, count)


def _record_or_remains(
    row: Sequence[Any], shapes: Mapping[str, tuple[PodSet, ...] | Exception], held: _Held, faults: dict[str, Exception]
) -> WorkloadRecord:
    """The record of a row; of one that cannot be read, what is needed to hold its quota and to read it anew."""
    try:
        return _record(row, shapes, held)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        uid, original = row[0], row[20]
        log.error("the row of workload %s in the database cannot be read: %r", uid, error)
        faults[uid] = error
        whole = [*row]
        whole[10], whole[20], whole[32] = "", None if _is_broken(original) else original, None
        message = clean(f"its row in the database cannot be read: {error!r}")
        return replace(_record(whole, {}, held), reason=MISCONFIGURED, message=message)


def _document(value: Any) -> Any:
    """What a JSON column holds: SQLite gives its text, the driver of PostgreSQL has read it already."""
    return orjson.loads(value) if isinstance(value, str) else value


def _is_broken(document: Any) -> bool:
    try:
        return not isinstance(_document(document), dict | None)
    except ValueError:
        return True


def _record(row: Sequence[Any], shapes: Mapping[str, tuple[PodSet, ...] | Exception], held: _Held) -> WorkloadRecord:
    (
        uid, namespace, name, kind, local_queue, cluster_queue, priority, priority_class, submitted_by, created_at,
        shape, state, reason, message, evict_reason, outcome, queued_at, counts_from, admitted_at, finished_at,
        original, revision, active, checks_pending, cleared_at, ready_at, unready_at, requeues, not_before,
        past_seconds, first_revision, api_version, eviction,
    ) = row  # fmt: skip
    sets = shapes.get(shape, ())  # what is misconfigured has none
    if isinstance(sets, Exception):
        raise sets
    replaced = _document(original)
    if not isinstance(replaced, dict | None):
        raise TypeError(f"its original is no object, but {replaced!r}")
    return WorkloadRecord(
        workload=Workload(
            uid=uid,
            namespace=intern(namespace),
            name=name,
            queue=intern(local_queue),
            priority=priority,
            created=created_at,
            pod_sets=sets,
            kind=intern(kind),
            api_version=intern(api_version),
            priority_class=intern(priority_class),
            user=intern(submitted_by),
            queued_at=counts_from,
        ),
        state=_STATES[state],
        queued_at=queued_at,
        cluster_queue=intern(cluster_queue),
        reason=intern(reason),
        message=message,
        evict_reason=evict_reason,
        admission=_admission(held[uid]) if uid in held else None,
        original=replaced,
        admitted_at=admitted_at,
        finished_at=finished_at,
        outcome=outcome,
        active=active,
        checks_pending=checks_pending,
        cleared_at=cleared_at,
        ready_at=ready_at,
        unready_at=unready_at,
        requeues=requeues,
        not_before=not_before,
        past_seconds=past_seconds,
        eviction=None if eviction is None else Eviction(**_document(eviction)),
        first_revision=first_revision,
        revision=revision,
    )
