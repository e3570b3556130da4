"""Writes to the ledger: admissions start, are resized and end; each row is added once and closed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, case, func, select, update

from admission.model.topology_documents import DELAYED, topology_document
from admission.store.database.dialects import bulk_insert
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions
from admission.store.ledger.rollup import reopen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from admission.store.records import Changes, Document, Opened, Resized


def write(connection: Connection, changes: Changes, *, revision: int, rolled_up_to: float | None) -> None:
    """Write `closed`, `opened` and `resized` of `changes`, in that order, within the leader's transaction.

    At least one of them must not be empty. `rolled_up_to`: end of the roll-ups (Unix time, s); None: there are none.
    """
    if changes.closed:
        _close(connection, [(c.uid, c.at, c.reason) for c in changes.closed], revision)
    if changes.opened:
        bulk_insert(
            connection,
            _OPEN,
            [row for one in changes.opened for row in _rows(one, one.at, None, revision, changes.known)],
        )
    for one in changes.resized:
        _resize(connection, one, revision, changes.known)
    first = min(change.at for part in (changes.closed, changes.opened, changes.resized) for change in part)
    if rolled_up_to is not None and first < rolled_up_to:  # rare: a late commit changes an hour with roll-ups
        reopen(connection, first)


def _close(connection: Connection, endings: Iterable[tuple[str, float, str]], revision: int) -> None:
    connection.execute(_CLOSE, [{"of": uid, "end": at, "why": why, "by": revision} for uid, at, why in endings])


def _resize(connection: Connection, resized: Resized, revision: int, known: int | None) -> None:
    columns = admissions.c
    latest = func.max(columns.from_at), func.min(func.coalesce(columns.began_at, columns.from_at))
    held = select(*latest).where(columns.workload_uid == resized.workload.uid, columns.to_at.is_(None))
    since, began = connection.execute(held).one()
    if since is None:
        return
    _close(connection, [(resized.workload.uid, resized.at, resized.reason)], revision)
    rows = list(_rows(resized, max(since, resized.at), began, revision, known))
    if rows:
        bulk_insert(connection, _OPEN, rows)


def _rows(
    begun: Opened | Resized, at: float, began: float | None, revision: int, known: int | None
) -> Iterable[Document]:
    workload = begun.workload
    common = {
        "workload_uid": workload.uid,
        "cluster_queue": begun.admission.cluster_queue,
        "local_queue": workload.queue,
        "namespace": workload.namespace,
        "submitted_by": workload.user,
        "priority": workload.priority,
        "from_at": at,
        "began_at": began,
        "from_revision": revision,
        "known_revision": known,
        "cluster": begun.admission.cluster or None,
    }
    for assigned in begun.admission.pod_sets:
        # A pod set without requests has a row, too, with an empty resource: it records that the workload is admitted.
        domains = None if assigned.topology is None else topology_document(assigned.topology)
        if domains is None and assigned.delayed:
            domains = {"levels": [], DELAYED: "Pending"}
        for number, resource in enumerate({**assigned.flavors, **assigned.usage} or ("",)):
            yield {
                **common,
                "pod_set": assigned.name,
                "resource": resource,
                "flavor": assigned.flavors.get(resource, ""),
                "amount": assigned.usage.get(resource, 0),
                "count": assigned.count,
                "topology": None if number else domains,
            }


_OPEN = admissions.insert()
_END = bindparam("end", type_=Instant())
# Open rows are selected by `end_reason IS NULL`, not by `to_at`: without statistics of the table, PostgreSQL would use
# the index on `to_at`, and scan all rows that were open at any time since the last VACUUM, for each closed admission.
# The end is not before the start: the clock may have been set back since the admission started.
_CLOSE = (
    update(admissions)
    .where(admissions.c.workload_uid == bindparam("of"), admissions.c.end_reason.is_(None))
    .values(
        to_at=case((admissions.c.from_at < _END, _END), else_=admissions.c.from_at),
        end_reason=bindparam("why"),
        to_revision=bindparam("by"),
    )
)
