"""`POST /login/oidc` and `POST /login/oidc/finish`: a browser goes to the issuer, and comes back with a code.

Both are sent by our own page. Between them the browser keeps one secret, in a cookie that no script can read: state,
nonce and PKCE verifier are derived from it, so that a code that was got by, or for, anybody else is of no use here,
and nothing has to be stored for those who never come back. Where the page goes on afterwards it remembers by itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from admission.api.auth.authentication import kept
from admission.api.auth.oidc.id_tokens import user
from admission.api.auth.sessions import check_sender, set_session_cookie
from admission.api.errors import BadRequest, Forbidden, TooManyRequests
from admission.api.http.bodies import read_anonymous
from admission.api.http.responses import reply
from admission.model.text import clean

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.auth.oidc.issuer import Issuer
    from admission.api.auth.sessions import Sessions
    from admission.api.http.rate_limits import Limits

BEGIN: Final = "/login/oidc"
FINISH: Final = "/login/oidc/finish"
PAGE: Final = "/ui/sign-in"
"""The page of the dashboard that the issuer sends browsers back to; its address is registered with the issuer."""
SIGN_IN_SECONDS: Final = 600
"""So long somebody may take at the issuer."""


class OidcSignIn:
    """The two of them. `limits` are those of other ways to sign in."""

    def __init__(self, issuer: Issuer, sessions: Sessions, limits: Limits) -> None:
        self._issuer = issuer
        self._sessions = sessions
        self._limits = limits
        self._redirect_uri = issuer.client.url + PAGE

    async def begin(self, request: web.Request) -> web.Response:
        """Where the browser has to go: `{"location": "https://..."}`."""
        self._check(request)
        client = self._issuer.client
        origin = request.headers.get("Origin")
        if origin is not None and origin != _origin(client.url):
            # The cookie would be kept for this address, and the issuer sends the browser back to the other.
            raise BadRequest(f"here nobody can sign in at the issuer; open {client.url}/ui/ and sign in there")
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
        """A session for who has got the code in `{"code": ..., "state": ...}`, what the issuer has sent the browser."""
        self._check(request)
        secret = request.cookies.get(_cookie_name(request), "")
        given = {key: value for key, value in (await read_anonymous(request)).items() if isinstance(value, str)}
        if not secret or not hmac.compare_digest(given.get("state", "").encode(), _derived("state", secret).encode()):
            raise Forbidden("this sign-in was not begun in this browser, or it took too long; begin anew")
        client = self._issuer.client
        if given.get("iss", None if await self._issuer.says_who_answers() else client.issuer) != client.issuer:
            raise Forbidden(f"the answer is not that of {client.issuer}; begin anew")
        if "error" in given:
            raise Forbidden(f"{client.issuer} does not sign you in: {clean(given['error'], longest=100)}")
        if not given.get("code"):
            raise BadRequest('code: send {"code": "...", "state": "..."} as the issuer has sent them')
        claims = await self._issuer.claims(
            given["code"],
            verifier=_derived("verifier", secret),
            redirect_uri=self._redirect_uri,
            nonce=_derived("nonce", secret),
        )
        who = user(claims, client, source=request.remote or "")
        session = await self._sessions.open(kept(who, client.issuer), seconds=client.session_seconds)
        response = reply({"user": who.name, "groups": list(who.groups)})
        set_session_cookie(request, response, session, seconds=client.session_seconds)
        _set_cookie(request, response, "")
        return response

    def _check(self, request: web.Request) -> None:
        check_sender(request)
        if wait := self._limits.wait(request.remote):
            raise TooManyRequests(f"too many logins; wait {wait} s", retry_after=wait)


def _set_cookie(request: web.Request, response: web.StreamResponse, secret: str) -> None:
    """Let the browser keep `secret` for the sign-in; an empty one makes it forget."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=SIGN_IN_SECONDS if secret else 0,
        path="/",
        secure=request.secure,
        httponly=True,
        samesite="Strict",
    )


def _cookie_name(request: web.Request) -> str:
    return "__Host-sluice-sign-in" if request.secure else "sluice-sign-in"


def _derived(purpose: str, secret: str) -> str:
    """43 characters that tell nothing of the secret, or of what else is derived from it."""
    return _encoded(hashlib.sha256(f"{purpose} {secret}".encode(errors="surrogateescape")).digest())


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
