"""The leader's commit: `Changes` as bulk statements within one transaction, fenced by the epoch."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from sqlalchemy import bindparam, case, literal, update

from admission.model.pod_set_documents import pod_set_document
from admission.store.database.dialects import bulk_insert, insert, upsert
from admission.store.database.tables import head, pod_sets, transitions, workloads
from admission.store.errors import StaleEpoch
from admission.store.ledger import entries
from admission.store.records import FAILED
from admission.store.workloads import checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from admission.model.workload import PodSet
    from admission.store.database.connection import Database
    from admission.store.records import Changes, Document, WorkloadRecord


class Begun(NamedTuple):
    """A transaction of the leader in which the epoch was checked and the next revision taken."""

    revision: int
    """Revision of its writes, the last one that it took."""
    rolled_up_to: float | None
    """End of the ledger's roll-ups (Unix time, s); None: there are none."""
    workloads: Mapping[str, int]
    """Uid of each workload that it writes -> revision of that row.

    No two rows have the same one: a watch may break between any two events, and resumes behind the last one.
    """


def next_revision(connection: Connection) -> int:
    """Take and return the next revision for a transaction that is not a leader's; no epoch is checked.

    The row of `head` stays locked until the transaction ends, so that revisions become visible in order.
    """
    revision: int = connection.execute(_ADVANCE).scalar_one()
    return revision


def begin(connection: Connection, *, epoch: int, at: float, uids: Iterable[str] = ()) -> Begun:
    """Take the next revisions as the leader of `epoch`: one for each workload of `uids`, and at least one.

    `at` is the leader's time (Unix time, s). The row of `head` stays locked until the transaction ends: revisions
    become visible in order, and no other replica can become the leader before. Raises StaleEpoch if one has.
    """
    distinct = dict.fromkeys(uids)
    advance = {"leads": epoch, "at": at, "by": max(1, len(distinct))}
    row = connection.execute(_ADVANCE_AS_LEADER, advance).one_or_none()
    if row is None:
        raise StaleEpoch(f"this Sluice is no longer the leader (its epoch is {epoch}); its decisions were dropped")
    revision, rolled_up_to = row
    return Begun(
        revision, rolled_up_to, {uid: number for number, uid in enumerate(distinct, revision - len(distinct) + 1)}
    )


def apply(connection: Connection, changes: Changes, begun: Begun) -> None:
    """Write `changes` within the transaction of `connection`."""
    dialect, revision = connection.dialect.name, begun.revision
    if changes.workloads:
        shapes = _Shapes()
        # One upsert statement cannot write the same row twice.
        latest = {record.workload.uid: record for record in changes.workloads}.values()
        rows = [
            _workload_row(record, shapes.name(record.workload.pod_sets), begun.workloads[record.workload.uid])
            for record in latest
        ]
        # There are no pod sets if all the records are of misconfigured workloads.
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


_MAX_CACHED: Final = 1_000
"""Entries of `_CACHE` at which it is emptied."""
_CACHE: Final[dict[int, tuple[tuple[PodSet, ...], str, list[Document]]]] = {}
"""Recently written pod sets by `id()`: the tuple itself (so that its id is not reused), its shape, and its rows."""


class _Shapes:
    """The distinct pod sets of one transaction. Workloads of the same shape mostly share one tuple object."""

    def __init__(self) -> None:
        self.rows: list[Document] = []
        """Rows of `pod_sets` to insert."""
        self._names: dict[int, str] = {}
        self._known: set[str] = set()

    def name(self, sets: tuple[PodSet, ...]) -> str:
        """Return the shape of pod sets, and add their rows unless they are there already."""
        name = self._names.get(id(sets))
        if name is None:
            known = _CACHE.get(id(sets))
            if known is None or known[0] is not sets:
                if len(_CACHE) >= _MAX_CACHED:
                    _CACHE.clear()
                known = _CACHE[id(sets)] = (sets, *_shape_rows(sets))
            _, name, rows = known
            self._names[id(sets)] = name
            if name not in self._known:
                self._known.add(name)
                self.rows.extend(rows)
        return name


def _shape_rows(pod_sets: Iterable[PodSet]) -> tuple[str, list[Document]]:
    """Return the shape of pod sets, a hash that is the same for equal ones, and their rows."""
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
        "max_seconds": workload.max_seconds,
        "terms": workload.terms.document(),
        "cluster": workload.cluster,
        "submitter_groups": workload.groups or None,
        "eviction": None if record.eviction is None else asdict(record.eviction),
        "revision": revision,
        "first_revision": revision,
    }


# Built once, because constructing a statement takes as long as executing it.
_ADVANCE = update(head).values(revision=head.c.revision + 1).returning(head.c.revision)
_ADVANCE_AS_LEADER = (
    update(head)
    .where(head.c.epoch == bindparam("leads"))
    .values(revision=head.c.revision + bindparam("by"), decided_at=bindparam("at"))
    .returning(head.c.revision, head.c.rolled_up_to)
)
_INSERT_TRANSITIONS = transitions.insert()


@cache
def _insert_pod_sets(dialect: str) -> Any:
    return insert(dialect, pod_sets).on_conflict_do_nothing()


@cache
def _upsert_workloads(dialect: str) -> Any:
    return upsert(dialect, workloads, keep=("first_revision",))


async def note_failures(database: Database, texts: Mapping[str, str]) -> int:
    """Put a text before the message of each of these failed workloads (by uid); return the revision."""
    columns = workloads.c

    def write(connection: Connection) -> int:
        revision = 0
        for uid, text in texts.items():
            revision = next_revision(connection)  # one for each, as in a commit
            message = case((columns.message == "", text), else_=literal(f"{text}: ").concat(columns.message))
            failed = columns.uid == uid, columns.outcome == FAILED
            connection.execute(update(workloads).where(*failed).values(message=message, revision=revision))
        return revision

    async with database.write() as connection:
        return await connection.run_sync(write)
