"""Reverse proxy to extension API servers, which streams their responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from admission.sandbox.aggregation.backend import BackendUnavailable
from admission.sandbox.aggregation.front_proxy import is_identity, remote_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from admission.sandbox.aggregation.backend import Backend
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import User

log = logging.getLogger(__name__)

# Hop-by-hop headers, which a proxy does not forward (RFC 9110, section 7.6.1); `Host` is set for the next hop.
_HOP_BY_HOP = frozenset(
    ("connection", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "trailer", "transfer-encoding", "upgrade"),
)  # fmt: skip
_FORWARDED = "X-Forwarded-For"


async def forward(
    request: web.BaseRequest,
    backend: Backend,
    user: User,
    registry: ObjectRegistry,
    on_response: Callable[[], Awaitable[None]],
) -> web.StreamResponse:
    """Forward an authorized request of `user` to the backend; `on_response` is awaited when its response begins."""
    body = await request.read() if request.body_exists else None
    try:
        address = backend.address(registry)
    except BackendUnavailable:
        return _unavailable("service unavailable")
    if not backend.available or backend.session.closed:
        return _unavailable("service unavailable")
    url = URL.build(scheme="https", host=address.host or "", port=address.port).join(
        URL(request.raw_path, encoded=True)
    )
    try:
        answer = await backend.session.request(
            request.method, url, headers=_headers(request, user), data=body,
            server_hostname=backend.server_name, allow_redirects=False,
        )  # fmt: skip
    except (aiohttp.ClientError, OSError) as error:
        log.warning("error trying to reach %s for %s: %s", backend.name, request.path, error)
        return _unavailable(f"error trying to reach service: {error}")
    async with answer:
        await on_response()
        return await _copy_response(request, answer)


def _headers(request: web.BaseRequest, user: User) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in _end_to_end(request.headers)
        if not is_identity(name) and name.lower() != "content-length"
    )
    addresses = [*headers.popall(_FORWARDED, []), request.remote or ""]
    headers[_FORWARDED] = ", ".join(addresses)
    headers.extend(remote_headers(user))
    return headers


async def _copy_response(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Stream the response to the client.

    If it breaks off, the client's connection is reset, so that the client does not take a part for the whole.
    """
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in _end_to_end(answer.headers):
        response.headers.add(name, value)
    await response.prepare(request)
    while chunk := await _next_chunk(request, answer):
        await response.write(chunk)
    await response.write_eof()
    return response


async def _next_chunk(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> bytes:
    """Return the data received in the meantime; empty at the end. Raises ConnectionResetError if the server fails."""
    try:
        return await answer.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        cut_off(request, error)


def cut_off(request: web.BaseRequest, cause: Exception | None = None) -> NoReturn:
    """Abort the connection without ending the response. Raises ConnectionResetError."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the connection was cut off") from cause


def _end_to_end(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    named = {part.strip().lower() for part in headers.get("Connection", "").split(",")}
    return [(k, v) for k, v in headers.items() if k.lower() not in _HOP_BY_HOP and k.lower() not in named]


def _unavailable(text: str) -> web.Response:
    """Return 503 in plain text, as kube-aggregator does; clients make a Status from it."""
    return web.Response(text=f"{text}\n", status=503, headers={"X-Content-Type-Options": "nosniff"})
