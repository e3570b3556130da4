"""Several `sluice serve` on one PostgreSQL: the leader decides, all gate and serve the API, followers take over."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ports import free_port
from serve_processes import NODE, QUEUES, Replica, all_complete, job, leader_and_follower, serving, until_job

from admission.kinds.base import SUBMITTED_BY
from admission.sandbox.sandbox import Sandbox
from admission.store.store import Store
from tests.pgbouncer import running_pgbouncer
from tests.queue_objects import create_objects

LEASE = "--lease=default/sluice"
SHORT = (LEASE, "--lease-duration=4", "--renew-deadline=3", "--retry-period=0.5")
LONG = (LEASE, "--lease-duration=3600", "--renew-deadline=1800", "--retry-period=1")
"""Within a test, such a Lease passes to another replica only if it is released."""


@pytest.fixture
def database_kind() -> str:
    """PostgreSQL, since SQLite supports only one replica."""
    return "postgresql"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        await sandbox.local("admin").create("nodes", "", NODE)
        yield sandbox


@pytest.fixture
async def queues(store: Store) -> Store:
    await create_objects(store, QUEUES)
    return store


async def submit(sandbox: Sandbox, names: list[str], *, seconds: int = 30) -> None:
    """Create Jobs as the gate would have recorded them for alice."""
    for name in names:
        body = job(name, seconds=seconds)
        body["metadata"]["annotations"] = {SUBMITTED_BY: "alice"}
        body["spec"]["suspend"] = True
        await sandbox.local("alice").create("jobs", "default", body)


async def each_ran_once(sandbox: Sandbox, store: Store, count: int) -> None:
    """Check that each Job was started once, has succeeded, and is recorded as finished."""
    jobs = sandbox.local("admin").list("jobs")
    assert [obj["metadata"]["generation"] for obj in jobs] == [2] * count  # 1: created, 2: started
    while not all(record.state == "finished" for record in (await store.workloads.list()).workloads):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    records = (await store.workloads.list()).workloads
    assert [record.outcome for record in records] == ["Succeeded"] * count
    pods = [pod for pod in sandbox.local("admin").list("pods") if pod["status"]["phase"] == "Succeeded"]
    assert len(pods) == count


@pytest.mark.long
async def test_killed_leader_is_replaced_without_a_new_list_of_jobs(sandbox, queues, tmp_path, database_url):
    async with serving(tmp_path, database_url, *SHORT) as first:
        await first.until("leading")
        async with serving(tmp_path, database_url, *SHORT) as second:
            await second.until("following")
            await second.until_ready()
            await submit(sandbox, [f"j{number}" for number in range(12)])
            # Affects no request: it counts those that it would delay.
            lists = {"match": {"user": "sluice", "verb": "list", "resource": "jobs"}, "do": "delay", "seconds": 0}
            sandbox.faults.install({"rules": [lists]})
            first.send(signal.SIGKILL)
            await second.until("leading")
            await all_complete(sandbox.local("admin"), 12)
            await each_ran_once(sandbox, queues, 12)
            assert sandbox.faults.describe()["rules"][0]["matched"] == 0
            assert (await second.get("/readyz"))[0] == 200


@pytest.mark.costly
async def test_killed_leader_is_replaced_behind_pgbouncer(sandbox, queues, tmp_path, database_url, postgresql):
    """A limit of what a user may run holds meanwhile: the next leader counts what the killed one has admitted."""
    metadata, spec = {"name": "alice"}, {"users": ["alice"], "running": 2}
    limit = {"apiVersion": "sluice.dev/v1", "kind": "UserLimit", "metadata": metadata, "spec": spec}
    await create_objects(queues, limit)
    with running_pgbouncer(postgresql) as port:
        pooled = database_url.replace(f":{postgresql.port}/", f":{port}/") + "?pgbouncer=true"
        async with serving(tmp_path, pooled, *SHORT) as first, serving(tmp_path, pooled, *SHORT) as second:
            await asyncio.gather(first.until_ready(), second.until_ready())
            leader, follower = await leader_and_follower(first, second)
            await submit(sandbox, ["long-0", "long-1"], seconds=1200)  # they run on while nobody leads
            await submit(sandbox, [f"j{number}" for number in range(10)])
            for name in ("long-0", "long-1"):
                await until_job(sandbox, name, lambda obj: not obj["spec"]["suspend"])
            leader.send(signal.SIGKILL)
            await submit(sandbox, ["while-nobody-leads"])
            await follower.until("leading")
            await all_complete(sandbox.local("admin"), 13)
            await each_ran_once(sandbox, queues, 13)
    rows = [row async for piece in queues.past_admissions(since=0.0) for row in piece if row.user == "alice"]
    assert len(rows) == 13
    assert max(sum(row.from_at <= one.from_at < row.to_at for row in rows) for one in rows) == 2  # of 4 by quota


@pytest.mark.long
async def test_terminated_leader_releases_its_lease_to_a_follower(sandbox, queues, tmp_path, database_url):
    """It ends within 30 s, the default grace period of pods, and that of the chart."""
    async with serving(tmp_path, database_url, *LONG) as first:
        await first.until("leading")
        async with serving(tmp_path, database_url, *LONG) as second:
            await second.until_ready()
            await submit(sandbox, [f"j{number}" for number in range(12)])
            first.send(signal.SIGTERM)
            async with asyncio.timeout(30):
                await first.process.wait()
            assert first.process.returncode == 0
            await second.until("leading")
            await submit(sandbox, ["after"])
            await all_complete(sandbox.local("admin"), 13)
            await each_ran_once(sandbox, queues, 13)


@pytest.mark.costly
async def test_frozen_leader_follows_after_it_was_deposed_and_may_lead_again(sandbox, queues, tmp_path, database_url):
    async with serving(tmp_path, database_url, *SHORT) as first, serving(tmp_path, database_url, *SHORT) as second:
        await asyncio.gather(first.until_ready(), second.until_ready())
        leader, follower = await leader_and_follower(first, second)
        await submit(sandbox, [f"j{number}" for number in range(10)])
        leader.send(signal.SIGSTOP)  # while it works on them
        await submit(sandbox, [f"k{number}" for number in range(10)])
        await follower.until("leading")
        leader.send(signal.SIGCONT)
        await leader.until("following")
        await all_complete(sandbox.local("admin"), 20)
        await each_ran_once(sandbox, queues, 20)
        assert (await leader.get("/readyz"))[0] == 200
        assert leader.process.returncode is None
        # The deposed leader can lead again. The other one, terminated while it learns that it was deposed, ends.
        follower.send(signal.SIGSTOP)
        await leader.until("leading")
        follower.send(signal.SIGTERM)
        follower.send(signal.SIGCONT)
        assert await follower.process.wait() == 0
        await submit(sandbox, ["after"])
        await all_complete(sandbox.local("admin"), 21)


async def standstill(replica: Replica) -> str:
    """The reason that a replica's dashboard shows for missing decisions; empty without one."""
    return str(json.loads((await replica.get("/session"))[1])["standstill"])


@pytest.mark.long
async def test_follower_serves_the_api_and_its_writes_reach_the_leader(
    sandbox, queues, tmp_path, database_url, postgresql
):
    async with serving(tmp_path, database_url, *LONG, "--audit-interval=1") as first:
        await first.until("leading")
        async with serving(tmp_path, database_url, *LONG) as second:
            await second.until("following")
            await second.until_ready()
            await submit(sandbox, [f"j{number}" for number in range(6)])
            queue = await queues.queues.get("ClusterQueue", "cq")
            body = queue.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"metadata"})
            body["spec"]["stopPolicy"] = "Hold"
            body |= {"apiVersion": "sluice.dev/v1", "kind": "ClusterQueue", "metadata": {"name": "cq"}}
            path = "/apis/sluice.dev/v1/clusterqueues/cq"
            assert await second.put(path, body) == 200
            await submit(sandbox, ["held"])
            while "held" not in (await second.get("/apis/sluice.dev/v1/workloads"))[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            body["spec"]["stopPolicy"] = "None"
            assert await second.put(path, body) == 200
            await all_complete(sandbox.local("admin"), 7)
            assert (await second.role()).startswith("following")
            assert await standstill(second) == ""
            while '"lastAudit":' not in (await second.get("/apis/sluice.dev/v1/reports/attention"))[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            name = database_url.rpartition("/")[2]
            switch = f"ALTER DATABASE {name} SET default_transaction_read_only = {{}}".format
            anew = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            await asyncio.to_thread(postgresql.execute, switch("on"), anew)
            await submit(sandbox, ["unwritten"])
            for replica in (first, second):  # a follower reads the reason from the Lease
                while "the database does not answer, or takes no writes" not in await standstill(replica):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(postgresql.execute, switch("off"), anew)
            for replica in (first, second):
                while await standstill(replica):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await all_complete(sandbox.local("admin"), 8)


@pytest.mark.costly
async def test_all_replicas_gate_with_one_certificate(sandbox, queues, tmp_path, database_url):
    ports = [free_port(), free_port()]

    def webhooks(number: int) -> tuple[str, ...]:
        return (
            *LONG,
            f"--webhook-url=https://127.0.0.1:{ports[0]}",
            f"--webhook-address=127.0.0.1:{ports[number]}",
            f"--certificate-directory={tmp_path / str(number)}",
            "--certificate-secret=default/webhook",
        )

    async with (
        serving(tmp_path, database_url, *webhooks(0)) as first,
        serving(tmp_path, database_url, *webhooks(1)) as second,
    ):
        await asyncio.gather(first.until_ready(), second.until_ready())
        shown = [await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) for port in ports]
        assert shown[0] == shown[1]
        created = await sandbox.local("alice").create("jobs", "default", job("gated"))
        assert created["spec"]["suspend"] is True
        await all_complete(sandbox.local("admin"), 1)


async def test_lease_with_sqlite_is_refused(tmp_path, sandbox):
    async with serving(tmp_path, f"sqlite:///{tmp_path / 'sluice.db'}", LEASE) as alone:
        await alone.process.wait()
    assert alone.process.returncode == 1
    assert "error: a Lease is for several replicas, but a SQLite database supports only one" in alone.log.decode()


async def test_renew_deadline_above_the_lease_duration_is_refused(tmp_path, sandbox, database_url):
    async with serving(tmp_path, database_url, LEASE, "--renew-deadline=20") as alone:
        await alone.process.wait()
    assert alone.process.returncode == 1
    assert "error: the lease duration must be longer than the renew deadline" in alone.log.decode()
