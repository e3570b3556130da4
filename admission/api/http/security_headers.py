"""What every answer tells browsers: guess no type, show it in nobody's frame, run nothing in it, tell nobody."""

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


async def secure(request: web.Request, response: web.StreamResponse) -> None:
    """To be called before an answer is sent; what a handler has set stays (pages need a policy of their own)."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if request.secure:
        response.headers.setdefault("Strict-Transport-Security", _ONE_YEAR)
