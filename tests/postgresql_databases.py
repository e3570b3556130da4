"""Migrated PostgreSQL databases for tests, which are emptied and reused.

Copying a database takes at least 0.1 s of processor time, deleting the rows of a test about a fifth of that.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest
from postgresql_server import PostgreSQL

from tests.event_loop import run

on_both_databases = pytest.mark.parametrize(
    "database_kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
"""Mark for tests that depend on SQL; the other tests of API and controller run on SQLite only."""

# The result changes with any change of the schema or settings of a database, but not by VACUUM or ANALYZE.
_CATALOGS = ("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_proc", "pg_trigger", "pg_type")
_OWN = "(SELECT oid FROM pg_database WHERE datname = current_database())"
_SCHEMA = " UNION ALL ".join(
    [f"SELECT count(*), max(xmin::text::bigint) FROM {catalog}" for catalog in _CATALOGS]
    + [f"SELECT count(*), 0 FROM pg_db_role_setting WHERE setdatabase = {_OWN}"]
)


class MigratedDatabases:
    """Reusable copies of a template database."""

    def __init__(self, server: PostgreSQL, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._schema, self._reset_statements = run(self._read_template())

    @contextmanager
    def one(self) -> Iterator[str]:
        """Yield the URL of a database equal to the template; connections that are open at the end are terminated."""
        if self._free:
            name = self._free.pop()
        else:
            name = f"test_{secrets.token_hex(8)}"
            self._server.execute(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        yield self._server.url(name)
        if run(self._reset(name)):
            self._free.append(name)
        else:
            self._server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _read_template(self) -> tuple[list[asyncpg.Record], str]:
        """Return the template's schema, and the statements that restore a copy to the template's content."""
        connection = await asyncpg.connect(self._server.url(self._template))
        try:
            names = await connection.fetch("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
            sequences = await connection.fetch("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'")
            # Disables the triggers of foreign keys, so that tables can be emptied in any order.
            statements = ["SET session_replication_role = replica"]
            for (name,) in names:
                statements.append(f"DELETE FROM {name}")
                rows = await connection.fetchval(f"SELECT quote_literal(json_agg(t)) FROM {name} t")
                if rows is not None:
                    statements.append(f"INSERT INTO {name} SELECT * FROM json_populate_recordset(NULL::{name}, {rows})")
            statements += [f"SELECT setval('{name}', 1, false)" for (name,) in sequences]
            return await connection.fetch(_SCHEMA), "; ".join(statements)
        finally:
            await connection.close()

    async def _reset(self, name: str) -> bool:
        """Restore a database to the template's content; False if a test changed its schema or settings."""
        connection = await asyncpg.connect(self._server.url(name))
        try:
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if await connection.fetch(_SCHEMA) != self._schema:
                return False
            await connection.execute(self._reset_statements)
            return True
        finally:
            await connection.close()
