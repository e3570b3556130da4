"""Who asks: by the admin's token, a token that the cluster knows, a session, or the word of the front proxy."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api.auth.sessions import check_same_origin, session_cookie
from admission.api.errors import Forbidden, TooManyRequests, Unauthorized
from admission.dashboard import PUBLIC_ROUTES
from admission.serving.connections import trust
from admission.store.audit_log import Author

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from admission.api.auth.delegation import Delegation
    from admission.api.auth.front_proxy import FrontProxy
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import Limits

PUBLIC = ("/livez", "/readyz", "/healthz", "/login", "/login/oidc", "/login/oidc/finish", *PUBLIC_ROUTES)
"""The routes that ask nobody who they are."""

ADMIN = "sluice:admin"
"""The user whom the admin token stands for."""


class Door(StrEnum):
    """By what a request was let in; a session that began with a token is as good as that token."""

    ADMIN_TOKEN = "admin-token"  # noqa: S105  the name of a way, no token
    TOKEN = "token"  # noqa: S105
    FRONT_PROXY = "front-proxy"
    OWN_PROXY = "own-proxy"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as Kubernetes knows users, and where the request came from."""

    name: str
    door: Door
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    source: str = ""
    """The address of the client, as far as the request can be believed about it."""


IDENTITY = web.RequestKey("identity", Identity)
"""Set on every request that is not public, before its handler."""

_VERBS: Mapping[str, str] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def identity(request: web.Request) -> Identity:
    """Who sent the request."""
    return request[IDENTITY]


def author(request: web.Request, *, verb: str = "") -> Author:
    """Who writes, for versions and audit; the reason is what `?reason=` or `X-Change-Reason` says."""
    who = request[IDENTITY]
    reason = request.query.get("reason", "") or request.headers.get("X-Change-Reason", "")
    return Author(who.name, who.groups, who.source, verb or _VERBS.get(request.method, ""), reason)


_SIGNED_IN = "\0"
"""Begins what a session keeps of a user whom the issuer has named. No token that lets anybody in holds it."""


def kept(who: Identity, issuer: str) -> str:
    """What a session keeps of somebody who has signed in at `issuer`."""
    return _SIGNED_IN + json.dumps({"issuer": issuer, "user": who.name, "groups": who.groups})


class Authentication:
    """Says of each request whose it is, and refuses it if it is nobody's or if its user asks for too much.

    `token` is that of the admin, if there is one; all other tokens are for `delegation` to know. `issuer` is the one
    that users may sign in at; a session that began at another one is over.
    """

    def __init__(
        self,
        *,
        token: str | None,
        delegation: Delegation | None,
        front_proxy: FrontProxy | None,
        sessions: Sessions,
        limits: Limits,
        issuer: str = "",
    ) -> None:
        if not token and delegation is None:
            raise ValueError("an empty token would let everybody in; give one, or a cluster that knows its users")
        self._token = token.encode() if token else b""
        self._delegation = delegation
        self._front_proxy = front_proxy
        self._sessions = sessions
        self._limits = limits
        self._issuer = issuer

    async def identify(self, request: web.Request) -> Identity | None:
        """Whose request it is, None: nobody's. Raises ReviewUnavailable, TooManyRequests and Forbidden."""
        if self._front_proxy is not None and (named := self._front_proxy.identity(request)) is not None:
            if (
                named.door is Door.OWN_PROXY
            ):  # it may have known the user by a cookie, which any page makes a browser send
                check_same_origin(request)
            return named
        if "Authorization" in request.headers:
            scheme, _, token = request.headers["Authorization"].partition(" ")
            return await self.owner(token.strip(), request) if scheme.lower() == "bearer" else None
        session = session_cookie(request)
        content = await self._sessions.content(session) if session else None
        if session is None or content is None:
            return None
        check_same_origin(request)
        who = self._signed_in(content, request) if content[:1] == _SIGNED_IN else await self.owner(content, request)
        if who is None:
            await self._sessions.close(session)
            return None
        return who

    def _signed_in(self, text: str, request: web.Request) -> Identity | None:
        found = json.loads(text[1:])
        if not self._issuer or found["issuer"] != self._issuer:
            return None
        return Identity(found["user"], Door.OIDC, groups=tuple(found["groups"]), source=request.remote or "")

    async def owner(self, token: str, request: web.Request) -> Identity | None:
        """Whose token it is, in a time that tells nothing about that of the admin."""
        source = request.remote or ""
        # A header may hold bytes that are no UTF-8; they only must not match.
        if hmac.compare_digest(token.encode(errors="surrogateescape"), self._token) and self._token:
            return Identity(ADMIN, Door.ADMIN_TOKEN, source=source)
        return await self._delegation.user(token, source=source) if self._delegation is not None else None

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse everything but what is public, before it is said what is there and what is not."""
        if pattern(request) in PUBLIC:
            return await handler(request)
        if any(header.lower().startswith("impersonate-") for header in request.headers):
            raise Forbidden("Sluice acts for nobody in another's name; impersonate through the cluster's API server")
        who = await self.identify(request)
        if who is None:
            raise Unauthorized(
                "the bearer token is not the right one"
                if "Authorization" in request.headers
                else "the bearer token is missing"
            )
        if wait := self._limits.wait((who.name, who.door is Door.ADMIN_TOKEN)):
            raise TooManyRequests(f"{who.name} sends too many requests; wait {wait} s", retry_after=wait)
        trust(request)
        request[IDENTITY] = who
        return await handler(request)

    async def renew(self, request: web.Request) -> None:
        """Say again whose request it is, long after it began. Raises Unauthorized and what `identify` raises."""
        who = await self.identify(request)
        if who is None or who.name != request[IDENTITY].name:
            raise Unauthorized("the credentials that the request began with are good no more")
        request[IDENTITY] = who


AUTHENTICATION = web.AppKey("authentication", Authentication)


def pattern(request: web.Request) -> str:
    """The route that the request takes, as it was written down (`.../clusterqueues/{name}`); empty if there is none."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
