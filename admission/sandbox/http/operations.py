"""What each verb does: from a request's query and body to the registry, and back to an answer."""

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
from admission.sandbox.http.listing import Page, list_page, wait_for
from admission.sandbox.http.representation import JSON, Renderer, dump, negotiate
from admission.sandbox.http.watching import Watch

if TYPE_CHECKING:
    from aiohttp import web

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.paths import Target
    from admission.sandbox.apiserver.query import Query
    from admission.sandbox.apiserver.registry import Registry
    from admission.sandbox.apiserver.requests import DeleteOptions, User
    from admission.sandbox.apiserver.resources import Resource
    from admission.sandbox.apiserver.storage import Version
    from admission.sandbox.auth.users import Authenticator

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_ORPHANS_TEXT = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over HTTP."""

    body: bytes
    status: int = 200
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Ask:
    """One request, with all that its operation needs."""

    request: web.BaseRequest
    resource: Resource
    target: Target
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
    """The verbs of stored resources."""

    def __init__(self, registry: Registry, tokens: Authenticator) -> None:
        self._registry = registry
        self._tokens = tokens

    async def run(
        self, verb: str, request: web.BaseRequest, resource: Resource, target: Target, query: Query, user: User,
        warnings: list[str],
    ) -> Answer:  # fmt: skip
        """Do what is asked. Raises ApiError."""
        ask = Ask(request, resource, target, query, user, warnings)
        match verb:
            case "get":
                return await self._get(ask)
            case "list":
                return await self._list(ask)
            case "create" if target.subresource == "token":
                return await self._create_token(ask)
            case "create" if target.subresource:
                return await self._create_sub(ask)
            case "create":
                return await self._create(ask)
            case "update":
                return await self._update(ask)
            case "patch":
                return await self._patch(ask)
            case "delete":
                return await self._delete(ask)
            case _:
                return await self._delete_collection(ask)

    # ------------------------------------------------------------------ reads

    async def _get(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        collection = self._registry.collection(ask.resource)
        if rv := ask.query.integer("resourceVersion"):
            await wait_for(collection, rv)
        version = collection.get(ask.namespace, ask.name)
        if version is None:
            raise errors.not_found(ask.resource, ask.name)
        if ask.target.subresource == "scale":
            return Answer(dump(scale_of(ask.resource, version.obj)))
        return self._answer(ask, renderer, version)

    async def _list(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        ask.query.integer("timeoutSeconds")
        selector = parse_selector(ask.resource, ask.query.get("labelSelector"), ask.query.get("fieldSelector"))
        page = await list_page(self._registry.collection(ask.resource), ask.target.namespace, selector, ask.query)
        return Answer(renderer.page(page), media=negotiate(ask.request.headers.get("Accept", "")).media)

    def watch(self, request: web.BaseRequest, resource: Resource, target: Target, query: Query) -> tuple[Watch, str]:
        """A watch, ready to be served, and its media type. Raises ApiError."""
        wanted = negotiate(request.headers.get("Accept", ""))
        selector = parse_selector(resource, query.get("labelSelector"), query.get("fieldSelector"))
        render = None
        if wanted.form or resource.view is not None:
            render = Renderer(resource, wanted, self._registry.clock.now, query.get("includeObject")).event
        collection = self._registry.collection(resource)
        return Watch(resource, collection, target.namespace, selector, query, render), JSON

    def _renderer(self, ask: Ask) -> Renderer:
        wanted = negotiate(ask.request.headers.get("Accept", ""))
        return Renderer(ask.resource, wanted, self._registry.clock.now, ask.query.get("includeObject"))

    def _answer(self, ask: Ask, renderer: Renderer, version: Version, status: int = 200) -> Answer:
        return Answer(renderer.one(version), status, negotiate(ask.request.headers.get("Accept", "")).media)

    # ------------------------------------------------------------------ create

    async def _create(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        call, validation = _call(ask, "CreateOptions")
        obj = await self._decoded(ask, validation)
        _check_namespace(ask, obj)
        obj["metadata"].pop("managedFields", None)
        stored, obj = self._stored(ask.resource, obj)
        version = await self._registry.create(stored, ask.namespace, obj, call)
        return self._answer(ask, renderer, version, 201)

    def _stored(self, resource: Resource, obj: Object) -> tuple[Resource, Object]:
        """The resource that is really stored, and the object in its form."""
        if resource.view is None:
            return resource, obj
        group, plural = resource.view.key
        return self._registry.resources[group, "v1", plural], resource.view.inward(obj)

    async def _decoded(self, ask: Ask, validation: str) -> Object:
        """The object in the body, by its schema. Raises ApiError (400)."""
        raw, content_type = await ask.request.read(), ask.content_type()
        obj = decode_object(raw, content_type, ask.resource.kind)
        twice = duplicate_fields(raw, obj) if validation != "Ignore" and "json" in content_type else []
        unknown: list[str] = []
        obj = decode_new(ask.resource, obj, unknown)
        _report(ask, validation, [f'duplicate field "{name}"' for name in twice], unknown, patched=False)
        return obj

    async def _create_sub(self, ask: Ask) -> Answer:
        call, _ = _call(ask, "CreateOptions")
        body = decode_object(await ask.request.read(), ask.content_type(), ask.resource.kind)
        body.setdefault("metadata", {})
        action = pods.bind if ask.target.subresource == "binding" else pods.evict
        await action(self._registry, ask.namespace, ask.name, body, call)
        return Answer(dump(_SUCCESS | {"code": 201}), 201)

    async def _create_token(self, ask: Ask) -> Answer:
        """A token for a service account."""
        raw = await ask.request.read()
        body = decode_object(raw, ask.content_type(), "TokenRequest") if raw else {}
        return Answer(dump(self._tokens.issue(self._registry, ask.namespace, ask.name, body)), 201)

    async def bind(self, request: web.BaseRequest, namespace: str, name: str, user: User) -> Answer:
        """The old bindings resource, where the body names the pod."""
        body = decode_object(await request.read(), media_type(request.headers.get("Content-Type", "")), "Binding")
        body.setdefault("metadata", {})
        call = Call(user, options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"})
        await pods.bind(self._registry, namespace, name or body["metadata"].get("name", ""), body, call)
        return Answer(dump(_SUCCESS | {"code": 201}), 201)

    # ------------------------------------------------------------------ update and patch

    async def _update(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        call, validation = _call(ask, "UpdateOptions")
        if ask.target.subresource == "scale":
            scale = decode_object(await ask.request.read(), ask.content_type(), "Scale")
            return await self._change_scale(ask, call, lambda current: scale)
        body = await self._decoded(ask, validation)
        _check_names(ask, body)

        def change(current: Version | None) -> Object:
            new = {**body, "metadata": dict(body["metadata"])}
            if current is None:
                return new
            _check_uid(ask, new, current.obj)
            track_update(current.obj, new, ask.query.get("fieldManager"), ask.resource, self._registry.now())
            return _shared(new, current.obj)

        return await self._write(ask, renderer, call, change, may_create=ask.resource.strategy.create_on_update)

    async def _patch(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        kind = ask.content_type()
        if kind not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH) or (
            kind == STRATEGIC_PATCH and ask.resource.custom
        ):
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        ask.query.check_patch(apply=kind == APPLY_PATCH)
        call, validation = _call(ask, "PatchOptions")
        body = _patch_body(decode(await ask.request.read(), kind, ask.resource.kind), kind)
        if kind == APPLY_PATCH:
            return await self._apply(ask, renderer, call, body)
        if ask.target.subresource == "scale":
            return await self._change_scale(ask, call, lambda current: _patched(current, body, kind, None))
        struct = ask.resource.schema.struct() if kind == STRATEGIC_PATCH else None
        manager = ask.query.get("fieldManager")

        def change(current: Version | None) -> Object:
            assert current is not None
            unknown: list[str] = []
            patched = _patched(current.obj, body, kind, struct)
            if not isinstance(patched, dict):
                raise errors.bad_patch("the patch yields no object")
            new = decode_update(ask.resource, patched, current.obj, unknown)
            _report(ask, validation, [], unknown, patched=True)
            _check_names(ask, new)
            track_update(current.obj, new, manager, ask.resource, self._registry.now())
            return new

        return await self._write(ask, renderer, call, change)

    async def _apply(self, ask: Ask, renderer: Renderer, call: Call, body: Object) -> Answer:
        _check_names(ask, body)
        manager, force = ask.query.get("fieldManager"), ask.query.flag("force")

        def change(current: Version | None) -> Object:
            return apply_patch(
                ask.resource, current.obj if current else None, body, manager, self._registry.now(), force=force
            )

        return await self._write(ask, renderer, call, change, may_create=not ask.target.subresource)

    async def _write(
        self, ask: Ask, renderer: Renderer, call: Call, change: Any, *, may_create: bool = False
    ) -> Answer:
        view = ask.resource.view

        def converted(current: Version | None) -> Object:
            assert view is not None
            return view.inward(change(current.seen_as(view.outward(current.obj)) if current else None))

        resource, _ = self._stored(ask.resource, {})
        version, created = await self._registry.update(
            resource, ask.namespace, ask.name, change if view is None else converted, call,
            subresource=ask.target.subresource, may_create=may_create,
        )  # fmt: skip
        return self._answer(ask, renderer, version, 201 if created else 200)

    async def _change_scale(self, ask: Ask, call: Call, new_scale: Any) -> Answer:
        def change(current: Version | None) -> Object:
            assert current is not None
            scale = new_scale(scale_of(ask.resource, current.obj))
            return with_scale(ask.resource, current.obj, scale)

        version, _ = await self._registry.update(
            ask.resource, ask.namespace, ask.name, change, call, subresource="scale"
        )
        return Answer(dump(scale_of(ask.resource, version.obj)))

    # ------------------------------------------------------------------ delete

    async def _delete_options(self, ask: Ask) -> tuple[DeleteOptions, Call]:
        raw = await ask.request.read()
        body = decode_object(raw, ask.content_type(), "DeleteOptions") if raw else None
        options, shown, dry_run = ask.query.delete_options(body)
        call = Call(ask.user, dry_run, shown, ask.warnings)
        orphans = ask.resource.strategy.default_propagation == "Orphan"
        if orphans and options.propagation is None:
            ask.warnings.append(_ORPHANS_TEXT)
        return options, call

    async def _delete(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        options, call = await self._delete_options(ask)
        version, gone = await self._registry.delete(ask.resource, ask.namespace, ask.name, options, call)
        if not gone or ask.resource.strategy.returns_deleted:
            return self._answer(ask, renderer, version)
        details = {"name": ask.name, "group": ask.resource.group, "kind": ask.resource.plural}
        details["uid"] = version.obj["metadata"]["uid"]
        return Answer(dump(_SUCCESS | {"details": {key: value for key, value in details.items() if value}}))

    async def _delete_collection(self, ask: Ask) -> Answer:
        renderer = self._renderer(ask)
        selector = parse_selector(ask.resource, ask.query.get("labelSelector"), ask.query.get("fieldSelector"))
        options, call = await self._delete_options(ask)
        collection = self._registry.collection(ask.resource)
        chosen = [version for version in collection.versions(ask.target.namespace) if selector.matches(version.obj)]
        deleted = []
        for version in chosen:
            metadata = version.obj["metadata"]
            namespace, name = metadata.get("namespace", ""), metadata["name"]
            await self._registry.delete(ask.resource, namespace, name, options, call, in_bulk=True)
            deleted.append(version)
        return Answer(renderer.page(Page(deleted, self._registry.store.revision)))


_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _call(ask: Ask, kind: str) -> tuple[Call, str]:
    options, dry_run, validation = ask.query.write_options(kind)
    if kind == "PatchOptions":
        # Webhooks see every patch as an update.
        options["kind"] = "UpdateOptions"
    return Call(ask.user, dry_run, options, ask.warnings), validation


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


def _report(ask: Ask, validation: str, faults: list[str], unknown: list[str], *, patched: bool) -> None:
    """Warn of dropped fields, or refuse them when the client asked for it."""
    texts = faults + [f'unknown field "{name}"' for name in unknown]
    if not texts or validation == "Ignore":
        return
    if validation != "Strict":
        ask.warnings.extend(texts)
        return
    message = f"strict decoding error: {', '.join(texts)}"
    if patched:
        raise errors.bad_patch(message)
    kind = ask.resource.kind
    raise bad_request(f'{kind} in version "{ask.resource.version}" cannot be handled as a {kind}: {message}')


def _check_namespace(ask: Ask, obj: Object) -> None:
    given = obj["metadata"].get("namespace", "")
    if given and given != ask.namespace and ask.resource.namespaced:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_names(ask: Ask, obj: Object) -> None:
    """The body of a PUT or the result of a patch must be the object of the URL."""
    metadata = obj.setdefault("metadata", {})
    name = metadata.setdefault("name", ask.name)
    if name != ask.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({ask.name})")
    _check_namespace(ask, obj)
    if ask.resource.namespaced:
        metadata.setdefault("namespace", ask.namespace)


def _check_uid(ask: Ask, new: Object, old: Object) -> None:
    """A PUT with another uid means an object that is gone."""
    asked, found = new["metadata"].get("uid", ""), old["metadata"]["uid"]
    if asked and asked != found:
        text = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
        raise errors.conflict(ask.resource, ask.name, text)


def _shared(new: Object, old: Object) -> Object:
    """Use the old object's parts where they are equal: what is the same object needs no further look."""
    for key, value in new.items():
        if key in old and value is not old[key] and value == old[key]:
            new[key] = old[key]
    return new
