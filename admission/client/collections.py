"""Queue objects, typed: the verbs of one kind, on the models of `admission.model.queues`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from admission.client import reading
from admission.client.answers import Written
from admission.client.documents import Documents, Options
from admission.client.transport import JSON_PATCH, MERGE_PATCH
from admission.client.watching import Event, pages
from admission.model.manifests import API_VERSION, to_manifest
from admission.model.queues import QueueObject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from admission.client.answers import Revision
    from admission.client.transport import Document, Transport

Q = TypeVar("Q", bound=QueueObject)


class Collection(Generic[Q]):
    """All objects of one kind. Methods raise branches of ClientError.

    `namespace` is for LocalQueues: None means the client's own. A `reason` is kept with the change. With `dry_run`
    nothing is written, and the answer says what would follow. `documents` has the same verbs on plain JSON.
    """

    def __init__(self, transport: Transport, model: type[Q], namespace: str) -> None:
        self.documents = Documents(transport, model.plural)
        self._model = model
        self._namespace = namespace

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Q]:
        """All objects, read page by page as they are wanted; of all namespaces if none is named."""
        found = self.documents.list(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        async with aclosing(found) as items:
            async for item in items:
                yield self._typed(item)

    async def watch(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Event[Q]]:
        """All objects as ADDED, then every change, for ever; goes on after outages without loss (see `Watch`)."""
        changes = self.documents.watch(
            namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        async with aclosing(changes.events()) as events:
            async for event in events:
                yield Event(event.type, self._typed(event.object))

    async def get(self, name: str, *, namespace: str | None = None) -> Q:
        """The object of that name, or NotFound."""
        return self._typed(await self.documents.get(name, self._scope(namespace)))

    async def create(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """A new object, or AlreadyExists."""
        return self._written(await self.documents.create(self._manifest(item), options=Options(reason, dry_run)))

    async def replace(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """An object in place of that of its name; Conflict if its resource_version is not the current one any more."""
        return self._written(await self.documents.replace(self._manifest(item), options=Options(reason, dry_run)))

    async def put(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """Create the object or replace the existing one, without a check of its version."""
        _, document = await self.documents.put(self._manifest(item), options=Options(reason, dry_run))
        return self._written(document)

    async def apply(
        self, item: Q, *, manager: str, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> Written[Q]:
        """Server-side apply: `manager` owns the fields that were set in `item`, and Conflict if another has them."""
        options = Options(reason, dry_run)
        document = await self.documents.apply(
            as_set(item, self._scope(None)), manager=manager, force=force, options=options
        )
        return self._written(document)

    async def patch(
        self,
        name: str,
        changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Written[Q]:
        """The object changed by a merge patch (`{"spec": {"stopPolicy": "Hold"}}`) or, a list, by a JSON Patch."""
        document = await self.documents.patch(
            name,
            changes,
            self._scope(namespace),
            content_type=MERGE_PATCH if isinstance(changes, Mapping) else JSON_PATCH,
            options=Options(reason, dry_run),
        )
        return self._written(document)

    async def delete(self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False) -> None:
        """Delete the object; Conflict while other objects refer to it."""
        await self.documents.delete(name, self._scope(namespace), options=Options(reason, dry_run))

    async def history(self, name: str, *, namespace: str | None = None) -> AsyncGenerator[Revision]:
        """Its versions, newest first, read page by page as they are wanted; of a deleted object, too."""
        path = self.documents.path(self._scope(namespace), name, "history")
        async with aclosing(pages(self.documents.transport, path, {})) as found:
            async for page in found:
                for item in page["items"]:
                    yield reading.read(reading.revision, item)

    async def rollback(
        self, name: str, revision: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Q]:
        """The object as it was at a revision of its history, as a new version; a deleted one comes back."""
        options = Options(reason, dry_run)
        return self._written(await self.documents.rollback(name, revision, self._scope(namespace), options=options))

    def _scope(self, namespace: str | None) -> str | None:
        return (namespace or self._namespace) if self._model.namespaced else None

    def _manifest(self, item: Q) -> Document:
        return _placed(to_manifest(item), self._scope(None))

    def _typed(self, document: Document) -> Q:
        return cast("Q", reading.queue_object(document))

    def _written(self, document: Document) -> Written[Q]:
        return Written(self._typed(document), reading.read(reading.impact, document))


def as_set(item: QueueObject, namespace: str | None) -> Document:
    """The object with the fields alone that were set: what its author wants to own by server-side apply."""
    fields = item.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return _placed({"apiVersion": API_VERSION, "kind": item.kind, **fields}, namespace)


def _placed(document: Document, namespace: str | None) -> Document:
    if namespace is None or document["metadata"].get("namespace"):
        return document
    return document | {"metadata": document["metadata"] | {"namespace": namespace}}
