"""Migrations from within: alembic without an ini file, from a checkout or from an installed wheel.

All that one call does is one transaction. On PostgreSQL an advisory lock lets one process migrate at a time, and the
lock timeout of every connection keeps a migration that has to wait for a running Sluice from holding up others behind
it. On SQLite the transaction is lock enough.
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
"""Any number that no other program uses in the same database: "sluicem" in ASCII."""


async def migrate(url: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the database at `url` up or down to `revision` ("base": without tables) and return (before, after).

    A SQLite file is made if it is not there. The schema of a newer Sluice is left as it is. Raises SchemaMismatch for a
    revision that does not exist and for a newer schema that this Sluice cannot work with, and all that `Store.open`
    raises for a database that cannot be reached.
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
class Step:
    """One migration: the schema that it leads to, and what it is about."""

    revision: str
    title: str


async def plan(url: str, revision: str = "head") -> tuple[str | None, tuple[Step, ...]]:
    """The schema of the database at `url`, and what `migrate` would do, in that order; nothing is changed.

    Going back, a step is named for what it takes away. Raises what `migrate` raises.
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
        raise SchemaMismatch(f"schema {min(unknown)} is none that this Sluice knows, {min(known)} to {max(known)}")
    low, high = sorted((before or "", target))
    steps = [Step(number, known[number].strip().rstrip(".")) for number in sorted(known) if low < number <= high]
    return before, tuple(steps if (before or "") <= target else reversed(steps))


async def ensure_ready(url: str) -> None:
    """Migrate a SQLite database that is new or has no tables yet; leave every other one to `sluice migrate`."""
    path = Location.parse(url).path
    if path is not None and await asyncio.to_thread(_is_empty, path):
        await migrate(url)


def _is_empty(path: Path) -> bool:
    """Whether there is no such file, or one without any table: of a migration that was killed its first page may be.

    What is no SQLite database, or is locked, is not empty: opening it tells what is wrong.
    """
    if not path.exists() or path.stat().st_size == 0:
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    except sqlite3.Error:
        return False


def config() -> Config:
    """Alembic's configuration, which in other projects is an ini file."""
    from alembic.config import Config  # as in `_migrate`

    package = Path(admission.__file__).parent
    folders = (package / "_migrations", package.parent / "alembic")
    settings = Config()
    settings.set_main_option("script_location", str(next(folder for folder in folders if (folder / "env.py").exists())))
    return settings


def _migrate(connection: Connection, revision: str, before: str | None) -> None:
    # Alembic brings a hundred modules with it, and nearly every start of `serve` finds its database migrated.
    from alembic import command
    from alembic.util import CommandError

    settings = config()
    settings.attributes["connection"] = connection
    # Revisions are numbered, so their order tells the direction.
    back = before is not None and revision != "head" and (revision == "base" or revision < before)
    try:
        (command.downgrade if back else command.upgrade)(settings, revision)
    except CommandError as error:
        raise SchemaMismatch(
            f"there is no way from schema {before or 'base'} to {revision} ({error}); `sluice migrate --to` takes "
            "head, base or the number of a schema that this Sluice knows"
        ) from error
