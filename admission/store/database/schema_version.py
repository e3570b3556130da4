"""Whether the tables in a database are those that this version of Sluice works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect, select, text

from admission.store.database.tables import SCHEMA_VERSION, head
from admission.store.errors import SchemaMismatch

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database


async def check(database: Database) -> None:
    """Raise SchemaMismatch, or DatabaseUnusable if the database cannot be written, else return.

    A newer schema will do if it says that it is compatible with ours: so replicas can be replaced one by one after an
    upgrade of the tables, and taken back.
    """

    def look(connection: Connection) -> None:
        version = _version(connection)
        if version is None:
            raise SchemaMismatch(f"the database {database.location} is empty or not migrated; run `sluice migrate`")
        if version < SCHEMA_VERSION:
            raise SchemaMismatch(
                f"the database {database.location} has schema {version}, and this Sluice needs {SCHEMA_VERSION}; "
                "run `sluice migrate`"
            )
        # In a database that can only be read this is where it shows.
        oldest = connection.scalar(select(head.c.compatible_with).with_for_update())
        _refuse_if_too_new(version, oldest, database)

    await database.transact(look)


async def is_newer(connection: AsyncConnection, database: Database) -> bool:
    """Whether a newer Sluice has migrated the database, and this one can work on it. Raises SchemaMismatch if not."""
    version = await current(connection)
    if version is None or version <= SCHEMA_VERSION:
        return False
    _refuse_if_too_new(version, await connection.scalar(select(head.c.compatible_with)), database)
    return True


def _refuse_if_too_new(version: str, oldest: str | None, database: Database) -> None:
    """`oldest` is what the newest migration says of the code that can work with it."""
    if version > SCHEMA_VERSION and str(oldest) > SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the database {database.location} has schema {version}, newer than this Sluice knows ({SCHEMA_VERSION}); "
            "install the newer Sluice, or take the schema back with it by `sluice migrate --to`"
        )


async def current(connection: AsyncConnection) -> str | None:
    """The revision that the database was migrated to; None if it never was."""
    return await connection.run_sync(_version)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version
