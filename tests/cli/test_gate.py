"""The gate as a child process of `sluice serve`: supervised by it, but not delayed by it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gate_callers import Caller, standalone_gate
from ports import free_port
from serve_processes import QUEUES, Replica, gate_flags, job, serving, sluice

from admission.cli.serve import gate_process
from admission.cli.serve.gate_process import supervised
from admission.sandbox.sandbox import Sandbox
from admission.serving.listener import open_sockets
from webhooks.certificates import Certificates
from webhooks.gate import GateConfig


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


@asynccontextmanager
async def gated(
    folder: Path, *more: str, database: str = "", files: int | None = None
) -> AsyncIterator[tuple[Replica, Caller]]:
    port = free_port()
    webhook = gate_flags(folder, port)
    database = database or f"sqlite:///{folder / 'sluice.db'}"
    # The gate is not forked, but started as for users: the tests stop, kill and inspect its process.
    async with serving(folder, database, *webhook, *more, files=files, forks=False) as replica:
        yield replica, Caller(port, folder / "certificates")


async def gate_of(replica: Replica, *, other_than: int = 0) -> int:
    """Process id of the gate of a replica, once there is one."""

    def others() -> list[int]:
        return [pid for pid in children_of(replica.process.pid) if pid != other_than and is_gate(pid)]

    while not (found := others()):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return found[0]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gate(pid: int) -> bool:
    try:
        return b"webhooks.gate" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.costly
async def test_gate_answers_while_serve_is_stopped_by_sigstop(sandbox, tmp_path):
    """A stopped process does nothing at all, which is a harder case than a blocked event loop."""
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        replica.send(signal.SIGSTOP)
        try:
            for number in range(20):
                created = await sandbox.local("alice").create("jobs", "default", job(f"j{number}"))
                assert created["spec"]["suspend"] is True
                assert created["metadata"]["annotations"]["sluice.dev/submitted-by"] == "alice"
            assert await replica.get("/livez", seconds=1) == (0, "")
        finally:
            replica.send(signal.SIGCONT)
        await replica.until_ready()
        assert (await caller.review())["allowed"] is True


@pytest.mark.costly
async def test_killed_gate_is_restarted_and_readiness_fails_meanwhile(sandbox, tmp_path):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        first = await gate_of(replica)
        os.kill(first, signal.SIGKILL)
        while "[-]webhook failed: the process" not in (await replica.get("/readyz"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        # A call in the meantime is answered by the next gate: the socket stays open all the time.
        assert (await caller.review())["allowed"] is True
        await replica.until_ready()
        assert await gate_of(replica) != first
        assert "was ended by SIGKILL; it is started again" in replica.log.decode()


@pytest.mark.long
async def test_frozen_gate_is_restarted(sandbox, tmp_path):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        stuck = await gate_of(replica)
        os.kill(stuck, signal.SIGSTOP)
        await gate_of(replica, other_than=stuck)
        assert (await caller.until_answered())["allowed"] is True


@pytest.mark.costly
async def test_gate_frozen_before_it_is_ready_is_restarted(tmp_path, monkeypatch):
    """The gate is not ready as long as it waits for a certificate."""
    monkeypatch.setattr(gate_process, "PING_SECONDS", 0.2)
    sockets = await open_sockets("127.0.0.1", 0)
    order = GateConfig(
        str(tmp_path), (), kueue_labels=True, log_level="info", descriptors=tuple(one.fileno() for one in sockets)
    )

    async def gate(*, other_than: int = 0) -> int:
        while not (found := [pid for pid in children_of(os.getpid()) if pid != other_than and is_gate(pid)]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found[0]

    try:
        async with supervised(order) as supervisor:
            stuck = await gate()
            monkeypatch.setattr(gate_process, "START_SECONDS", 2.0)
            os.kill(stuck, signal.SIGSTOP)
            await gate(other_than=stuck)
            monkeypatch.setattr(gate_process, "START_SECONDS", 60.0)
            assert "is not running" in (await supervisor.health() or "")
            Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
            await supervisor.ready()
            assert await supervisor.health() is None
    finally:
        for one in sockets:
            one.close()


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_gate_ends_when_serve_is_killed_or_terminated(sandbox, tmp_path, number):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        gate = await gate_of(replica)
        replica.send(number)
        await replica.process.wait()
        while is_gate(gate):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await caller.review() is None


@pytest.mark.costly
async def test_changed_log_level_reaches_the_gate_and_its_successor_without_restart(sandbox, tmp_path):
    config = tmp_path / "sluice.yaml"
    config.write_text("logLevel: error\n")
    async with gated(tmp_path, f"--config={config}") as (replica, caller):
        await replica.until_ready()
        assert await caller.refused() == 400
        config.write_text("logLevel: warning\n")
        replica.send(signal.SIGHUP)
        while b"a request was refused" not in replica.log:
            await caller.refused()
        first = await gate_of(replica)
        os.kill(first, signal.SIGKILL)
        await gate_of(replica, other_than=first)
        before = replica.log.count(b"a request was refused")
        while replica.log.count(b"a request was refused") == before:
            await caller.refused()


@pytest.mark.costly
async def test_gate_warns_of_local_queues_unknown_to_serve(sandbox, tmp_path):
    (tmp_path / "queues.yaml").write_text(QUEUES)
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        while "no LocalQueue" not in str(await caller.review()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        process = await sluice("apply", "-f", str(tmp_path / "queues.yaml"), SLUICE_SERVER=replica.url)
        await process.communicate()
        while "warnings" in await caller.review():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        os.kill(await gate_of(replica), signal.SIGKILL)
        assert "warnings" not in await caller.review()
        while "warnings" not in await caller.review("typo"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert "warnings" not in await caller.review()


async def test_gate_answers_while_the_database_is_unreachable_from_the_start(sandbox, tmp_path):
    async with gated(tmp_path, database=f"postgresql://nobody@127.0.0.1:{free_port()}/none") as (replica, caller):
        assert (await caller.until_answered())["allowed"] is True
        assert (await replica.get("/readyz"))[0] in {0, 503}


@pytest.mark.costly
@pytest.mark.parametrize("target", ["api", "webhook"])
async def test_idle_connections_do_not_block_submissions(sandbox, tmp_path, target):
    async with gated(tmp_path, files=256) as (replica, caller):
        await replica.until_ready()
        limits = f"/proc/{await gate_of(replica)}/limits"
        assert re.search(r"Max open files +256 ", await asyncio.to_thread(Path(limits).read_text))
        url = urlsplit(replica.url if target == "api" else caller.url)
        silent = [socket.create_connection((url.hostname, url.port)) for _ in range(330)]
        try:
            # 3 s: before a time limit for idle connections could help.
            assert (await caller.review(seconds=3))["allowed"] is True
            for number in range(10):
                created = await sandbox.local("alice").create("jobs", "default", job(f"j{number}"))
                assert created["spec"]["suspend"] is True
        finally:
            for connection in silent:
                connection.close()


@pytest.mark.costly
async def test_gate_does_not_import_engine_store_or_api(tmp_path):
    certificates = Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.renew()
    (listener,) = await open_sockets("127.0.0.1", 0)
    config = GateConfig(
        str(tmp_path), ("sluice",), kueue_labels=True, log_level="info", descriptors=(listener.fileno(),)
    )
    with listener, (tmp_path / "imports").open("wb") as imports:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "importtime", "-P", "-m", "webhooks.gate", config.dump()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=imports,
            pass_fds=config.descriptors,
        )
        assert process.stdin is not None
        caller = Caller(listener.getsockname()[1], tmp_path)
        process.stdin.write(json.dumps({"added": [["default", "lq"]]}).encode() + b"\n")
        assert await caller.review() is not None
        output, _ = await process.communicate(b"")  # the end of its input
    assert (output, process.returncode) == (b"ready\n", 0)
    lines = (tmp_path / "imports").read_text().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}
    assert "webhooks.review" in loaded
    unwanted = ("admission.api.", "admission.cli", "admission.cluster", "admission.controller", "admission.engine")
    unwanted += ("admission.store", "cryptography", "kubernetes_asyncio", "pydantic", "sqlalchemy", "yaml")
    assert not [name for name in loaded if name.startswith(unwanted)]


@pytest.mark.costly
async def test_gate_that_cannot_serve_ends_with_the_error(tmp_path):
    """Its supervisor restarts it. While it only answered pings, nobody would notice that it does not serve."""
    config = GateConfig(str(tmp_path), ("sluice",), kueue_labels=True, log_level="error", kinds=({"group": "x"},))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "webhooks.gate", config.dump()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"podSets: must be a list" in await process.stderr.read()
    assert await process.wait() == 1


@pytest.mark.costly
async def test_serve_without_webhook_process_registers_an_external_gate(sandbox, tmp_path):
    async with gated(tmp_path, "--no-webhook-process") as (replica, caller):
        await replica.until_ready()
        assert await caller.review() is None
        async with standalone_gate(tmp_path / "certificates", int(caller.url.rpartition(":")[2])):
            await caller.until_answered()
            created = await sandbox.local("alice").create("jobs", "default", job("j"))
            assert created["spec"]["suspend"] is True
