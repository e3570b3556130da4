"""A leader frozen during a commit: the database ends its session, another replica leads, the commit has no effect."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import asyncpg
import pytest

from admission.sandbox.sandbox import Sandbox
from tests.chaos.fleet import LEASE
from tests.cli.serve_processes import NODE, QUEUES, all_complete, job, serving
from tests.queue_objects import create_objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.store.store import Store

BLOCKED = "SELECT pid FROM pg_locks WHERE relation = 'transitions'::regclass AND NOT granted"
WAITS_FOR = "SELECT wait_event FROM pg_stat_activity WHERE pid = $1"
ADMISSIONS = "SELECT count(*) FROM admissions GROUP BY workload_uid"
HELD = "SELECT count(*) FROM admissions WHERE to_at IS NULL"


@pytest.fixture
def database_kind() -> str:
    """Several replicas need PostgreSQL."""
    return "postgresql"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await sandbox.local("admin").create("nodes", "", NODE)
        yield sandbox


@pytest.fixture
async def observer(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def submit(sandbox: Sandbox, prefix: str) -> None:
    for number in range(6):
        body = job(f"{prefix}-{number}")
        body["spec"]["suspend"] = True
        await sandbox.local("alice").create("jobs", "default", body)


async def wait_for_value(observer: asyncpg.Connection, value: object, query: str, *arguments: object) -> None:
    """Poll until the query returns `value`; the test's timeout limits it."""
    while await observer.fetchval(query, *arguments) != value:  # noqa: ASYNC110  another process changes it
        await asyncio.sleep(0.01)


@pytest.mark.long
@pytest.mark.postgres
async def test_uncommitted_transaction_of_a_frozen_leader_has_no_effect(
    sandbox, store: Store, observer, database_url, tmp_path
):
    await create_objects(store, QUEUES)
    async with serving(tmp_path, database_url, *LEASE) as first, serving(tmp_path, database_url, *LEASE) as second:
        await asyncio.gather(first.until_ready(), second.until_ready())
        while not (leading := [one for one in (first, second) if (await one.role()).startswith("leading")]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        leader, follower = leading[0], second if leading[0] is first else first
        await submit(sandbox, "before")
        await all_complete(sandbox.local("admin"), 6)

        async with observer.transaction():
            await observer.execute("LOCK TABLE transitions IN SHARE MODE")
            await submit(sandbox, "late")
            while (pid := await observer.fetchval(BLOCKED)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            leader.send(signal.SIGSTOP)
        await wait_for_value(
            observer, "ClientRead", WAITS_FOR, pid
        )  # its statements are done, the server waits for the next one
        await follower.until("leading")
        assert await observer.fetchval(WAITS_FOR, pid) is None
        leader.send(signal.SIGCONT)
        await leader.until("following")

        await submit(sandbox, "after")
        await all_complete(sandbox.local("admin"), 18)
        await wait_for_value(observer, 0, HELD)
        assert "no longer the leader: " in leader.log.decode()
        assert (await leader.get("/readyz"))[0] == 200
        for replica in (first, second):
            assert replica.process.returncode is None
            assert "Traceback" not in replica.log.decode()
    assert {obj["metadata"]["generation"] for obj in sandbox.local("admin").list("jobs")} == {2}  # each started once
    assert [row[0] for row in await observer.fetch(ADMISSIONS)] == [1] * 18
    assert await store.reports.violations() == ()
