"""Authentication of API requests: admin token, TokenReview, session cookie, or the headers of a trusted proxy."""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING

from aiohttp import web

from admission.api.auth.identity import IDENTITY, AuthMethod, Identity
from admission.api.auth.sessions import check_same_origin, session_cookie
from admission.api.errors import Forbidden, TooManyRequests, Unauthorized
from admission.dashboard import PUBLIC_ROUTES
from admission.serving.connections import trust

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.api.auth.delegation import Delegation
    from admission.api.auth.front_proxy import FrontProxy
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import RateLimiter

PUBLIC = ("/livez", "/readyz", "/healthz", "/login", "/login/oidc", "/login/oidc/finish", *PUBLIC_ROUTES)
"""Routes that need no authentication."""

ADMIN = "sluice:admin"
"""User name of requests that carry the admin token."""


_SIGNED_IN = "\0"
"""First character of the content of a session that was opened by OIDC; other sessions contain a bearer token.

No accepted token begins with it: NUL is not printable, and TokenReviews are sent for printable tokens only.
"""


def session_content(who: Identity, issuer: str) -> str:
    """Return the session content for a user who has signed in at the OIDC issuer `issuer`."""
    return _SIGNED_IN + json.dumps({"issuer": issuer, "user": who.name, "groups": who.groups})


class Authentication:
    """Authenticates requests, and applies the rate limit of each user.

    `token` is the admin token, if there is one; all other tokens are sent to `delegation` (TokenReview). `issuer` is
    the configured OIDC issuer; sessions that were opened at another issuer are no longer valid.
    """

    def __init__(
        self,
        *,
        token: str | None,
        delegation: Delegation | None,
        front_proxy: FrontProxy | None,
        sessions: Sessions,
        limiter: RateLimiter,
        issuer: str = "",
    ) -> None:
        if not token and delegation is None:
            raise ValueError(
                "an empty token would admit everyone; set a token, or delegate authentication to a cluster"
            )
        self._token = token.encode() if token else b""
        self._delegation = delegation
        self._front_proxy = front_proxy
        self._sessions = sessions
        self._limiter = limiter
        self._issuer = issuer

    async def identify(self, request: web.Request) -> Identity | None:
        """Return the user of a request, or None if it has no valid credentials.

        Raises ReviewUnavailable, TooManyRequests and Forbidden.
        """
        if self._front_proxy is not None and (named := self._front_proxy.identity(request)) is not None:
            if named.auth_method is AuthMethod.AUTHENTICATING_PROXY:
                # The proxy may have recognised the user by a cookie, which browsers send with requests of any site.
                check_same_origin(request)
            return named
        if "Authorization" in request.headers:
            scheme, _, token = request.headers["Authorization"].partition(" ")
            return await self.token_user(token.strip(), request) if scheme.lower() == "bearer" else None
        session = session_cookie(request)
        content = await self._sessions.content(session) if session else None
        if session is None or content is None:
            return None
        check_same_origin(request)
        who = (
            self._signed_in(content, request) if content[:1] == _SIGNED_IN else await self.token_user(content, request)
        )
        if who is None:
            await self._sessions.close(session)
            return None
        return who

    def _signed_in(self, text: str, request: web.Request) -> Identity | None:
        found = json.loads(text[1:])
        if not self._issuer or found["issuer"] != self._issuer:
            return None
        return Identity(found["user"], AuthMethod.OIDC, groups=tuple(found["groups"]), source=request.remote or "")

    async def token_user(self, token: str, request: web.Request) -> Identity | None:
        """Return the user of a bearer token, or None. The admin token is compared in constant time.

        Raises ReviewUnavailable and TooManyRequests.
        """
        source = request.remote or ""
        # A header may contain bytes that are not UTF-8: they must not raise an error, only not match.
        if hmac.compare_digest(token.encode(errors="surrogateescape"), self._token) and self._token:
            return Identity(ADMIN, AuthMethod.ADMIN_TOKEN, source=source)
        return await self._delegation.user(token, source=source) if self._delegation is not None else None

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Authenticate every request outside of PUBLIC, before routing errors (404, 405) reveal which routes exist."""
        if route_pattern(request) in PUBLIC:
            return await handler(request)
        if any(header.lower().startswith("impersonate-") for header in request.headers):
            raise Forbidden(
                "Sluice does not accept impersonation headers; impersonate through the cluster's API server"
            )
        who = await self.identify(request)
        if who is None:
            raise Unauthorized(
                "the bearer token is not valid" if "Authorization" in request.headers else "the bearer token is missing"
            )
        if wait := self._limiter.retry_after((who.name, who.auth_method is AuthMethod.ADMIN_TOKEN)):
            raise TooManyRequests(f"{who.name} sends too many requests; wait {wait} s", retry_after=wait)
        trust(request)
        request[IDENTITY] = who
        return await handler(request)

    async def renew(self, request: web.Request) -> None:
        """Authenticate a long-running request (a watch) again. Raises Unauthorized and what `identify` raises."""
        who = await self.identify(request)
        if who is None or who.name != request[IDENTITY].name:
            raise Unauthorized("the credentials that the request began with are no longer valid")
        request[IDENTITY] = who


AUTHENTICATION = web.AppKey("authentication", Authentication)


def route_pattern(request: web.Request) -> str:
    """Return the pattern of the matched route (`.../clusterqueues/{name}`); empty if none matches."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
