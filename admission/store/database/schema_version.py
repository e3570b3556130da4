"""Check that the schema of a database is compatible with this version of Sluice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import inspect, select, text

from admission.store.database.tables import SCHEMA_VERSION, head
from admission.store.errors import SchemaMismatch

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.store.database.connection import Database


async def check(database: Database, *, writes: bool = True) -> None:
    """Raise SchemaMismatch for an incompatible schema, or DatabaseUnusable if `writes`, and it cannot be written.

    A newer schema is accepted if its `compatible_with` is not newer than ours: so after a migration replicas can be
    upgraded one by one, and rolled back.
    """

    def query(connection: Connection) -> None:
        check_readable(connection, database)
        # The row lock fails in a database that is read-only.
        connection.execute(select(head.c.revision).with_for_update())

    if writes:
        await database.write_sync(query)
    else:
        await database.read_sync(partial(check_readable, database=database))


def check_readable(connection: Connection, database: Database) -> None:
    """Raise SchemaMismatch for an incompatible schema; this only reads.

    Checked at the start and by each health check: the schema may be migrated while Sluice runs.
    """
    version = _version(connection)
    if version is None:
        raise SchemaMismatch(f"the database {database.location} is empty or not migrated; run `sluice migrate`")
    if version < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the database {database.location} has schema {version}, and this Sluice needs {SCHEMA_VERSION}; "
            "run `sluice migrate`"
        )
    _refuse_if_too_new(version, connection.scalar(select(head.c.compatible_with)), database)


async def is_newer(connection: AsyncConnection, database: Database) -> bool:
    """Whether the schema is newer than this Sluice's, but compatible. Raises SchemaMismatch if it is incompatible."""
    version = await current(connection)
    if version is None or version <= SCHEMA_VERSION:
        return False
    _refuse_if_too_new(version, await connection.scalar(select(head.c.compatible_with)), database)
    return True


def _refuse_if_too_new(version: str, oldest: str | None, database: Database) -> None:
    """Raise SchemaMismatch if `version` is newer than ours, and so is `oldest`, the oldest whose code can use it."""
    if version > SCHEMA_VERSION and str(oldest) > SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the database {database.location} has schema {version}, newer than this Sluice knows ({SCHEMA_VERSION}); "
            "install the newer Sluice, or take the schema back with it by `sluice migrate --to`"
        )


async def current(connection: AsyncConnection) -> str | None:
    """Return the revision that the database was migrated to; None if it never was."""
    return await connection.run_sync(_version)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version
