"""Sessions for the dashboard: a browser shows its token once, and from then on a cookie that no script can read.

A session lives in this process and is as good as its token: that is checked again and again, so that it ends with it.
No other site can use it: the cookie is SameSite=Strict, and what writes must come from our own pages.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

SESSION_SECONDS = 8 * 3600.0
"""How long a session lasts."""

_SESSIONS = 1000
_SAFE = ("GET", "HEAD")


class Sessions:
    """The tokens of those who have logged in, by a secret that only the browser knows; the oldest of 1000 go first.

    `clock` gives seconds that never go back.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def open(self, token: str) -> str:
        """The secret of a new session."""
        secret = secrets.token_urlsafe(32)
        self._tokens[_key(secret)] = token, self._clock() + SESSION_SECONDS
        if len(self._tokens) > _SESSIONS:
            self._tokens.popitem(last=False)
        return secret

    def token(self, secret: str) -> str | None:
        """The token of a session; None if it is over."""
        token, end = self._tokens.get(_key(secret), ("", 0.0))
        if not token or self._clock() >= end:
            self.close(secret)
            return None
        return token

    def close(self, secret: str) -> None:
        """End a session, if there is one."""
        self._tokens.pop(_key(secret), None)


def session_cookie(request: web.Request) -> str | None:
    """The secret that the request carries, if any."""
    return request.cookies.get(_cookie_name(request))


def set_session_cookie(request: web.Request, response: web.StreamResponse, secret: str) -> None:
    """Let the browser keep `secret`, for us alone; an empty one makes it forget."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=int(SESSION_SECONDS) if secret else 0,
        path="/",
        secure=request.secure,
        httponly=True,
        samesite="Strict",
    )


def check_same_origin(request: web.Request) -> None:
    """Raises Forbidden for a request of a browser that writes, and was not sent by one of our own pages."""
    if request.method in _SAFE:
        return
    if "X-Requested-With" not in request.headers:
        raise Forbidden("a request that writes in a session needs the header X-Requested-With")
    check_sender(request)


def check_sender(request: web.Request) -> None:
    """Raises Forbidden if a browser says that another site's page has sent the request."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None and site != "same-origin":
        raise Forbidden("the request was sent by the page of another site")
    if origin is not None and _host(origin) != request.host:
        raise Forbidden(f"the request was sent by a page of {origin}, which is another site")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # half of an IPv6 address, for example
        return None


def _cookie_name(request: web.Request) -> str:
    # Browsers take a cookie of the first kind only over TLS, for this host, and from no other.
    return "__Host-sluice-session" if request.secure else "sluice-session"


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
