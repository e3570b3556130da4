"""Passing a request on to the server that it is for, and its answer back as it comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from admission.sandbox.aggregation.backend import Unavailable
from admission.sandbox.aggregation.front_proxy import is_identity, remote_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from admission.sandbox.aggregation.backend import Backend
    from admission.sandbox.apiserver.registry import Registry
    from admission.sandbox.apiserver.requests import User

log = logging.getLogger(__name__)

# What is said between two neighbours, and not from end to end (RFC 9110, section 7.6.1); `Host` is the neighbour's own.
_NEIGHBOURS = frozenset(
    ("connection", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
     "trailer", "transfer-encoding", "upgrade"),
)  # fmt: skip
_FORWARDED = "X-Forwarded-For"


async def pass_on(
    request: web.BaseRequest,
    backend: Backend,
    user: User,
    registry: Registry,
    answered: Callable[[], Awaitable[None]],
) -> web.StreamResponse:
    """Have the server behind answer a request that `user` may make; `answered` is awaited when it begins to."""
    body = await request.read() if request.body_exists else None
    try:
        address = backend.address(registry)
    except Unavailable:
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
        await answered()
        return await _pass_back(request, answer)


def _headers(request: web.BaseRequest, user: User) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in _end_to_end(request.headers)
        if not is_identity(name) and name.lower() != "content-length"
    )
    came_from = [*headers.popall(_FORWARDED, []), request.remote or ""]
    headers[_FORWARDED] = ", ".join(came_from)
    headers.extend(remote_headers(user))
    return headers


async def _pass_back(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Once the answer has begun its end can only be cut off, so that the client does not take a part for the whole."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in _end_to_end(answer.headers):
        response.headers.add(name, value)
    await response.prepare(request)
    while chunk := await _next(request, answer):
        await response.write(chunk)
    await response.write_eof()
    return response


async def _next(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> bytes:
    """What has come in the meantime, empty at the end."""
    try:
        return await answer.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        cut_off(request, error)


def cut_off(request: web.BaseRequest, cause: Exception | None = None) -> NoReturn:
    """End the connection without a further word. Raises ConnectionResetError."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the connection was cut off") from cause


def _end_to_end(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    named = {part.strip().lower() for part in headers.get("Connection", "").split(",")}
    return [(k, v) for k, v in headers.items() if k.lower() not in _NEIGHBOURS and k.lower() not in named]


def _unavailable(text: str) -> web.Response:
    """The aggregator answers in plain text, from which clients make the Status."""
    return web.Response(text=f"{text}\n", status=503, headers={"X-Content-Type-Options": "nosniff"})
