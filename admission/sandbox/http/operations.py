"""Handlers of the verbs, with watches: from a request's query and body to the registry, and back to a response."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
from aiohttp import ClientConnectionResetError

from admission.apimachinery.bodies import duplicate_fields
from admission.apimachinery.errors import success
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.apply import apply_patch, track_update
from admission.sandbox.apiserver.bodies import decode, decode_object, media_type
from admission.sandbox.apiserver.decoding import decode_new, decode_update
from admission.sandbox.apiserver.errors import ApiError, bad_request
from admission.sandbox.apiserver.patch import json_patch, merge_patch, strategic_merge
from admission.sandbox.apiserver.query import check_watch, start_version
from admission.sandbox.apiserver.requests import Call
from admission.sandbox.apiserver.scale import scale_of, with_scale
from admission.sandbox.apiserver.selectors import parse_selector
from admission.sandbox.builtin import pods
from admission.sandbox.http.faults import reordered
from admission.sandbox.http.listing import ListPage, list_page, wait_for
from admission.sandbox.http.representation import JSON, Renderer, dump, negotiate

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.paths import PathTarget
    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import DeleteOptions, User
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.selectors import ObjectSelector
    from admission.sandbox.apiserver.storage import ObjectVersion, StorageEvent, StoredCollection
    from admission.sandbox.auth.users import Authenticator
    from admission.sandbox.http.faults import WatchFaults


JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_ORPHANS_TEXT = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body of an HTTP response."""

    body: bytes
    status: int = 200
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RequestScope:
    """One request with its resource, target, options and user."""

    request: web.BaseRequest
    resource: ServedResource
    target: PathTarget
    query: Query
    user: User
    warnings: list[str]

    @property
    def namespace(self) -> str:
        return self.target.namespace or ""

    @property
    def name(self) -> str:
        return unquote(self.target.name)

    def content_type(self) -> str:
        return media_type(self.request.headers.get("Content-Type", ""))


class Operations:
    """Handlers for stored resources."""

    def __init__(self, registry: ObjectRegistry, tokens: Authenticator) -> None:
        self._registry = registry
        self._tokens = tokens

    async def run(
        self, verb: str, request: web.BaseRequest, resource: ServedResource, target: PathTarget, query: Query,
        user: User, warnings: list[str],
    ) -> Answer:  # fmt: skip
        """Run the handler of a verb. Raises ApiError."""
        scope = RequestScope(request, resource, target, query, user, warnings)
        match verb:
            case "get":
                return await self._get(scope)
            case "list":
                return await self._list(scope)
            case "create" if target.subresource == "token":
                return await self._create_token(scope)
            case "create" if target.subresource:
                return await self._create_sub(scope)
            case "create":
                return await self._create(scope)
            case "update":
                return await self._update(scope)
            case "patch":
                return await self._patch(scope)
            case "delete":
                return await self._delete(scope)
            case _:
                return await self._delete_collection(scope)

    # ------------------------------------------------------------------ reads

    async def _get(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        collection = self._registry.collection(scope.resource)
        if rv := scope.query.integer("resourceVersion"):
            await wait_for(collection, rv)
        version = collection.get(scope.namespace, scope.name)
        if version is None:
            raise errors.not_found(scope.resource, scope.name)
        if scope.target.subresource == "scale":
            return Answer(dump(scale_of(scope.resource, version.obj)))
        return self._answer(scope, renderer, version)

    async def _list(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        scope.query.integer("timeoutSeconds")
        selector = parse_selector(scope.resource, scope.query.get("labelSelector"), scope.query.get("fieldSelector"))
        page = await list_page(self._registry.collection(scope.resource), scope.target.namespace, selector, scope.query)
        return Answer(renderer.page(page), media=negotiate(scope.request.headers.get("Accept", "")).media)

    def watch(
        self, request: web.BaseRequest, resource: ServedResource, target: PathTarget, query: Query
    ) -> tuple[WatchStream, str]:
        """Return a watch, ready to be served, and its media type. Raises ApiError."""
        wanted = negotiate(request.headers.get("Accept", ""))
        selector = parse_selector(resource, query.get("labelSelector"), query.get("fieldSelector"))
        render = None
        if wanted.form or resource.view is not None:
            render = Renderer(resource, wanted, self._registry.clock.now, query.get("includeObject")).event
        collection = self._registry.collection(resource)
        return WatchStream(resource, collection, target.namespace, selector, query, render), JSON

    def _renderer(self, scope: RequestScope) -> Renderer:
        wanted = negotiate(scope.request.headers.get("Accept", ""))
        return Renderer(scope.resource, wanted, self._registry.clock.now, scope.query.get("includeObject"))

    def _answer(self, scope: RequestScope, renderer: Renderer, version: ObjectVersion, status: int = 200) -> Answer:
        return Answer(renderer.one(version), status, negotiate(scope.request.headers.get("Accept", "")).media)

    # ------------------------------------------------------------------ create

    async def _create(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        call, validation = _call(scope, "CreateOptions")
        obj = await self._decoded(scope, validation)
        _check_namespace(scope, obj)
        obj["metadata"].pop("managedFields", None)
        stored, obj = self._stored(scope.resource, obj)
        version = await self._registry.create(stored, scope.namespace, obj, call)
        return self._answer(scope, renderer, version, 201)

    def _stored(self, resource: ServedResource, obj: Object) -> tuple[ServedResource, Object]:
        """Return the resource under which the object is stored, and the object converted to it."""
        if resource.view is None:
            return resource, obj
        group, plural = resource.view.key
        return self._registry.resources[group, "v1", plural], resource.view.to_storage(obj)

    async def _decoded(self, scope: RequestScope, validation: str) -> Object:
        """Decode and default the object in the body. Raises ApiError (400)."""
        raw, content_type = await scope.request.read(), scope.content_type()
        obj = decode_object(raw, content_type, scope.resource.kind)
        duplicates = duplicate_fields(raw, obj) if validation != "Ignore" and "json" in content_type else []
        unknown: list[str] = []
        obj = decode_new(scope.resource, obj, unknown)
        _report(scope, validation, [f'duplicate field "{name}"' for name in duplicates], unknown, patched=False)
        return obj

    async def _create_sub(self, scope: RequestScope) -> Answer:
        call, _ = _call(scope, "CreateOptions")
        body = decode_object(await scope.request.read(), scope.content_type(), scope.resource.kind)
        body.setdefault("metadata", {})
        action = pods.bind if scope.target.subresource == "binding" else pods.evict
        await action(self._registry, scope.namespace, scope.name, body, call)
        return Answer(dump(success(code=201)), 201)

    async def _create_token(self, scope: RequestScope) -> Answer:
        """Create a token of a service account (subresource token)."""
        raw = await scope.request.read()
        body = decode_object(raw, scope.content_type(), "TokenRequest") if raw else {}
        return Answer(dump(self._tokens.issue(self._registry, scope.namespace, scope.name, body)), 201)

    async def bind(self, request: web.BaseRequest, namespace: str, name: str, user: User) -> Answer:
        """Create a Binding through the legacy bindings resource, where the body names the pod."""
        body = decode_object(await request.read(), media_type(request.headers.get("Content-Type", "")), "Binding")
        body.setdefault("metadata", {})
        call = Call(user, options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"})
        await pods.bind(self._registry, namespace, name or body["metadata"].get("name", ""), body, call)
        return Answer(dump(success(code=201)), 201)

    # ------------------------------------------------------------------ update and patch

    async def _update(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        call, validation = _call(scope, "UpdateOptions")
        if scope.target.subresource == "scale":
            scale = decode_object(await scope.request.read(), scope.content_type(), "Scale")
            return await self._change_scale(scope, call, lambda current: scale)
        body = await self._decoded(scope, validation)
        _check_names(scope, body)

        def change(current: ObjectVersion | None) -> Object:
            new = {**body, "metadata": dict(body["metadata"])}
            if current is None:
                return new
            _check_uid(scope, new, current.obj)
            track_update(current.obj, new, scope.query.get("fieldManager"), scope.resource, self._registry.now())
            return _shared(new, current.obj)

        return await self._write(scope, renderer, call, change, may_create=scope.resource.strategy.create_on_update)

    async def _patch(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        kind = scope.content_type()
        if kind not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH) or (
            kind == STRATEGIC_PATCH and scope.resource.custom
        ):
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        scope.query.check_patch(apply=kind == APPLY_PATCH)
        call, validation = _call(scope, "PatchOptions")
        body = _patch_body(decode(await scope.request.read(), kind, scope.resource.kind), kind)
        if kind == APPLY_PATCH:
            return await self._apply(scope, renderer, call, body)
        if scope.target.subresource == "scale":
            return await self._change_scale(scope, call, lambda current: _patched(current, body, kind, None))
        struct = scope.resource.schema.struct() if kind == STRATEGIC_PATCH else None
        manager = scope.query.get("fieldManager")

        def change(current: ObjectVersion | None) -> Object:
            assert current is not None
            unknown: list[str] = []
            patched = _patched(current.obj, body, kind, struct)
            if not isinstance(patched, dict):
                raise errors.bad_patch("the patch yields no object")
            new = decode_update(scope.resource, patched, current.obj, unknown)
            _report(scope, validation, [], unknown, patched=True)
            _check_names(scope, new)
            track_update(current.obj, new, manager, scope.resource, self._registry.now())
            return new

        return await self._write(scope, renderer, call, change)

    async def _apply(self, scope: RequestScope, renderer: Renderer, call: Call, body: Object) -> Answer:
        _check_names(scope, body)
        manager, force = scope.query.get("fieldManager"), scope.query.flag("force")

        def change(current: ObjectVersion | None) -> Object:
            return apply_patch(
                scope.resource, current.obj if current else None, body, manager, self._registry.now(), force=force
            )

        return await self._write(scope, renderer, call, change, may_create=not scope.target.subresource)

    async def _write(
        self, scope: RequestScope, renderer: Renderer, call: Call, change: Any, *, may_create: bool = False
    ) -> Answer:
        view = scope.resource.view

        def converted(current: ObjectVersion | None) -> Object:
            assert view is not None
            return view.to_storage(change(current.with_object(view.from_storage(current.obj)) if current else None))

        resource, _ = self._stored(scope.resource, {})
        version, created = await self._registry.update(
            resource, scope.namespace, scope.name, change if view is None else converted, call,
            subresource=scope.target.subresource, may_create=may_create,
        )  # fmt: skip
        return self._answer(scope, renderer, version, 201 if created else 200)

    async def _change_scale(self, scope: RequestScope, call: Call, new_scale: Any) -> Answer:
        def change(current: ObjectVersion | None) -> Object:
            assert current is not None
            scale = new_scale(scale_of(scope.resource, current.obj))
            return with_scale(scope.resource, current.obj, scale)

        version, _ = await self._registry.update(
            scope.resource, scope.namespace, scope.name, change, call, subresource="scale"
        )
        return Answer(dump(scale_of(scope.resource, version.obj)))

    # ------------------------------------------------------------------ delete

    async def _delete_options(self, scope: RequestScope) -> tuple[DeleteOptions, Call]:
        raw = await scope.request.read()
        body = decode_object(raw, scope.content_type(), "DeleteOptions") if raw else None
        options, shown, dry_run = scope.query.delete_options(body)
        call = Call(scope.user, dry_run, shown, scope.warnings)
        orphans = scope.resource.strategy.default_propagation == "Orphan"
        if orphans and options.propagation is None:
            scope.warnings.append(_ORPHANS_TEXT)
        return options, call

    async def _delete(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        options, call = await self._delete_options(scope)
        version, removed = await self._registry.delete(scope.resource, scope.namespace, scope.name, options, call)
        if not removed or scope.resource.strategy.returns_deleted:
            return self._answer(scope, renderer, version)
        details = {"name": scope.name, "group": scope.resource.group, "kind": scope.resource.plural}
        details["uid"] = version.obj["metadata"]["uid"]
        return Answer(dump(success(details={key: value for key, value in details.items() if value})))

    async def _delete_collection(self, scope: RequestScope) -> Answer:
        renderer = self._renderer(scope)
        selector = parse_selector(scope.resource, scope.query.get("labelSelector"), scope.query.get("fieldSelector"))
        options, call = await self._delete_options(scope)
        collection = self._registry.collection(scope.resource)
        chosen = [version for version in collection.versions(scope.target.namespace) if selector.matches(version.obj)]
        deleted = []
        for version in chosen:
            metadata = version.obj["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            await self._registry.delete(scope.resource, namespace, name, options, call, in_bulk=True)
            deleted.append(version)
        return Answer(renderer.page(ListPage(deleted, self._registry.store.revision)))


def _call(scope: RequestScope, kind: str) -> tuple[Call, str]:
    options, dry_run, validation = scope.query.write_options(kind)
    if kind == "PatchOptions":
        # Webhooks see every patch as an update.
        options["kind"] = "UpdateOptions"
    return Call(scope.user, dry_run, options, scope.warnings), validation


def _patch_body(body: Any, kind: str) -> Any:
    wanted = list if kind == JSON_PATCH else dict
    if not isinstance(body, wanted):
        name = type(body).__name__
        raise bad_request(f"error decoding patch: json: cannot unmarshal {name} into Go value")
    return body


def _patched(current: Object, body: Any, kind: str, struct: Any) -> Any:
    if kind == JSON_PATCH:
        return json_patch(current, body)
    return merge_patch(current, body) if kind == MERGE_PATCH else strategic_merge(current, body, struct)


def _report(scope: RequestScope, validation: str, duplicates: list[str], unknown: list[str], *, patched: bool) -> None:
    """Warn of duplicate and unknown fields; with fieldValidation Strict raise ApiError (400, for patches 422)."""
    texts = duplicates + [f'unknown field "{name}"' for name in unknown]
    if not texts or validation == "Ignore":
        return
    if validation != "Strict":
        scope.warnings.extend(texts)
        return
    message = f"strict decoding error: {', '.join(texts)}"
    if patched:
        raise errors.bad_patch(message)
    kind = scope.resource.kind
    raise bad_request(f'{kind} in version "{scope.resource.version}" cannot be handled as a {kind}: {message}')


def _check_namespace(scope: RequestScope, obj: Object) -> None:
    in_body = obj["metadata"].get("namespace", "")
    if in_body and in_body != scope.namespace and scope.resource.namespaced:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_names(scope: RequestScope, obj: Object) -> None:
    """Check that the body of a PUT or the result of a patch has the name and namespace of the URL. Raises ApiError."""
    metadata = obj.setdefault("metadata", {})
    name = metadata.setdefault("name", scope.name)
    if name != scope.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({scope.name})")
    _check_namespace(scope, obj)
    if scope.resource.namespaced:
        metadata.setdefault("namespace", scope.namespace)


def _check_uid(scope: RequestScope, new: Object, old: Object) -> None:
    """Check the uid of a PUT: another uid means an object that has been deleted. Raises ApiError (409)."""
    expected, found = new["metadata"].get("uid", ""), old["metadata"]["uid"]
    if expected and expected != found:
        text = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
        raise errors.conflict(scope.resource, scope.name, text)


def _shared(new: Object, old: Object) -> Object:
    """Replace equal parts by those of the old object: later steps skip parts that are identical (`is`)."""
    for key, value in new.items():
        if key in old and value is not old[key] and value == old[key]:
            new[key] = old[key]
    return new


# Seconds of real time without an event after which a bookmark is sent.
BOOKMARK_INTERVAL = 60.0
# Seconds until a watch without timeoutSeconds ends; the API server's end after 30 to 60 minutes.
DEFAULT_TIMEOUT = 1800.0
_INITIAL_END = "k8s.io/initial-events-end"
# Fields of a bookmark's object beside its metadata: the zero values of Go structs.
_ZERO: dict[tuple[str, str], Object] = {
    ("batch", "jobs"): {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
    ("", "pods"): {"spec": {"containers": None}, "status": {}},
    ("", "nodes"): {
        "spec": {},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}},
    },
    ("", "namespaces"): {"spec": {}, "status": {}},
}


class WatchStream:
    """One watch request. Raises ApiError (422, 500) for invalid parameters."""

    def __init__(
        self,
        resource: ServedResource,
        collection: StoredCollection,
        namespace: str | None,
        selector: ObjectSelector,
        query: Query,
        render: Callable[[ObjectVersion], bytes] | None,
    ) -> None:
        check_watch(query)
        self._resource = resource
        self._collection = collection
        self._namespace = namespace
        self._selector = selector
        self._render = render
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._start = start_version(query)
        send_initial = query.get("sendInitialEvents")
        self._initial = send_initial.lower() not in ("false", "0") if send_initial else self._start in (None, 0)
        # A watch from resourceVersion 0 also marks the end of the initial events, without sendInitialEvents.
        self._marks_end = self._bookmarks and self._initial and (bool(send_initial) or self._start == 0)
        if send_initial and not self._initial and self._start is None:
            self._start = collection.store.revision
        self._timeout = query.integer("timeoutSeconds") or DEFAULT_TIMEOUT

    async def serve(self, response: web.StreamResponse, faults: WatchFaults) -> None:
        """Write events until the timeout; the caller prepares and ends the response.

        Raises ConnectionResetError if a fault ends the watch abruptly.
        """
        wake = asyncio.Event()
        sources = (self._collection, faults.rules)
        for source in sources:
            source.subscribe(wake.set)
        try:
            async with asyncio.timeout(self._timeout):
                await self._stream(response, wake, faults)
        except TimeoutError:
            return
        except ClientConnectionResetError:
            return  # the client disconnected, which is the usual end of a watch
        finally:
            for source in sources:
                source.unsubscribe(wake.set)

    async def _stream(self, response: web.StreamResponse, wake: asyncio.Event, faults: WatchFaults) -> None:
        collection = self._collection
        if self._initial:
            position = collection.end
            await self._send_existing(response)
        elif self._start is not None and (self._start < collection.compacted_revision or faults.is_expired()):
            await response.write(self._too_old())
            return
        else:
            position = faults.rewind(collection.position(self._start or 0), collection.first)
        sent = collection.store.revision
        while True:
            wake.clear()
            if faults.should_close():
                return
            reorder = position < collection.end and await faults.wait_to_reorder()
            events = collection.since(position)
            if events is None:
                await response.write(self._too_old())
                return
            if events:
                position += len(events)
                sent = events[-1].rv
                if lines := self._lines(reordered(events) if reorder else events):
                    await response.write(lines)
                continue
            sent = await self._wait(response, wake, sent)

    async def _wait(self, response: web.StreamResponse, wake: asyncio.Event, sent: int) -> int:
        """Wait for an event, at most BOOKMARK_INTERVAL; then send a bookmark if the store has moved on.

        `sent` is the resourceVersion that the client knows. Returns it after the call.
        """
        try:
            async with asyncio.timeout(BOOKMARK_INTERVAL):
                await wake.wait()
        except TimeoutError:
            revision = self._collection.store.revision
            if self._bookmarks and revision > sent:
                await response.write(self._bookmark())
                return revision
        return sent

    async def _send_existing(self, response: web.StreamResponse) -> None:
        chunks = [
            b'{"type":"ADDED","object":%s}\n' % self._rendered(version)
            for version in self._collection.versions(self._namespace)
            if self._selector.is_empty or self._selector.matches(version.obj)
        ]
        if self._marks_end:
            chunks.append(self._bookmark(end=True))
        if chunks:
            await response.write(b"".join(chunks))

    def _lines(self, events: list[StorageEvent]) -> bytes:
        namespace, plain = self._namespace, self._selector.is_empty and self._render is None
        if plain:
            return b"".join([event.line() for event in events if namespace is None or event.namespace == namespace])
        lines = [self._line(event) for event in events if namespace is None or event.namespace == namespace]
        return b"".join(lines)

    def _line(self, event: StorageEvent) -> bytes:
        """Serialise an event for this watch: an object that leaves the selection is DELETED, in its state before.

        Empty for an object that was not selected before either.
        """
        kind, version = event.type, event.version
        if not self._selector.is_empty:
            matched = event.before is not None and self._selector.matches(event.before.obj)
            matches = event.type != "DELETED" and self._selector.matches(version.obj)
            if not matched and not matches:
                return b""
            if matched and not matches and event.type != "DELETED":
                assert event.before is not None
                kind, version = "DELETED", event.before.at_revision(event.rv)
            elif matches and not matched:
                kind = "ADDED"
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self._rendered(version))

    def _rendered(self, version: ObjectVersion) -> bytes:
        return version.raw() if self._render is None else self._render(version)

    def _bookmark(self, *, end: bool = False) -> bytes:
        resource = self._resource
        metadata: Object = {"resourceVersion": str(self._collection.store.revision)}
        if end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return orjson.dumps({"type": "BOOKMARK", "object": {**obj, **_ZERO.get(resource.key, {})}}) + b"\n"

    def _too_old(self) -> bytes:
        text = f"too old resource version: {self._start} ({self._collection.compacted_revision + 1})"
        return orjson.dumps({"type": "ERROR", "object": ApiError(410, "Expired", text).status()}) + b"\n"
