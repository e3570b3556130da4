"""ApiServerProbe against a server that responds, refuses, fails or hangs, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from scripted_server import failure, reply

from admission.cluster.api_server_probe import TIMEOUTS, ApiServerProbe
from admission.cluster.errors import BadKubeconfig

VERSION = reply({"major": "1", "minor": "36"})

pytestmark = pytest.mark.virtual_time


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
def probe_runs(server, client):
    """Return a function that runs a probe for `count` rounds against scripted responses and returns the probe."""

    async def run(count: int, *script) -> ApiServerProbe:
        server.script = list(script)
        asked, probe = 0, None

        async def pause(_seconds: float) -> None:
            nonlocal asked
            asked += 1
            if asked == count:
                raise asyncio.CancelledError

        probe = ApiServerProbe(client, sleep=pause)
        with pytest.raises(asyncio.CancelledError):
            await probe.run()
        return probe

    return run


async def test_successful_response_keeps_the_probe_alive(probe_runs, server):
    probe = await probe_runs(2, VERSION, VERSION)
    assert probe.failure is None
    await probe.wait_until_alive()
    assert [request.path for request in server.requests] == ["/version", "/version"]


@pytest.mark.parametrize("code", [403, 404])
async def test_client_error_response_counts_as_alive(probe_runs, code):
    assert (await probe_runs(1, failure(code))).failure is None


async def test_refused_credentials_are_a_failure(probe_runs):
    """Nothing that is decided could be done: an expired or revoked token, for example."""
    refused = failure(401)
    assert "401: " in (await probe_runs(1, refused, refused)).failure
    assert (await probe_runs(1, refused, VERSION)).failure is None


async def test_credentials_that_cannot_be_renewed_are_a_failure(probe_runs, server, client, monkeypatch):
    async def authorization() -> str:
        raise BadKubeconfig("the credentials cannot be renewed: exec: process returned 3. log in first")

    monkeypatch.setattr(client._access, "authorization", authorization)
    assert "log in first" in (await probe_runs(1)).failure
    assert not server.requests


async def test_unresponsive_server_is_reported_after_two_timeouts(probe_runs, server, caplog):
    loop = asyncio.get_running_loop()
    began = loop.time()
    probe = await probe_runs(1, hang, hang)
    assert loop.time() - began == pytest.approx(sum(TIMEOUTS), abs=0.1)
    assert "does not answer" in probe.failure
    assert len(server.requests) == 2
    assert "nothing is decided until the API server answers" in caplog.text
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(probe.wait_until_alive(), 60)


async def test_single_timeout_is_not_a_failure(probe_runs):
    assert (await probe_runs(1, hang, VERSION)).failure is None


async def test_repeated_server_error_is_a_failure(probe_runs):
    assert "500" in (await probe_runs(1, failure(500), failure(500))).failure


async def test_probe_recovers_and_logs_once_when_the_server_answers_again(probe_runs, caplog):
    caplog.set_level("INFO")
    probe = await probe_runs(3, hang, hang, failure(500), failure(500), VERSION)
    assert probe.failure is None
    await probe.wait_until_alive()
    assert caplog.text.count("nothing is decided") == caplog.text.count("answers again") == 1


async def test_pause_ends_early_only_when_the_server_is_back_after_a_failure(client, server):
    server.script = [failure(500), failure(500), VERSION, VERSION]
    turns = asyncio.Queue()

    async def turn(_seconds: float) -> None:
        await turns.get()

    loop = asyncio.get_running_loop()
    probe = ApiServerProbe(client, sleep=turn)
    probing = asyncio.create_task(probe.run())
    await asyncio.sleep(60)
    assert probe.failure is not None
    began, waiting = loop.time(), asyncio.create_task(probe.pause(100))
    await asyncio.sleep(60)
    assert not waiting.done()
    turns.put_nowait(None)
    await waiting
    assert loop.time() - began < 61

    began, waiting = loop.time(), asyncio.create_task(probe.pause(100))
    await asyncio.sleep(60)
    turns.put_nowait(None)  # another answer, of a server that has not failed
    await waiting
    assert loop.time() - began == pytest.approx(100, abs=0.1)
    assert (len(server.requests), probe.failure) == (4, None)
    probing.cancel()


async def test_frozen_server_is_noticed_within_fifteen_seconds(client, server):
    """In the worst case, in which it freezes right after an answer."""
    answers = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        answers.set()
        return await VERSION(request)

    server.script = [answer, hang, hang]
    probe = ApiServerProbe(client)
    probing = asyncio.create_task(probe.run())
    await answers.wait()
    assert probe.failure is None
    await asyncio.sleep(14.9)
    assert "does not answer" in (probe.failure or "")
    probing.cancel()
