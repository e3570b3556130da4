"""Database failures under a running `sluice serve`: it reports them, keeps running, and resumes after the outage."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import asyncpg
import pytest

from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import migrate
from admission.store.errors import DatabaseBusy
from tests.cli.serve_processes import NODE, QUEUES, all_complete, job, serving
from tests.queue_objects import create_objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.cli.serve_processes import Replica


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await sandbox.local("admin").create("nodes", "", NODE)
        yield sandbox


async def make_queues(url: str) -> None:
    await migrate(url)
    await create_objects(url, QUEUES)


@asynccontextmanager
async def full_disk(replica: Replica) -> AsyncIterator[None]:
    """Limit the size of the process's files to one page during the block: each write fails, as on a full disk."""
    pid = replica.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


async def submit(sandbox: Sandbox, prefix: str) -> None:
    for number in range(8):
        body = job(f"{prefix}-{number}")
        body["spec"]["suspend"] = True
        await sandbox.local("alice").create("jobs", "default", body)


async def check_recovery_from_outage(
    sandbox: Sandbox, replica: Replica, outage, says: str, *, or_logs: str = ""
) -> None:
    """Submit Jobs before, during and after an outage, from which the process has to recover by itself."""
    await replica.until("leading")
    await submit(sandbox, "before")
    async with outage:
        await submit(sandbox, "meanwhile")
        # The log reports an outage only if a write fails, so it lasts until both readiness and log report it.
        while True:
            (_, answer), log = await replica.get("/readyz?verbose"), replica.log.decode()
            if says in answer and (says in log or (or_logs and or_logs in log)):
                break
            assert replica.process.returncode is None, log
            await asyncio.sleep(0.05)
        for _ in range(10):
            assert (await replica.get("/readyz"))[0] == 503
        assert (await replica.get("/livez"))[0] == 200
    await replica.until_ready()
    await submit(sandbox, "after")
    await all_complete(sandbox.local("admin"), 24)
    assert {obj["metadata"]["generation"] for obj in sandbox.local("admin").list("jobs")} == {2}  # each started once
    assert replica.process.returncode is None
    assert "Traceback" not in replica.log.decode()


@pytest.mark.costly
async def test_serve_recovers_from_a_full_disk(sandbox, tmp_path):
    url = f"sqlite:///{tmp_path / 'sluice.db'}"
    await make_queues(url)
    async with serving(tmp_path, url) as replica:
        await check_recovery_from_outage(sandbox, replica, full_disk(replica), "the disk of the database")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a separate file system of 48 MiB during the block."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, *, leave: int) -> Path:
    """Create a file that leaves `leave` bytes free on the disk."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - leave)
    return filler


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a file system, which root has")
async def test_leader_stops_decisions_on_a_nearly_full_disk_and_reloads_only_once(sandbox, tmp_path):
    """Small writes succeed but decisions fail: the leader must not restart its work repeatedly."""
    with small_disk(tmp_path / "disk") as disk:
        url = f"sqlite:///{disk / 'sluice.db'}"
        await make_queues(url)
        async with serving(tmp_path, url) as replica:
            await replica.until("leading")
            filler = fill(disk, leave=16 * 1024)
            jobs = 0
            while "decisions are made again when 16 MiB are" not in (await replica.get("/readyz"))[1]:
                body = job(f"j{jobs}")
                body["spec"]["suspend"] = True
                await sandbox.local("alice").create("jobs", "default", body)
                jobs += 1
            for _ in range(30):
                assert (await replica.get("/readyz"))[0] == 503
            assert (await replica.get("/livez"))[0] == 200
            while b"no decisions until the database is back: the disk of the database" not in replica.log:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert replica.log.count(b"reloads the state") == 1
            filler.unlink()
            await replica.until_ready()
            await all_complete(sandbox.local("admin"), jobs)
            assert {obj["metadata"]["generation"] for obj in sandbox.local("admin").list("jobs")} == {2}
        assert "Traceback" not in replica.log.decode()


async def until_not_ready(replica: Replica, says: str) -> None:
    """Wait until `/readyz` gives this reason; fails if the process ends."""
    while says not in (answer := await replica.get("/readyz"))[1]:
        assert replica.process.returncode is None, replica.log.decode()
        await asyncio.sleep(0.05)
    assert answer[0] == 503


async def check_delayed_start(sandbox: Sandbox, replica: Replica, says: str, mend: Callable[[], None]) -> None:
    """Start `sluice serve` before its database is usable: it waits, reports why, and starts without a restart."""
    await until_not_ready(replica, says)
    assert (await replica.get("/livez"))[0] == 200
    assert "reason withheld" in (await replica.get("/readyz", token=""))[1]
    await asyncio.to_thread(mend)
    await replica.until("leading")
    await submit(sandbox, "after")
    await all_complete(sandbox.local("admin"), 8)
    assert replica.log.decode().count("cannot start yet") == 1
    assert "Traceback" not in replica.log.decode()


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_started_before_the_database_waits_for_it(sandbox, tmp_path, own_postgresql):
    url = own_postgresql.url("sluice_template")
    await make_queues(url)
    await asyncio.to_thread(own_postgresql.kill)
    async with serving(tmp_path, url) as replica:
        await check_delayed_start(sandbox, replica, "cannot be reached", own_postgresql.start)


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_waits_on_a_standby_for_its_promotion_and_exits_cleanly_meanwhile(
    sandbox, tmp_path, own_postgresql
):
    url = own_postgresql.url("sluice_template")
    await make_queues(url)
    await asyncio.to_thread(own_postgresql.restart_as_standby)
    async with serving(tmp_path, url) as replica:
        await until_not_ready(replica, "cannot be written")
        replica.send(signal.SIGTERM)
        assert await replica.process.wait() == 0
    async with serving(tmp_path, url) as replica:
        await check_delayed_start(sandbox, replica, "cannot be written", own_postgresql.promote)


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_recovers_after_the_postgresql_server_was_killed_and_restarted(sandbox, tmp_path, own_postgresql):
    @asynccontextmanager
    async def away() -> AsyncIterator[None]:
        await asyncio.to_thread(own_postgresql.kill)
        yield
        await asyncio.to_thread(own_postgresql.start)

    url = own_postgresql.url("sluice_template")
    await make_queues(url)
    async with serving(tmp_path, url) as replica:
        # It first meets a closed or a refused connection, depending on timing, and reports the outage once.
        await check_recovery_from_outage(sandbox, replica, away(), "cannot be reached", or_logs="was lost")


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_recovers_after_the_database_was_read_only(sandbox, tmp_path, own_postgresql):
    switch = "ALTER SYSTEM SET default_transaction_read_only = {}"

    @asynccontextmanager
    async def read_only() -> AsyncIterator[None]:
        await asyncio.to_thread(own_postgresql.execute, switch.format("on"), "SELECT pg_reload_conf()")
        yield
        undo = ("SET default_transaction_read_only = off", switch.format("off"), "SELECT pg_reload_conf()")
        await asyncio.to_thread(own_postgresql.execute, *undo)

    url = own_postgresql.url("sluice_template")
    await make_queues(url)
    async with serving(tmp_path, url) as replica:
        await check_recovery_from_outage(sandbox, replica, read_only(), "cannot be written")


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_recovers_after_a_single_table_was_inaccessible(sandbox, tmp_path, own_postgresql):
    """One table is inaccessible, as after a REVOKE or during a rewrite: not ready, though simple queries succeed."""
    url = own_postgresql.url("sluice_template")
    await make_queues(url)
    make = ("CREATE USER sluice PASSWORD 'secret'", "GRANT ALL ON ALL TABLES IN SCHEMA public TO sluice",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO sluice")  # fmt: skip
    await execute(url, *make)

    @asynccontextmanager
    async def without_rights() -> AsyncIterator[None]:
        await execute(url, "REVOKE ALL ON workloads FROM sluice")
        yield
        await execute(url, "GRANT ALL ON workloads TO sluice")

    async with serving(tmp_path, url.replace(f"postgres:{own_postgresql.password}", "sluice:secret")) as replica:
        await check_recovery_from_outage(sandbox, replica, without_rights(), "permission denied for table workloads")


@asynccontextmanager
async def older_schema(url: str) -> AsyncIterator[None]:
    """Take the schema back during the block, as for a rollback of the release, though this version still runs."""
    await _migrated(url, "0005")
    yield
    await _migrated(url)


async def _migrated(url: str, *version: str) -> None:
    """Migrate the database of a Sluice that runs: its transactions may be in the way, and an operator tries again."""
    while True:
        with suppress(DatabaseBusy):
            await migrate(url, *version)
            return


async def check_recovery_from_older_schema(sandbox: Sandbox, tmp_path: Path, url: str) -> None:
    await make_queues(url)
    async with serving(tmp_path, url) as replica:
        says = "has schema 0005, and this Sluice needs"
        await check_recovery_from_outage(sandbox, replica, older_schema(url), says, or_logs="lacks tables or columns")
        log = replica.log.decode()
        assert "is left alone" not in log  # no workload takes the blame


@pytest.mark.costly
async def test_serve_recovers_after_its_schema_was_taken_back_on_sqlite(sandbox, tmp_path):
    await check_recovery_from_older_schema(sandbox, tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}")


@pytest.mark.costly
@pytest.mark.postgres
async def test_serve_recovers_after_its_schema_was_taken_back_on_postgresql(sandbox, tmp_path, own_postgresql):
    await check_recovery_from_older_schema(sandbox, tmp_path, own_postgresql.url("sluice_template"))


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
