"""Changes as rows: the statements of the leader's commit, each for many rows at once."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from sqlalchemy import bindparam, update

from admission.model.pod_set_documents import pod_set_document
from admission.store.database.dialects import bulk_insert, insert, upsert
from admission.store.database.tables import head, pod_sets, transitions, workloads
from admission.store.errors import StaleEpoch
from admission.store.ledger import entries
from admission.store.workloads import checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from admission.model.workload import PodSet
    from admission.store.records import Changes, Document, WorkloadRecord


class Begun(NamedTuple):
    """A transaction of the leader that has begun to write."""

    revision: int
    """Of what it writes."""
    rolled_up_to: float | None
    """Up to where the ledger is summed up (Unix time, s); None: nothing is."""


def next_revision(connection: Connection) -> int:
    """Begin to write, for others than the leader: what this transaction writes has the revision that is returned.

    The row stays locked until the transaction ends, so that revisions become visible in their order.
    """
    revision: int = connection.execute(_ADVANCE).scalar_one()
    return revision


def begin(connection: Connection, *, epoch: int, at: float) -> Begun:
    """Begin to write as the leader of this epoch, `at` that time (Unix time, s).

    As for `next_revision`; and no other Sluice can take the lead meanwhile. Raises StaleEpoch if one has.
    """
    row = connection.execute(_ADVANCE_AS_LEADER, {"leads": epoch, "at": at}).one_or_none()
    if row is None:
        raise StaleEpoch(f"this Sluice leads no more (its epoch is {epoch}); its decisions were dropped")
    return Begun(*row)


def apply(connection: Connection, changes: Changes, begun: Begun) -> None:
    """Write `changes` within the transaction of `connection`."""
    dialect, revision = connection.dialect.name, begun.revision
    if changes.workloads:
        shapes = _Shapes()
        # One statement cannot write a row twice.
        latest = {record.workload.uid: record for record in changes.workloads}.values()
        rows = [_workload_row(record, shapes.name(record.workload.pod_sets), revision) for record in latest]
        # There are none if all that is written is misconfigured and has no pod sets.
        bulk_insert(connection, _insert_pod_sets(dialect), shapes.rows)
        bulk_insert(connection, _upsert_workloads(dialect), rows)
    if changes.closed or changes.opened or changes.resized:
        entries.write(connection, changes, revision=revision, rolled_up_to=begun.rolled_up_to)
    if changes.transitions:
        bulk_insert(
            connection,
            _INSERT_TRANSITIONS,
            [
                {"workload_uid": t.uid, "at": t.at, "state": t.state, "reason": t.reason, "message": t.message}
                for t in changes.transitions
            ],
        )
    if changes.checks or changes.dropped_checks or changes.deactivated:
        checks.write(connection, changes, revision=revision)


_MOST_REMEMBERED: Final = 1_000
_REMEMBERED: Final[dict[int, tuple[tuple[PodSet, ...], str, list[Document]]]] = {}
"""Pod sets that were written of late, by identity: themselves, their name, and their rows."""


class _Shapes:
    """The distinct pod sets of one transaction. Workloads of one shape mostly share the very object."""

    def __init__(self) -> None:
        self.rows: list[Document] = []
        self._names: dict[int, str] = {}
        self._known: set[str] = set()

    def name(self, sets: tuple[PodSet, ...]) -> str:
        name = self._names.get(id(sets))
        if name is None:
            known = _REMEMBERED.get(id(sets))
            if known is None or known[0] is not sets:
                if len(_REMEMBERED) >= _MOST_REMEMBERED:
                    _REMEMBERED.clear()
                known = _REMEMBERED[id(sets)] = (sets, *_shape_rows(sets))
            _, name, rows = known
            self._names[id(sets)] = name
            if name not in self._known:
                self._known.add(name)
                self.rows.extend(rows)
        return name


def _shape_rows(pod_sets: Iterable[PodSet]) -> tuple[str, list[Document]]:
    """The name under which these pod sets are kept, the same for equal ones, and their rows."""
    rows: list[Document] = [
        {
            "position": position,
            "name": one.name,
            "count": one.count,
            "min_count": one.min_count,
            "spec": pod_set_document(one),
        }
        for position, one in enumerate(pod_sets)
    ]
    shape = hashlib.blake2b(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
    return shape, [{"shape": shape, **row} for row in rows]


def _workload_row(record: WorkloadRecord, shape: str, revision: int) -> Document:
    workload = record.workload
    return {
        "uid": workload.uid,
        "namespace": workload.namespace,
        "name": workload.name,
        "kind": workload.kind,
        "api_version": workload.api_version,
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
        "cleared_at": record.cleared_at,
        "ready_at": record.ready_at,
        "unready_at": record.unready_at,
        "requeues": record.requeues,
        "not_before": record.not_before,
        "past_seconds": record.past_seconds,
        "eviction": None if record.eviction is None else asdict(record.eviction),
        "revision": revision,
        "first_revision": revision,
    }


# Made once: to put a statement together takes as long as to execute it.
_ADVANCE = update(head).values(revision=head.c.revision + 1).returning(head.c.revision)
_ADVANCE_AS_LEADER = (
    update(head)
    .where(head.c.epoch == bindparam("leads"))
    .values(revision=head.c.revision + 1, decided_at=bindparam("at"))
    .returning(head.c.revision, head.c.rolled_up_to)
)
_INSERT_TRANSITIONS = transitions.insert()


@cache
def _insert_pod_sets(dialect: str) -> Any:
    return insert(dialect, pod_sets).on_conflict_do_nothing()


@cache
def _upsert_workloads(dialect: str) -> Any:
    return upsert(dialect, workloads, keep=("first_revision",))
