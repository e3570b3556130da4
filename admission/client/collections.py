"""Typed access to queue objects of one kind, as the models of `admission.model.queues`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from admission.client import reading
from admission.client.answers import Written
from admission.client.documents import Documents, Options
from admission.client.errors import BadAnswer
from admission.client.transport import JSON_PATCH, MERGE_PATCH
from admission.client.watching import Event, pages
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, parse_manifest, to_manifest
from admission.model.queues import QueueObject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from admission.client.transport import Document, Transport
    from admission.model.answers import Version

Q = TypeVar("Q", bound=QueueObject)


class Collection(Generic[Q]):
    """The queue objects of one kind. Methods raise subclasses of ClientError.

    namespace: for LocalQueues; None means the client's namespace.
    reason: stored with the change, for history and audit.
    dry_run: nothing is written, and the result has the impact on workloads.

    `documents` has the same verbs on JSON documents.
    """

    def __init__(self, transport: Transport, model: type[Q], namespace: str) -> None:
        self.documents = Documents(transport, model.plural)
        self._model = model
        self._namespace = namespace

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Q]:
        """Yield all objects, of all namespaces if none is given; pages are read as needed."""
        found = self.documents.list(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        async with aclosing(found) as items:
            async for item in items:
                yield self._typed(item)

    async def watch(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Event[Q]]:
        """Yield the objects as ADDED, then all changes without end; survives outages without loss (see `Watch`)."""
        changes = self.documents.watch(
            namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        async with aclosing(changes.events()) as events:
            async for event in events:
                yield Event(event.type, self._typed(event.object))

    async def get(self, name: str, *, namespace: str | None = None) -> Q:
        """Return the object with that name. Raises NotFound."""
        return self._typed(await self.documents.get(name, self._scope(namespace)))

    async def create(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """Create an object. Raises AlreadyExists."""
        return self._written(await self.documents.create(self._manifest(item), options=Options(reason, dry_run)))

    async def replace(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """Replace the object with that name. Raises Conflict if its resource_version is not the current one."""
        return self._written(await self.documents.replace(self._manifest(item), options=Options(reason, dry_run)))

    async def put(self, item: Q, *, reason: str = "", dry_run: bool = False) -> Written[Q]:
        """Create the object, or replace the existing one without a check of its version."""
        _, document = await self.documents.put(self._manifest(item), options=Options(reason, dry_run))
        return self._written(document)

    async def apply(
        self, item: Q, *, manager: str, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> Written[Q]:
        """Server-side apply: `manager` becomes the owner of the fields that are set in `item`.

        Raises Conflict if another manager owns one of them, unless `force`.
        """
        options = Options(reason, dry_run)
        document = await self.documents.apply(
            explicit_fields(item, self._scope(None)), manager=manager, force=force, options=options
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
        """Patch an object: by a merge patch (`{"spec": {"stopPolicy": "Hold"}}`), or by a JSON patch (a list)."""
        document = await self.documents.patch(
            name,
            changes,
            self._scope(namespace),
            content_type=MERGE_PATCH if isinstance(changes, Mapping) else JSON_PATCH,
            options=Options(reason, dry_run),
        )
        return self._written(document)

    async def delete(self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False) -> None:
        """Delete an object. Raises Conflict while other objects refer to it."""
        await self.documents.delete(name, self._scope(namespace), options=Options(reason, dry_run))

    async def history(self, name: str, *, namespace: str | None = None) -> AsyncGenerator[Version]:
        """Yield the versions of an object, also of a deleted one, the newest first; pages are read as needed."""
        from admission.model.answers import Version

        path = self.documents.path(self._scope(namespace), name, "history")
        async with aclosing(pages(self.documents.transport, path, {})) as found:
            async for page in found:
                for item in page["items"]:
                    yield reading.answer(Version, item)

    async def rollback(
        self, name: str, revision: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Q]:
        """Restore the object as it was at a revision of its history, as a new version; also a deleted one."""
        options = Options(reason, dry_run)
        return self._written(await self.documents.rollback(name, revision, self._scope(namespace), options=options))

    def _scope(self, namespace: str | None) -> str | None:
        return (namespace or self._namespace) if self._model.namespaced else None

    def _manifest(self, item: Q) -> Document:
        return _placed(to_manifest(item), self._scope(None))

    def _typed(self, document: Document) -> Q:
        return cast("Q", _queue_object(document))

    def _written(self, document: Document) -> Written[Q]:
        return Written(self._typed(document), reading.read(reading.impact, document))


def explicit_fields(item: QueueObject, namespace: str | None) -> Document:
    """Return the document of an object with only the fields that were set, for a server-side apply."""
    fields = item.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return _placed({"apiVersion": API_VERSION, "kind": item.kind, **fields}, namespace)


def _placed(document: Document, namespace: str | None) -> Document:
    if namespace is None or document["metadata"].get("namespace"):
        return document
    return document | {"metadata": document["metadata"] | {"namespace": namespace}}


def _queue_object(document: Document) -> QueueObject:
    """Parse a queue object. Raises BadAnswer for one that this version does not know, such as with a newer field."""
    try:
        return parse_manifest(document)
    except InvalidObject as error:
        raise BadAnswer(f"the server sent an object that this version of Sluice does not know: {error}") from error
