"""The audit log: author, address and reason of each write through the API, added in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select

from admission.store.database.tables import audit_records, head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database
    from admission.store.records import Document


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change, and how it was requested."""

    name: str
    groups: tuple[str, ...] = ()
    source: str = ""
    """The address that the request came from."""
    verb: str = ""
    """Kubernetes' verb; empty: that of the store's operation (create, update, delete)."""
    reason: str = ""
    """In the author's words."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A record of one write. `before` is None for a creation, `after` for a deletion."""

    id: int
    """Grows with time."""
    revision: int
    at: float
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
    """Part of a list, newest first. `before` is where the next page begins; None if there is none."""

    records: tuple[AuditRecord, ...]
    before: int | None
    remaining: int
    revision: int


async def record(
    connection: AsyncConnection,
    author: Author,
    verb: str,
    key: tuple[str, str, str],
    *,
    at: float,
    revision: int,
    before: Document | None,
    after: Document | None,
) -> None:
    """Add a write of the object `key` (kind, namespace, name) to the audit, within the transaction of `connection`.

    `verb` is what it is called if the author does not say.
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
    await connection.execute(insert(audit_records), row)


class Audit:
    """The audit, for reading."""

    FIELDS = ("user", "kind", "namespace", "name", "verb")
    """Fields that records can be filtered by."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, wanted: Mapping[str, str] | None = None, *, limit: int | None = None, before: int | None = None
    ) -> AuditPage:
        """Records, newest first: those whose FIELDS are as `wanted`, at most `limit`, older than the id `before`."""
        columns = audit_records.c
        matches = [columns[name] == value for name, value in (wanted or {}).items()]
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


def _record(row: RowMapping) -> AuditRecord:
    return AuditRecord(**{**row, "groups": tuple(row["groups"])})
