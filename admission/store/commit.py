"""Changes into rows: the statements of the hot path, each for many rows at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, update
from sqlalchemy.dialects import postgresql, sqlite

from admission.store.documents import shape_rows
from admission.store.errors import StaleEpoch
from admission.store.tables import Instant, admissions, head, pod_sets, transitions, workloads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Table

    from admission.model.workload import PodSet
    from admission.store.records import Changes, Document, Opened, WorkloadRecord


def next_revision(connection: Connection, *, epoch: int | None = None) -> int:
    """Begin to write: what this transaction writes has the revision that is returned.

    The row stays locked until the transaction ends, so that revisions become visible in their order and no other
    Sluice can take the lead meanwhile. Raises StaleEpoch if an `epoch` is given and it is not the current one.
    """
    statement = update(head).values(revision=head.c.revision + 1).returning(head.c.revision)
    if epoch is not None:
        statement = statement.where(head.c.epoch == epoch)
    revision: int | None = connection.scalar(statement)
    if revision is None:
        raise StaleEpoch(f"this Sluice leads no more (its epoch is {epoch}); its decisions were dropped")
    return revision


def apply(connection: Connection, changes: Changes, *, revision: int) -> None:
    """Write `changes` within the transaction of `connection`."""
    dialect = connection.dialect.name
    if changes.workloads:
        shapes = _Shapes()
        rows = [_workload_row(record, shapes.name(record.workload.pod_sets), revision) for record in changes.workloads]
        connection.execute(_insert_pod_sets(dialect), shapes.rows)
        connection.execute(_upsert_workloads(dialect), rows)
    if changes.closed:
        connection.execute(_CLOSE, [{"of": c.uid, "end": c.at, "why": c.reason} for c in changes.closed])
    if changes.opened:
        connection.execute(admissions.insert(), [row for one in changes.opened for row in _ledger_rows(one)])
    if changes.transitions:
        connection.execute(
            transitions.insert(),
            [
                {"workload_uid": t.uid, "at": t.at, "state": t.state, "reason": t.reason, "message": t.message}
                for t in changes.transitions
            ],
        )


class _Shapes:
    """The distinct pod sets of one transaction. Workloads of one shape mostly share the very object."""

    def __init__(self) -> None:
        self.rows: list[Document] = []
        self._names: dict[int, str] = {}
        self._known: set[str] = set()

    def name(self, sets: tuple[PodSet, ...]) -> str:
        name = self._names.get(id(sets))
        if name is None:
            name, rows = shape_rows(sets)
            self._names[id(sets)] = name
            if name not in self._known:
                self._known.add(name)
                self.rows.extend(rows)
        return name


def _workload_row(record: WorkloadRecord, shape: str, revision: int) -> Document:
    workload = record.workload
    return {
        "uid": workload.uid,
        "namespace": workload.namespace,
        "name": workload.name,
        "kind": workload.kind,
        "local_queue": workload.queue,
        "cluster_queue": record.cluster_queue,
        "priority": workload.priority,
        "priority_class": workload.priority_class,
        "submitted_by": workload.user,
        "created_at": workload.created,
        "shape": shape,
        "state": record.state,
        "reason": record.reason,
        "message": record.message,
        "evict_reason": record.evict_reason,
        "outcome": record.outcome,
        "queued_at": record.queued_at,
        "counts_from": workload.queued_at,
        "admitted_at": record.admitted_at,
        "finished_at": record.finished_at,
        "original": record.original,
        "active": record.active,
        "checks_pending": record.checks_pending,
        "ready_at": record.ready_at,
        "requeues": record.requeues,
        "not_before": record.not_before,
        "past_seconds": record.past_seconds,
        "revision": revision,
    }


def _ledger_rows(opened: Opened) -> Iterable[Document]:
    workload = opened.workload
    common = {
        "workload_uid": workload.uid,
        "cluster_queue": opened.admission.cluster_queue,
        "local_queue": workload.queue,
        "namespace": workload.namespace,
        "submitted_by": workload.user,
        "priority": workload.priority,
        "from_at": opened.at,
    }
    for assigned in opened.admission.pod_sets:
        # A pod set that asks for nothing has a row too: it is what says that the workload is admitted.
        for resource in {**assigned.flavors, **assigned.usage} or ("",):
            yield {
                **common,
                "pod_set": assigned.name,
                "resource": resource,
                "flavor": assigned.flavors.get(resource, ""),
                "amount": assigned.usage.get(resource, 0),
                "count": assigned.count,
            }


# The clock may have been set back since the admission began.
_END = bindparam("end", type_=Instant())
_CLOSE = (
    update(admissions)
    .where(admissions.c.workload_uid == bindparam("of"), admissions.c.to_at.is_(None))
    .values(to_at=case((admissions.c.from_at < _END, _END), else_=admissions.c.from_at), end_reason=bindparam("why"))
)


def insert(dialect: str, table: Table) -> Any:
    """An INSERT that knows ON CONFLICT, which both databases have and the common SQL has not."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


@cache
def _insert_pod_sets(dialect: str) -> Any:
    return insert(dialect, pod_sets).on_conflict_do_nothing()


@cache
def _upsert_workloads(dialect: str) -> Any:
    statement = insert(dialect, workloads)
    return statement.on_conflict_do_update(
        index_elements=[workloads.c.uid],
        set_={column.name: statement.excluded[column.name] for column in workloads.c if column.name != "uid"},
    )
