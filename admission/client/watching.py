"""Resumable watches: they resume after a broken connection, and relist and report the differences after 410 Gone."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from admission.client.errors import BadAnswer, Expired, TooManyRequests, Unavailable, Unreachable, refusal
from admission.client.representations import Representation
from admission.client.transport import WATCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from admission.client.transport import Document, Transport

T = TypeVar("T")
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

PAGE = 500
"""Objects in a page of a list."""
_LONGEST_PAUSE = 30.0
"""Longest pause before a retry."""
_SHORT_WATCH = 1.0
"""Seconds within which a server or proxy that ends every watch at once has done so."""


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """An object was added, modified or deleted; `object` is its current state, or the last known one."""

    type: EventType
    object: T


class Watch:
    """A watch of one collection: the existing objects, then their changes.

    During an outage it retries with growing pauses, and then reports what has changed meanwhile. Errors that do not
    pass by themselves (Forbidden, NotFound, Unauthorized ...), and all errors of the first list, are raised.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        params: Mapping[str, str],
        *,
        representation: Representation = Representation.OBJECTS,
    ) -> None:
        self.columns: list[Document] = []
        """Column definitions of the rows (`Representation.ROWS`); set by `start`."""
        self._representation = representation
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._known: dict[tuple[str, str], Document] = {}
        self._version = ""

    async def start(self) -> list[Document]:
        """List and return the existing objects; `changes` continues from there."""
        return [event.object for event in await self._listed()]

    async def changes(self) -> AsyncGenerator[Event[Document]]:
        """Yield the changes after `start`, without end. Those of one object are in order, and none is repeated."""
        failures = short = 0
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    for event in await self._listed():
                        yield event
                async with aclosing(self._streamed()) as stream:
                    async for event in stream:
                        failures = short = 0
                        yield event
            except Expired:
                self._version = ""
            except (Unreachable, Unavailable, TooManyRequests) as error:
                if not failures:
                    self._transport.warn(f"the watch broke and will go on: {error}")
                await self._transport.sleep(min(2.0**failures, _LONGEST_PAUSE))
                failures += 1
                continue
            short = short + 1 if time.monotonic() - began < _SHORT_WATCH else 0
            if short > 1:
                await self._transport.sleep(min(2.0 ** (short - 2), _LONGEST_PAUSE))

    async def events(self) -> AsyncGenerator[Event[Document]]:
        """Yield the existing objects as ADDED, then the changes."""
        for item in await self.start():
            yield Event("ADDED", item)
        async with aclosing(self.changes()) as changes:
            async for event in changes:
                yield event

    async def _listed(self) -> list[Event[Document]]:
        found: dict[tuple[str, str], Document] = {}
        version = ""
        async for page in pages(self._transport, self._path, self._params, representation=self._representation):
            found |= {_key(item): item for item in self._representation.items(page)}
            self.columns = page.get("columnDefinitions", [])
            version = version or str(page["metadata"].get("resourceVersion", ""))
        events = [*self._deleted(found), *self._added_or_modified(found)]
        self._known, self._version = found, version
        return events

    def _deleted(self, found: Mapping[tuple[str, str], Document]) -> Iterator[Event[Document]]:
        for key, item in self._known.items():
            if key not in found or _uid(found[key]) != _uid(item):
                yield Event("DELETED", item)

    def _added_or_modified(self, found: Mapping[tuple[str, str], Document]) -> Iterator[Event[Document]]:
        for key, item in found.items():
            known = self._known.get(key)
            if known is None or _uid(known) != _uid(item):
                yield Event("ADDED", item)
            elif _version(known) != _version(item):
                yield Event("MODIFIED", item)

    async def _streamed(self) -> AsyncGenerator[Event[Document]]:
        params = self._params | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._transport.stream(self._path, params=params, accept=self._representation) as events:
            async for event in events:
                kind, item = event.get("type"), event.get("object")
                if not isinstance(item, dict) or kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
                    raise BadAnswer(f"{self._transport.endpoint.where} sent a watch event of an unknown type or form")
                if kind == "ERROR":
                    code = item.get("code")
                    raise refusal(code if isinstance(code, int) else 500, item)
                self._version = _version(item) or self._version
                if kind == "BOOKMARK":
                    continue
                (item,) = self._representation.items(item) if self._representation is Representation.ROWS else [item]
                if self._is_news(kind, item):
                    yield Event(kind, item)

    def _is_news(self, kind: EventType, item: Document) -> bool:
        """Record an event, and return whether it changes the known state.

        Later pages of a list may be newer than the resourceVersion of the list, from which the watch begins.
        """
        if kind == "DELETED":
            return self._known.pop(_key(item), None) is not None
        known = self._known.get(_key(item))
        self._known[_key(item)] = item
        return known is None or (_uid(known), _version(known)) != (_uid(item), _version(item))


async def pages(
    transport: Transport,
    path: str,
    params: Mapping[str, str],
    *,
    representation: Representation = Representation.OBJECTS,
) -> AsyncGenerator[Document]:
    """Yield the pages of a list. Raises Expired if reading them took longer than the life of a continue token."""
    query = {"limit": str(PAGE), **params}
    while True:
        page = await transport.request("GET", path, params=query, accept=representation)
        yield page
        token = page["metadata"].get("continue")
        if not token:
            return
        query["continue"] = token


def _key(item: Document) -> tuple[str, str]:
    metadata: dict[str, Any] = item["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _uid(item: Document) -> str:
    return str(item["metadata"].get("uid", ""))


def _version(item: Document) -> str:
    return str(item["metadata"].get("resourceVersion", ""))
