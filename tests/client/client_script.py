"""A server with scripted responses, for failures that a healthy Sluice does not produce on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Script:
    """Responses of the server, request by request; an answer may be a dict, a (status, headers, body), or a handler."""

    url: str = ""
    answers: list[Any] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else (500, {}, {"kind": "Status", "message": "the script is over"})
        if callable(answer):
            return await answer(request)
        status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)


@dataclass
class Pauses:
    """An injected sleep: records the seconds and returns at once; fails after 50 calls."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        assert len(self.seconds) < 50, "it tries again and again and gets nowhere"
        await asyncio.sleep(0)


def stream(*events: dict[str, Any], broken: bool = False) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A watch that sends these events and ends, or breaks in the middle of a line."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for event in events:
            await response.write(web.json_response(event).body + b"\n")  # type: ignore[operator]
        if broken:
            await response.write(b'{"type": "ADD')
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer
