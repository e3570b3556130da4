"""Search among workloads: filters, orders and pages of lists for people, and counts of the found ones by group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import BigInteger, case, cast, func, literal_column, or_, select, union_all

from admission.store.database.dialects import in_list
from admission.store.database.tables import head, workloads
from admission.store.records import State
from admission.store.workloads import loading
from admission.store.workloads.loading import UNFINISHED
from admission.store.workloads.waiting import WAITS_IN, WITH_LOCAL_QUEUE, with_local_queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Subquery

    from admission.store.database.connection import Database
    from admission.store.records import WorkloadRecord

_COLUMNS = workloads.c
_FINISHED: Final = _COLUMNS.state == literal_column(f"'{State.FINISHED.value}'")  # a literal, for the partial index
_STATE: Final = case((_FINISHED, _COLUMNS.outcome), else_=_COLUMNS.state)
"""State of an unfinished workload, outcome of a finished one."""
_CLUSTER_QUEUE: Final = case((_COLUMNS.state == State.PENDING, WAITS_IN), else_=_COLUMNS.cluster_queue)
"""Where a workload waits, holds quota, or last held it."""

FIELDS: Final[Mapping[str, ColumnElement[str]]] = {
    "state": _STATE,
    "reason": _COLUMNS.reason,
    "user": _COLUMNS.submitted_by,
    "namespace": _COLUMNS.namespace,
    "queue": _COLUMNS.local_queue,
    "clusterqueue": _CLUSTER_QUEUE,
    "kind": _COLUMNS.kind,
    "cluster": loading.RUNS_IN,
}
"""Fields by which workloads are filtered and grouped."""

_RANK: Final = case((_FINISHED, 2), (_COLUMNS.state == State.PENDING, 1), else_=0)
_WAITS_SINCE: Final = case((_COLUMNS.state == State.PENDING, _COLUMNS.queued_at))
_ARRIVED: Final = _COLUMNS.first_revision
"""Orders those of the same time: Kubernetes stamps the creation of objects with a full second."""
_CHANGED: Final = func.coalesce(_COLUMNS.finished_at, _COLUMNS.admitted_at)
ORDERS: Final[Mapping[str, tuple[tuple[ColumnElement[Any], bool], ...]]] = {
    "state": ((_RANK, False), (_WAITS_SINCE, False), (_CHANGED, True), (_ARRIVED, False)),
    "newest": ((_COLUMNS.created_at, True), (_ARRIVED, True)),
    "oldest": ((_COLUMNS.created_at, False), (_ARRIVED, False)),
    "priority": ((_COLUMNS.priority, True), (_COLUMNS.created_at, False), (_ARRIVED, False)),
    "name": ((_COLUMNS.name, False), (_COLUMNS.namespace, False)),
}
"""Orders of lists: their keys, and whether these are descending.

`state`: those with quota, the last start first; then pending ones, the longest wait first; then finished ones, the last
end first.
"""


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """A selection of workloads."""

    namespaces: frozenset[str] | None = None
    """Namespaces to search; None: all."""
    elsewhere: tuple[tuple[str, frozenset[str]], ...] = ()
    """Clusters of whose workloads only those of some of the namespaces are searched, with these."""
    text: str = ""
    """Part of the name, user or uid, in any case; empty: any.

    The name of a pod, or of another object that a controller has created, finds those whose names it begins with.
    """
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Accepted values of fields of FIELDS."""
    since: float | None = None
    """Unfinished ones, and those that have finished since then (Unix time, s); None: all."""
    uids: frozenset[str] | None = None
    """Uids to search among; None: all."""


class FoundPage(NamedTuple):
    """A page of the found workloads."""

    workloads: tuple[WorkloadRecord, ...]
    total: int
    """Number of all found workloads."""
    revision: int
    """Revision of the database at which they were read."""


class WorkloadGroup(NamedTuple):
    """The found workloads with the same value of a field."""

    value: str
    counts: dict[str, int]
    """Number by state; by outcome if they have finished."""
    oldest: float | None
    """Start of the longest present wait (Unix time, s); None if none is pending."""


async def found_page(database: Database, search: WorkloadQuery, *, order: str, offset: int, limit: int) -> FoundPage:
    """Return up to `limit` of the found workloads after the first `offset`, in an order of ORDERS."""
    keys = [(key.label(f"key_{number}"), down) for number, (key, down) in enumerate(ORDERS[order])]

    def query(connection: Connection) -> FoundPage:
        revision = connection.execute(select(head.c.revision)).scalar_one()
        found = _found(connection, search, [_COLUMNS.uid, *(key for key, _ in keys)])
        sorting = [found.c[key.name].desc() if down else found.c[key.name] for key, down in keys]
        page = select(found.c.uid).order_by(*sorting, found.c.uid).offset(offset).limit(limit)
        uids = connection.execute(page).scalars().all()
        total = offset + len(uids)
        if len(uids) == limit or (offset and not uids):
            # Counted apart: a window would keep all found rows, of which the order alone keeps those of the page.
            counted = _found(connection, search, [literal_column("1")])
            total = connection.execute(select(func.count()).select_from(counted)).scalar_one()
        rows = connection.execute(loading.WORKLOAD.where(in_list(connection.dialect.name, _COLUMNS.uid, uids))).all()
        records = {record.workload.uid: record for record in loading.records(connection, rows)}
        return FoundPage(tuple(records[uid] for uid in uids), total, revision)

    return await database.read_sync(query)


async def found_groups(database: Database, search: WorkloadQuery, *, by: str) -> tuple[WorkloadGroup, ...]:
    """Return the found workloads grouped by a field of FIELDS, the largest group first."""

    def query(connection: Connection) -> tuple[WorkloadGroup, ...]:
        groups: dict[str, WorkloadGroup] = {}
        for name, state, number, oldest in connection.execute(_counted(connection, search, by)):
            group = groups.get(name, WorkloadGroup(name, {}, None))
            group.counts[state] = number
            groups[name] = group if oldest is None else group._replace(oldest=oldest)
        return tuple(sorted(groups.values(), key=lambda group: (-sum(group.counts.values()), group.value)))

    return await database.read_sync(query)


def _counted(connection: Connection, search: WorkloadQuery, by: str) -> Select[Any]:
    """Return a query of the number and oldest wait of the found workloads by value of a field and state.

    Each part is counted by itself, for its index, and by LocalQueue before these are joined, as they are fewer.
    """
    counts = []
    for part in _parts(connection, search):
        place = _COLUMNS.namespace, _COLUMNS.local_queue
        if by == "clusterqueue":  # in the order of the index of unfinished ones
            keys = [*place, part.state.label("state"), _COLUMNS.cluster_queue]
        else:
            keys = [(part.state if by == "state" else FIELDS[by]).label("value"), part.state.label("state")]
        numbers = func.count().label("number"), func.min(_WAITS_SINCE).label("since")
        counts.append(select(*keys, *numbers).select_from(_source(search)).where(*part.where).group_by(*keys))
    counted = union_all(*counts).subquery()
    rows: FromClause = counted
    value: ColumnElement[str]
    if by == "clusterqueue":
        rows = with_local_queue(counted)
        value = case((counted.c.state == State.PENDING, WAITS_IN), else_=counted.c.cluster_queue).label("value")
    else:
        value = counted.c.value
    sums = cast(func.sum(counted.c.number), BigInteger), func.min(counted.c.since)
    return select(value, counted.c.state, *sums).select_from(rows).group_by(value, counted.c.state)


class _Part(NamedTuple):
    """A part of the found workloads, which one index finds."""

    where: list[ColumnElement[bool]]
    state: ColumnElement[str]
    """State of an unfinished workload, outcome of a finished one."""


def _parts(connection: Connection, search: WorkloadQuery) -> list[_Part]:
    """Return the parts of the found workloads: of a table with the workloads of months few rows are read."""
    wanted: list[ColumnElement[bool]] = [FIELDS[name].in_(sorted(values)) for name, values in search.fields.items()]
    if search.namespaces is not None:
        # With a time, SQLite has to take the indexes of that, not the one that begins with the namespace.
        namespace = _COLUMNS.namespace if search.since is None else _COLUMNS.namespace.concat("")
        wanted.append(in_list(connection.dialect.name, namespace, sorted(search.namespaces)))
    for cluster, namespaces in search.elsewhere:
        wanted.append(or_(_COLUMNS.cluster != cluster, _COLUMNS.namespace.in_(sorted(namespaces))))
    if search.uids is not None:
        wanted.append(in_list(connection.dialect.name, _COLUMNS.uid, sorted(search.uids)))
    if search.text:
        escaped = search.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        # LIKE of SQLite ignores case; there ILIKE costs three times as much.
        like = "like" if connection.dialect.name == "sqlite" else "ilike"
        searched = (_COLUMNS.name, _COLUMNS.submitted_by, _COLUMNS.uid)
        matches = [getattr(column, like)(f"%{escaped}%", escape="!") for column in searched]
        parts = search.text.split("-")
        matches.append(_COLUMNS.name.in_("-".join(parts[:end]) for end in range(1, len(parts))))
        wanted.append(or_(*matches))
    if search.since is None:
        return [_Part(wanted, _STATE)]
    finished = [*wanted, _FINISHED, _COLUMNS.finished_at > search.since]
    return [_Part([*wanted, UNFINISHED], _COLUMNS.state), _Part(finished, _COLUMNS.outcome)]


def _source(search: WorkloadQuery) -> FromClause:
    """Return what the fields of a search are columns of."""
    return WITH_LOCAL_QUEUE if "clusterqueue" in search.fields else workloads


def _found(connection: Connection, search: WorkloadQuery, columns: Sequence[ColumnElement[Any]]) -> Subquery:
    """Return a query of columns of the found workloads."""
    parts = [select(*columns).select_from(_source(search)).where(*part.where) for part in _parts(connection, search)]
    return union_all(*parts).subquery()
