"""Security headers of every response: nosniff, no framing, a deny-all Content-Security-Policy, no referrer, HSTS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_HEADERS = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ONE_YEAR = "max-age=31536000"
"""Strict-Transport-Security, over TLS only."""


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers before a response is sent (signal `on_response_prepare`).

    Headers that a handler has set are kept: the dashboard's pages have a Content-Security-Policy of their own.
    """
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.secure:
        response.headers.setdefault("Strict-Transport-Security", _ONE_YEAR)
