"""Kubernetes API client on raw JSON: thirty times cheaper than typed models; every failure is a typed error.

A path is the URL without the server's address ("/apis/batch/v1/namespaces/x/jobs/y"); an object is the parsed JSON.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import asynccontextmanager
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import aiohttp
import orjson

from admission.cluster.credentials import Access, Load, load_in_cluster, load_kubeconfig
from admission.cluster.errors import (
    BadAnswer,
    IdleTimeout,
    NotPermitted,
    ServerError,
    StatusError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    response_error,
    transport_error,
)
from admission.cluster.proxies import proxy_of_environment
from admission.serving.outgoing import client_connector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
    from types import TracebackType

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as parsed JSON."""

ATTEMPTS = 5
"""Attempts to send a request, after which its failure is raised."""

MAX_RETRY_AFTER = 30.0
"""Upper bound in seconds for the server's Retry-After."""

CONNECTIONS = 100
"""Maximum number of connections; each open watch uses one."""

_TIMEOUT = aiohttp.ClientTimeout(total=90, sock_connect=10, sock_read=60)
"""Longer than the API server's own request timeout of 60 seconds."""

_READ_BUFFER = 2**20
"""Bytes buffered for a slow consumer before TCP backpressure stops the server (aiohttp buffers twice as much)."""

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""`Accept` for the metadata of an object alone."""

_CHUNK = 2**17
"""Bytes of a stream that are handled without a pause: some forty Jobs, two milliseconds."""


class _HttpRequest(NamedTuple):
    """One request, without credentials."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    data: bytes | None = None
    content_type: str = ""
    timeout: aiohttp.ClientTimeout = _TIMEOUT
    accept: str = ""
    """The representation that is asked for; empty: the server's own."""


class PatchType(StrEnum):
    """Content types of PATCH: JSON merge patch, JSON patch, server-side apply."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


_IDEMPOTENT = {"GET", "PUT", "DELETE", PatchType.MERGE, PatchType.APPLY}
"""Methods and patch types that may be repeated after a lost connection, when the outcome is unknown."""


class Client:
    """Client of one API server, as one user. Used as `async with Client.from_kubeconfig(...) as client`.

    All methods raise subclasses of ClusterError. Requests are retried after 429 or 503 with Retry-After, and idempotent
    ones also after a lost connection. A retried write with a resourceVersion may raise Conflict because its own first
    attempt has succeeded.
    """

    def __init__(
        self,
        load: Load,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._load = load
        self._clock = clock
        self._sleep = sleep
        self._opened: Access | None = None
        self._session: aiohttp.ClientSession
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Number of requests sent, by HTTP method, resource ("jobs") and status code ("" without a response)."""

    @classmethod
    def from_kubeconfig(cls, path: str | None = None, context: str | None = None) -> Self:
        """Return a client by a kubeconfig's context; None: $KUBECONFIG or ~/.kube/config, and its current context."""
        return cls(lambda: load_kubeconfig(path, context))

    @classmethod
    def in_cluster(cls) -> Self:
        """Return a client of the cluster in which this process is a pod, as its service account."""
        return cls(load_in_cluster)

    async def __aenter__(self) -> Self:
        """Load the credentials; no request is sent. Raises BadKubeconfig."""
        self._opened = await Access.open(self._load, clock=self._clock)
        self._proxy = self._access.proxy or proxy_of_environment(self._access.server)
        self._session = aiohttp.ClientSession(
            connector=client_connector(limit=CONNECTIONS, keepalive=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            read_bufsize=_READ_BUFFER,
            # No compression: inside a cluster it costs both sides more processor time than it saves on the network.
            headers={
                "User-Agent": f"sluice/{version('sluice')}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = None
        await self._session.close()

    @property
    def server(self) -> str:
        """URL of the API server; empty before the credentials are loaded."""
        return "" if self._opened is None else self._opened.server

    @property
    def silence(self) -> str:
        """A message if requests wait for credentials that are not provided; empty: they do not."""
        return "" if self._opened is None else self._opened.silence

    @property
    def _access(self) -> Access:
        if self._opened is None:
            raise Unreachable("there is no connection to the API server")
        return self._opened

    async def bearer_token(self) -> str | None:
        """Return the client's bearer token; None if it has other credentials."""
        kind, _, token = (await self._access.authorization() or "").partition(" ")
        return token if kind == "Bearer" else None

    async def get(self, path: str, *, params: Mapping[str, str] | None = None, only_metadata: bool = False) -> Object:
        """Read one object, or one page of a list. `only_metadata`: of one object; its content is not transferred."""
        if only_metadata:
            return await self._once(_HttpRequest("GET", path, params, accept=_METADATA))
        return await self.request("GET", path, params=params)

    async def create(
        self,
        path: str,
        body: object,
        *,
        params: Mapping[str, str] | None = None,
        permitted: Callable[[], bool] | None = None,
    ) -> Object:
        """POST `body` to a collection; return the created object. `permitted`: see `request`."""
        return await self.request("POST", path, params=params, body=body, permitted=permitted)

    async def replace(self, path: str, body: object, *, params: Mapping[str, str] | None = None) -> Object:
        """PUT a whole object; return it as written. Raises Conflict if its resourceVersion is not the current one."""
        return await self.request("PUT", path, params=params, body=body)

    async def patch(
        self,
        path: str,
        body: object,
        *,
        patch_type: PatchType = PatchType.MERGE,
        params: Mapping[str, str] | None = None,
        permitted: Callable[[], bool] | None = None,
    ) -> Object:
        """PATCH an object; return it as patched. APPLY needs `fieldManager` in `params`. `permitted`: see `request`."""
        return await self.request("PATCH", path, params=params, body=body, content_type=patch_type, permitted=permitted)

    async def delete(
        self,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        permitted: Callable[[], bool] | None = None,
    ) -> Object:
        """DELETE an object. `body`: DeleteOptions; the server then ignores `params`. `permitted`: see `request`."""
        return await self.request("DELETE", path, params=params, body=body, permitted=permitted)

    async def list_pages(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int = 500
    ) -> AsyncGenerator[Object]:
        """Yield the pages of a list, unchanged. `limit`: items per page; 0: one page. Raises Expired if too slow."""
        query = dict(params or {})
        if limit:
            query["limit"] = str(limit)
        page = await self.get(path, params=query)
        while token := _token(page):
            # The next page is prefetched while the caller handles this one.
            next_page = asyncio.create_task(self._next_page(path, {**query, "continue": token}))
            try:
                yield page
                page = await next_page
            finally:
                next_page.cancel()
                await asyncio.gather(next_page, return_exceptions=True)
        yield page

    async def _next_page(self, path: str, query: Mapping[str, str]) -> Object:
        """Return a page after the first, with retries, so that a transient server error does not discard the others."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return await self.get(path, params=query)
            except ServerError:
                await self._sleep(0.1 * 2**attempt * random.uniform(1.0, 1.2))
        return await self.get(path, params=query)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        permitted: Callable[[], bool] | None = None,
    ) -> Object:
        """Send a request, with retries, and return the parsed response.

        `body`: bytes, or an object to encode as JSON; None: no body. `permitted`: called before each attempt, which may
        be long after the call; if it returns False, NotPermitted is raised.
        """
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        request = _HttpRequest(method, path, params, data, content_type)
        idempotent = bool({method, content_type} & _IDEMPOTENT)
        for attempt in range(ATTEMPTS - 1):
            tls = self._access.tls
            try:
                _check(permitted, path)
                return await self._once(request)
            except StatusError as error:
                wait = error.retry_after
                if wait is None or not (isinstance(error, TooManyRequests) or error.code == 503):
                    raise
            except Unreachable as error:
                if not _may_repeat(error, idempotent=idempotent, renewed=self._access.tls is not tls):
                    raise
                wait = 0.1 * 2**attempt
            await self._sleep(min(wait, MAX_RETRY_AFTER) * random.uniform(1.0, 1.2))
        _check(permitted, path)
        return await self._once(request)

    async def _once(self, request: _HttpRequest) -> Object:
        async with self._open(request) as response:
            answer = await response.read()
        try:
            parsed = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise BadAnswer(f"{self._named(request)}: the answer is not JSON ({error})") from error
        if not isinstance(parsed, dict):
            raise BadAnswer(f"{self._named(request)}: the answer is not a JSON object")
        return parsed

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream, such as a watch; yield an iterator of chunks of bytes as they arrive.

        The iterator ends when the server ends the stream. It raises Unreachable if the connection is lost, and
        IdleTimeout if no data arrives for `idle_timeout` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_timeout)
        request = _HttpRequest("GET", path, params, timeout=timeout)
        async with self._open(request) as response:
            yield _chunks(response.content, self._named(request), idle_timeout)

    @asynccontextmanager
    async def _open(self, request: _HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response; translate exceptions of aiohttp, also in reads."""
        try:
            async with await self._answer(request) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            fault = self._access.fault if _may_be_tls(error) else ""
            raise transport_error(self._named(request), error, fault) from error

    async def _answer(self, request: _HttpRequest) -> aiohttp.ClientResponse:
        """Send a request, again after 401 with renewed credentials; after a TLS error, load changed certificates.

        Requests under way, such as watches, keep their connections.
        """
        access = self._access
        tls, header = access.tls, await access.authorization()
        try:
            return await self._send(request, header)
        except Unauthorized as error:
            renewed = await access.renew(header)
            if renewed == header and access.tls is tls:
                if fault := access.fault:
                    error.args = (f"{error}; {fault}",)
                raise
            return await self._send(request, renewed)
        except aiohttp.ClientConnectionError as error:
            if tls is not None and _may_be_tls(error):
                await access.renew_tls()
            raise

    async def _send(self, request: _HttpRequest, authorization: str | None) -> aiohttp.ClientResponse:
        """Send a request and return the response, its body unread. Raises StatusError for an error response."""
        headers = {} if request.data is None else {"Content-Type": request.content_type}
        if request.accept:
            headers["Accept"] = request.accept
        if authorization:
            headers["Authorization"] = authorization
        code = ""
        try:
            response = await self._session.request(
                request.method,
                self.server + request.path,
                params=request.params,
                data=request.data,
                headers=headers,
                timeout=request.timeout,
                ssl=self._access.tls or True,
                proxy=self._proxy,
                server_hostname=self._access.server_hostname,
                allow_redirects=False,
            )
            code = str(response.status)
        finally:
            self.requests[request.method, resource_of(request.path), code] += 1
        if response.status < 300:
            return response
        async with response:
            body = await response.read()
        raise response_error(self._named(request), response.status, response.headers, body)

    def _named(self, request: _HttpRequest) -> str:
        return f"{request.method} {self.server}{request.path}"


def _token(page: Object) -> str:
    """Return the token of the next page; "" if there is none, or the metadata are not understood."""
    metadata = page.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else None
    return token if isinstance(token, str) else ""


def resource_of(path: str) -> str:
    """Return the resource of a path: "jobs" for `/apis/batch/v1/namespaces/x/jobs/y/status`; "" for other paths.

    Used as label of metrics, for which the path itself, with names of objects, has too high a cardinality.
    """
    parts = path.split("/")
    first = 4 if parts[1:2] == ["apis"] else 3 if parts[1:2] == ["api"] else len(parts)
    if parts[first : first + 1] == ["namespaces"] and len(parts) > first + 2:
        first += 2
    return parts[first] if len(parts) > first else ""


async def _chunks(content: aiohttp.StreamReader, name: str, idle_timeout: float) -> AsyncIterator[bytes]:
    try:
        while chunk := await content.read(_CHUNK):
            yield chunk
            await asyncio.sleep(0)  # read() of buffered data does not suspend: let other tasks run in a burst
    except TimeoutError as error:
        raise IdleTimeout(f"{name}: nothing came for {idle_timeout:g} seconds") from error


def _check(permitted: Callable[[], bool] | None, path: str) -> None:
    if permitted is not None and not permitted():
        raise NotPermitted(f"{path}: not changed, because this replica may no longer be the leader")


def _may_repeat(error: Unreachable, *, idempotent: bool, renewed: bool) -> bool:
    """Whether to repeat a request. If it had no connection: with renewed certificates only, else the caller decides."""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorError):
        return renewed
    return idempotent and isinstance(cause, aiohttp.ClientError)


def _may_be_tls(error: Exception) -> bool:
    """Whether a failure may be due to certificates. With TLS 1.3, a server rejects them after the handshake."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return isinstance(error, aiohttp.ClientSSLError)
    return isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, TimeoutError)
