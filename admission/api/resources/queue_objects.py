"""Handlers of the verbs on queue objects: parse the request, write through the store, respond as Kubernetes does."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.api.auth.authorization import AUTHORIZATION, require
from admission.api.auth.cluster_rights import hidden_clusters, require_in_cluster
from admission.api.auth.delegation import Attributes
from admission.api.auth.identity import author
from admission.api.documents.presentation import deletion_warnings, documents, warnings
from admission.api.documents.representation import Representation
from admission.api.documents.selection import QueueSelection
from admission.api.errors import BadRequest
from admission.api.http.bodies import APPLY_PATCH, JSON_PATCH, as_object, read_object, read_patch
from admission.api.http.failures import NAME
from admission.api.http.request_options import Paging, RequestedDeletion, WriteOptions, flag
from admission.api.http.response_cache import ResponseCache
from admission.api.http.responses import reply
from admission.api.kinds.all_kinds import KINDS
from admission.api.kinds.fair_sharing import overuse_warnings
from admission.api.registry import GROUP, Resource
from admission.api.resources.impact import impact_document, impact_warnings
from admission.api.resources.pagination import check_resource_version, list_metadata
from admission.api.resources.updates import ObjectUpdate
from admission.apimachinery.errors import success
from admission.model.workload import LOCAL
from admission.store.errors import AlreadyExists, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aiohttp import web

    from admission.api.http.bodies import Body
    from admission.api.http.responses import Document
    from admission.api.resources.dry_run import Previews
    from admission.api.watch.broadcast import Watches
    from admission.model.queues import QueueObject
    from admission.store.audit_log import Author
    from admission.store.store import Store

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names, as in Kubernetes: without vowels they form no words."""
_SUFFIX_LENGTH = 5
_LIST_CACHE_SECONDS = 2.0
"""Shortest time for which a complete list is cached for requests at the same revision."""
_TRIES = 8
"""Attempts to generate a name that does not exist yet."""


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a write, or of its dry run."""

    before: QueueObject | None
    """None: the object was created."""
    after: QueueObject


class QueueObjects:
    """Handlers of the verbs on one kind of queue object. `now` returns the Unix time (s)."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        model: type[QueueObject],
        watches: Watches,
        previews: Previews,
        *,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._resource = resource
        self._model = model
        self._watches = watches
        self._previews = previews
        self._now = now
        self._lists: ResponseCache[Sequence[Document]] = ResponseCache(_LIST_CACHE_SECONDS)

    async def list(self, request: web.Request) -> web.StreamResponse:
        """List objects of all namespaces or one, in pages; or watch them (`?watch=true`)."""
        form, selection = Representation.of(request, self._resource), QueueSelection.of(request, self._model.kind)
        if flag(request, "watch"):
            return await self._watches.serve(request, form, selection)
        paging = Paging.of(request, now=self._now())
        found, revision = await self._store.queues.snapshot(self._model.kind, namespace=selection.namespace)
        await check_resource_version(self._store, paging, revision)
        start = paging.start.after if paging.start else ("", "", "")
        selected = [item for item in found if _key(item) > start and selection.matches(item)]
        page = selected[: paging.limit]
        remaining = len(selected) - len(page)
        metadata = list_metadata(
            paging,
            revision,
            after=_key(page[-1]) if remaining else None,
            remaining=None if selection.is_narrow else remaining,
            now=self._now(),
        )
        if len(page) == len(found):  # a complete list, as dashboard pages request it, many at the same time
            key = revision, selection.namespace
            items = await self._lists.get(key, lambda: documents(self._store, found))
        else:
            items = await documents(self._store, page)
        return reply(form.list(metadata, items, now=self._now()))

    async def get(self, request: web.Request) -> web.Response:
        """Return one object."""
        form = Representation.of(request, self._resource)
        found = await self._store.queues.get(self._model.kind, **_identity(request))
        (document,) = await documents(self._store, [found])
        return reply(form.one(document, now=self._now()))

    async def create(self, request: web.Request) -> web.Response:
        """Create an object, under a generated name if it has `metadata.generateName`."""
        options, body = WriteOptions.of(request), await self._body(request)
        prefix, tries = _generate_name(body), 0
        while True:
            update, tries = self._update_of(request, options), tries + 1
            if prefix:
                body.value["metadata"]["name"] = prefix + _suffix()
            request[NAME] = _name(body)
            new = update.created(body)
            try:
                await self._require_rights(request, new)
                created = await self._store.queues.create(new, author=author(request), dry_run=options.dry_run)
            except AlreadyExists:
                if prefix and tries < _TRIES:
                    continue
                raise
            written = Written(None, created)
            return await self.write_response(request, written, update.warnings, code=201, dry_run=options.dry_run)

    async def update(self, request: web.Request) -> web.Response:
        """Replace an object."""
        options, body = WriteOptions.of(request), await self._body(request)
        update = self._update_of(request, options)
        new = update.replaced(body)
        return await self._modify(request, update, lambda old: update.replacing(old, new), options)

    async def patch(self, request: web.Request) -> web.Response:
        """Patch an object; a server-side apply also creates it if it does not exist and the user may create it."""
        apply = request.content_type == APPLY_PATCH
        options, body = WriteOptions.of(request, apply=apply), await read_patch(request)
        update = self._update_of(request, options)
        if request.content_type == JSON_PATCH:
            return await self._modify(request, update, lambda old: update.json_patched(old, body), options)
        if not apply:
            return await self._modify(request, update, lambda old: update.merged(old, body), options)
        try:
            return await self._modify(
                request, update, lambda old: update.applied(old, body, force=options.force), options
            )
        except NotFound:
            await require(request, "create")
        return await self._apply_or_create(request, body, options)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete an object; the response is a Status, as that of kube-apiserver."""
        options = await RequestedDeletion.of(request)
        deleted = await self._store.queues.delete(
            self._model.kind,
            **_identity(request),
            uid=options.uid,
            resource_version=options.resource_version,
            author=author(request),
            dry_run=options.dry_run,
        )
        details: Document = {"name": deleted.name, "group": GROUP, "kind": self._resource.plural}
        details["uid"] = deleted.metadata.uid
        texts = await deletion_warnings(self._store, [deleted])
        if options.dry_run:
            impact = (await self._previews.deleted([deleted])).without(await hidden_clusters(request))
            details["impact"] = impact_document(impact)
            texts += impact_warnings(impact)
        return reply(success(details=details), warnings=texts)

    async def deletecollection(self, request: web.Request) -> web.Response:
        """Delete all selected objects, one after the other; the response is the list of them.

        It stops at the first object that cannot be deleted, as kube-apiserver does; earlier ones are deleted then.
        """
        form, selection = Representation.of(request, self._resource), QueueSelection.of(request, self._model.kind)
        options = await RequestedDeletion.of(request)
        if options.uid or options.resource_version:
            raise BadRequest("preconditions are only supported for the deletion of one object")
        found, revision = await self._store.queues.snapshot(self._model.kind, namespace=selection.namespace)
        deleted = []
        for item in filter(selection.matches, found):
            try:
                last = await self._store.queues.delete(
                    item.kind,
                    item.name,
                    namespace=item.metadata.namespace,
                    uid=item.metadata.uid,
                    author=author(request),
                    dry_run=options.dry_run,
                )
            except NotFound:  # deleted by another request meanwhile
                continue
            deleted.append(last)
        metadata: Document = {"resourceVersion": str(revision)}
        texts = await deletion_warnings(self._store, deleted)
        return reply(form.list(metadata, await documents(self._store, deleted), now=self._now()), warnings=texts)

    async def _body(self, request: web.Request) -> Body:
        body = await read_object(request)
        if body is None:
            raise BadRequest(f"the body is empty; send a {self._resource.kind}")
        as_object(body.value)
        return body

    def _update_of(self, request: web.Request, options: WriteOptions) -> ObjectUpdate:
        return ObjectUpdate(
            self._resource,
            request.match_info.get("namespace", ""),
            request.match_info.get("name", ""),
            options.manager or request.headers.get("User-Agent", "").partition("/")[0][:128],
            options.validation,
            datetime.fromtimestamp(int(self._now()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    async def _modify(
        self,
        request: web.Request,
        update: ObjectUpdate,
        make: Callable[[QueueObject], QueueObject],
        options: WriteOptions,
    ) -> web.Response:
        """Change an existing object by `make`, and respond. Raises NotFound if it does not exist."""
        kind, place = self._model.kind, _identity(request)

        def of(old: QueueObject | None) -> QueueObject:
            if old is None:
                raise NotFound.of(self._resource.plural, place["name"])
            return make(old)

        key = kind, place["namespace"], place["name"]
        written = await self.write(request, key, of, author=author(request), dry_run=options.dry_run)
        return await self.write_response(request, written, update.warnings, dry_run=options.dry_run)

    async def _apply_or_create(self, request: web.Request, body: Body, options: WriteOptions) -> web.Response:
        update, place = self._update_of(request, options), _identity(request)

        def of(old: QueueObject | None) -> QueueObject:
            return update.applied(old, body, force=options.force)

        key = self._model.kind, place["namespace"], place["name"]
        written = await self.write(request, key, of, author=author(request), dry_run=options.dry_run)
        code = 201 if written.before is None else 200
        return await self.write_response(request, written, update.warnings, code=code, dry_run=options.dry_run)

    async def write(
        self,
        request: web.Request,
        key: tuple[str, str, str],
        change: Callable[[QueueObject | None], QueueObject],
        *,
        author: Author,
        dry_run: bool,
    ) -> Written:
        """Write by `Queues.write`, after a check of the rights that the new object needs. Raises Forbidden, Conflict.

        Which rights these are depends on the result: it is computed in a dry run first, and the write fails by Conflict
        if by then it would need other ones.
        """
        rights = KINDS[self._model.kind].rights
        before: QueueObject | None = None

        def noted(old: QueueObject | None) -> QueueObject:
            nonlocal before
            before = old
            return change(old)

        if rights is None:
            written = await self._store.queues.write(key, noted, author=author, dry_run=dry_run)
            return Written(before, written)
        planned = await self._store.queues.write(key, change, author=author, dry_run=True)
        await self._require_rights(request, planned)

        def as_planned(old: QueueObject | None) -> QueueObject:
            new = noted(old)
            if not {*rights(new)} <= {*rights(planned)}:
                raise Conflict(f"{self._resource.singular} {key[2]} has changed meanwhile; try again")
            return new

        written = await self._store.queues.write(key, as_planned, author=author, dry_run=dry_run)
        return Written(before, written)

    async def _require_rights(self, request: web.Request, new: QueueObject) -> None:
        rights = KINDS[self._model.kind].rights
        for right in () if rights is None else rights(new):
            wanted = Attributes(right.verb, right.resource, right.subresource, right.namespace, right.name)
            await request.app[AUTHORIZATION].require(request, wanted)
            if right.cluster != LOCAL:
                await require_in_cluster(request, right.cluster, wanted)

    async def write_response(
        self, request: web.Request, written: Written, texts: Iterable[str] = (), *, code: int = 200, dry_run: bool
    ) -> web.Response:
        """Return the response to a write: the object with warnings; after a dry run also with the impact.

        `texts`: warnings from parsing the request.
        """
        form, obj = Representation.of(request, self._resource), written.after
        (document,) = await documents(self._store, [obj])
        texts = [*dict.fromkeys(texts), *await warnings(self._store, obj, self._previews.warning_context())]
        if dry_run:
            impact = (await self._previews.written(written.before, obj)).without(await hidden_clusters(request))
            document["status"] = {**document.get("status", {}), "impact": impact_document(impact)}
            texts += impact_warnings(impact)
        else:
            texts += await overuse_warnings(self._store, obj)
        return reply(form.one(document, now=self._now()), code=code, warnings=texts)


def _name(body: Body) -> str:
    metadata = body.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _generate_name(body: Body) -> str:
    """Return `metadata.generateName`, the prefix of the name; empty if the object has a name."""
    metadata = body.value.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name"):
        return ""
    prefix = metadata.get("generateName") or ""
    if not isinstance(prefix, str) or len(prefix) > 253 - _SUFFIX_LENGTH:
        raise BadRequest("metadata.generateName must be a string that leaves room for a suffix")
    return prefix


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))


def _identity(request: web.Request) -> dict[str, str]:
    return {"name": request.match_info["name"], "namespace": request.match_info.get("namespace", "")}


def _key(item: QueueObject) -> tuple[str, str, str]:
    return item.metadata.namespace, item.metadata.name, ""
