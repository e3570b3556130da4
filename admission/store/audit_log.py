"""The audit log: author, source address and reason of each write through the API, added in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import func, insert, select

from admission.model import sentences
from admission.store.database.tables import audit_records, head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, RowMapping

    from admission.store.database.connection import Database
    from admission.store.records import Document


@dataclass(frozen=True, slots=True)
class Author:
    """The user who made a change, and the request that it was made by."""

    name: str
    """User name, as authenticated by the API."""
    groups: tuple[str, ...] = ()
    source: str = ""
    """Source address of the request."""
    verb: str = ""
    """Kubernetes verb; empty: that of the store's operation (create, update, delete)."""
    reason: str = ""
    """Reason given by the user."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One write. `before` is None for a creation, `after` for a deletion."""

    id: int
    """Grows with time."""
    revision: int
    """Revision of the database that the write created."""
    at: float
    """Seconds since the epoch."""
    user: str
    groups: tuple[str, ...]
    source: str
    verb: str
    kind: str
    namespace: str
    name: str
    reason: str
    before: Document | None
    after: Document | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of the audit log, newest records first."""

    records: tuple[AuditRecord, ...]
    before: int | None
    """Cursor of the next page: the id that its records are older than; None: this is the last page."""
    remaining: int
    """Number of records after this page."""
    revision: int
    """Revision of the database when the page was read."""


def record(
    connection: Connection,
    author: Author,
    verb: str,
    key: tuple[str, str, str],
    *,
    at: float,
    revision: int,
    before: Document | None,
    after: Document | None,
) -> None:
    """Add a record of a write to the object `key` (kind, namespace, name), within the transaction of `connection`.

    `verb`: the verb to record if the author has none.
    """
    kind, namespace, name = key
    row = {
        "revision": revision,
        "at": at,
        "user": author.name,
        "groups": list(author.groups),
        "source": author.source,
        "verb": author.verb or verb,
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "reason": author.reason,
        "before": before,
        "after": after,
    }
    connection.execute(insert(audit_records), row)


OUTAGE: Final = "Outage"
"""Kind of the records of outages, which Sluice itself writes."""


class Outage(NamedTuple):
    """A time in which nothing was decided. Times are seconds since the epoch."""

    start: float
    end: float
    cause: str


def record_outage(connection: Connection, outage: Outage, *, revision: int) -> None:
    """Add a record of an outage that is over, within the transaction of `connection`."""
    times = {"from": sentences.time(outage.start), "to": sentences.time(outage.end)}
    author, key = Author("sluice", reason=outage.cause), (OUTAGE, "", "decisions")
    record(connection, author, "outage", key, at=outage.end, revision=revision, before=None, after=times)


class AuditLog:
    """Read access to the audit log."""

    FIELDS = ("user", "kind", "namespace", "name", "verb")
    """Fields by which records can be filtered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def outages(self, start: float, end: float) -> tuple[Outage, ...]:
        """Return the recorded outages of some time between `start` and `end` (Unix times, s), in order of time."""
        columns = audit_records.c
        statement = select(columns.after, columns.reason).where(columns.kind == OUTAGE).order_by(columns.id)
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).all()
        found = [Outage(_time(row.after["from"]), _time(row.after["to"]), row.reason) for row in rows]
        return tuple(outage for outage in found if outage.start < end and outage.end > start)

    async def list(
        self, fields: Mapping[str, str] | None = None, *, limit: int | None = None, before: int | None = None
    ) -> AuditPage:
        """Return a page of at most `limit` records, newest first.

        `fields` filters by values of FIELDS; `before` is the cursor of the previous page.
        """
        columns = audit_records.c
        matches = [columns[name] == value for name, value in (fields or {}).items()]
        if before is not None:
            matches.append(columns.id < before)
        statement = select(audit_records).where(*matches).order_by(columns.id.desc()).limit(limit)
        async with self._database.read() as connection:
            revision: int = (await connection.execute(select(head.c.revision))).scalar_one()
            rows = (await connection.execute(statement)).mappings().all()
            more = 0
            if limit is not None and len(rows) == limit:
                older = select(func.count()).select_from(audit_records).where(*matches, columns.id < rows[-1]["id"])
                more = (await connection.execute(older)).scalar_one()
        records = tuple(map(_record, rows))
        return AuditPage(records, records[-1].id if more else None, more, revision)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _record(row: RowMapping) -> AuditRecord:
    return AuditRecord(**{**row, "groups": tuple(row["groups"])})
