"""Who may come in: whoever carries the admin's token."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api.errors import Unauthorized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROBES = ("/livez", "/readyz", "/healthz")


class Authentication:
    """Checks `Authorization: Bearer` against one token, in a time that tells nothing about it."""

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("an empty token would let everybody in")
        self._token = token.encode()

    def holds(self, request: web.Request) -> bool:
        """Whether the request carries the token."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # A header may hold bytes that are no UTF-8; they only must not match.
        matches = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), self._token)
        return matches and scheme.lower() == "bearer"

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse everything but probes without the token, before it is said what is there and what is not."""
        if request.path not in PROBES and not self.holds(request):
            given = "is not the right one" if "Authorization" in request.headers else "is missing"
            raise Unauthorized(f"the bearer token {given}")
        return await handler(request)
