"""Responses to malformed HTTP requests: a Kubernetes Status, in place of aiohttp's page that quotes its buffer."""

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

_MAX_LINE: Final = 8190
"""aiohttp's limit in bytes for the request line with the URL, and for one header."""


class ProtocolHandler(RequestHandler):
    """aiohttp's connection handler, with a Status as response to a request that cannot be parsed."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that could not be parsed (`status` 400), or whose handler has failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        _log.debug("%s sent a malformed request: %r", request.remote, exc)
        too_long = f"the URL or a header is longer than {_MAX_LINE} bytes; shorten it"
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": too_long if isinstance(exc, LineTooLong) else "the request is not a valid HTTP/1.1 request",
            "reason": "BadRequest",
            "code": status,
        }
        response = web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
        response.force_close()
        return response


def handler_factory(server: web.Server) -> Callable[[], ProtocolHandler]:
    """Return the factory of connection handlers, like the server's own, which has no option for the class."""
    return lambda: ProtocolHandler(server, loop=server._loop, **server._kwargs)
