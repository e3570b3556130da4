"""The verbs on queue objects and workloads: what a request wants, done by the store, shown as Kubernetes shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.api.errors import BadRequest, UnknownObject
from admission.api.presentation import documents, warnings
from admission.api.registry import API_VERSION, GROUP, Resource
from admission.api.replies import reply
from admission.api.requests import Deletion, Paging, continue_token, dry_run, read_object
from admission.api.workload_documents import object_name, workload_document, workload_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from admission.api.replies import Document
    from admission.model.queues import QueueObject
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

AUTHOR = "admin"
"""Who made a change, as long as there is one token and it is the admin's."""


class QueueObjects:
    """The verbs of one kind of queue object."""

    def __init__(self, store: Store, resource: Resource, model: type[QueueObject]) -> None:
        self._store = store
        self._resource = resource
        self._model = model

    async def list(self, request: web.Request) -> web.Response:
        """All of them, or a page, of all namespaces or one."""
        paging = Paging.of(request)
        revision = await self._store.queues.revision()
        found = await self._store.queues.list(self._model.kind, namespace=request.match_info.get("namespace"))
        if paging.after is not None:
            found = tuple(item for item in found if _key(item) > paging.after)
        page = found[: paging.limit]
        remaining = len(found) - len(page)
        items = await documents(self._store, page)
        return reply(_list(self._resource, items, revision, _key(page[-1]) if remaining else None, remaining))

    async def get(self, request: web.Request) -> web.Response:
        """One object."""
        found = await self._store.queues.get(self._model.kind, **_identity(request))
        (document,) = await documents(self._store, [found])
        return reply(document)

    async def create(self, request: web.Request) -> web.Response:
        """A new object."""
        wanted = await read_object(request, self._resource)
        if wanted.metadata.resource_version:
            raise BadRequest("metadata.resourceVersion must not be set on an object that is to be created")
        written = await self._store.queues.create(wanted, author=AUTHOR, dry_run=dry_run(request))
        return await self._written(written, code=201)

    async def update(self, request: web.Request) -> web.Response:
        """An object in place of the one of that name."""
        wanted = await read_object(request, self._resource)
        written = await self._store.queues.replace(wanted, author=AUTHOR, dry_run=dry_run(request))
        return await self._written(written, code=200)

    async def delete(self, request: web.Request) -> web.Response:
        """Away with an object; the answer is a Status, as the API server gives it."""
        wanted = await Deletion.of(request)
        deleted = await self._store.queues.delete(
            self._model.kind,
            **_identity(request),
            uid=wanted.uid,
            resource_version=wanted.resource_version,
            author=AUTHOR,
            dry_run=wanted.dry_run,
        )
        details = {"name": deleted.name, "group": GROUP, "kind": self._resource.plural, "uid": deleted.metadata.uid}
        return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    async def _written(self, written: QueueObject, *, code: int) -> web.Response:
        (document,) = await documents(self._store, [written])
        return reply(document, code=code, warnings=await warnings(self._store, written))


class Workloads:
    """The verbs of workloads, which the controller writes and users read."""

    def __init__(self, store: Store, resource: Resource) -> None:
        self._store = store
        self._resource = resource

    async def list(self, request: web.Request) -> web.Response:
        """All workloads, finished ones too, or a page of them."""
        paging = Paging.of(request)
        page = await self._store.workloads.list(
            namespace=request.match_info.get("namespace"), limit=paging.limit, after=paging.after
        )
        items = [workload_document(record) for record in page.workloads]
        return reply(_list(self._resource, items, page.revision, page.after, page.remaining))

    async def get(self, request: web.Request) -> web.Response:
        """One workload, by its own name, or the newest of an object by the name of that."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        record = await self._named(namespace, name) or await self._store.workloads.get(namespace, name)
        if record is None:
            raise UnknownObject(f'there is no workload "{name}" in namespace "{namespace}"')
        return reply(workload_document(record))

    async def _named(self, namespace: str, name: str) -> WorkloadRecord | None:
        # All workloads of one object name stand together in the order of lists, and they are few.
        after = (namespace, object_name(name), "")
        while True:
            page = await self._store.workloads.list(namespace=namespace, after=after, limit=10)
            for record in page.workloads:
                if record.workload.name != object_name(name):
                    return None
                if workload_name(record.workload) == name:
                    return record
            if page.after is None:
                return None
            after = page.after


def _list(
    resource: Resource, items: Iterable[Document], revision: int, after: tuple[str, str, str] | None, remaining: int
) -> Document:
    metadata: Document = {"resourceVersion": str(revision)}
    if after is not None:
        metadata |= {"continue": continue_token(after), "remainingItemCount": remaining}
    return {"apiVersion": API_VERSION, "kind": f"{resource.kind}List", "metadata": metadata, "items": list(items)}


def _identity(request: web.Request) -> dict[str, str]:
    return {"name": request.match_info["name"], "namespace": request.match_info.get("namespace", "")}


def _key(item: QueueObject) -> tuple[str, str, str]:
    return item.metadata.namespace, item.metadata.name, ""
