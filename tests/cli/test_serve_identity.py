"""A Sluice whose database does not belong to its cluster stops no running Job without `--adopt`."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from serve_processes import NODE, QUEUES, job, serving, sluice

from admission.sandbox.sandbox import Sandbox
from admission.store.database.migrations import ensure_ready
from admission.store.store import Store
from tests.queue_objects import create_objects
from tests.user_permissions import allow

LEASE = ("leases", "kube-system", "sluice-database")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with new_sandbox(tmp_path / "kubeconfig") as opened:
        yield opened


@asynccontextmanager
async def new_sandbox(kubeconfig: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=60) as sandbox:
        sandbox.write_kubeconfig(kubeconfig, "sluice")
        await sandbox.local("admin").create("nodes", "", NODE)
        yield sandbox


async def with_queues(url: str) -> str:
    await ensure_ready(url)
    await create_objects(url, QUEUES)
    return url


async def on_file(folder: Path, name: str) -> str:
    return await with_queues(f"sqlite:///{folder / name}.db")


async def start(kubeconfig: Path, url: str, *more: str) -> tuple[int | None, str]:
    """Exit code and log of a `serve` that ends by itself."""
    flags = (f"--kubeconfig={kubeconfig}", f"--database-url={url}", "--api-address=127.0.0.1:0", *more)
    process = await sluice("serve", *flags)
    _, errors = await process.communicate()
    log = errors.decode()
    assert "Traceback" not in log, log
    return process.returncode, log


def refusal(outcome: tuple[int | None, str]) -> str:
    code, log = outcome
    assert code == 1, log
    (line,) = [line for line in log.splitlines() if line.startswith("error: ")]
    return line


async def submit(sandbox: Sandbox, name: str, *, suspend: bool = True) -> None:
    body = job(name, seconds=10**6)
    body["spec"]["suspend"] = suspend
    await sandbox.local("alice").create("jobs", "default", body)


async def running(sandbox: Sandbox, name: str) -> None:
    """Wait until a Job has a running pod."""
    watcher = sandbox.local("admin").watch("pods")
    async for batch in watcher:
        for _, _, pod, _ in batch:
            owner = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name")
            if owner == name and pod.get("status", {}).get("phase") == "Running":
                watcher.close()
                return


def is_suspended(sandbox: Sandbox, name: str) -> bool:
    return bool(sandbox.local("admin").get("jobs", "default", name)["spec"]["suspend"])


async def start_one_job(sandbox: Sandbox, folder: Path, url: str) -> None:
    """Submit the Job `runs`, and run a `sluice serve` until the Job has started."""
    await submit(sandbox, "runs")
    async with serving(folder, url) as replica:
        await running(sandbox, "runs")
    assert replica.process.returncode == 0, replica.log.decode()


@pytest.mark.costly
async def test_other_database_is_refused_unless_adopted(sandbox, tmp_path):
    first, second = await on_file(tmp_path, "first"), await on_file(tmp_path, "second")
    await start_one_job(sandbox, tmp_path, first)
    await submit(sandbox, "waits")

    said = refusal(await start(tmp_path / "kubeconfig", second))
    for part in (f"{tmp_path}/second.db", f"{tmp_path}/first.db", "1 running Job (default/runs)",
                 "1 waiting Job (default/waits)", "--adopt"):  # fmt: skip
        assert part in said
    assert not is_suspended(sandbox, "runs")

    async with serving(tmp_path, second, "--adopt") as replica:
        await replica.until("leading")
        await running(sandbox, "waits")
        while not is_suspended(sandbox, "runs") and "stops running Jobs" not in replica.log.decode():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    log = replica.log.decode()
    assert "adopting the cluster, which will stop 1 running Job (default/runs)" in log
    assert log.index("adopting the cluster") < log.index(
        "stops running Jobs that hold no quota on record, 1: default/runs"
    )

    said = refusal(await start(tmp_path / "kubeconfig", first))
    assert f"{tmp_path}/second.db" in said


@pytest.mark.costly
async def test_second_database_is_refused_even_with_adopt_while_the_first_is_in_use(sandbox, tmp_path):
    first, second = await on_file(tmp_path, "first"), await on_file(tmp_path, "second")
    async with serving(tmp_path, first) as replica:
        await replica.until_ready()
        for more in ((), ("--adopt",)):
            said = refusal(await start(tmp_path / "kubeconfig", second, *more))
            assert "another Sluice" in said
            assert f"{tmp_path}/first.db" in said
        assert replica.process.returncode is None


@pytest.mark.costly
async def test_serve_ends_if_the_lease_names_another_database(sandbox, tmp_path):
    url = await on_file(tmp_path, "first")
    admin = sandbox.local("admin")
    async with serving(tmp_path, url) as replica:
        await replica.until_ready()
        annotations = {"sluice.dev/database-id": "other", "sluice.dev/database": "/else/where.db"}
        await admin.patch(*LEASE, {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "other_1"}})
        await replica.process.wait()
    assert "/else/where.db" in refusal((replica.process.returncode, replica.log.decode()))
    assert admin.get(*LEASE)["metadata"]["annotations"]["sluice.dev/database-id"] == "other"


@pytest.mark.costly
async def test_two_databases_started_together_on_an_empty_cluster_leave_one_leader(sandbox, tmp_path):
    first, second = await on_file(tmp_path, "first"), await on_file(tmp_path, "second")
    async with serving(tmp_path, first) as one, serving(tmp_path, second) as other:
        ends = {asyncio.create_task(each.process.wait()): each for each in (one, other)}
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        (loser,) = [ends[task] for task in done]
        winner = other if loser is one else one
        await winner.until("leading")
        await submit(sandbox, "runs")
        await running(sandbox, "runs")
        assert winner.process.returncode is None
    assert "the database" in refusal((loser.process.returncode, loser.log.decode()))
    assert "Traceback" not in loser.log.decode()


@pytest.mark.long
async def test_frozen_serve_whose_cluster_was_adopted_ends_without_changes(sandbox, tmp_path):
    first, second = await on_file(tmp_path, "first"), await on_file(tmp_path, "second")
    async with serving(tmp_path, first) as one:
        await one.until_ready()
        await submit(sandbox, "old")
        await running(sandbox, "old")
        one.send(signal.SIGSTOP)
        assert "default/old" in refusal(await start(tmp_path / "kubeconfig", second))
        async with serving(tmp_path, second, "--adopt") as other:
            await other.until("leading")
            await submit(sandbox, "new")
            await running(sandbox, "new")
            one.send(signal.SIGCONT)
            await one.process.wait()
            assert f"{tmp_path}/second.db" in refusal((one.process.returncode, one.log.decode()))
            assert other.process.returncode is None
        assert not is_suspended(sandbox, "new")


@pytest.mark.costly
async def test_deleted_lease_is_recreated_with_the_same_annotations(sandbox, tmp_path):
    url = await on_file(tmp_path, "first")
    admin = sandbox.local("admin")
    async with serving(tmp_path, url) as replica:
        await replica.until_ready()
        before = admin.get(*LEASE)["metadata"]["annotations"]
        await admin.delete(*LEASE)
        while (lease := admin.get(*LEASE)) is None:
            assert replica.process.returncode is None
            await asyncio.sleep(0.05)
        assert lease["metadata"]["annotations"] == before


@pytest.mark.costly
async def test_a_database_of_another_cluster_is_refused(sandbox, tmp_path):
    url = await on_file(tmp_path, "sluice")
    await start_one_job(sandbox, tmp_path, url)
    async with new_sandbox(tmp_path / "other.kubeconfig") as other:
        said = refusal(await start(tmp_path / "other.kubeconfig", url))
        assert "belongs to another cluster" in said
        assert "finish the records of 1 Job (default/runs)" in said
        assert other.local("admin").get(*LEASE) is None
    async with Store.open(url) as store:
        assert [record.state async for piece in store.unfinished() for record in piece] == ["admitted"]
    async with serving(tmp_path, url) as replica:  # on its own cluster it continues
        await replica.until_ready()
    assert not is_suspended(sandbox, "runs")


@pytest.mark.costly
async def test_installation_without_recorded_identity_continues_without_adopt(sandbox, tmp_path):
    url = await on_file(tmp_path, "sluice")
    await start_one_job(sandbox, tmp_path, url)
    await sandbox.local("admin").delete(*LEASE)
    with closing(sqlite3.connect(tmp_path / "sluice.db")) as connection, connection:
        connection.execute("UPDATE head SET identity = NULL, cluster = NULL")
    async with serving(tmp_path, url) as replica:
        await replica.until_ready()
    assert not is_suspended(sandbox, "runs")
    assert sandbox.local("admin").get(*LEASE)["metadata"]["annotations"]["sluice.dev/epoch"] == "2"


@pytest.mark.costly
async def test_first_start_is_refused_if_it_would_stop_running_jobs(sandbox, tmp_path):
    await submit(sandbox, "runs", suspend=False)
    await running(sandbox, "runs")
    said = refusal(await start(tmp_path / "kubeconfig", await on_file(tmp_path, "sluice")))
    assert "is new to the cluster" in said
    assert "1 running Job (default/runs)" in said
    assert not is_suspended(sandbox, "runs")


@pytest.mark.costly
async def test_an_older_copy_of_the_database_is_refused(sandbox, tmp_path):
    url = await on_file(tmp_path, "sluice")
    async with serving(tmp_path, url) as replica:
        await replica.until_ready()
    shutil.copyfile(tmp_path / "sluice.db", tmp_path / "backup.db")
    await start_one_job(sandbox, tmp_path, url)
    for _ in range(2):  # a refused start does not make the copy newer
        said = refusal(await start(tmp_path / "kubeconfig", f"sqlite:///{tmp_path / 'backup.db'}"))
        assert "is an older copy" in said
        assert "1 running Job (default/runs)" in said


@pytest.mark.costly
async def test_a_copy_is_refused_while_the_database_is_in_use(sandbox, tmp_path):
    url = await on_file(tmp_path, "sluice")
    async with serving(tmp_path, url) as replica:
        await replica.until_ready()
        with closing(sqlite3.connect(tmp_path / "sluice.db")) as connection:
            connection.execute("VACUUM INTO ?", [str(tmp_path / "copy.db")])
        said = refusal(await start(tmp_path / "kubeconfig", f"sqlite:///{tmp_path / 'copy.db'}"))
        assert "another Sluice" in said
        assert replica.process.returncode is None


@pytest.mark.costly
@pytest.mark.postgres
async def test_imported_database_continues_and_the_original_is_refused(sandbox, tmp_path, make_database_url):
    url = await on_file(tmp_path, "sluice")
    await start_one_job(sandbox, tmp_path, url)
    target = await make_database_url("postgresql")
    for command in (("export", str(tmp_path / "dump")), ("import", str(tmp_path / "dump"))):
        process = await sluice(*command, "--database-url", url if command[0] == "export" else target)
        assert await process.wait() == 0
    async with serving(tmp_path, target) as replica:
        await replica.until_ready()
        await submit(sandbox, "next")
        await running(sandbox, "next")
    assert not is_suspended(sandbox, "runs")
    assert "is an older copy" in refusal(await start(tmp_path / "kubeconfig", url))


@pytest.mark.costly
@pytest.mark.postgres
async def test_replicas_share_one_database_and_another_database_is_refused(sandbox, tmp_path, make_database_url):
    shared, other = await with_queues(await make_database_url("postgresql")), await make_database_url("postgresql")
    lease = ("--lease=default/sluice", "--lease-duration=4", "--renew-deadline=3", "--retry-period=0.5")
    async with serving(tmp_path, shared, *lease) as first:
        await first.until("leading")
        async with serving(tmp_path, shared, *lease) as second:
            await second.until("following")
            assert "another Sluice" in refusal(await start(tmp_path / "kubeconfig", other, *lease, "--adopt"))
            said = refusal(await start(tmp_path / "kubeconfig", shared, "--lease=default/second", "--adopt"))
            assert "the Lease default/sluice, and this one" in said
            assert "the Lease default/second: give all replicas on one database the same --lease" in said
            await submit(sandbox, "runs")
            await running(sandbox, "runs")
            first.send(signal.SIGKILL)
            await second.until("leading")
            await submit(sandbox, "next")
            await running(sandbox, "next")
    assert not is_suspended(sandbox, "runs")


async def test_missing_permission_for_the_lease_names_the_rbac_manifest(sandbox, tmp_path):
    sandbox.write_kubeconfig(tmp_path / "poor.kubeconfig", "alice")
    rule = {"apiGroups": ["*"], "resources": ["jobs", "namespaces"], "verbs": ["*"]}
    await allow(sandbox.local("admin"), "alice", rule)
    said = refusal(await start(tmp_path / "poor.kubeconfig", f"sqlite:///{tmp_path / 'sluice.db'}"))
    assert "kube-system/sluice-database" in said
    assert "deploy/rbac/sluice.yaml" in said
