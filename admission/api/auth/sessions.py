"""Sessions for the dashboard: a browser signs in once, and shows from then on a cookie that no script can read.

A session holds a token, or the user whom an issuer has named. It is as good as its token: that is checked again and
again, so that it ends with it. It lives in the database,
so that every replica knows it, and a restart ends none. The cookie holds a random secret. The database has a digest of
it, and the content encrypted by a key that is derived from it: who reads the database can neither use a session nor
learn a token. No other site can use a session: the cookie is SameSite=Strict, and what writes must come from our own
pages.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from admission.api.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.store.browser_sessions import BrowserSessions

SESSION_SECONDS = 8 * 3600.0
"""How long a session lasts at most."""

RECHECK_SECONDS = 2.0
"""So long a session is not looked up again: one that another replica has ended is still good for that time."""

_REMEMBERED = 1000
_SAFE = ("GET", "HEAD")
_NONCE_BYTES = 12


class _Known(NamedTuple):
    content: str
    until: float
    """When it is to be looked up again."""


class Sessions:
    """The tokens or users of those who have signed in, by a secret that only the browser knows.

    `stored` are the sessions in the database, `clock` gives seconds that never go back.
    """

    def __init__(self, stored: BrowserSessions, *, clock: Callable[[], float]) -> None:
        self._stored = stored
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._closed = 0  # how many have been closed

    async def open(self, content: str, *, seconds: float = SESSION_SECONDS) -> str:
        """The secret of a new session, which lasts `seconds`. Raises StoreError."""
        secret = secrets.token_urlsafe(32)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        digest = _digest(secret)
        sealed = nonce + AESGCM(_key(secret)).encrypt(nonce, content.encode(errors="surrogateescape"), digest.encode())
        await self._stored.add(digest, sealed, seconds=seconds)
        return secret

    async def content(self, secret: str) -> str | None:
        """What a session holds; None if it is over. Raises StoreError."""
        digest = _digest(secret)
        known = self._known.get(digest)
        if known is not None and self._clock() < known.until:
            return known.content
        self._known.pop(digest, None)
        closed = self._closed
        found = await self._stored.find(digest)
        if found is None:
            return None
        nonce, sealed = found.sealed_token[:_NONCE_BYTES], found.sealed_token[_NONCE_BYTES:]
        try:
            content = AESGCM(_key(secret)).decrypt(nonce, sealed, digest.encode()).decode(errors="surrogateescape")
        except InvalidTag:  # somebody has written into the table
            return None
        if self._closed == closed:  # else it may have been found just before it was removed
            self._known[digest] = _Known(content, self._clock() + min(RECHECK_SECONDS, found.seconds_left))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return content

    async def close(self, secret: str) -> None:
        """End a session on all replicas, if there is one. Raises StoreError."""
        digest = _digest(secret)
        await self._stored.remove(digest)
        self._closed += 1
        self._known.pop(digest, None)


def session_cookie(request: web.Request) -> str | None:
    """The secret that the request carries, if any."""
    return request.cookies.get(_cookie_name(request))


def set_session_cookie(
    request: web.Request, response: web.StreamResponse, secret: str, *, seconds: float = SESSION_SECONDS
) -> None:
    """Let the browser keep `secret`, for us alone; an empty one makes it forget."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=int(seconds) if secret else 0,
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


def _digest(secret: str) -> str:
    return hashlib.sha256(b"session " + secret.encode(errors="surrogateescape")).hexdigest()


def _key(secret: str) -> bytes:
    # A key from 256 random bits needs no slow derivation, only one that the digest does not tell.
    return hashlib.sha256(b"token " + secret.encode(errors="surrogateescape")).digest()
