"""The event loop of servers: uvloop, with an exception handler that ignores two of its spurious errors."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

_TLS_ERROR = "Fatal error on SSL protocol"
_CLOSED = "the handler is closed"
_UNRETRIEVED = "Future exception was never retrieved"


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, as loop_factory for `asyncio.Runner`."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of the loop: the default one, except for lost TLS connections and abandoned DNS lookups.

    When a connection is lost, uvloop's TLS may still write to the closed socket, and reports its own RuntimeError as
    fatal. The user of the connection gets an exception anyway, as for any lost connection. When `create_connection` is
    cancelled, uvloop's DNS lookup continues, and its error is never retrieved.
    """
    error = context.get("exception")
    if context.get("message") == _TLS_ERROR and isinstance(error, RuntimeError) and str(error).endswith(_CLOSED):
        log.debug("a TLS connection was lost: %s", error)
    elif context.get("message") == _UNRETRIEVED and isinstance(error, socket.gaierror):
        log.debug("an abandoned DNS lookup has failed: %s", error)
    else:
        loop.default_exception_handler(context)
