"""Conversion of rows to records: all unfinished workloads for a leader's start, single workloads and pages later."""

from __future__ import annotations

import logging
from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlalchemy import JSON, Double, Text, and_, bindparam, cast, extract, func, or_, select, type_coerce

from admission.engine.vocabulary import MISCONFIGURED
from admission.model.pod_set_documents import pod_set
from admission.model.terms import NO_TERMS, Terms
from admission.model.text import clean
from admission.model.topology_documents import DELAYED, placed_pods
from admission.model.workload import Admission, PodSetAssignment, Workload
from admission.store.database.dialects import in_list, parsed_json
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, pod_sets, transitions, workloads
from admission.store.records import DEQUEUED, FinishedWorkload, LastEviction, State, WorkloadRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.workload import PodSet

log = logging.getLogger(__name__)

WORKLOAD = select(*(type_coerce(c, Text).label(c.name) if isinstance(c.type, JSON) else c for c in workloads.c))
"""Selects rows for `records`. JSON columns are parsed there, so that broken JSON affects one row only."""
UNFINISHED = workloads.c.state != bindparam("finished", State.FINISHED.value, literal_execute=True)
"""Rendered as a literal, because a partial index is used only for its own constant."""
_SENT_TO = (
    select(func.max(admissions.c.cluster))
    .where(admissions.c.workload_uid == workloads.c.uid, admissions.c.to_at.is_(None))
    .correlate(workloads)
    .scalar_subquery()
)
RUNS_IN = func.coalesce(_SENT_TO, workloads.c.cluster)
"""The cluster in which a workload runs or, if it does not, in which its object is."""
_BATCH = 1_000
"""Rows that are converted without a pause: some ten milliseconds."""
_RECENTLY_FINISHED = 20_000
"""Number of finished workloads whose uids a leader loads: more than finish while a watch lags behind."""
_RECENT_TRANSITIONS = 20_000
"""Number of newest transitions in which `last_transitions` searches."""

_STATES = {state.value: state for state in State}


class _Assigned(NamedTuple):
    flavors: dict[str, str]
    usage: dict[str, int]
    pods: int
    topology: list[Any]
    """The document of its domains, as in the database; empty: it has none."""


_Held: TypeAlias = dict[str, tuple[str, dict[str, _Assigned], str | None]]
"""By uid: the ClusterQueue, what each pod set holds, by its name, and the cluster that it is dispatched to, if any."""


async def unfinished(
    connection: AsyncConnection, faults: dict[str, Exception] | None = None
) -> AsyncIterator[list[WorkloadRecord]]:
    """Yield all unfinished workloads, oldest first, in batches, between which the event loop runs other tasks.

    If a row cannot be read, its record has the columns that can, and its error is added to `faults` by uid.
    """
    held: _Held = {}
    async for rows in (await connection.stream(_OPEN_ROWS)).partitions(_BATCH):
        _add_open_rows(held, rows)
    async for batch in _selected(connection, UNFINISHED, held, {} if faults is None else faults):
        yield batch


async def between(connection: AsyncConnection, start: float, end: float) -> AsyncIterator[list[WorkloadRecord]]:
    """Yield the workloads that existed at some time from `start` to `end` (Unix times, s), as `unfinished` does.

    Their records are without the quota that they hold.
    """
    async for batch in _selected(connection, existed(start, end), {}, {}):
        yield batch


def existed(start: float, end: float) -> ColumnElement[bool]:
    """Return the condition that a workload existed, unfinished, at some time from `start` to `end` (Unix times, s)."""
    columns = workloads.c
    arrived = or_(columns.created_at < end, columns.queued_at < end)  # by the cluster's clock, or by Sluice's
    return and_(arrived, or_(columns.finished_at.is_(None), columns.finished_at > start))


async def _selected(
    connection: AsyncConnection, condition: ColumnElement[bool], held: _Held, faults: dict[str, Exception]
) -> AsyncIterator[list[WorkloadRecord]]:
    shapes = await connection.run_sync(shapes_of, select(workloads.c.shape).where(condition).distinct())
    columns = [plain(column, connection.dialect.name) for column in workloads.c]
    result = await connection.stream(
        select(*columns).where(condition).order_by(workloads.c.created_at, workloads.c.uid)
    )
    async for rows in result.partitions(_BATCH):
        yield [_record_or_fault(row, shapes, held, faults) for row in rows]


def plain(column: Column[Any], dialect: str) -> ColumnElement[Any]:
    """Return the column, with instants converted to seconds by the database, which is faster than Python for a million.

    JSON is read as text and parsed row by row, so that broken JSON in one row does not prevent reading the others.
    """
    if isinstance(column.type, JSON):
        return type_coerce(column, Text)
    if not isinstance(column.type, Instant):
        return column
    if dialect == "sqlite":
        return type_coerce(column, Double) / 1_000_000.0
    return cast(extract("epoch", column), Double)


async def recently_finished(connection: AsyncConnection) -> tuple[FinishedWorkload, ...]:
    """Return the workloads that finished last, oldest first.

    Without dequeued workloads, whose queue label was removed: those may be queued again.
    """
    columns = workloads.c
    statement = (
        select(columns.uid, columns.namespace, columns.name, columns.kind, columns.created_at, columns.outcome)
        .where(columns.state == State.FINISHED, columns.outcome != DEQUEUED)
        .order_by(columns.revision.desc())
        .limit(_RECENTLY_FINISHED)
    )
    newest_first = (await connection.execute(statement)).all()
    return tuple(FinishedWorkload(*row) for row in reversed(newest_first))


async def last_transitions(connection: AsyncConnection) -> dict[str, float]:
    """Return the time of the last transition to a pending or evicting state by uid, among the newest transitions.

    Only `_RECENT_TRANSITIONS` of them are read, so that the costs do not grow with the history.
    """
    columns = transitions.c
    newest = (
        select(columns.workload_uid, columns.state, plain(columns.at, connection.dialect.name).label("at"))
        .order_by(columns.id.desc())
        .limit(_RECENT_TRANSITIONS)
        .subquery()
    )
    unstarted = newest.c.state.in_((State.PENDING.value, State.EVICTING.value))
    statement = select(newest.c.workload_uid, func.max(newest.c.at)).where(unstarted).group_by(newest.c.workload_uid)
    return {uid: float(at) for uid, at in await connection.execute(statement)}


def records(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[WorkloadRecord, ...]:
    """Return the records of rows of `WORKLOAD`, in the same order. Meant for up to some thousand rows."""
    shapes = shapes_of(connection, {row.shape for row in rows})
    holders = [row.uid for row in rows if row.state in _HOLDING_STATES]
    held = _held(connection, holders) if holders else {}
    return tuple(_record_or_fault(row, shapes, held, {}) for row in rows)


def shapes_of(connection: Connection, names: Any) -> dict[str, tuple[PodSet, ...] | Exception]:
    """Return the pod sets of each shape, or the error of those that cannot be read. `names`: a list or a subquery."""
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
                shapes[name] = (*before, pod_set({**row, "spec": parsed_json(row["spec"])}))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                shapes[name] = error
    return shapes


_HOLDING_STATES = (State.ADMITTED.value, State.EVICTING.value)
_OPEN_ROWS = (
    select(
        admissions.c.workload_uid, admissions.c.pod_set, admissions.c.resource, admissions.c.flavor,
        admissions.c.amount, admissions.c.count, admissions.c.cluster_queue,
        type_coerce(admissions.c.topology, Text), admissions.c.cluster,
    )
    .where(admissions.c.to_at.is_(None))
    .order_by(admissions.c.id)
)  # fmt: skip
"""Selects the open rows of the ledger."""


def _held(connection: Connection, uids: list[str]) -> _Held:
    """Return the quota that these workloads hold."""
    found: _Held = {}
    _add_open_rows(
        found, connection.execute(_OPEN_ROWS.where(in_list(connection.dialect.name, admissions.c.workload_uid, uids)))
    )
    return found


def _add_open_rows(found: _Held, rows: Iterable[Sequence[Any]]) -> None:
    for uid, name, resource, flavor, amount, count, cluster_queue, topology, cluster in rows:
        sets = found.setdefault(uid, (cluster_queue, {}, cluster))[1]
        flavors, usage, _, domains = sets.setdefault(name, _Assigned({}, {}, count, []))
        if topology is not None:
            domains.append(topology)
        if resource:
            usage[intern(resource)] = amount
        if flavor:
            flavors[intern(resource)] = intern(flavor)


def _admission(held: tuple[str, dict[str, _Assigned], str | None]) -> Admission:
    queue, sets, cluster = held
    return Admission(intern(queue), tuple(map(_assignment, sets.items())), cluster or "")


def _assignment(item: tuple[str, _Assigned]) -> PodSetAssignment:
    name, (flavors, usage, count, topology) = item
    document = parsed_json(topology[0]) if topology else None
    delayed = document is not None and DELAYED in document
    domains = None if document is None or delayed else placed_pods(document)
    return PodSetAssignment(intern(name), flavors, usage, count, domains, delayed)


def _record_or_fault(
    row: Sequence[Any], shapes: Mapping[str, tuple[PodSet, ...] | Exception], held: _Held, faults: dict[str, Exception]
) -> WorkloadRecord:
    """Return the record of a row; if it cannot be read, one that keeps its quota and is misconfigured."""
    try:
        return _record(row, shapes, held)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        uid, original = row[0], row[20]
        log.error("the row of workload %s in the database cannot be read: %r", uid, error)
        faults[uid] = error
        # Without shape, eviction, and `original` if that is the broken one; positions as in `_record`.
        readable = [*row]
        readable[10], readable[20], readable[32] = "", None if _is_broken(original) else original, None
        for assigned in held.get(uid, ("", {}, None))[1].values():
            assigned.topology.clear()
        message = clean(f"its row in the database cannot be read: {error!r}")
        return replace(_record(readable, {}, held), reason=MISCONFIGURED, message=message)


def _is_broken(document: Any) -> bool:
    try:
        return not isinstance(parsed_json(document), dict | None)
    except ValueError:
        return True


def _record(row: Sequence[Any], shapes: Mapping[str, tuple[PodSet, ...] | Exception], held: _Held) -> WorkloadRecord:
    (
        uid, namespace, name, kind, local_queue, cluster_queue, priority, priority_class, submitted_by, created_at,
        shape, state, reason, message, evict_reason, outcome, queued_at, counts_from, admitted_at, finished_at,
        original, revision, active, checks_pending, cleared_at, ready_at, unready_at, requeues, not_before,
        past_seconds, first_revision, api_version, eviction, max_seconds, terms, cluster, groups,
    ) = row  # fmt: skip
    sets = shapes.get(shape, ())  # a misconfigured workload has no pod sets
    if isinstance(sets, Exception):
        raise sets
    replaced = parsed_json(original)
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
            max_seconds=max_seconds,
            terms=NO_TERMS if terms is None else Terms.of(parsed_json(terms)),
            cluster=intern(cluster),
            groups=() if groups is None else tuple(map(intern, parsed_json(groups))),
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
        eviction=None if eviction is None else LastEviction(**parsed_json(eviction)),
        first_revision=first_revision,
        revision=revision,
    )
