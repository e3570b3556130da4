"""OpenID Connect code flow: `POST /login/oidc` begins a sign-in, `POST /login/oidc/finish` exchanges the code.

Both requests are sent by the dashboard's sign-in page. Between them the browser keeps one secret in an HttpOnly cookie,
from which state, nonce and PKCE verifier are derived: a code that was issued to another browser is refused, and the
server stores nothing for sign-ins that are never finished. The page to return to afterwards is remembered in the
browser (`dashboard/static/lib/oidc.js`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from admission.api.auth.authentication import session_content
from admission.api.auth.oidc.id_tokens import user
from admission.api.auth.sessions import browser_uses_tls, check_sender, set_session_cookie
from admission.api.errors import BadRequest, Forbidden, TooManyRequests
from admission.api.http.bodies import read_anonymous
from admission.api.http.responses import reply
from admission.model.text import clean

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.auth.oidc.issuer import Issuer
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import RateLimiter

BEGIN: Final = "/login/oidc"
FINISH: Final = "/login/oidc/finish"
PAGE: Final = "/ui/sign-in"
"""The page of the dashboard that the issuer sends browsers back to; its address is registered with the issuer."""
SIGN_IN_SECONDS: Final = 600
"""Life of the cookie between the two requests: how long a user may take at the issuer."""


class OidcSignIn:
    """Handlers of the two requests. `limiter` is shared with the other methods to sign in."""

    def __init__(self, issuer: Issuer, sessions: Sessions, limiter: RateLimiter) -> None:
        self._issuer = issuer
        self._sessions = sessions
        self._limiter = limiter
        self._redirect_uri = issuer.client.url + PAGE

    async def begin(self, request: web.Request) -> web.Response:
        """Begin a sign-in: set the cookie, and return the issuer's URL `{"location": "https://..."}`."""
        self._check(request)
        client = self._issuer.client
        origin = request.headers.get("Origin")
        if origin is not None and origin != _origin(client.url):
            # The cookie would be set for this origin, but the issuer redirects the browser to that of oidc.url.
            raise BadRequest(f"users cannot sign in at the issuer from here; open {client.url}/ui/ and sign in there")
        secret = secrets.token_urlsafe(32)
        location = await self._issuer.authorization_url(
            response_type="code",
            client_id=client.client_id,
            redirect_uri=self._redirect_uri,
            scope=" ".join(client.scopes),
            state=_derived("state", secret),
            nonce=_derived("nonce", secret),
            code_challenge=_encoded(hashlib.sha256(_derived("verifier", secret).encode()).digest()),
            code_challenge_method="S256",
        )
        response = reply({"location": location})
        _set_cookie(request, response, secret)
        return response

    async def finish(self, request: web.Request) -> web.Response:
        """Open a session for the user of a code; the body has the issuer's answer: `{"code": ..., "state": ...}`."""
        self._check(request)
        secret = request.cookies.get(_cookie_name(request), "")
        body = {key: value for key, value in (await read_anonymous(request)).items() if isinstance(value, str)}
        if not secret or not hmac.compare_digest(body.get("state", "").encode(), _derived("state", secret).encode()):
            raise Forbidden("this sign-in was not begun in this browser, or it took too long; start again")
        client = self._issuer.client
        if body.get("iss", None if await self._issuer.sends_iss_parameter() else client.issuer) != client.issuer:
            raise Forbidden(f"the answer is not from {client.issuer}; start again")
        if "error" in body:
            raise Forbidden(f"{client.issuer} does not sign you in: {clean(body['error'], longest=100)}")
        if not body.get("code"):
            raise BadRequest('code: send {"code": "...", "state": "..."} as the issuer has sent them')
        claims = await self._issuer.claims(
            body["code"],
            verifier=_derived("verifier", secret),
            redirect_uri=self._redirect_uri,
            nonce=_derived("nonce", secret),
        )
        who = user(claims, client, source=request.remote or "")
        session = await self._sessions.open(session_content(who, client.issuer), seconds=client.session_seconds)
        response = reply({"user": who.name, "groups": list(who.groups)})
        set_session_cookie(request, response, session, seconds=client.session_seconds)
        _set_cookie(request, response, "")
        return response

    def _check(self, request: web.Request) -> None:
        check_sender(request)
        if wait := self._limiter.retry_after(request.remote):
            raise TooManyRequests(f"too many logins; wait {wait} s", retry_after=wait)


def _set_cookie(request: web.Request, response: web.StreamResponse, secret: str) -> None:
    """Set the cookie of a sign-in, with the attributes of the session cookie. An empty `secret` deletes it."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=SIGN_IN_SECONDS if secret else 0,
        path="/",
        secure=browser_uses_tls(request),
        httponly=True,
        samesite="Strict",
    )


def _cookie_name(request: web.Request) -> str:
    return "__Host-sluice-sign-in" if request.secure else "sluice-sign-in"


def _derived(purpose: str, secret: str) -> str:
    """Return 43 characters that reveal neither the secret nor the values derived for other purposes."""
    return _encoded(hashlib.sha256(f"{purpose} {secret}".encode(errors="surrogateescape")).digest())


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
