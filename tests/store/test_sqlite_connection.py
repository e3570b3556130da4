"""Asyncio connection to SQLite: few thread switches, complete results, and no lock left by interrupted reads."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from admission.store.database.connection import Database, Location, connect

NUMBERS = text(
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) "
    "SELECT n FROM numbers WHERE n <= :last"
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    path = tmp_path / "sluice.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT PRIMARY KEY, size INTEGER)")
    connection.close()
    opened = connect(Location.parse(f"sqlite:///{path}"))
    yield opened
    await opened.close()


async def test_each_statement_is_a_single_call_on_the_connection_thread(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with database.read() as connection:  # the first read opens the connection
        await connection.execute(NUMBERS, {"last": 1})
    with caplog.at_level(logging.DEBUG, "aiosqlite"):
        async with database.read() as connection:
            for last in (1, 10, 999):
                assert len((await connection.execute(NUMBERS, {"last": last})).all()) == last
    calls = [record for record in caplog.records if record.getMessage().startswith("executing")]
    assert len(calls) == len(("BEGIN", "SELECT", "SELECT", "SELECT", "ROLLBACK"))


@pytest.mark.parametrize("number", [0, 1, 999, 1_000, 1_001, 5_000])
async def test_execute_and_stream_return_all_rows_in_order(database: Database, number: int) -> None:
    last = {"last": number}
    async with database.read() as connection:
        at_once = (await connection.execute(NUMBERS, last)).scalars().all()
        in_parts = [row.n async for part in (await connection.stream(NUMBERS, last)).partitions(300) for row in part]
        one_by_one = [row.n async for row in await connection.stream(NUMBERS, last)]
        first = (await connection.execute(NUMBERS, last)).scalars().first()
    assert at_once == in_parts == one_by_one == list(range(1, number + 1))
    assert first == (1 if number else None)


async def test_writes_report_row_counts_and_returned_rows(database: Database) -> None:
    several = [{"name": f"item-{number}", "size": number} for number in range(5)]
    async with database.write() as connection:
        insert = text("INSERT INTO item (name, size) VALUES (:name, :size)")
        assert (await connection.execute(insert, several)).rowcount == 5
        update = text("UPDATE item SET size = size + 1 WHERE size > :size RETURNING name")
        returned = await connection.execute(update, {"size": 2})
        assert sorted(row.name for row in returned) == ["item-3", "item-4"]
        assert (await connection.execute(text("DELETE FROM item WHERE size < 2"))).rowcount == 2
        empty = await connection.execute(text("SELECT name FROM item WHERE size = 100"))
        assert (list(empty.keys()), empty.all()) == (["name"], [])


async def test_partly_read_stream_leaves_no_lock(database: Database, tmp_path: Path) -> None:
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO item VALUES ('first', 1)"))
    async with database.read() as connection:
        await connection.execute(text("SELECT * FROM item"))  # the snapshot begins with this statement
        async for _ in await connection.stream(NUMBERS, {"last": 5_000}):
            break
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO item VALUES ('second', 2)"))
    other = sqlite3.connect(tmp_path / "sluice.db", timeout=0)
    busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert not busy


async def test_cancelled_read_leaves_no_lock(database: Database, tmp_path: Path) -> None:
    loop, cancelled = asyncio.get_running_loop(), threading.Event()

    def cancel() -> None:
        if not cancelled.is_set():  # at the first row only
            loop.call_soon_threadsafe(lambda: (reading.cancel(), cancelled.set()))
            cancelled.wait()

    async def read() -> None:
        async with database.read() as connection:
            raw = await connection.get_raw_connection()
            await raw.driver_connection.create_function("cancel", 0, cancel)  # type: ignore[union-attr]
            await connection.execute(text(f"SELECT cancel() FROM item, ({NUMBERS})"), {"last": 5_000})

    async with database.write() as connection:
        await connection.execute(text("INSERT INTO item VALUES ('first', 1)"))
    gc.disable()  # a garbage collection could end the statement
    try:
        reading = asyncio.create_task(read())
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO item VALUES ('second', 2)"))
        other = sqlite3.connect(tmp_path / "sluice.db", timeout=0)
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        other.close()
    finally:
        gc.enable()
    assert not busy
