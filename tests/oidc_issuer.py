"""OpenID Connect issuer over HTTPS for tests, with its own keys, that can be made to misbehave."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from admission.serving.tls import ReloadingContext
from tests.api.pki import Authority
from tests.ports import free_port

CLIENT_ID, CLIENT_SECRET = "sluice", "the client's secret: 100 %"
Claims = dict[str, Any]


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    """Return key number `number`, cached because generation is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Issuer:
    """The issuer. `claims` are those of the user who signs in; most other fields make it misbehave."""

    url: str
    ca_file: Path
    secret_file: Path
    key: rsa.RSAPrivateKey = field(default_factory=rsa_key)
    key_id: str = "first"
    claims: Claims = field(default_factory=lambda: {"sub": "alice", "groups": ["team-a"]})
    changed: Callable[[Claims], Claims] = dict
    """Applied to the claims of an ID token before it is signed."""
    signed: Callable[[Claims], str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    padding: str = ""
    status: int = 200
    silent: set[str] = field(default_factory=set)
    """Last segments of paths (`token`, `keys` ...) that are never answered."""
    requested: list[str] = field(default_factory=list)
    """Last segments of the paths of all requests so far."""
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request is left unanswered."""
    forms: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def sign(self, claims: Claims) -> str:
        return jwt.encode(claims, self.key, "RS256", {"kid": self.key_id})

    def public_key(self) -> dict[str, Any]:
        return {**jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True), "kid": self.key_id}

    async def discovery(self, request: web.Request) -> web.StreamResponse:
        document = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return await self._answer(request, document | self.metadata | {"padding": self.padding})

    async def keys(self, request: web.Request) -> web.StreamResponse:
        other = {"kty": "OKP", "crv": "unheard-of", "x": "AA", "kid": "other"}
        return await self._answer(
            request, {"keys": [other, "no key", self.public_key() | {"use": "sig", "alg": "RS256"}]}
        )

    async def authorize(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        code = secrets.token_urlsafe()
        self.codes[code] = query
        target = f"{query['redirect_uri']}?code={code}&state={query['state']}&iss={self.url}"
        return web.Response(text=f'<h1>Who are you?</h1><a href="{target}">Alice</a>', content_type="text/html")

    async def token(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        query = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        basic = base64.b64encode(b"sluice:the+client%27s+secret%3A+100+%25").decode()
        if request.headers.get("Authorization") != f"Basic {basic}" and form.get("client_secret") != CLIENT_SECRET:
            return web.json_response({"error": "invalid_client"}, status=401)
        if (
            query is None
            or query["code_challenge"] != challenge.decode()
            or form["redirect_uri"] != query["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        times = {"iat": now, "exp": now + 300}
        claims = {"iss": self.url, "aud": CLIENT_ID, "nonce": query["nonce"], **times, **self.claims}
        token = (self.signed or self.sign)(self.changed(claims))
        return await self._answer(request, {"id_token": token, "access_token": "x", "token_type": "Bearer"})

    async def _answer(self, request: web.Request, document: Any) -> web.StreamResponse:
        part = request.path.rpartition("/")[2]
        self.requested.append(part)
        if part in self.silent:
            self.waiting.set()
            await asyncio.Event().wait()
        return web.Response(body=orjson.dumps(document), content_type="application/json", status=self.status)


@asynccontextmanager
async def issuer(folder: Path) -> AsyncIterator[Issuer]:
    """Run an issuer on loopback during the block, with a certificate signed by its own authority."""
    authority = Authority(folder, "issuer-ca", key_identifiers=False)
    pair = authority.server("localhost")
    (secret_file := folder / "client-secret").write_text(f"{CLIENT_SECRET}\n")
    port = free_port()
    found = Issuer(f"https://localhost:{port}", authority.file, secret_file)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", found.discovery)
    app.router.add_get("/keys", found.keys)
    app.router.add_get("/authorize", found.authorize)
    app.router.add_post("/token", found.token)
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=ReloadingContext(pair.certificate, pair.key)).start()
        yield found
