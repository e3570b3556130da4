"""Handlers of the verbs on workloads: get, list, watch, patch of `spec` (orders), patch of the subresource status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from admission.api.auth.authorization import attributes, may_patch_all_workloads
from admission.api.auth.cluster_rights import hidden_clusters, hidden_from_watch, hidden_of_each
from admission.api.auth.identity import author
from admission.api.documents.presentation import warnings, workload_documents
from admission.api.documents.representation import Representation
from admission.api.documents.selection import WorkloadSelection
from admission.api.errors import Forbidden, UnsupportedMediaType
from admission.api.http.bodies import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, as_object, check_patched, read_patch
from admission.api.http.request_options import Paging, WriteOptions, flag
from admission.api.http.responses import reply
from admission.api.resources.impact import Impact, impact_document, impact_warnings
from admission.api.resources.pagination import check_resource_version, list_metadata, wait_for_resource_version
from admission.api.resources.start_estimates import StartEstimate
from admission.api.resources.workload_patches import SpecPatch, change_reason, check_identity, check_reports, spec_patch
from admission.apimachinery.patches import json_patch, merge_patch
from admission.model.errors import InvalidObject
from admission.model.queues import LocalQueue, WorkloadPriorityClass
from admission.model.workload import LOCAL
from admission.store.errors import Conflict, NotFound
from admission.store.records import Page, State
from admission.store.workloads.places import QueuePlace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.registry import Resource
    from admission.api.resources.dry_run import Previews
    from admission.api.resources.start_estimates import EstimateOf
    from admission.api.resources.workload_lookup import WorkloadLookup
    from admission.api.watch.broadcast import Watches
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

    _Write: TypeAlias = Callable[
        [web.Request, WorkloadRecord, Document, Document, WriteOptions], Awaitable[Impact | None]
    ]


class WorkloadHandlers:
    """Handlers of the verbs on workloads. `now` returns the Unix time (s)."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        watches: Watches,
        previews: Previews,
        estimate_of: EstimateOf,
        lookup: WorkloadLookup,
        *,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._estimate_of = estimate_of
        self._lookup = lookup
        self._resource = resource
        self._watches = watches
        self._previews = previews
        self._now = now

    async def list(self, request: web.Request) -> web.StreamResponse:
        """List workloads, including finished ones, in pages; or watch them (`?watch=true`)."""
        form, selection = Representation.of(request, self._resource), WorkloadSelection.of(request)
        if flag(request, "watch"):
            return await self._watches.serve(request, form, selection.without(await hidden_from_watch(request)))
        hidden = await hidden_clusters(request)
        missed, selection = sorted(hidden & selection.clusters), selection.without(hidden)
        paging = Paging.of(request, now=self._now())
        await wait_for_resource_version(self._store, paging)
        page = await self._page(selection, paging)
        await check_resource_version(self._store, paging, page.revision)
        items = await workload_documents(self._store, filter(selection.matches_name, page.workloads), now=self._now())
        self.add_estimates(items)
        remaining = None if selection.is_narrow else page.remaining
        metadata = list_metadata(paging, page.revision, after=page.after, remaining=remaining, now=self._now())
        texts = [f"workloads created in cluster {name} are not shown: you may not list them" for name in missed]
        return reply(form.list(metadata, items, now=self._now()), warnings=texts)

    async def get(self, request: web.Request) -> web.Response:
        """Return one workload, by its own name, that of its Kubernetes object (then the newest), or of a part of it."""
        form = Representation.of(request, self._resource)
        document = await self._document(await self._lookup.of_request(request, exact=False))
        self.add_estimates([document])
        return reply(form.one(document, now=self._now()))

    async def patch(self, request: web.Request) -> web.Response:
        """Patch `spec`: queue, priority, order, hold or active."""
        return await self._patched(request, self._order)

    async def patch_status(self, request: web.Request) -> web.Response:
        """Patch `status.admissionChecks`."""
        return await self._patched(request, self._report)

    async def _page(self, selection: WorkloadSelection, paging: Paging) -> Page:
        if selection.is_empty:
            return Page((), await self._store.queues.revision(), None)
        return await self._store.workloads.list(
            namespace=selection.namespace,
            where=selection.conditions,
            limit=paging.limit,
            after=paging.start.after if paging.start else None,
        )

    def add_estimates(self, documents: Iterable[Document]) -> None:
        """Add `status.estimatedStart` to pending workloads.

        Watches have none: estimates change all the time, which must not cause an event each time.
        """
        for document in documents:
            if document["status"]["state"] == State.PENDING:
                estimate = self._estimate_of(document["metadata"]["uid"])
                if isinstance(estimate, StartEstimate):
                    document["status"]["estimatedStart"] = estimate.document()

    async def _document(self, record: WorkloadRecord) -> Document:
        (document,) = await workload_documents(self._store, [record], now=self._now())
        return document

    async def _patched(self, request: web.Request, write: _Write) -> web.Response:
        """Apply a patch to a workload's document, and write the difference; retry if the workload has changed."""
        form, options = Representation.of(request, self._resource), WriteOptions.of(request)
        if request.content_type == APPLY_PATCH:
            raise UnsupportedMediaType(f"workloads have no server-side apply; send {JSON_PATCH} or {MERGE_PATCH}")
        body = await read_patch(request)
        record = await self._lookup.of_request(request, exact=True)
        while True:
            before = await self._document(record)
            if request.content_type == JSON_PATCH:
                after = json_patch(before, body.value)
            else:
                after = merge_patch(before, as_object(body.value))
            check_patched(after, "the patched workload")
            check_identity(before, as_object(after))
            try:
                impact = await write(request, record, before, after, options)
            except Conflict:
                again = await self._lookup.of_request(request, exact=True)
                if again.revision == record.revision:
                    raise
                record = again
            else:
                document = await self._document(await self._lookup.of_request(request, exact=True))
                texts = [*await self._warnings(before, after)]
                if impact is not None:
                    document["status"]["impact"] = impact_document(impact)
                    texts += impact_warnings(impact)
                return reply(form.one(document, now=self._now()), warnings=texts)

    async def _order(
        self, request: web.Request, record: WorkloadRecord, before: Document, after: Document, options: WriteOptions
    ) -> Impact | None:
        patch = spec_patch(before, after)
        who = author(request)
        if not who.reason:
            who = replace(who, reason=change_reason(before, after))
        within_namespace = not await may_patch_all_workloads(request)
        if within_namespace:
            await self._check_namespaced_rights(record, patch)
        if patch.place_before is not None:
            other = await self._place_target(request, record, patch.place_before)
            patch.changes["place"] = QueuePlace(other.workload.uid, other.workload.key)
        if not patch.changes:
            return Impact() if options.dry_run else None
        order = await self._store.orders.give(
            record.workload.uid,
            author=who,
            resource_version=str(record.revision),
            dry_run=options.dry_run,
            within_namespace=within_namespace,
            **patch.changes,
        )
        if not options.dry_run:
            return None
        found = await self._previews.ordered(record, order)
        namespaces = sorted({each.namespace for each in found.workloads if each.cluster != LOCAL})
        wanted = [replace(attributes(request), namespace=namespace, name="") for namespace in namespaces]
        for namespace, hidden in zip(namespaces, await hidden_of_each(request, wanted), strict=True):
            found = found.without(hidden, namespace=namespace)
        return found

    async def _warnings(self, before: Document, after: Document) -> Sequence[str]:
        """Return the warnings of the LocalQueue that a workload is moved to, such as a missing ClusterQueue."""
        namespace, queue = before["metadata"]["namespace"], after["spec"].get("queueName")
        if not queue or queue == before["spec"]["queueName"]:
            return []
        try:
            found = await self._store.queues.get(LocalQueue.kind, queue, namespace=namespace)
        except NotFound:
            return []  # deleted meanwhile
        return await warnings(self._store, found, self._previews.warning_context())

    async def _check_namespaced_rights(self, record: WorkloadRecord, patch: SpecPatch) -> None:
        """Check an order by a user with the right for one namespace only (a team lead). Raises Forbidden.

        Such users may move workloads, reorder those of their namespace, and set priorities up to the highest priority
        class, which users can also set by a label of the Job.
        """
        everywhere = "needs the right to patch workloads in all namespaces"
        for name, field in (("held", "hold"), ("active", "active")):
            if name in patch.changes:
                raise Forbidden(f"forbidden: spec.{field} {everywhere}; users hold a Job by its label sluice.dev/hold")
        if patch.place_before is not None and "/" in patch.place_before.removeprefix(f"{record.workload.namespace}/"):
            raise Forbidden(f"forbidden: a place before a workload of another namespace {everywhere}")
        priority = patch.changes.get("priority")
        if priority is not None:
            classes = await self._store.queues.list(WorkloadPriorityClass.kind)
            values = [item.value for item in classes if isinstance(item, WorkloadPriorityClass)]
            highest = max(0, record.workload.priority, *values)
            if priority > highest:
                raise Forbidden(
                    f"forbidden: spec.priority: more than {highest}, which is the highest of all "
                    f"WorkloadPriorityClasses, {everywhere}"
                )

    async def _place_target(self, request: web.Request, record: WorkloadRecord, name: str) -> WorkloadRecord:
        namespace, _, own = name.rpartition("/")
        where = namespace or record.workload.namespace
        hidden = await hidden_clusters(request, replace(attributes(request), namespace=where, name=own))
        found = await self._lookup.exact(where, own, hidden=hidden)
        if found is None:
            raise InvalidObject(
                [("spec.order.before", f'there is no workload "{name}"')], subject=f'Workload "{record.workload.name}"'
            )
        return found

    async def _report(
        self, request: web.Request, record: WorkloadRecord, before: Document, after: Document, options: WriteOptions
    ) -> None:
        if reports := check_reports(before, after):
            await self._store.orders.report(
                record.workload.uid,
                reports,
                author=author(request),
                resource_version=str(record.revision),
                dry_run=options.dry_run,
            )
