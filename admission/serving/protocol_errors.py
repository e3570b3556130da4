"""Answers to what is no HTTP request: a Status in words, where aiohttp quotes its buffers."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

_LONGEST: Final = 8190
"""Bytes of a line that aiohttp reads: the request line with the address, or one header."""


class ProtocolHandler(RequestHandler):
    """aiohttp's handler of a connection, with a Status for a request that cannot be parsed."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that could not be parsed (`status` 400), or that failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        _log.debug("%s sent what is no request: %r", request.remote, exc)
        too_long = f"the address or a header is longer than {_LONGEST} bytes; shorten it"
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": too_long if isinstance(exc, LineTooLong) else "what was sent is no HTTP/1.1 request",
            "reason": "BadRequest",
            "code": status,
        }
        response = web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
        response.force_close()
        return response


def handlers_of(server: web.Server) -> Callable[[], ProtocolHandler]:
    """What makes the handler of a connection, as the server itself would, which has no setting for its class."""
    return lambda: ProtocolHandler(server, loop=server._loop, **server._kwargs)
