"""Start of `serve` while the API server or the database does not answer: retries, probes and errors."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest
from command_runner import Sluice
from ports import free_port

from admission.cli.configuration.settings import load_settings
from admission.cli.serve import startup
from admission.cli.serve.startup import Startup
from admission.cluster.client import Client
from admission.cluster.errors import Misdirected
from admission.store.errors import DatabaseUnavailable


def no_client() -> Client:
    raise AssertionError("a listener on loopback needs no certificate")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "ANSWER", 0.01)
    monkeypatch.setattr(startup, "FIRST_PAUSE", 0.0)


async def test_unanswered_request_at_the_start_is_retried(caplog: pytest.LogCaptureFixture):
    waits = Startup(load_settings({"api_address": f"127.0.0.1:{free_port()}"}), no_client)
    asked = 0

    async def request() -> str:
        nonlocal asked
        asked += 1
        if asked < 4:
            await asyncio.Event().wait()
        return "answer"

    caplog.set_level(logging.ERROR)
    assert await waits.retry_request(request) == "answer"
    assert asked == 4
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["cannot start yet, retrying"]
    await waits.done()


async def test_probes_are_answered_during_the_start_and_the_port_is_freed(monkeypatch: pytest.MonkeyPatch):
    port = free_port()
    monkeypatch.setenv("SLUICE_ADMIN_TOKEN", "a-token")
    waits = Startup(load_settings({"api_address": f"127.0.0.1:{port}"}), no_client)
    seen: list[int] = []
    told = []

    async def attempt() -> None:
        if not seen:
            seen.append(0)
            raise DatabaseUnavailable("it is away")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path in ("/livez", "/readyz", "/apis/sluice.dev/v1/clusterqueues"):
                async with session.get(path) as response:
                    seen.append(response.status)
        for token in ("a-token", "another"):
            environment = {"SLUICE_SERVER": f"http://127.0.0.1:{port}", "SLUICE_TOKEN": token}
            told.append(await Sluice(environment)("get", "cq"))

    await waits.retry(attempt)
    assert seen == [0, 200, 503, 503]
    assert [(done.exit_code, done.stderr) for done in told] == [
        (1, "error: Sluice is starting, and not ready yet: it is away\n"),
        (1, "error: Sluice is starting, and not ready yet: an admin finds the reason in its log and at /readyz\n"),
    ]
    await waits.done()
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)
    server.close()
    await server.wait_closed()


async def test_permanent_error_ends_the_start():
    waits = Startup(load_settings({"api_address": f"127.0.0.1:{free_port()}"}), no_client)

    async def attempt() -> None:
        raise Misdirected("its certificate is not trusted")

    with pytest.raises(Misdirected):
        await waits.retry_request(attempt)
