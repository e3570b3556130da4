"""Sessions of the dashboard: server-side state behind an HttpOnly cookie, and protection against CSRF.

A session contains a bearer token, or the user that an OIDC issuer has authenticated. The token is reviewed again with
each request (cached for seconds), so that the session ends with its token. Sessions are stored in the database, where
all replicas find them, also after a restart. The cookie contains a random secret; the database has a digest of it, and
the content, encrypted with a key derived from the secret: read access to the database is enough neither to use a
session nor to learn a token. Against CSRF the cookie is SameSite=Strict, and requests that write must come from the
dashboard's own origin.
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
"""Longest life of a session."""

RECHECK_SECONDS = 2.0
"""Seconds for which a session is cached. One that was ended on another replica remains valid here for that time."""

_CACHE_SIZE = 1000
_SAFE_METHODS = ("GET", "HEAD")
_NONCE_BYTES = 12


class _CachedSession(NamedTuple):
    content: str
    until: float
    """Time of the next look-up in the database, by the sessions' clock."""


class Sessions:
    """Contents of the sessions (a token or a user), each found by a secret that only the browser has.

    `stored`: the table of sessions. `clock`: monotonic, seconds.
    """

    def __init__(self, stored: BrowserSessions, *, clock: Callable[[], float]) -> None:
        self._stored = stored
        self._clock = clock
        self._cache: OrderedDict[str, _CachedSession] = OrderedDict()
        """By digest of the secret, the oldest entry first."""
        self._closed = 0  # sessions closed by this process, to notice a `close` during a look-up

    async def open(self, content: str, *, seconds: float = SESSION_SECONDS) -> str:
        """Store a new session that lasts `seconds`, and return its secret. Raises StoreError."""
        secret = secrets.token_urlsafe(32)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        digest = _digest(secret)
        sealed = nonce + AESGCM(_key(secret)).encrypt(nonce, content.encode(errors="surrogateescape"), digest.encode())
        await self._stored.add(digest, sealed, seconds=seconds)
        return secret

    async def content(self, secret: str) -> str | None:
        """Return the content of a session; None if there is none, or it has expired. Raises StoreError."""
        digest = _digest(secret)
        cached = self._cache.get(digest)
        if cached is not None and self._clock() < cached.until:
            return cached.content
        self._cache.pop(digest, None)
        closed = self._closed
        found = await self._stored.find(digest)
        if found is None:
            return None
        nonce, sealed = found.sealed_token[:_NONCE_BYTES], found.sealed_token[_NONCE_BYTES:]
        try:
            content = AESGCM(_key(secret)).decrypt(nonce, sealed, digest.encode()).decode(errors="surrogateescape")
        except InvalidTag:  # the row was not written by `open`
            return None
        if self._closed == closed:  # else this session may have been closed between the look-up and now
            self._cache[digest] = _CachedSession(content, self._clock() + min(RECHECK_SECONDS, found.seconds_left))
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return content

    async def close(self, secret: str) -> None:
        """End a session on all replicas, if there is one. Raises StoreError."""
        digest = _digest(secret)
        await self._stored.remove(digest)
        self._closed += 1
        self._cache.pop(digest, None)


def session_cookie(request: web.Request) -> str | None:
    """Return the secret in the request's session cookie, if there is one."""
    return request.cookies.get(_cookie_name(request))


def set_session_cookie(
    request: web.Request, response: web.StreamResponse, secret: str, *, seconds: float = SESSION_SECONDS
) -> None:
    """Set the session cookie: HttpOnly, SameSite=Strict, Secure if the page uses TLS. Without `secret`: delete it."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=int(seconds) if secret else 0,
        path="/",
        secure=browser_uses_tls(request),
        httponly=True,
        samesite="Strict",
    )


def browser_uses_tls(request: web.Request) -> bool:
    """Whether the page that sent a request was loaded over TLS, which a proxy on this host may terminate."""
    return request.secure or request.headers.get("Origin", "").startswith("https://")


def check_same_origin(request: web.Request) -> None:
    """Refuse requests that write unless the dashboard's own pages sent them (CSRF). Raises Forbidden.

    Pages of other sites cannot set X-Requested-With without a CORS preflight, which is never allowed here.
    """
    if request.method in _SAFE_METHODS:
        return
    if "X-Requested-With" not in request.headers:
        raise Forbidden("a request that writes in a session needs the header X-Requested-With")
    check_sender(request)


def check_sender(request: web.Request) -> None:
    """Refuse requests that a page of another site sent, by Sec-Fetch-Site and Origin. Raises Forbidden.

    Clients that are no browsers send neither header, and are not refused.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None and site != "same-origin":
        raise Forbidden("the request was sent by the page of another site")
    if origin is not None and _host(origin) != request.host:
        cause = "another site, or a proxy in front that does not pass the header Host unchanged"
        raise Forbidden(f"the request was sent by a page of {origin} to {request.host}: {cause}")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as an IPv6 address without its closing bracket
        return None


def _cookie_name(request: web.Request) -> str:
    # Browsers accept a cookie with the prefix __Host- only over TLS, and only from this very host.
    return "__Host-sluice-session" if request.secure else "sluice-session"


def _digest(secret: str) -> str:
    return hashlib.sha256(b"session " + secret.encode(errors="surrogateescape")).hexdigest()


def _key(secret: str) -> bytes:
    # 256 random bits need no slow key derivation (as a password does), only a hash that differs from the digest.
    return hashlib.sha256(b"token " + secret.encode(errors="surrogateescape")).digest()
