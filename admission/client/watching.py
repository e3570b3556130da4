"""Resumable watches: after a dropped connection they resume, after a gap they report the differences."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from admission.client.errors import BadAnswer, Expired, TooManyRequests, Unavailable, Unreachable, refusal
from admission.client.forms import Form
from admission.client.transport import WATCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from admission.client.transport import Document, Transport

T = TypeVar("T")
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

PAGE = 500
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """An object is new, differs, or is gone; `object` is as it is now, or was last known."""

    type: EventType
    object: T


class Watch:
    """The changes of one collection, first everything that is there.

    An outage is waited for, with growing pauses; what happened meanwhile is told when it is over. What will not pass
    by itself (Forbidden, NotFound, Unauthorized ...) is raised, as is whatever keeps the first list from being read.
    """

    def __init__(
        self, transport: Transport, path: str, params: Mapping[str, str], *, form: Form = Form.OBJECTS
    ) -> None:
        self.columns: list[Document] = []
        """After `start`, what the cells of `Form.ROWS` are."""
        self._form = form
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._known: dict[tuple[str, str], Document] = {}
        self._version = ""

    async def start(self) -> list[Document]:
        """Everything that is there now; `changes` goes on from it."""
        return [event.object for event in await self._listed()]

    async def changes(self) -> AsyncGenerator[Event[Document]]:
        """What changes after `start`, for ever. For one object in the order of the server; nothing is told twice."""
        failures = 0
        while True:
            try:
                if not self._version:
                    for event in await self._listed():
                        yield event
                async with aclosing(self._streamed()) as stream:
                    async for event in stream:
                        failures = 0
                        yield event
            except Expired:
                self._version = ""
            except (Unreachable, Unavailable, TooManyRequests) as error:
                if not failures:
                    self._transport.warn(f"the watch broke and will go on: {error}")
                await self._transport.sleep(min(2.0**failures, _LONGEST_PAUSE))
                failures += 1

    async def events(self) -> AsyncGenerator[Event[Document]]:
        """Everything that is there as ADDED, then what changes."""
        for item in await self.start():
            yield Event("ADDED", item)
        async with aclosing(self.changes()) as changes:
            async for event in changes:
                yield event

    async def _listed(self) -> list[Event[Document]]:
        found: dict[tuple[str, str], Document] = {}
        version = ""
        async for page in pages(self._transport, self._path, self._params, form=self._form):
            found |= {_key(item): item for item in self._form.items(page)}
            self.columns = page.get("columnDefinitions", [])
            version = version or str(page["metadata"].get("resourceVersion", ""))
        events = [*self._gone(found), *self._come(found)]
        self._known, self._version = found, version
        return events

    def _gone(self, found: Mapping[tuple[str, str], Document]) -> Iterator[Event[Document]]:
        for key, item in self._known.items():
            if key not in found or _uid(found[key]) != _uid(item):
                yield Event("DELETED", item)

    def _come(self, found: Mapping[tuple[str, str], Document]) -> Iterator[Event[Document]]:
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
        async with self._transport.stream(self._path, params=params, accept=self._form) as events:
            async for event in events:
                kind, item = event.get("type"), event.get("object")
                if not isinstance(item, dict) or kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
                    raise BadAnswer(f"{self._transport.door.where} sent a watch event that is none of Kubernetes'")
                if kind == "ERROR":
                    raise refusal(int(item.get("code", 500)), item)
                self._version = _version(item) or self._version
                if kind == "BOOKMARK":
                    continue
                (item,) = self._form.items(item) if self._form is Form.ROWS else [item]
                if self._note(kind, item):
                    yield Event(kind, item)

    def _note(self, kind: EventType, item: Document) -> bool:
        """Whether it is news: later pages of a list may be newer than its resourceVersion."""
        if kind == "DELETED":
            return self._known.pop(_key(item), None) is not None
        known = self._known.get(_key(item))
        self._known[_key(item)] = item
        return known is None or (_uid(known), _version(known)) != (_uid(item), _version(item))


async def pages(
    transport: Transport, path: str, params: Mapping[str, str], *, form: Form = Form.OBJECTS
) -> AsyncGenerator[Document]:
    """The pages of a list. Raises Expired if reading them took too long."""
    query = {"limit": str(PAGE), **params}
    while True:
        page = await transport.request("GET", path, params=query, accept=form)
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
