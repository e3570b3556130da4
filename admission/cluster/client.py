"""The Kubernetes API on raw JSON: thirty times cheaper than typed models, and every failure a typed error.

A path is what follows the server's address ("/apis/batch/v1/namespaces/x/jobs/y"); an object is the parsed JSON.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import asynccontextmanager
from enum import StrEnum
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import aiohttp
import orjson

from admission.cluster.credentials import Access, Load, load_in_cluster, load_kubeconfig
from admission.cluster.errors import (
    BadAnswer,
    NotPermitted,
    ServerError,
    Silent,
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
"""A Kubernetes object, as JSON."""

ATTEMPTS = 5
"""How often a request is sent before its failure is told to the caller."""

LONGEST_WAIT = 30.0
"""Seconds; a server that asks for more is asked again after this."""

CONNECTIONS = 100
"""At most this many connections; each open watch holds one."""

_TIMEOUT = aiohttp.ClientTimeout(total=90, sock_connect=10, sock_read=60)
"""The API server itself gives up after 60 seconds."""

_READ_BUFFER = 2**20
"""Bytes of a stream that are read ahead of a slow consumer before TCP holds the server (aiohttp takes the double)."""


_PIECE = 2**17
"""Bytes of a stream that are handled in one go: some forty Jobs, two milliseconds."""


class PatchType(StrEnum):
    """The content types of a PATCH."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


_IDEMPOTENT = {"GET", "PUT", "DELETE", PatchType.MERGE, PatchType.APPLY}
"""What may be sent again when the connection broke and nobody knows whether it was done."""


class Client:
    """A connection pool to one API server, as one user. Used as `async with Client.from_kubeconfig(...) as client`.

    All methods raise branches of ClusterError. A request that the server put off (429 or 503 with Retry-After) is
    repeated after the time it names, an idempotent one also when the connection broke; a repeated write that names
    a resourceVersion may then find its own first attempt and raise Conflict.
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
        self._access: Access
        self._session: aiohttp.ClientSession
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Requests sent so far, by HTTP method, resource ("jobs") and status code ("" if there was no answer)."""

    @classmethod
    def from_kubeconfig(cls, path: str | None = None, context: str | None = None) -> Self:
        """The cluster of a kubeconfig's context; None: $KUBECONFIG or ~/.kube/config, and its current context."""
        return cls(lambda: load_kubeconfig(path, context))

    @classmethod
    def in_cluster(cls) -> Self:
        """The cluster that this process is a pod of, as its service account."""
        return cls(load_in_cluster)

    async def __aenter__(self) -> Self:
        """Load the credentials; BadKubeconfig if that fails. Nothing is sent yet."""
        self._access = await Access.open(self._load, clock=self._clock)
        self._proxy = self._access.proxy or proxy_of_environment(self._access.server)
        self._session = aiohttp.ClientSession(
            connector=client_connector(self._access.ssl_context(), limit=CONNECTIONS, keepalive=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            read_bufsize=_READ_BUFFER,
            # Compression costs both sides more processor time than a cluster's network is worth.
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
        await self._session.close()

    @property
    def server(self) -> str:
        """The API server's address."""
        return self._access.server

    async def bearer_token(self) -> str | None:
        """The token that identifies us, if it is one."""
        kind, _, token = (await self._access.authorization() or "").partition(" ")
        return token if kind == "Bearer" else None

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> Object:
        """Read one object, or one page of a list."""
        return await self.request("GET", path, params=params)

    async def text(self, path: str, *, params: Mapping[str, str] | None = None) -> str:
        """GET what is text, such as the log of a pod; bytes that are no UTF-8 are replaced."""
        async with self._open("GET", path, params, None, "") as response:
            return (await response.read()).decode(errors="replace")

    async def create(self, path: str, body: object, *, params: Mapping[str, str] | None = None) -> Object:
        """POST `body` to a collection; the object as created."""
        return await self.request("POST", path, params=params, body=body)

    async def replace(self, path: str, body: object, *, params: Mapping[str, str] | None = None) -> Object:
        """PUT the whole object; Conflict if its metadata.resourceVersion is not the current one."""
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
        """PATCH an object; the object afterwards. APPLY needs a `fieldManager`; `permitted` is that of `request`."""
        return await self.request("PATCH", path, params=params, body=body, content_type=patch_type, permitted=permitted)

    async def delete(
        self,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        permitted: Callable[[], bool] | None = None,
    ) -> Object:
        """DELETE an object. `body` is a DeleteOptions, if any: it makes the server ignore `params`."""
        return await self.request("DELETE", path, params=params, body=body, permitted=permitted)

    async def list_pages(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int = 500
    ) -> AsyncGenerator[Object]:
        """The pages of a list, each as the server sent it; `limit` 0 asks for one page. Expired if it took too long."""
        query = dict(params or {})
        if limit:
            query["limit"] = str(limit)
        page = await self.get(path, params=query)
        while token := page.get("metadata", {}).get("continue"):
            # The server prepares the next page while this one is used.
            following = asyncio.create_task(self._following(path, {**query, "continue": token}))
            try:
                yield page
                page = await following
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        yield page

    async def _following(self, path: str, query: Mapping[str, str]) -> Object:
        """A page after the first: a passing fault of the server must not cost all those before it."""
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
        """Send one request and give the parsed answer. `body` is sent as it is if bytes, else as JSON (None: none).

        `permitted` is asked before each attempt, whatever waiting there was between them; NotPermitted if it denies.
        """
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        for attempt in range(ATTEMPTS - 1):
            try:
                _check(permitted, path)
                return await self._once(method, path, params, data, content_type)
            except StatusError as error:
                wait = error.retry_after
                if wait is None or not (isinstance(error, TooManyRequests) or error.code == 503):
                    raise
            except Unreachable as error:
                if not {method, content_type} & _IDEMPOTENT or not _broke(error):
                    raise
                wait = 0.1 * 2**attempt
            await self._sleep(min(wait, LONGEST_WAIT) * random.uniform(1.0, 1.2))
        _check(permitted, path)
        return await self._once(method, path, params, data, content_type)

    async def _once(
        self, method: str, path: str, params: Mapping[str, str] | None, data: bytes | None, content_type: str
    ) -> Object:
        async with self._open(method, path, params, data, content_type) as response:
            answer = await response.read()
        try:
            parsed = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise BadAnswer(f"{method} {self.server}{path}: the answer is not JSON ({error})") from error
        if not isinstance(parsed, dict):
            raise BadAnswer(f"{method} {self.server}{path}: the answer is not a JSON object")
        return parsed

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: an iterator of the bytes as they come, each time what has arrived, within reason.

        It ends when the server ends it. Unreachable if it breaks, Silent if nothing comes for `silence` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        async with self._open("GET", path, params, None, "", timeout) as response:
            yield _arrivals(response.content, f"GET {self.server}{path}", silence)

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, renewing credentials once; the exceptions of aiohttp in it and in its use become ours."""
        name = f"{method} {self.server}{path}"
        try:
            header = await self._access.authorization()
            try:
                response = await self._send(method, path, params, data, content_type, timeout, header)
            except Unauthorized:
                renewed = await self._access.renew(header)
                if renewed == header:
                    raise
                response = await self._send(method, path, params, data, content_type, timeout, renewed)
            async with response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise transport_error(name, error) from error

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
        authorization: str | None,
    ) -> aiohttp.ClientResponse:
        """The answer if it is a success, its body unread; else the StatusError that it stands for."""
        headers = {} if data is None else {"Content-Type": content_type}
        if authorization:
            headers["Authorization"] = authorization
        code = ""
        try:
            response = await self._session.request(
                method,
                self.server + path,
                params=params,
                data=data,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                server_hostname=self._access.server_hostname,
                allow_redirects=False,
            )
            code = str(response.status)
        finally:
            self.requests[method, resource_of(path), code] += 1
        if response.status < 300:
            return response
        async with response:
            body = await response.read()
        raise response_error(f"{method} {self.server}{path}", response.status, response.headers, body)


def resource_of(path: str) -> str:
    """The resource of a path, as in "jobs" for `/apis/batch/v1/namespaces/x/jobs/y/status`; "" for other paths.

    The names of objects are in no label of a metric: there are too many of them.
    """
    parts = path.split("/")
    first = 4 if parts[1:2] == ["apis"] else 3 if parts[1:2] == ["api"] else len(parts)
    if parts[first : first + 1] == ["namespaces"] and len(parts) > first + 2:
        first += 2
    return parts[first] if len(parts) > first else ""


async def _arrivals(content: aiohttp.StreamReader, name: str, silence: float) -> AsyncIterator[bytes]:
    try:
        while arrived := await content.read(_PIECE):
            yield arrived
            await asyncio.sleep(0)  # buffered data is read without waiting: let others have their turn in a burst
    except TimeoutError as error:
        raise Silent(f"{name}: nothing came for {silence:g} seconds") from error


def _check(permitted: Callable[[], bool] | None, path: str) -> None:
    if permitted is not None and not permitted():
        raise NotPermitted(f"{path}: not changed, because this replica may not lead any more")


def _broke(error: Unreachable) -> bool:
    """Whether a connection that was made has broken; one that could not be made is for the caller to try again."""
    cause = error.__cause__
    return isinstance(cause, aiohttp.ClientError) and not isinstance(cause, aiohttp.ClientConnectorError)
