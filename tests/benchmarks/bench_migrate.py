"""Duration of migrations of a database with a million workloads, from each earlier schema."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from admission.store.database.migrations import migrate, plan
from admission.store.database.tables import SCHEMA_VERSION
from admission.store.store import Store
from tests.benchmarks.bench_report import fill
from tests.benchmarks.measure import Figure
from tests.postgresql_server import NoPostgreSQL, running_postgresql


async def run() -> list[Figure]:
    """Measure migrations on both databases, and the size of the databases."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        file = Path(folder) / "sluice.db"
        figures += await _measure("SQLite", f"sqlite:///{file}")
        size = await asyncio.to_thread(file.stat)
        figures.append(Figure("SQLite: the file, a million workloads", f"{size.st_size / 2**20:.0f} MiB"))
    try:
        with running_postgresql() as server:
            await asyncio.to_thread(server.execute, "CREATE DATABASE bench")
            figures += await _measure("PostgreSQL", server.url("bench"))
            mebibytes = await _size_of_database(server.url("bench"))
            figures.append(Figure("PostgreSQL: the database, a million workloads", f"{mebibytes:.0f} MiB"))
    except NoPostgreSQL as error:
        figures.append(Figure("PostgreSQL", f"skipped: {error}"))
    return figures


async def _size_of_database(url: str) -> float:
    """Return the size of a PostgreSQL database in MiB, including indexes."""
    async with Store.open(url) as store, store._database.read() as connection:
        size = await connection.exec_driver_sql("SELECT pg_database_size(current_database())")
        return float(size.scalar_one()) / 2**20


async def _measure(name: str, url: str) -> list[Figure]:
    await fill(url)
    _, steps = await plan(url, "base")
    figures = []
    for earlier in [step.revision for step in steps if step.revision != SCHEMA_VERSION]:
        await migrate(url, earlier)
        started = time.perf_counter()
        await migrate(url)
        seconds = time.perf_counter() - started
        figures.append(Figure(f"{name}: from schema {earlier} to {SCHEMA_VERSION}", f"{seconds:.1f} s"))
    return figures
