"""Handlers of `/login`, `/logout` and `/session`: open a session, end it, and show its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.auth.identity import identity
from admission.api.auth.sessions import check_sender, session_cookie, set_session_cookie
from admission.api.errors import BadRequest, TooManyRequests, Unauthorized
from admission.api.http.bodies import read_anonymous
from admission.api.http.responses import reply
from admission.apimachinery.errors import success

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.auth.authentication import Authentication
    from admission.api.auth.identity import Identity
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import RateLimiter
    from admission.api.http.responses import Document


class Login:
    """Handlers for signing in with a token, and for sessions.

    `limiter` limits logins for each client address. `issuer` is the URL of the OIDC issuer that users may sign in at;
    empty: none. `standstill` returns a message that says why Sluice makes no decisions now; empty: it does.
    """

    def __init__(
        self,
        authentication: Authentication,
        sessions: Sessions,
        limiter: RateLimiter,
        *,
        issuer: str,
        standstill: Callable[[], str],
    ) -> None:
        self._authentication = authentication
        self._sessions = sessions
        self._limiter = limiter
        self._issuer = issuer
        self._standstill = standstill

    async def methods(self, request: web.Request) -> web.Response:
        """Return the methods to sign in beside a token: `{"oidc": {"issuer": "https://..."}}`, or `{}`."""
        del request
        return reply({"oidc": {"issuer": self._issuer}} if self._issuer else {})

    async def login(self, request: web.Request) -> web.Response:
        """Open a session for the user of the token in `{"token": "..."}`."""
        check_sender(request)
        if wait := self._limiter.retry_after(request.remote):
            raise TooManyRequests(f"too many logins; wait {wait} s", retry_after=wait)
        token = (await read_anonymous(request)).get("token")
        if not isinstance(token, str) or not token:
            raise BadRequest('token: send {"token": "..."} with a bearer token of the cluster')
        who = await self._authentication.token_user(token.strip(), request)
        if who is None:
            raise Unauthorized("the token is not valid")
        response = reply(_user_document(who))
        set_session_cookie(request, response, await self._sessions.open(token.strip()))
        return response

    async def logout(self, request: web.Request) -> web.Response:
        """End the session and delete its cookie."""
        if secret := session_cookie(request):
            await self._sessions.close(secret)
        response = reply(success())
        set_session_cookie(request, response, "")
        return response

    async def session(self, request: web.Request) -> web.Response:
        """Return the user's name and groups, and `standstill`: why Sluice makes no decisions now (empty: it does)."""
        return reply({**_user_document(identity(request)), "standstill": self._standstill()})


def _user_document(who: Identity) -> Document:
    return {"user": who.name, "groups": list(who.groups)}
