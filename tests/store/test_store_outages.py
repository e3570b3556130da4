"""Temporary outages of the database: errors of writes, `health`, recovery, and frozen sessions that block others."""

from __future__ import annotations

import asyncio
import resource
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path

import asyncpg
import pytest
from postgresql_server import PostgreSQL
from store_examples import flavor, pending, workload

from admission.store.audit_log import Author
from admission.store.errors import DatabaseBusy, DatabaseUnusable
from admission.store.records import Changes
from admission.store.store import Store


def pending_change(uid: str) -> Changes:
    return Changes(workloads=(pending(workload(uid)),))


@pytest.fixture
async def read_only(postgresql: PostgreSQL, database_url: str):
    """Return a function that makes the test's database read-only, or writable again."""
    name = database_url.rpartition("/")[2]

    async def switch(on: bool) -> None:
        value = "on" if on else "off"
        await asyncio.to_thread(
            postgresql.execute,
            f"ALTER DATABASE {name} SET default_transaction_read_only = {value}",
            # Sessions take the setting of their database when they begin.
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )

    return switch


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_read_only_postgresql_is_reported_by_commits_and_health_until_writable(database_url: str, read_only):
    async with Store.open(database_url) as store:
        epoch = await store.lead("test", elected=True)
        await read_only(True)
        assert await store.health() is None  # no write has been attempted
        with pytest.raises(DatabaseUnusable, match="cannot be written"):
            await store.commit(pending_change("1"), epoch=epoch)
        assert "cannot be written" in str(await store.health())
        assert (await store.load()).workloads == ()
        await read_only(False)
        assert await store.health() is None
        await store.commit(pending_change("1"), epoch=epoch)
        assert len((await store.load()).workloads) == 1


@contextmanager
def limited_file_size() -> Iterator[None]:
    """Limit the files of this process to one page, so that each write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_sqlite_without_disk_space_is_reported_until_there_is_space_again(store: Store):
    epoch = await store.lead("test")
    await store.commit(pending_change("1"), epoch=epoch)
    with limited_file_size():
        with pytest.raises(DatabaseUnusable, match=r"the disk of the database .*sluice.db (fails|is full)"):
            await store.commit(pending_change("2"), epoch=epoch)
        assert "the disk of the database" in str(await store.health())
        assert len((await store.load()).workloads) == 1
    assert await store.health() is None
    await store.commit(pending_change("2"), epoch=epoch)
    assert len((await store.load()).workloads) == 2


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_full_sqlite_database_rejects_a_commit_and_is_intact_afterwards(store: Store, tmp_path: Path):
    """SQLite's limit of pages causes the same error as a full disk."""
    epoch = await store.lead("test")
    assert store._database._sync_writer is not None
    with store._database._sync_writer.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    many = Changes(workloads=tuple(pending(workload(str(number))) for number in range(2000)))
    with pytest.raises(DatabaseUnusable, match=r"the disk of the database .*sluice.db is full .*; make room"):
        await store.commit(many, epoch=epoch)
    with store._database._sync_writer.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    await store.commit(many, epoch=epoch)
    assert await store.health() is None
    with closing(sqlite3.connect(tmp_path / "sluice.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_health_reports_a_deleted_or_replaced_sqlite_file(store: Store, tmp_path: Path):
    file, elsewhere = tmp_path / "sluice.db", tmp_path / "elsewhere.db"
    assert await store.health() is None
    file.rename(elsewhere)
    assert "was deleted while Sluice has it open: what Sluice writes is lost when it ends" in str(await store.health())
    shutil.copyfile(elsewhere, file)
    assert "was replaced while Sluice has it open" in str(await store.health())
    elsewhere.rename(file)
    assert await store.health() is None


def shorten_busy_timeout(store: Store) -> None:
    """Let commits wait 0.1 s for a lock instead of 10 s; the connection of `health` is not changed."""
    assert store._database._sync_writer is not None
    with store._database._sync_writer.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 100")


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_health_answers_while_another_process_locks_the_sqlite_database(store: Store, tmp_path: Path):
    epoch = await store.lead("test")
    shorten_busy_timeout(store)
    with closing(sqlite3.connect(tmp_path / "sluice.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy, match="locked by another process"):
            await store.commit(pending_change("1"), epoch=epoch)
        for _ in range(2):  # the second call finds the check of the first call still running
            async with asyncio.timeout(6):  # the check itself waits for the lock for ten seconds
                fault = str(await store.health())
            assert "sluice.db is locked by another process (database is locked); stop that process" in fault
        other.execute("ROLLBACK")
    while await store.health() is not None:  # noqa: ASYNC110  the running check has to see that the lock is gone
        await asyncio.sleep(0.01)
    await store.commit(pending_change("1"), epoch=epoch)


async def test_health_answers_while_the_postgresql_server_is_frozen(own_postgresql: PostgreSQL):
    async with Store.open(own_postgresql.url("sluice_template")) as store:
        assert await store.health() is None
        with own_postgresql.frozen():
            async with asyncio.timeout(6):
                fault = str(await store.health())
            assert "/sluice_template does not answer: 1.5 s were not enough" in fault
            assert own_postgresql.password not in fault
        while await store.health() is not None:  # noqa: ASYNC110  the running check ends with the server's answer
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_cancelled_write_does_not_block_the_next_write(store: Store):
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        cancelled = threading.Event()
        loop.call_soon_threadsafe(lambda: (writing.cancel(), cancelled.set()))
        cancelled.wait()

    async def write() -> None:
        async with store._database.write() as connection:
            raw = await connection.get_raw_connection()
            await raw.driver_connection.create_function("cancel", 0, cancel)
            await connection.exec_driver_sql("SELECT cancel()")

    writing = asyncio.create_task(write())
    with pytest.raises(asyncio.CancelledError) as kept:  # the exception is kept, with its cursor
        await writing
    await store.queues.create(flavor(), author=Author("ada"))
    assert kept.value


@pytest.mark.parametrize("database_kind", ["postgresql"])
@pytest.mark.parametrize("lock", ["UPDATE head SET revision = revision + 1", "SELECT epoch FROM head FOR UPDATE"])
async def test_elected_leader_terminates_the_transaction_of_a_frozen_leader(database_url: str, lock: str):
    async with Store.open(database_url) as frozen, Store.open(database_url) as successor:
        epoch = await frozen.lead("frozen", elected=True)
        revision = await frozen.queues.revision()
        connection = await asyncpg.connect(database_url)
        await connection.execute("BEGIN")
        await connection.execute(lock)
        await connection.prepare("SELECT 1")  # PostgreSQL's time limit for idle transactions does not apply then
        assert await successor.lead("successor", elected=True) == epoch + 1
        # The transaction is rolled back, and later statements of the session fail.
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)):
            await connection.execute("COMMIT")
        assert await successor.queues.revision() == revision


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_election_ends_a_frozen_session_that_blocks_writes_of_the_new_leader(database_url: str):
    async with Store.open(database_url) as successor:
        frozen, clock = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
        await frozen.execute("BEGIN")
        await frozen.execute("UPDATE head SET revision = revision + 1")
        old = (
            "SELECT bool_or(state = 'idle in transaction' AND state_change < clock_timestamp() - interval '2 seconds') "
            "FROM pg_stat_activity"
        )
        while not await clock.fetchval(old):
            pass
        flavors = [successor.queues.create(flavor(name), author=Author("ada")) for name in ("a", "b")]
        await asyncio.gather(*flavors, successor.lead("successor", elected=True))  # none of them is refused
        await wait_until_closed(frozen)
        await clock.close()


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_slow_write_terminates_the_frozen_session_that_blocks_the_write(database_url: str, caplog):
    """Without that the write would fail after ten seconds."""
    async with Store.open(database_url) as one:
        frozen = await asyncpg.connect(database_url)
        await frozen.execute("BEGIN")
        await frozen.execute("UPDATE head SET revision = revision + 1")
        await frozen.prepare("SELECT 1")
        await one.queues.create(flavor(), author=Author("ada"))
        await wait_until_closed(frozen)
        assert one.write_failure is None
    assert "terminated 1 idle PostgreSQL sessions that had the database locked" in caplog.text


@pytest.mark.costly
@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_active_or_nonblocking_long_transaction_is_not_terminated(database_url: str):
    async with Store.open(database_url) as one:
        busy, clock = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
        await busy.execute("BEGIN")
        await busy.execute("UPDATE head SET revision = revision + 1")
        old = "SELECT bool_or(xact_start < clock_timestamp() - interval '2 seconds') FROM pg_stat_activity"
        while not await clock.fetchval(old):
            await busy.execute("SELECT 1")
        await one._leadership.end_stuck_writers()
        # Neither is an idle transaction for which no other session waits.
        old = "SELECT state_change < clock_timestamp() - interval '2 seconds' FROM pg_stat_activity WHERE pid = $1"
        while not await clock.fetchval(old, busy.get_server_pid()):
            pass
        await one._leadership.unblock()
        await busy.execute("COMMIT")
        await busy.close()
        await clock.close()


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_write_that_times_out_on_a_lock_leaves_the_locking_transaction_alone(database_url: str):
    async with Store.open(database_url) as one, Store.open(database_url) as other:
        async with one._database._writer.begin() as connection:
            await connection.exec_driver_sql("UPDATE head SET revision = revision + 1")
            with pytest.raises(DatabaseBusy, match="locked by another process"):
                await write_with_short_lock_timeout(other)
        assert await one.queues.revision() == 1


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_health_terminates_a_frozen_session_after_a_write_timed_out(database_url: str):
    async with Store.open(database_url) as store:
        frozen = await asyncpg.connect(database_url)
        await frozen.execute("BEGIN")
        await frozen.execute("UPDATE head SET revision = revision + 1")
        await frozen.prepare("SELECT 1")
        with pytest.raises(DatabaseBusy):
            await write_with_short_lock_timeout(store)
        while await store.health() is not None:
            pass
        await store.queues.create(flavor(), author=Author("ada"))
        await wait_until_closed(frozen)


async def wait_until_closed(connection: asyncpg.Connection) -> None:
    """Wait until the client knows that the server has ended its session, which other sessions may see earlier."""
    while not connection.is_closed():  # noqa: ASYNC110  its listeners are called before it is marked as closed
        await asyncio.sleep(0)


async def write_with_short_lock_timeout(store: Store) -> None:
    async with store._database.write() as connection:
        await connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
        await connection.exec_driver_sql("UPDATE head SET revision = revision + 1")


@pytest.mark.costly
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_health_does_not_take_a_busy_database_for_a_silent_one(store: Store):
    """The check waits for a connection while others use all of them; whether transactions end is what counts."""
    async with AsyncExitStack() as busy:
        for _ in range(4):
            await busy.enter_async_context(store._database.read())
        checking = asyncio.create_task(store.health())
        while not checking.done():
            await store.workloads.get("team-a", "job")
        assert checking.result() is None
        assert "does not answer" in str(await store.unresponsive())  # since then nothing has ended
    assert await store.health() is None
