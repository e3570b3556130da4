"""Event loop of tests: it closes no earlier than its connections, and reports those that are left open."""

from __future__ import annotations

import asyncio
import selectors
import warnings
from asyncio.sslproto import SSLProtocol
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_SECONDS = 1.0
"""Time for connections that are being closed."""


class EventLoop(asyncio.SelectorEventLoop):
    """Event loop that waits up to a second for connections that are being closed, before it closes itself.

    A connection that is open after that would be reported when it is garbage collected, and fail the test that runs
    then. It is closed here. If nobody had begun to close it, a ResourceWarning fails the test that has left it open;
    otherwise its peer is slow, as a busy machine's clients are to answer the end of TLS.
    """

    _transports: dict[int, Any]  # asyncio's own: the transport of each file descriptor, closed ones too

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._watched = selector or selectors.DefaultSelector()
        super().__init__(self._watched)

    def close(self) -> None:
        left_open: list[str] = []
        if not self.is_closed():
            self.run_until_complete(self._wait_for_connections())
            for transport in list(self._transports.values()):
                if transport.get_extra_info("socket").fileno() >= 0:
                    if not _is_closing(transport):
                        left_open.append(f"{transport!r} of {transport.get_protocol()!r}")
                    transport.abort()
            self.run_until_complete(asyncio.sleep(0))  # that closes their sockets
        super().close()
        if left_open:
            warnings.warn(f"connections are left open: {', '.join(left_open)}", ResourceWarning, stacklevel=2)

    async def _wait_for_connections(self) -> None:
        until = self.time() + _SECONDS
        # The loop always watches its own pipe; asyncio has no event for the removal of the last other file, so poll.
        while len(self._watched.get_map()) > 1 and self.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def _is_closing(transport: asyncio.Transport) -> bool:
    """Whether the user of the connection has closed it, also where TLS is between the user and the connection."""
    protocol = transport.get_protocol()
    above = protocol._app_transport if isinstance(protocol, SSLProtocol) else None
    return transport.is_closing() or (above is not None and above.is_closing())


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as `asyncio.run` does, in an `EventLoop`."""
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        return runner.run(coroutine)
