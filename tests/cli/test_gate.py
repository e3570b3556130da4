"""The gate is a process of its own: supervised by `sluice serve`, delayed by nothing that happens there; or alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from ports import free_port
from serve_processes import QUEUES, Replica, job, serving, sluice

from admission.sandbox.sandbox import Sandbox
from admission.serving.listener import open_sockets
from webhooks.certificates import Certificates
from webhooks.gate import Order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as sandbox:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig", "sluice")
        yield sandbox


class Caller:
    """Calls the webhook as an API server does."""

    def __init__(self, port: int, certificates: Path) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self._certificates = certificates

    async def review(self, queue: str = "lq", seconds: float = 20) -> Any:
        """The response to the creation of a Job; None if there is none in this time."""
        answered = await self._post(queue, seconds)
        return answered and answered[0]

    async def closes(self) -> bool:
        """Whether the connection ends with an answer."""
        answered = await self._post("lq", 20)
        assert answered is not None
        return answered[1].get("Connection") == "close"

    async def refused(self) -> int:
        """The status of the answer to what is no review; 0 without an answer."""
        context = ssl.create_default_context(cafile=str(self._certificates / "ca.crt"))
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                session.post(f"{self.url}/mutate", data=b"{") as answer,
            ):
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def _post(self, queue: str, seconds: float) -> tuple[Any, Any] | None:
        """The response in the review, and the headers of the answer."""
        request = {
            "uid": "r-1",
            "operation": "CREATE",
            "namespace": "default",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "userInfo": {"username": "alice"},
            "object": {"metadata": {"labels": {"sluice.dev/queue-name": queue}}, **without_metadata(job("j"))},
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            context = ssl.create_default_context(cafile=str(self._certificates / "ca.crt"))
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session,
                session.post(f"{self.url}/mutate", json=body) as answer,
            ):
                return (await answer.json())["response"], answer.headers
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def until_answered(self, queue: str = "lq") -> Any:
        while (response := await self.review(queue)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return response


def without_metadata(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "metadata"}


@asynccontextmanager
async def gated(
    folder: Path, *more: str, database: str = "", files: int | None = None
) -> AsyncIterator[tuple[Replica, Caller]]:
    port = free_port()
    webhook = (
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={folder / 'certificates'}",
    )
    database = database or f"sqlite:///{folder / 'sluice.db'}"
    # The gate's own process, as users have it: tests stop it, kill it, and look at it.
    async with serving(folder, database, *webhook, *more, files=files, forks=False) as replica:
        yield replica, Caller(port, folder / "certificates")


async def gate_of(replica: Replica, *, other_than: int = 0) -> int:
    """The process id of its gate, once there is one."""

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


async def test_it_answers_while_serve_is_stopped(sandbox, tmp_path):
    """Stopped from outside, nothing at all goes on in that process, which is worse than a loop that is blocked."""
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


async def test_one_that_dies_is_started_again_and_readiness_tells(sandbox, tmp_path):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        first = await gate_of(replica)
        os.kill(first, signal.SIGKILL)
        while "[-]webhook failed: the process" not in (await replica.get("/readyz"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        # Who calls meanwhile is answered by the next one: the socket has been open all the time.
        assert (await caller.review())["allowed"] is True
        await replica.until_ready()
        assert await gate_of(replica) != first
        assert "was ended by SIGKILL; it is started again" in replica.log.decode()


async def test_one_that_is_stuck_is_started_again(sandbox, tmp_path):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        stuck = await gate_of(replica)
        os.kill(stuck, signal.SIGSTOP)
        await gate_of(replica, other_than=stuck)
        assert (await caller.until_answered())["allowed"] is True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_it_ends_with_serve_however_that_ends(sandbox, tmp_path, number):
    async with gated(tmp_path) as (replica, caller):
        await replica.until_ready()
        gate = await gate_of(replica)
        replica.send(number)
        await replica.process.wait()
        while is_gate(gate):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await caller.review() is None


async def test_it_logs_from_another_level_on_without_a_restart_and_so_does_its_successor(sandbox, tmp_path):
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


async def test_it_warns_of_queues_that_serve_does_not_know(sandbox, tmp_path):
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


async def test_it_answers_while_the_database_has_never_been_there(sandbox, tmp_path):
    async with gated(tmp_path, database=f"postgresql://nobody@127.0.0.1:{free_port()}/none") as (replica, caller):
        assert (await caller.until_answered())["allowed"] is True
        assert (await replica.get("/readyz"))[0] in {0, 503}


@pytest.mark.parametrize("target", ["api", "webhook"])
async def test_silent_connections_keep_nobody_from_submitting(sandbox, tmp_path, target):
    async with gated(tmp_path, files=256) as (replica, caller):
        await replica.until_ready()
        limits = f"/proc/{await gate_of(replica)}/limits"
        assert re.search(r"Max open files +256 ", await asyncio.to_thread(Path(limits).read_text))
        url = urlsplit(replica.url if target == "api" else caller.url)
        silent = [socket.create_connection((url.hostname, url.port)) for _ in range(330)]
        try:
            # Sooner than a time limit for the silent ones could help.
            assert (await caller.review(seconds=3))["allowed"] is True
            for number in range(10):
                created = await sandbox.local("alice").create("jobs", "default", job(f"j{number}"))
                assert created["spec"]["suspend"] is True
        finally:
            for connection in silent:
                connection.close()


async def test_it_loads_nothing_of_decisions_database_or_api(tmp_path):
    certificates = Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.renew()
    (listener,) = await open_sockets("127.0.0.1", 0)
    order = Order(str(tmp_path), ("sluice",), kueue_labels=True, log_level="info", descriptors=(listener.fileno(),))
    with listener, (tmp_path / "imports").open("wb") as imports:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "importtime", "-P", "-m", "webhooks.gate", order.dump()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=imports,
            pass_fds=order.descriptors,
        )
        assert process.stdin is not None
        caller = Caller(listener.getsockname()[1], tmp_path)
        process.stdin.write(json.dumps({"added": [["default", "lq"]]}).encode() + b"\n")
        assert await caller.review() is not None
        output, _ = await process.communicate(b"")  # which ends its input
    assert (output, process.returncode) == (b"ready\n", 0)
    lines = (tmp_path / "imports").read_text().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}
    assert "webhooks.review" in loaded
    unwanted = ("admission.api.", "admission.cli", "admission.cluster", "admission.controller", "admission.engine")
    unwanted += ("admission.store", "cryptography", "kubernetes_asyncio", "pydantic", "sqlalchemy", "yaml")
    assert not [name for name in loaded if name.startswith(unwanted)]


async def test_alone_it_says_what_is_wrong_with_the_kinds_in_its_file(tmp_path):
    (tmp_path / "sluice.yaml").write_text("integrations: {frameworks: [jobset]}\n")
    process = await sluice("webhook", "--username=sluice", f"--config={tmp_path / 'sluice.yaml'}")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"error: integrations in {tmp_path / 'sluice.yaml'}: " in errors.decode()
    assert '"jobset" is no kind that Sluice knows' in errors.decode()


@asynccontextmanager
async def alone(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await sluice(
        "webhook",
        "--username=sluice",
        f"--webhook-address=127.0.0.1:{port}",
        f"--certificate-directory={folder}",
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # by SIGTERM it would still answer for a while
        await process.communicate()


async def test_alone_it_waits_for_its_certificate_and_follows_it(tmp_path):
    now = datetime.now(UTC)
    folder, port = tmp_path / "certificates", free_port()
    caller = Caller(port, folder)
    async with alone(folder, port) as process:
        assert process.stderr is not None
        assert b"cannot answer yet" in await process.stderr.readline()
        Certificates(folder, ["127.0.0.1"], now=lambda: now).renew()
        response = await caller.until_answered("nobody-knows-which-there-are")
        assert (response["allowed"], "warnings" in response) == (True, False)
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        Certificates(folder, ["localhost", "127.0.0.1"], now=lambda: now).renew()
        while await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) == shown:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert (await caller.review())["allowed"] is True


async def test_alone_it_tells_of_a_certificate_that_has_expired(tmp_path):
    """The API server refuses Jobs then, and no connection gets as far as a request, which might be logged."""
    port = free_port()
    old = datetime.now(UTC) - timedelta(days=365)
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: old).renew()
    metric = "sluice_webhook_certificate_end_timestamp_seconds"
    async with alone(tmp_path, port) as process:
        said = (await until_said(process, b"has expired")).decode()
        assert f"({old + timedelta(days=90):%Y-%m-%d %H:%M:%S} UTC)" in said
        status, text = await unchecked(port, "/readyz")
        assert (status, text.splitlines()[1].partition(" (")[0]) == (
            503,
            "[-]certificate failed: the certificate of the webhook has expired",
        )
        assert (await unchecked(port, "/livez"))[0] == 200
        Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
        while (await unchecked(port, "/readyz"))[0] != 200:
            pass
        _, text = await unchecked(port, "/metrics")
        (ends,) = (float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{metric} "))
        assert ends == pytest.approx((datetime.now(UTC) + timedelta(days=90)).timestamp(), abs=3600)


async def unchecked(port: int, path: str) -> tuple[int, str]:
    """As probes ask, which look at no certificate."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}{path}", ssl=False) as answer,
    ):
        return answer.status, await answer.text()


async def test_alone_and_asked_to_end_it_answers_until_the_cluster_knows(tmp_path):
    """New connections, too: nodes send Jobs there until they know that the pod is going."""
    Certificates(tmp_path, ["127.0.0.1"], now=lambda: datetime.now(UTC)).renew()
    port = free_port()
    caller = Caller(port, tmp_path)
    async with alone(tmp_path, port) as process:
        assert await caller.until_answered() is not None
        assert not await caller.closes()
        process.terminate()
        assert b"answers for another 5 s" in await until_said(process, b"shutting down")
        answers = 0
        while (response := await caller.review()) is not None:
            assert response["allowed"] is True
            answers += 1
            if answers == 1:
                assert await caller.closes(), "who keeps a connection must look for another one"
        assert answers > 1
        assert await process.wait() == 0


async def until_said(process, text: bytes) -> bytes:
    while text not in (line := await process.stderr.readline()):
        assert line, "it ended"
    return line


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--username=x", "--webhook-address=nowhere"], '--webhook-address: "nowhere" is no address'),
        (["--username=x", "--webhook-address=192.0.2.1:9443"], "choose another --webhook-address"),
        ([], "Missing option '--username'"),
    ],
)
async def test_alone_it_says_what_it_cannot_do(arguments, sentence):
    process = await sluice("webhook", *arguments)
    _, errors = await process.communicate()
    assert process.returncode != 0
    assert sentence in errors.decode()
    assert "Traceback" not in errors.decode()


async def test_a_serve_without_it_registers_who_answers_elsewhere(sandbox, tmp_path):
    async with gated(tmp_path, "--no-webhook-process") as (replica, caller):
        await replica.until_ready()
        assert await caller.review() is None
        async with alone(tmp_path / "certificates", int(caller.url.rpartition(":")[2])):
            await caller.until_answered()
            created = await sandbox.local("alice").create("jobs", "default", job("j"))
            assert created["spec"]["suspend"] is True
