"""Client of an OpenID Connect issuer: its metadata, keys and token endpoint over HTTPS, bounded in time and size.

Rules: OpenID Connect Discovery 1.0, RFC 6749 (4.1), RFC 7636 (PKCE).
"""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote_plus, urlsplit

import aiohttp
import orjson
from yarl import URL

from admission.api.auth.oidc.id_tokens import UnknownKey, verified
from admission.api.auth.ttl_cache import TtlCache
from admission.api.errors import Forbidden, IssuerUnavailable
from admission.apimachinery.errors import UnusableCertificate
from admission.cluster.proxies import proxy_of_environment
from admission.model.text import clean
from admission.serving.outgoing import client_connector, client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web

    from admission.api.auth.oidc.client import OidcClient

    Document: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS: Final = 10.0
"""Timeout of each request to the issuer."""
METADATA_CACHE_SECONDS: Final = 600.0
"""Seconds for which the issuer's metadata and keys are cached."""
MAX_RESPONSE_BYTES: Final = 256 * 1024
_CONNECTIONS: Final = 10

_log = logging.getLogger(__name__)


class Issuer:
    """One issuer, contacted only when a user signs in. `clock`: monotonic, seconds."""

    def __init__(self, client: OidcClient, *, clock: Callable[[], float]) -> None:
        """Load the CA of the issuer's certificate. Raises UnusableCertificate."""
        self.client = client
        try:
            self._context = client_context(ca_file=client.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise UnusableCertificate(f"oidc.caFile {client.ca_file} cannot be used: {error}") from error
        self._clock = clock
        self._documents: TtlCache[Document] = TtlCache(size=4, clock=clock)
        self._key_generation = 0  # part of the cache keys: incremented to read metadata and keys again
        self._http: aiohttp.ClientSession | None = None

    async def opened(self, app: web.Application) -> AsyncIterator[None]:
        """Open the HTTP session for as long as the application runs (an aiohttp cleanup context)."""
        del app
        async with aiohttp.ClientSession(
            connector=client_connector(self._context, limit=_CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            trust_env=False,
            headers={"User-Agent": f"sluice/{version('sluice')}", "Accept-Encoding": "identity"},
        ) as self._http:
            yield

    async def authorization_url(self, **parameters: str) -> str:
        """Return the URL at which the browser requests an authorization code. Raises IssuerUnavailable."""
        endpoint = URL(self._endpoint(await self._metadata(), "authorization_endpoint"))
        return str(endpoint.update_query(parameters))

    async def sends_iss_parameter(self) -> bool:
        """Return whether its authorization responses have the parameter `iss` (RFC 9207). Raises IssuerUnavailable."""
        return (await self._metadata()).get("authorization_response_iss_parameter_supported") is True

    async def claims(self, code: str, *, verifier: str, redirect_uri: str, nonce: str) -> Document:
        """Exchange a code for an ID token, and return its validated claims. Raises IssuerUnavailable and Forbidden."""
        token = await self._id_token(code, verifier=verifier, redirect_uri=redirect_uri)
        try:
            return verified(token, await self._keys(), self.client, nonce=nonce)
        except UnknownKey:
            self._key_generation += 1  # the issuer may have rotated its keys since they were cached
            return verified(token, await self._keys(), self.client, nonce=nonce)

    async def _id_token(self, code: str, *, verifier: str, redirect_uri: str) -> str:
        client, metadata = self.client, await self._metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": client.client_id,
        }
        headers = {}
        secret = await self._secret()
        if secret:
            if "client_secret_basic" in metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"]):
                headers["Authorization"] = aiohttp.encode_basic_auth(quote_plus(client.client_id), quote_plus(secret))
            else:
                form["client_secret"] = secret
        url = self._endpoint(metadata, "token_endpoint")
        status, answer = await self._ask("POST", url, data=form, headers=headers)
        token = answer.get("id_token")
        if status == 200 and isinstance(token, str):
            return token
        why = clean(str(answer.get("error") or f"it answers {status} without an id_token"), longest=100)
        if 400 <= status < 500 and why in ("invalid_client", "unauthorized_client"):
            # A mistake in the configuration, not of the user.
            raise self._unavailable(f"it does not accept oidc.clientId with its secret ({why})")
        if status >= 500 or not (status == 200 or "error" in answer):
            raise self._unavailable(why)
        raise Forbidden(f"{client.issuer} does not sign you in: {why}; sign in again")

    async def _secret(self) -> str:
        file = self.client.client_secret_file
        if file is None:
            return ""
        try:
            return (await asyncio.to_thread(file.read_text)).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unavailable(f"oidc.clientSecretFile cannot be read: {error}") from error

    async def _metadata(self) -> Document:
        url = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._document(url)
        if found.get("issuer") != self.client.issuer:
            name = clean(str(found.get("issuer")), longest=200)
            raise self._unavailable(
                f"it calls itself {name}; set oidc.issuerUrl to exactly that if it is the right one"
            )
        return found

    async def _keys(self) -> list[Document]:
        found = await self._document(self._endpoint(await self._metadata(), "jwks_uri"))
        keys = found.get("keys")
        if not isinstance(keys, list):
            raise self._unavailable("its key set has no list of keys")
        return [key for key in keys if isinstance(key, dict)]

    async def _document(self, url: str) -> Document:
        async def load() -> tuple[Document, float]:
            status, answer = await self._ask("GET", url)
            if status != 200:
                raise self._unavailable(f"{url} answers {status}")
            return answer, METADATA_CACHE_SECONDS

        return await self._documents.get((url, self._key_generation), load)

    async def _ask(self, method: str, url: str, **options: Any) -> tuple[int, Document]:
        """Send a request, and return status and JSON object of the response. Raises IssuerUnavailable."""
        assert self._http is not None, "requests are answered while the application runs"
        try:
            async with self._http.request(
                method, url, allow_redirects=False, proxy=proxy_of_environment(url), **options
            ) as response:
                found = bytearray()
                async for chunk in response.content.iter_any():
                    found += chunk
                    if len(found) > MAX_RESPONSE_BYTES:
                        raise self._unavailable(f"{url} answers more than {MAX_RESPONSE_BYTES // 1024} KiB")
                document = orjson.loads(found)
        except TimeoutError as error:
            raise self._unavailable(f"it did not answer within {TIMEOUT_SECONDS:g} s") from error
        except orjson.JSONDecodeError as error:
            raise self._unavailable(f"{url} does not answer with JSON") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unavailable(clean(str(error) or type(error).__name__, longest=300)) from error
        if not isinstance(document, dict):
            raise self._unavailable(f"{url} does not answer with a JSON object")
        return response.status, document

    def _endpoint(self, metadata: Document, name: str) -> str:
        url = metadata.get(name)
        try:
            parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        except ValueError:
            parts = urlsplit("")
        if parts.scheme != "https" or not parts.hostname:
            raise self._unavailable(f"its {name} is not an https URL")
        return str(url)

    def _unavailable(self, why: str) -> IssuerUnavailable:
        """Log the reason, and return an error without it: only an admin can act on it, and it may be confidential."""
        _log.warning("users cannot sign in at %s: %s", self.client.issuer, why)
        return IssuerUnavailable(
            f"the issuer {self.client.issuer} cannot be used for now; sign in with a token, or try again later "
            "(Sluice's log has the reason)"
        )
