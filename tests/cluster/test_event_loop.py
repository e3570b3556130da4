"""The event loop of the tests reports connections that were not closed, and only these."""

from __future__ import annotations

import asyncio

import pytest

from tests.event_loop import run


@pytest.mark.parametrize("closes", [False, True])
def test_only_a_connection_that_is_left_open_is_reported(closes, recwarn):
    async def connect():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.pause_reading()  # so that it does not notice that its peer has closed
        server.close()
        if closes:
            writer.close()

    run(connect())
    reported = [each for each in recwarn if "left open" in str(each.message)]
    assert len(reported) == (not closes)
