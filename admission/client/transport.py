"""HTTP transport of the client: connections, credentials, retries, and errors as typed exceptions."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
import orjson
from yarl import URL

from admission.client.errors import (
    BadAnswer,
    BadConnection,
    Refused,
    TooManyRequests,
    Unavailable,
    Unreachable,
    refusal,
)
from admission.model.errors import ClusterError
from admission.serving.certificate_faults import certificate_remedy
from admission.serving.outgoing import client_connector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from admission.client.access import Endpoint

Params: TypeAlias = "Mapping[str, str] | Sequence[tuple[str, str]]"
"""Query parameters; as pairs if a name occurs several times."""

Document: TypeAlias = "dict[str, Any]"
"""A JSON object, as it is sent and received."""

PREFIX = "/apis/sluice.dev/v1"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

WATCH_SECONDS = 300
"""`timeoutSeconds` of a watch request; the next request resumes it."""

_PLAIN = "; if it speaks TLS, write https:// instead of http://"
_ATTEMPTS = 4
_RETRY_SECONDS = 10.0
"""Seconds after the first attempt of a read in which it is retried: a restart takes less; an outage is reported."""
_LONGEST_WAIT = 30.0
"""Longest wait before a retry, whatever Retry-After says."""
_TIMEOUT = aiohttp.ClientTimeout(total=90, sock_connect=5)
_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=WATCH_SECONDS + 30)

_TEXT_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)
"""The server ends a log that is silent for too long."""


class Transport:
    """Connection pool to one endpoint as one user. All methods raise subclasses of ClientError.

    Reads are retried for some seconds after 503 and broken connections; all requests are retried after 429, which means
    that they had no effect.
    """

    def __init__(
        self, endpoint: Endpoint, *, warn: Callable[[str], None], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self.endpoint = endpoint
        self.warn = warn
        """Receives warnings of the server, and about broken watches."""
        self.sleep = sleep
        self._base = URL(endpoint.access.server)
        self._session = aiohttp.ClientSession(
            connector=client_connector(endpoint.tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            headers={"User-Agent": f"sluice/{version('sluice')}"},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Document:
        """Send a request, and return the parsed response; `body` is sent as JSON (None: no body)."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Accept": accept} if data is None else {"Accept": accept, "Content-Type": content_type}
        retry_until = asyncio.get_running_loop().time() + _RETRY_SECONDS
        for attempt in range(_ATTEMPTS - 1):
            wait = 0.25 * 2**attempt
            try:
                return await self._once(method, path, params, data, headers)
            except (TooManyRequests, Unavailable) as error:
                if not isinstance(error, TooManyRequests) and (method != "GET" or _is_past(retry_until)):
                    raise
                wait = wait if error.retry_after is None else error.retry_after
            except Unreachable as error:
                if method != "GET" or not _connection_broke(error) or _is_past(retry_until):
                    raise
            await self.sleep(min(wait, _LONGEST_WAIT))
        return await self._once(method, path, params, data, headers)

    async def probe(self, path: str) -> tuple[int, str]:
        """Send one request, without retries, and return status and text. Raises Unreachable and BadConnection."""
        async with self._open("GET", path, None, None, {}, _TIMEOUT) as response:
            return response.status, await response.text(errors="replace")

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str = JSON, body: object = None
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """Open a watch, or POST `body`, and yield an iterator of the events until the server ends it.

        Raises Unreachable.
        """
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": JSON})
        data = None if body is None else orjson.dumps(body)
        method = "GET" if body is None else "POST"
        async with self._open(method, path, params, data, headers, _STREAM_TIMEOUT) as response:
            if response.status != 200:
                raise self._failure(response, await response.read())
            yield self._events(response.content)

    @asynccontextmanager
    async def pieces(self, path: str, *, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a text, such as a log, and yield an iterator of its pieces as they arrive. Raises Unreachable."""
        async with self._open("GET", path, params, None, {"Accept": "*/*"}, _TEXT_TIMEOUT) as response:
            if response.status != 200:
                raise self._failure(response, await response.read())
            yield response.content.iter_any()

    async def _once(
        self,
        method: str,
        path: str,
        params: Params | None,
        data: bytes | None,
        headers: Mapping[str, str],
    ) -> Document:
        async with self._open(method, path, params, data, headers, _TIMEOUT) as response:
            body = await response.read()
        for warning in response.headers.getall("Warning", []):
            self.warn(_warning_text(warning))
        if response.status >= 300:
            raise self._failure(response, body)
        return self._parsed(response, body)

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        params: Params | None,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and renew the credentials once after a 401.

        Exceptions of aiohttp, also those raised while the caller reads the response, become ClientErrors.
        """
        access = self.endpoint.access
        url = self._base.with_path(self._base.path.rstrip("/") + path, encoded=True)

        async def send(authorization: str | None) -> aiohttp.ClientResponse:
            return await self._session.request(
                method,
                url,
                params=params,
                data=data,
                headers=headers if authorization is None else {**headers, "Authorization": authorization},
                timeout=timeout,
                proxy=access.proxy,
                server_hostname=access.server_hostname,
                allow_redirects=False,
            )

        try:
            used = await access.authorization()
            response = await send(used)
            if response.status == 401 and (renewed := await access.renew(used)) != used:
                response.release()
                response = await send(renewed)
            async with response:
                yield response
        except ClusterError as error:  # the credentials of a kubeconfig cannot be renewed
            raise BadConnection(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(_explain(error, self.endpoint.where)) from error

    async def _events(self, content: aiohttp.StreamReader) -> AsyncIterator[Document]:
        # StreamReader.readline limits the length of a line, and events may be longer.
        rest = b""
        async for piece in content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in filter(None, lines):
                try:
                    event = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise BadAnswer(f"{self.endpoint.where} sent a watch event that is not JSON ({error})") from error
                if not isinstance(event, dict):
                    raise BadAnswer(f"{self.endpoint.where} sent a watch event that is no JSON object")
                yield event

    def _parsed(self, response: aiohttp.ClientResponse, body: bytes) -> Document:
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._no_sluice(response) from error
        if not isinstance(answer, dict):
            raise self._no_sluice(response)
        return answer

    def _failure(self, response: aiohttp.ClientResponse, body: bytes) -> Refused | BadAnswer:
        try:
            status = orjson.loads(body)
        except orjson.JSONDecodeError:
            status = None
        after = response.headers.get("Retry-After", "")
        retry_after = float(after) if after.isdecimal() else None
        if isinstance(status, dict) and status.get("kind") == "Status":
            path = response.url.path
            return refusal(response.status, status, retry_after=retry_after, hint=self.endpoint.login, path=path)
        if response.status in (429, 503):
            # The response of an intermediary: a proxy, or the API server while an aggregated Sluice is down.
            text = " ".join(body[:200].decode(errors="replace").split()) or str(response.reason)
            message = f"Sluice does not answer at {self.endpoint.where}: {text}"
            return refusal(response.status, {"message": message}, retry_after=retry_after)
        return self._no_sluice(response)

    def _no_sluice(self, response: aiohttp.ClientResponse) -> BadAnswer:
        what = f"{response.status} {response.reason}"
        if self.endpoint.aggregated:
            help_ = "is it registered there, by an APIService v1.sluice.dev?"
            return BadAnswer(f"the server at {self.endpoint.where} does not serve Sluice ({what}); {help_}")
        # Many servers answer plain HTTP on a TLS port with 400.
        hint = _PLAIN if response.status == 400 and self._base.scheme == "http" else "; check the address"
        return BadAnswer(f"the server at {self.endpoint.where} is not Sluice ({what}){hint}")


def _is_past(time: float) -> bool:
    return asyncio.get_running_loop().time() > time


def _connection_broke(error: Unreachable) -> bool:
    """Return whether an established connection broke. A connection that cannot be established is not retried."""
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientError) and not isinstance(cause, aiohttp.ClientConnectorError)


def _explain(error: Exception, where: str) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            fault = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            remedy = certificate_remedy(error.certificate_error, "name its CA, by SLUICE_CA or --ca")
            return f"the certificate of {where} is not trusted ({fault}); {remedy}"
        case aiohttp.ClientSSLError():
            return f"{where} does not speak TLS as expected; http:// instead of https://?"
        case aiohttp.InvalidURL():
            return f"the proxy to {where}, {error.url}, is not a URL; check HTTPS_PROXY"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy to {where} cannot be reached ({_cause(error.os_error)}); check HTTPS_PROXY and NO_PROXY"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refuses to connect to {where} ({error.status} {error.message}); check HTTPS_PROXY"
        case aiohttp.ClientConnectorError():
            return f"{where} cannot be reached ({_cause(error.os_error)}); does Sluice run there?"
        case TimeoutError():
            return f"{where} gave no answer in time; try again"
        case aiohttp.ServerDisconnectedError() if where.startswith("http://"):
            return f"{where} gave no answer ({error}){_PLAIN}"
        case _:
            return f"{where} gave no answer ({str(error) or type(error).__name__})"


def _cause(error: OSError) -> str:
    # asyncio's own message contains the address as a Python tuple; that of a failed look-up is the resolver's.
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _warning_text(header: str) -> str:
    _, _, quoted = header.partition('"')
    return quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
