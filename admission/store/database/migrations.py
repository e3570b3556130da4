"""Migrations by Alembic without an ini file, from a checkout or an installed wheel.

All migrations of one call run in one transaction. On PostgreSQL an advisory lock lets one process migrate at a time.
A migration that waits for the lock of a running Sluice blocks other transactions behind it; the `lock_timeout` of every
connection limits that. On SQLite the write transaction itself is the lock.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import func, select

import admission
from admission.store.database import schema_version
from admission.store.database.connection import Location, connect, make_private
from admission.store.errors import SchemaMismatch

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

_ADVISORY_LOCK = 0x736C756963656D
"""Key of the advisory lock, "sluicem" in ASCII. No other program that uses the database may have the same key."""


async def migrate(url: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade or downgrade the schema at `url` to `revision` ("base": without tables); return the one (before, after).

    A missing SQLite file is created. A newer schema that this Sluice can work with is left as it is. Raises
    SchemaMismatch for an unknown revision or an incompatible newer schema, and the errors of `Store.open` for a
    database that cannot be reached.
    """
    location = Location.parse(url)
    if location.path is not None:
        make_private(location.path)
    database = connect(location, migrating=True)
    try:
        async with database.write() as connection:
            if connection.dialect.name == "postgresql":
                await connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            before = await schema_version.current(connection)
            if revision == "head" and await schema_version.is_newer(connection, database):
                return before, before
            await connection.run_sync(_migrate, revision, before)
            return before, await schema_version.current(connection)
    finally:
        await database.close()


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One migration: its schema revision, and its title (the docstring of the migration)."""

    revision: str
    title: str


async def plan(url: str, revision: str = "head") -> tuple[str | None, tuple[MigrationStep, ...]]:
    """Return the schema revision of the database at `url`, and the steps that `migrate` would run, in order (dry run).

    In a downgrade a step has the title of the migration that is reverted. Raises the errors of `migrate`.
    """
    database = connect(Location.parse(url))
    try:
        async with database.read() as connection:
            before = await schema_version.current(connection)
            if revision == "head" and await schema_version.is_newer(connection, database):
                return before, ()
    finally:
        await database.close()
    from alembic.script import ScriptDirectory

    known = {script.revision: script.doc for script in ScriptDirectory.from_config(config()).walk_revisions()}
    target = {"head": max(known), "base": ""}.get(revision, revision)
    unknown = {one for one in (before, target) if one} - known.keys()
    if unknown:
        raise SchemaMismatch(f"unknown schema {min(unknown)}: this Sluice knows {min(known)} to {max(known)}")
    low, high = sorted((before or "", target))
    steps = [
        MigrationStep(number, known[number].strip().rstrip(".")) for number in sorted(known) if low < number <= high
    ]
    return before, tuple(steps if (before or "") <= target else reversed(steps))


async def ensure_ready(url: str) -> None:
    """Migrate a SQLite database that is new or has no tables yet; any other is left to `sluice migrate`."""
    path = Location.parse(url).path
    if path is not None and await asyncio.to_thread(_is_empty, path):
        await migrate(url)


def _is_empty(path: Path) -> bool:
    """Whether the SQLite file is missing or has no tables.

    A migration that was killed may leave the first page, so the size says too little. A file that is locked or no
    SQLite database does not count as empty: opening it reports the error.
    """
    if not path.exists() or path.stat().st_size == 0:
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    except sqlite3.Error:
        return False


def config() -> Config:
    """Return Alembic's configuration, in place of an ini file."""
    from alembic.config import Config  # imported late, as in `_migrate`

    package = Path(admission.__file__).parent
    folders = (package / "_migrations", package.parent / "alembic")
    settings = Config()
    settings.set_main_option("script_location", str(next(folder for folder in folders if (folder / "env.py").exists())))
    return settings


def _migrate(connection: Connection, revision: str, before: str | None) -> None:
    # Imported late: Alembic loads a hundred modules, and nearly every start of `serve` finds its database migrated.
    from alembic import command
    from alembic.util import CommandError

    settings = config()
    settings.attributes["connection"] = connection
    # Revisions are numbered, so that comparing them gives the direction.
    is_downgrade = before is not None and revision != "head" and (revision == "base" or revision < before)
    try:
        (command.downgrade if is_downgrade else command.upgrade)(settings, revision)
    except CommandError as error:
        raise SchemaMismatch(
            f"cannot migrate from schema {before or 'base'} to {revision} ({error}); `sluice migrate --to` takes "
            "head, base or the number of a schema that this Sluice knows"
        ) from error
