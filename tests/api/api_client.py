"""Requests to the API on a real store and a real socket, for the tests in this folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from admission.api.application import create_app, listening
from admission.store.store import Store
from tests.postgresql_databases import on_both_databases as on_both_databases

TOKEN = "correct horse battery".replace(" ", "-")
PREFIX = "/apis/sluice.dev/v1"


@dataclass(frozen=True)
class Answer:
    """A response that was read to its end."""

    status: int
    headers: Any
    body: Any


@dataclass(frozen=True)
class Events:
    """A watch that is open."""

    response: aiohttp.ClientResponse

    async def next(self) -> Any:
        """The next event; None at the end of the watch."""
        async with asyncio.timeout(120):
            line = await self.response.content.readline()
        return json.loads(line) if line else None

    async def next_types_and_names(self, count: int) -> list[tuple[str, str]]:
        """Type and name of each of the next `count` events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@dataclass(frozen=True)
class Client:
    """Requests to the API as a program would send them; paths are relative to the group's version or absolute."""

    url: str
    session: aiohttp.ClientSession

    async def send(self, method: str, path: str, document: Any = None, **options: Any) -> Answer:
        if not path.startswith("/"):
            path = f"{PREFIX}/{path}"
        options.setdefault("headers", {"Authorization": f"Bearer {TOKEN}"})
        if document is not None:
            options["json"] = document
        async with self.session.request(method, self.url + path, **options) as response:
            is_json = response.content_type == "application/json"
            body = await response.json() if is_json else await response.text()
            return Answer(response.status, response.headers, body)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.send("GET", path, **options)

    async def post(self, path: str, document: Any = None, **options: Any) -> Answer:
        return await self.send("POST", path, document, **options)

    async def put(self, path: str, document: Any = None, **options: Any) -> Answer:
        return await self.send("PUT", path, document, **options)

    async def delete(self, path: str, document: Any = None, **options: Any) -> Answer:
        return await self.send("DELETE", path, document, **options)

    async def patch(self, path: str, document: Any, *, form: str = "merge", **params: str) -> Answer:
        """`form`: merge, json or apply."""
        media = {"merge": "merge-patch+json", "json": "json-patch+json", "apply": "apply-patch+yaml"}[form]
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": f"application/{media}"}
        return await self.send("PATCH", path, data=json.dumps(document), headers=headers, params=params)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = "", **params: str) -> AsyncIterator[Events]:
        """Open a watch; its events can be read as they arrive."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Accept": accept} if accept else {})
        options = {"params": {"watch": "1", **params}, "headers": headers, "timeout": aiohttp.ClientTimeout()}
        async with self.session.get(f"{self.url}{PREFIX}/{path}", **options) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


@asynccontextmanager
async def serving(store: Store, *, options: Mapping[str, Any] | None = None, **checks: Any) -> AsyncIterator[Client]:
    """The API on a store; `options` are further ones of `create_app`."""
    app = create_app(store, token=TOKEN, checks=checks, **(options or {}))
    async with listening(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        yield Client(url, session)


async def revision_of(api: Client, path: str) -> str:
    """Return the resourceVersion of an object or a list."""
    version: str = (await api.get(path)).body["metadata"]["resourceVersion"]
    return version
