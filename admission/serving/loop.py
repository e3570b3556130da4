"""The event loop of servers: uvloop, without its error messages about broken TLS connections and given up lookups."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

_OF_TLS = "Fatal error on SSL protocol"
_CLOSED = "the handler is closed"
_UNHEARD = "Future exception was never retrieved"


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop, for `asyncio.Runner`."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of the loop: the default one, except for broken TLS connections and lookups of names.

    When a connection is cut, uvloop's TLS may still write to the socket that is closed already, and takes its own
    RuntimeError for a fault. Whoever uses the connection is told by an exception, as of every connection that breaks.
    When its `create_connection` is cancelled, its lookup of the host's name goes on, and nobody waits for the answer.
    """
    error = context.get("exception")
    if context.get("message") == _OF_TLS and isinstance(error, RuntimeError) and str(error).endswith(_CLOSED):
        log.debug("a TLS connection was cut: %s", error)
    elif context.get("message") == _UNHEARD and isinstance(error, socket.gaierror):
        log.debug("a name was not found, and nobody asks any more: %s", error)
    else:
        loop.default_exception_handler(context)
