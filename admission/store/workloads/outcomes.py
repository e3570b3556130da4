"""Additions to the outcomes of finished workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, literal, update

from admission.store.database.tables import workloads
from admission.store.records import FAILED
from admission.store.workloads.commit import next_revision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from admission.store.database.connection import Database


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
