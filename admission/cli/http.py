"""The client side of the REST API, for the commands: requests in, documents or one clear sentence out."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
import orjson
from yarl import URL

from admission.cli.errors import CommandError, NotReady, Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from admission.cli.connection import Connection

Document: TypeAlias = "dict[str, Any]"

_PAGE = 500
_POLL_SECONDS = 0.2
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=5)


@dataclass(frozen=True, slots=True)
class Api:
    """Requests to one Sluice. Every method raises Unreachable or Refused."""

    base: URL
    session: aiohttp.ClientSession
    notice: Callable[[str], None]
    """Told what the user should see beside the result: warnings and waiting."""

    async def get(self, path: str, **params: str) -> Document:
        """The object or list at `path`."""
        return await self._request("GET", path, params=params)

    async def create(self, path: str, document: Document) -> Document:
        """The new object, as it was written."""
        return await self._request("POST", path, document=document)

    async def replace(self, path: str, document: Document) -> Document:
        """The object in place of the old one, as it was written."""
        return await self._request("PUT", path, document=document)

    async def delete(self, path: str) -> Document:
        """The Status of the deletion."""
        return await self._request("DELETE", path)

    async def items(self, path: str) -> list[Document]:
        """All objects of the list at `path`, which is read page by page."""
        items: list[Document] = []
        params = {"limit": str(_PAGE)}
        while True:
            page = await self.get(path, **params)
            items += page["items"]
            if not (token := page["metadata"].get("continue")):
                return items
            params["continue"] = token

    async def wait_until_ready(self, seconds: float) -> None:
        """Return as soon as Sluice is ready. Raises NotReady after so many seconds, with what it was waiting for."""
        deadline = asyncio.get_running_loop().time() + seconds
        told = ""
        while fault := await self._unreadiness():
            if asyncio.get_running_loop().time() >= deadline:
                raise NotReady(f"Sluice was not ready within {seconds:g} s: {fault}")
            if fault != told:
                self.notice(f"waiting for Sluice: {fault}")
                told = fault
            await asyncio.sleep(_POLL_SECONDS)

    async def _unreadiness(self) -> str:
        try:
            async with self._send("GET", "/readyz") as response:
                text = await response.text()
        except Unreachable as error:
            return str(error)
        if response.status == 200:
            return ""
        if response.status != 503:
            raise Refused(
                f"what answers at {self.base} is no Sluice (/readyz: {response.status})", code=response.status
            )
        failed = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
        return "; ".join(failed) or "not ready"

    async def _request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, document: Document | None = None
    ) -> Document:
        async with self._send(method, path, params=params, document=document) as response:
            body = await response.read()
        for warning in response.headers.getall("Warning", []):
            self.notice(f"warning: {_warning_text(warning)}")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            what = f"{response.status} {response.reason}"
            raise Unreachable(f"what answers at {self.base} is no Sluice ({what}); check --server") from error
        if response.status < 400:
            return dict(answer)
        raise _refusal(response.status, answer, self.base)

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, document: Document | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        body = None if document is None else orjson.dumps(document)
        headers = {} if body is None else {"Content-Type": "application/json"}
        url = self.base.with_path(self.base.path.rstrip("/") + path, encoded=True)
        try:
            async with self.session.request(
                method, url, params=params, data=body, headers=headers, allow_redirects=False
            ) as response:
                yield response
        except aiohttp.ClientConnectorCertificateError as error:
            fault = error.certificate_error
            raise Unreachable(
                f"the certificate of {self.base} is not trusted ({fault}); set SSL_CERT_FILE to its CA"
            ) from error
        except aiohttp.ClientSSLError as error:
            raise Unreachable(f"{self.base} does not speak TLS as expected; http:// instead of https://?") from error
        except aiohttp.ClientConnectorError as error:
            why = _cause(error.os_error)
            raise Unreachable(
                f"{self.base} cannot be reached ({why}); is `sluice serve` running? check --server"
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.base} gave no answer ({str(error) or 'it took too long'})") from error


@asynccontextmanager
async def connect(connection: Connection, notice: Callable[[str], None]) -> AsyncIterator[Api]:
    """Requests to the Sluice of `connection`, for the time of the block. Raises CommandError for what is no URL."""
    try:
        base = URL(connection.server)
    except ValueError as error:
        raise CommandError(
            f'"{connection.server}" is no URL; --server wants one such as http://127.0.0.1:8080'
        ) from error
    if base.scheme not in ("http", "https") or not base.host:
        raise CommandError(f'"{connection.server}" is no URL; --server wants one such as http://127.0.0.1:8080')
    headers = {
        "Authorization": f"Bearer {connection.token}",
        "User-Agent": f"sluice/{version('sluice')}",
        "Accept": "application/json",
    }
    async with aiohttp.ClientSession(headers=headers, timeout=_TIMEOUT) as session:
        yield Api(base, session, notice)


def _refusal(code: int, status: Any, base: URL) -> Refused:
    known = status if isinstance(status, dict) else {}
    message, reason = str(known.get("message", "no reason was given")), str(known.get("reason", ""))
    if code == 401:
        message += f" for {base}; set SLUICE_ADMIN_TOKEN to the token that `sluice serve` was given"
    return Refused(message, code=code, reason=reason)


def _cause(error: OSError) -> str:
    # asyncio's own text holds the address as a tuple; that of a failed look-up is the resolver's.
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _warning_text(header: str) -> str:
    _, _, quoted = header.partition('"')
    return quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
