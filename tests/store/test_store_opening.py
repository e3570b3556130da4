"""Opening of a store: errors with their remedy, schema versions, a single leader, and lost connections."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from postgresql_server import PostgreSQL
from sqlalchemy.exc import DBAPIError
from store_examples import admission, admitted, flavor, pending, workload

from admission.model.errors import StoreError
from admission.store.audit_log import Author
from admission.store.database.migrations import ensure_ready, migrate, plan
from admission.store.database.tables import SCHEMA_VERSION
from admission.store.errors import (
    AlreadyRunning,
    DatabaseRefusesWrites,
    DatabaseUnavailable,
    DatabaseUnusable,
    InvalidDatabaseUrl,
    SchemaMismatch,
)
from admission.store.records import Changes
from admission.store.store import Store


async def refusal(url: str, kind: type[StoreError]) -> str:
    """Return the message of the error that opening the store raises, which must be a single line."""
    with pytest.raises(kind) as caught:
        async with Store.open(url):
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert type(caught.value) is kind
    return message


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is no URL"),
        ("sluice.db", "is no URL"),
        ("postgresql://host:port/name", "is no URL"),
        ("mysql://host/name", "begins with 'mysql'"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://host/file", "names no file"),
        ("postgresql://host", "names no database"),
        ("postgresql://u:secret@host/name?connect_timout=3", "unknown option 'connect_timout'"),
        ("postgresql://u:p@secret@host/name", "more than one @; write %40 for one in a password"),
        ("postgresql://u:secret@host/name?sslmode=verify", "sslmode=verify in the database URL is none of disable,"),
    ],
)
async def test_invalid_database_url_is_rejected_without_showing_the_password(url: str, said: str):
    message = await refusal(url, InvalidDatabaseUrl)
    assert said in message
    assert "secret" not in message


async def test_unreachable_server_is_reported_with_a_masked_password():
    # Port 1 is reserved, and nothing uses it.
    message = await refusal("postgresql://u:secret@127.0.0.1:1/name", DatabaseUnavailable)
    assert message.startswith("the database postgresql://u:***@127.0.0.1:1/name cannot be reached (")


@pytest.mark.postgres
async def test_wrong_password_and_missing_database_are_reported(postgresql: PostgreSQL):
    url = postgresql.url("nothing")
    assert "refuses the user" in await refusal(url.replace(postgresql.password, "guess"), DatabaseUnusable)
    message = await refusal(url, DatabaseUnusable)
    assert 'database "nothing" does not exist' in message
    assert postgresql.password not in message


@pytest.mark.postgres
async def test_postgresql_url_variants_open_and_unavailable_tls_is_rejected(postgresql: PostgreSQL):
    url = postgresql.url("sluice_template")
    for variant in (f"{url}?sslmode=disable", f"{url}?ssl=prefer", url.replace("postgresql:", "postgres:")):
        async with Store.open(variant) as store:
            assert await store.health() is None
    # Waiting would not help, so `sluice serve` ends with these errors at its start.
    assert "does not speak TLS" in await refusal(f"{url}?sslmode=require", DatabaseUnusable)
    assert "add sslrootcert" in await refusal(f"{url}?sslmode=verify-full", DatabaseUnusable)


async def test_missing_database_file_is_reported_and_not_created(tmp_path: Path):
    message = await refusal(f"sqlite:///{tmp_path}/sluice.db", DatabaseUnusable)
    assert message.startswith(f"the database file {tmp_path}/sluice.db cannot be opened")
    assert "sluice migrate" in message
    assert not (tmp_path / "sluice.db").exists()


async def test_missing_database_folder_is_reported(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/none/sluice.db"
    says = f"the folder of the database {tmp_path}/none/sluice.db does not exist: create it, or correct the"
    assert (await refusal(url, DatabaseUnusable)).startswith(says)
    with pytest.raises(DatabaseUnusable, match=says):
        await migrate(url)


async def test_file_that_is_not_a_sqlite_database_is_rejected(tmp_path: Path):
    (tmp_path / "sluice.db").write_text("apiVersion: sluice.dev/v1\n" * 100)
    message = await refusal(f"sqlite:///{tmp_path}/sluice.db", DatabaseUnusable)
    assert message.startswith(f"the file {tmp_path}/sluice.db is no SQLite database")


async def test_driver_error_is_chained_as_the_cause(tmp_path: Path):
    with pytest.raises(DatabaseUnusable) as caught:
        await migrate(f"sqlite:///{tmp_path}")
    assert isinstance(caught.value.__cause__, DBAPIError)


async def test_database_without_tables_is_rejected_with_a_hint_to_migrate(
    empty_database_url: str, database_kind: str, tmp_path: Path
):
    if database_kind == "sqlite":
        (tmp_path / "sluice.db").touch()
    message = await refusal(empty_database_url, SchemaMismatch)
    assert message.endswith("is empty or not migrated; run `sluice migrate`")


async def test_database_with_an_older_schema_is_rejected_with_a_hint_to_migrate(database_url: str):
    async with Store.open(database_url) as store, store._database.write() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    message = await refusal(database_url, SchemaMismatch)
    assert "has schema 0000" in message
    assert "run `sluice migrate`" in message


async def newer_schema(url: str, *, compatible_with: str) -> None:
    """Do what a migration of a later version does: add columns, a table and a kind, and note the compatible schema."""
    created = "1" if url.startswith("sqlite") else "now()"
    async with Store.open(url) as store, store._database.write() as connection:
        for statement in (
            "ALTER TABLE workloads ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",
            "ALTER TABLE admissions ADD COLUMN node TEXT",
            "ALTER TABLE queue_objects ADD COLUMN colour TEXT NOT NULL DEFAULT ''",
            "CREATE TABLE forecasts (id INTEGER PRIMARY KEY)",
            "UPDATE alembic_version SET version_num = '0999'",
            f"UPDATE head SET compatible_with = '{compatible_with}'",
            *(
                f"INSERT INTO {table} (kind, namespace, name, uid, generation, revision, created_at, labels, "
                f"annotations, content, {more}) SELECT 'Forecast', '', 'tomorrow', 'f', 1, 1, {created}, '{{}}', "
                f"'{{}}', '{{}}', {values}"
                for table, more, values in (
                    ("queue_objects", "parent, cluster_queue", "'', ''"),
                    ("queue_object_versions", "operation, at, author, reason", f"'create', {created}, 'test', ''"),
                )
            ),
        ):
            await connection.exec_driver_sql(statement)


async def test_newer_schema_that_is_marked_compatible_is_usable(database_url: str):
    await newer_schema(database_url, compatible_with=SCHEMA_VERSION)
    async with Store.open(database_url) as store:
        epoch = await store.lead("test")
        await store.queues.create(flavor(), author=Author("test"))
        await store.commit(admitted(workload("1"), admission(), at=1.0), epoch=epoch)
        loaded = await store.load()
        assert [record.admission for record in loaded.workloads] == [admission()]
        assert [obj.kind for obj in loaded.queue_objects] == ["ResourceFlavor"], "kinds of the newer one are left alone"
        assert [version.object.kind for version in await store.queues.changes_since(0)] == ["ResourceFlavor"]
    assert await migrate(database_url) == ("0999", "0999"), "a newer schema is left as it is"
    assert await plan(database_url) == ("0999", ())
    with pytest.raises(SchemaMismatch, match="cannot migrate from schema 0999"):
        await migrate(database_url, SCHEMA_VERSION)


async def test_running_sluice_continues_while_its_schema_is_migrated(database_url: str):
    async with Store.open(database_url) as store:
        epoch = await store.lead("test")
        for number in range(3):
            await store.commit(admitted(workload(f"a{number}"), admission(), at=1.0), epoch=epoch)
            await store.load()
        await newer_schema(database_url, compatible_with=SCHEMA_VERSION)
        for number in range(3):
            await store.commit(admitted(workload(f"b{number}"), admission(), at=1.0), epoch=epoch)
        assert len((await store.load()).workloads) == 6


async def test_incompatible_newer_schema_is_rejected(database_url: str):
    await newer_schema(database_url, compatible_with="0998")
    message = await refusal(database_url, SchemaMismatch)
    assert "has schema 0999, newer than this Sluice knows" in message
    assert "install the newer Sluice" in message
    for refuses in (migrate, plan):
        with pytest.raises(SchemaMismatch) as caught:
            await refuses(database_url)
        assert str(caught.value) == message


@pytest.mark.postgres
async def test_read_only_postgresql_is_rejected(postgresql: PostgreSQL):
    await asyncio.to_thread(postgresql.execute, "CREATE DATABASE read_only TEMPLATE sluice_template")
    await asyncio.to_thread(postgresql.execute, "ALTER DATABASE read_only SET default_transaction_read_only = on")
    assert "cannot be written" in await refusal(postgresql.url("read_only"), DatabaseRefusesWrites)


@pytest.fixture
def read_only_folder(sqlite_template: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with a database that the test may only read; a test run as root takes another user id meanwhile."""
    folder = tmp_path / "readable"
    folder.mkdir()
    shutil.copyfile(sqlite_template, folder / "sluice.db")
    (folder / "sluice.db").chmod(0o444)
    folder.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if not parent.stat().st_mode & 0o001:  # pytest's folders are private, and parallel workers have another level
            parent.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)


async def test_read_only_sqlite_file_is_rejected(read_only_folder: Path):
    message = await refusal(f"sqlite:///{read_only_folder}/sluice.db", DatabaseUnusable)
    assert message.startswith(f"the database {read_only_folder}/sluice.db cannot be written")


async def test_ensure_ready_creates_a_missing_file_and_keeps_existing_files(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/sluice.db"
    await ensure_ready(url)
    async with Store.open(url) as store:
        await store.queues.create(flavor(), author=Author("test"))
    await ensure_ready(url)
    async with Store.open(url) as store:
        assert len(await store.queues.list("ResourceFlavor")) == 1
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    await ensure_ready(f"sqlite:///{other}")
    assert "sluice migrate" in await refusal(f"sqlite:///{other}", SchemaMismatch)


async def test_ensure_ready_repeats_a_first_migration_that_was_killed(tmp_path: Path):
    """A killed first migration leaves a file in WAL mode, which is therefore not empty, without tables."""
    file = tmp_path / "sluice.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    assert file.stat().st_size > 0
    await ensure_ready(f"sqlite:///{file}")
    async with Store.open(f"sqlite:///{file}") as store:
        assert not await store.queues.list("ResourceFlavor")


async def test_second_leader_is_rejected_with_the_holder_of_the_lock(database_url: str, clock):
    clock.now = 1_750_000_000.0
    async with Store.open(database_url, clock=clock) as first, Store.open(database_url, clock=clock) as second:
        epoch = await first.lead("host-1, process 77")
        with pytest.raises(AlreadyRunning) as caught:
            await second.lead("host-2, process 78")
        assert "another Sluice (host-1, process 77, since 2025-06-15 15:06:40 UTC) uses the database" in str(
            caught.value
        )
        several = (
            "start all replicas with the same --lease" if "postgresql" in database_url else "use PostgreSQL, which"
        )
        assert f"stop it first, or {several}" in str(caught.value)
        await first.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
        assert len((await second.workloads.list()).workloads) == 1
    async with Store.open(database_url) as third:
        assert await third.lead("host-3") == epoch + 1


@pytest.mark.costly
async def test_killed_leader_leaves_no_lock(database_url: str):
    program = (
        "import asyncio, os, signal\n"
        "from admission.store.store import Store\n"
        "async def main():\n"
        f"    async with Store.open({database_url!r}) as store:\n"
        "        await store.lead('doomed')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    async with Store.open(database_url) as store:
        epoch = None
        while epoch is None:  # PostgreSQL notices the death by the closed connection
            with suppress(AlreadyRunning):
                epoch = await store.lead("next")
        assert epoch == 2


@pytest.mark.postgres
async def test_terminated_connection_is_replaced_without_a_failed_commit(postgresql: PostgreSQL):
    await asyncio.to_thread(postgresql.execute, "CREATE DATABASE lost TEMPLATE sluice_template")
    async with Store.open(postgresql.url("lost")) as store:
        epoch = await store.lead("test")
        await store.commit(Changes(workloads=(pending(workload("1")),)), epoch=epoch)
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'lost'"
        await asyncio.to_thread(postgresql.execute, kill)
        await store.commit(Changes(workloads=(pending(workload("2")),)), epoch=epoch)
        assert len((await store.load()).workloads) == 2
        # The lock was lost with the connection, so another Sluice may lead; its epoch then rejects commits of this one.
        assert await store.lead("test") == epoch + 1


@pytest.mark.postgres
async def test_health_reports_a_dropped_database(postgresql: PostgreSQL):
    await asyncio.to_thread(postgresql.execute, "CREATE DATABASE ill TEMPLATE sluice_template")
    async with Store.open(postgresql.url("ill")) as store:
        assert await store.health() is None
        await asyncio.to_thread(postgresql.execute, "DROP DATABASE ill WITH (FORCE)")
        assert 'database "ill" does not exist' in str(await store.health())
