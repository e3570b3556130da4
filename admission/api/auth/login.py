"""`/login`, `/logout` and `/session`: how a browser gets a session, ends it, and learns whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.auth.authentication import identity
from admission.api.auth.sessions import check_sender, session_cookie, set_session_cookie
from admission.api.errors import BadRequest, TooManyRequests, Unauthorized
from admission.api.http.bodies import read_anonymous
from admission.api.http.responses import reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.auth.authentication import Authentication, Identity
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import Limits
    from admission.api.http.responses import Document


class Login:
    """All of them. `limits` are those of one address; `issuer` is where people may sign in instead, if anywhere.

    `standstill` tells what keeps Sluice from deciding, as a sentence; empty: nothing does.
    """

    def __init__(
        self,
        authentication: Authentication,
        sessions: Sessions,
        limits: Limits,
        *,
        issuer: str,
        standstill: Callable[[], str],
    ) -> None:
        self._authentication = authentication
        self._sessions = sessions
        self._limits = limits
        self._issuer = issuer
        self._standstill = standstill

    async def ways(self, request: web.Request) -> web.Response:
        """How one can sign in beside a token: `{"oidc": {"issuer": "https://..."}}`, or `{}`."""
        del request
        return reply({"oidc": {"issuer": self._issuer}} if self._issuer else {})

    async def login(self, request: web.Request) -> web.Response:
        """A session for the owner of the token in `{"token": "..."}`."""
        check_sender(request)
        if wait := self._limits.wait(request.remote):
            raise TooManyRequests(f"too many logins; wait {wait} s", retry_after=wait)
        token = (await read_anonymous(request)).get("token")
        if not isinstance(token, str) or not token:
            raise BadRequest('token: send {"token": "..."} with a bearer token of the cluster')
        who = await self._authentication.owner(token.strip(), request)
        if who is None:
            raise Unauthorized("the token is not the right one")
        response = reply(_shown(who))
        set_session_cookie(request, response, await self._sessions.open(token.strip()))
        return response

    async def logout(self, request: web.Request) -> web.Response:
        """The session is over, and the browser forgets it."""
        if secret := session_cookie(request):
            await self._sessions.close(secret)
        response = reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        set_session_cookie(request, response, "")
        return response

    async def session(self, request: web.Request) -> web.Response:
        """Who the caller is, and what keeps Sluice from deciding now, for a page that shows it; empty: nothing."""
        return reply({**_shown(identity(request)), "standstill": self._standstill()})


def _shown(who: Identity) -> Document:
    return {"user": who.name, "groups": list(who.groups)}
