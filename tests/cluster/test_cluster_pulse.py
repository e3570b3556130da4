"""The pulse against a server that answers, refuses, fails, or says nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from scripted_server import failure, reply

from admission.cluster import pulse as module
from admission.cluster.pulse import Pulse

if TYPE_CHECKING:
    from aiohttp import web

VERSION = reply({"major": "1", "minor": "36"})


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
def beat(server, client, monkeypatch):
    """The pulse after it has asked so many times, the server answering by a script."""
    monkeypatch.setattr(module, "PATIENCE", (0.5, 2.0))

    async def run(count: int, *script) -> Pulse:
        server.script = list(script)
        asked, pulse = 0, None

        async def pause(_seconds: float) -> None:
            nonlocal asked
            asked += 1
            if asked == count:
                raise asyncio.CancelledError

        pulse = Pulse(client, sleep=pause)
        with pytest.raises(asyncio.CancelledError):
            await pulse.run()
        return pulse

    return run


async def test_an_answer_is_a_beat(beat, server):
    pulse = await beat(2, VERSION, VERSION)
    assert pulse.failure is None
    await pulse.beating()
    assert [request.path for request in server.requests] == ["/version", "/version"]


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_who_refuses_is_there(beat, code):
    assert (await beat(1, failure(code))).failure is None


async def test_silence_is_told_after_it_was_asked_twice(beat, server, caplog):
    pulse = await beat(1, hang, hang)
    assert "does not answer" in pulse.failure
    assert len(server.requests) == 2
    assert "nothing is decided until the API server answers" in caplog.text
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pulse.beating(), 0.01)


async def test_one_silence_is_none(beat):
    assert (await beat(1, hang, VERSION)).failure is None


async def test_a_server_that_fails_by_itself_cannot_be_relied_on(beat):
    assert "500" in (await beat(1, failure(500), failure(500))).failure


async def test_it_goes_on_when_the_server_answers_again(beat, caplog):
    caplog.set_level("INFO")
    pulse = await beat(3, hang, hang, failure(500), failure(500), VERSION)
    assert pulse.failure is None
    await pulse.beating()
    assert caplog.text.count("nothing is decided") == caplog.text.count("answers again") == 1


async def test_who_waits_to_try_again_does_so_when_the_server_is_back(client, server):
    server.script = [failure(500), failure(500), VERSION, VERSION]
    turns = asyncio.Queue()

    async def turn(_seconds: float) -> None:
        await turns.get()

    pulse = Pulse(client, sleep=turn)
    probing = asyncio.create_task(pulse.run())
    while pulse.failure is None:  # noqa: ASYNC110  nobody is told
        await asyncio.sleep(0)
    waiting = asyncio.create_task(pulse.pause(600))
    await asyncio.sleep(0)
    turns.put_nowait(None)
    await waiting
    await pulse.pause(0.001)  # a server that stays is waited for as long as told
    probing.cancel()


def test_a_frozen_server_is_noticed_within_fifteen_seconds():
    assert module.INTERVAL + sum(module.PATIENCE) < 15
