"""Handlers of the verbs: from a request's query and body to the registry, and back to a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from admission.apimachinery.bodies import duplicate_fields
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.apply import apply_patch, track_update
from admission.sandbox.apiserver.bodies import decode, decode_object, media_type
from admission.sandbox.apiserver.decoding import decode_new, decode_update
from admission.sandbox.apiserver.errors import ApiError, bad_request
from admission.sandbox.apiserver.patch import json_patch, merge_patch, strategic_merge
from admission.sandbox.apiserver.requests import Call
from admission.sandbox.apiserver.scale import scale_of, with_scale
from admission.sandbox.apiserver.selectors import parse_selector
from admission.sandbox.builtin import pods
from admission.sandbox.http.listing import ListPage, list_page, wait_for
from admission.sandbox.http.representation import JSON, Renderer, dump, negotiate
from admission.sandbox.http.watching import WatchStream

if TYPE_CHECKING:
    from aiohttp import web

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.paths import PathTarget
    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import DeleteOptions, User
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import ObjectVersion
    from admission.sandbox.auth.users import Authenticator

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
        return Answer(dump(_SUCCESS | {"code": 201}), 201)

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
        return Answer(dump(_SUCCESS | {"code": 201}), 201)

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
        return Answer(dump(_SUCCESS | {"details": {key: value for key, value in details.items() if value}}))

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


_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


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
