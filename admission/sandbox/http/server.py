"""HTTP server: authentication, authorization, faults and dispatch of requests; errors become Status objects."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import orjson
from aiohttp import ClientConnectionResetError, web
from multidict import CIMultiDict

from admission.sandbox.aggregation.proxy import forward
from admission.sandbox.apiserver import paths
from admission.sandbox.apiserver.bodies import MAX_BODY_BYTES, decode_object, media_type
from admission.sandbox.apiserver.errors import ApiError, no_such_path
from admission.sandbox.apiserver.query import Query
from admission.sandbox.auth.impersonation import impersonate
from admission.sandbox.auth.rbac import RequestAttributes
from admission.sandbox.auth.reviews import REVIEWS, Reviews
from admission.sandbox.http import openapi
from admission.sandbox.http.control import Control
from admission.sandbox.http.discovery import HEALTH, Discovery, etag
from admission.sandbox.http.operations import Answer, Operations
from admission.sandbox.http.pod_logs import serve_log
from admission.sandbox.http.representation import dump, negotiate

if TYPE_CHECKING:
    from collections import Counter

    from admission.sandbox.aggregation.aggregator import Aggregator
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import User
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.auth.rbac import Authorizer
    from admission.sandbox.auth.users import Authenticator
    from admission.sandbox.http.faults import InjectedFaults

log = logging.getLogger(__name__)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_ONE_NAME = re.compile(r"(?:^|,)metadata\.name==?([^,!=]+)(?=,|$)")
_NOT_FOUND_TEXT = "404 page not found\n"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A parsed request; `target` is None for a non-resource path."""

    request: web.BaseRequest
    path: str
    target: paths.PathTarget | None
    query: Query
    attributes: RequestAttributes

    @property
    def verb(self) -> str:
        return self.attributes.verb


class Server:
    """Handler of all requests to the API server."""

    def __init__(
        self,
        registry: ObjectRegistry,
        authenticator: Authenticator,
        authorizer: Authorizer,
        aggregator: Aggregator,
        faults: InjectedFaults,
    ) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._aggregator = aggregator
        self._faults = faults
        self._discovery = Discovery(registry, aggregator)
        self._reviews = Reviews(registry, authenticator, authorizer)
        self._operations = Operations(registry, authenticator)
        self._control = Control(registry, authenticator, faults)

    @property
    def requests(self) -> Counter[tuple[str, str, str]]:
        """Number of requests for resources, by (method, plural or plural/subresource, user)."""
        return self._control.requests

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; any exception but a lost connection becomes a Status."""
        warnings: list[str] = []
        try:
            return await self._answer(request, warnings)
        except ApiError as error:
            return _response(Answer(dump(error.status()), error.code, headers=error.headers), warnings)
        except web.HTTPRequestEntityTooLarge:
            failure = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
            return _response(Answer(dump(failure.status()), 413), warnings)
        except ConnectionError:
            raise
        except Exception:  # the client gets a response in any case, and the log the reason
            log.exception("%s %s failed", request.method, request.rel_url)
            failure = ApiError(500, "InternalError", "the sandbox failed on this request: see its log")
            return _response(Answer(dump(failure.status()), 500), warnings)

    async def _answer(self, request: web.BaseRequest, warnings: list[str]) -> web.StreamResponse:
        user = self._authenticator.authenticate(request.headers)
        info = _parse(request)
        user = impersonate(request.headers, user, info.attributes, self._authorizer)
        if request.method == "OPTIONS":
            raise _not_allowed()
        self._authorizer.check(user, info.attributes)
        if info.path.startswith("/sandbox/"):
            answer = await self._control.answer(request, info.query)
            return self._missing(info.path) if answer is None else _response(answer, [])
        if info.target is not None:
            self.requests[request.method, info.attributes.resource, user.name] += 1
        faults = self._faults.for_request(request, info.attributes, user)
        await faults.before()
        backend = self._aggregator.backend_for(info.path)
        if backend is not None:
            return await forward(request, backend, user, self._registry, faults.after)
        response = await self._serve(info, user, warnings)
        await faults.after()
        return response

    async def _serve(self, info: RequestInfo, user: User, warnings: list[str]) -> web.StreamResponse:
        """Serve a request that is authorized."""
        request, target = info.request, info.target
        if target is None:
            return self._no_resource(request, info.path)
        resource = self._registry.resources.get((target.group, target.version, target.plural))
        if resource is None:
            return _response(await self._virtual(request, target, user), warnings)
        _check_verb(resource, target, info.verb, request.method)
        if info.verb == "watch":
            return await self._watch(info, resource, target, user)
        if target.subresource == "log":
            return await serve_log(
                request,
                self._registry.collection(resource),
                resource,
                namespace=target.namespace or "",
                name=unquote(target.name),
                query=info.query,
                clock=self._registry.clock,
            )
        answer = await self._operations.run(info.verb, request, resource, target, info.query, user, warnings)
        return _response(answer, warnings)

    # ------------------------------------------------------------------ paths without a stored resource

    def _no_resource(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if any(path in (check, f"{check}/ping") for check in HEALTH):
            return web.Response(text="ok")
        document = self._discovery.answer(path, request.headers.get("Accept", ""))
        if document is None:
            return self._missing(path)
        if document is openapi.V2 and openapi.V2_PROTOBUF_ACCEPT in request.headers.get("Accept", ""):
            return web.Response(body=openapi.V2_PROTOBUF, content_type=openapi.V2_PROTOBUF_MEDIA)
        if document.get("kind") == "APIGroupDiscoveryList":
            return _aggregated(request, document)
        return _response(Answer(dump(document, negotiate(request.headers.get("Accept", "")).media)), [])

    def _missing(self, path: str) -> web.StreamResponse:
        """Answer 404: with a Status below a served group (raises ApiError), elsewhere in plain text."""
        parts = path.strip("/").split("/")
        in_core = parts[0] == "api" and len(parts) > 1
        if in_core or (parts[0] == "apis" and len(parts) > 2 and self._discovery.has_group(parts[1])):
            raise no_such_path()
        return web.Response(text=_NOT_FOUND_TEXT, status=404)

    async def _virtual(self, request: web.BaseRequest, target: paths.PathTarget, user: User) -> Answer:
        """Serve resources that are not stored: reviews, and the legacy bindings resource. Raises ApiError."""
        if target.version == "v1" and (target.group, target.plural) in REVIEWS:
            if request.method != "POST" or target.name:
                raise _not_allowed()
            kind = REVIEWS[target.group, target.plural][0]
            body = decode_object(await request.read(), media_type(request.headers.get("Content-Type", "")), kind)
            return Answer(dump(self._reviews.answer(target.group, target.plural, user, body)), 201)
        if (target.group, target.version, target.plural) == ("", "v1", "bindings") and request.method == "POST":
            return await self._operations.bind(request, target.namespace or "", "", user)
        if target.group and not self._discovery.has_group(target.group):
            return Answer(_NOT_FOUND_TEXT.encode(), 404, "text/plain")
        raise no_such_path()

    # ------------------------------------------------------------------ watch

    async def _watch(
        self, info: RequestInfo, resource: ServedResource, target: paths.PathTarget, user: User
    ) -> web.StreamResponse:
        request = info.request
        watch, media = self._operations.watch(request, resource, target, info.query)
        response = web.StreamResponse(headers={"Content-Type": media, "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        await watch.serve(response, self._faults.for_watch(request, info.attributes, user))
        with suppress(ClientConnectionResetError):  # the client disconnected at the same time
            await response.write_eof()
        return response


def _parse(request: web.BaseRequest) -> RequestInfo:
    target, query = paths.parse(request.path), Query(request.query_string)
    attributes = _attributes(_verb(request.method, target, query), target, request.path, query)
    return RequestInfo(request, request.path, target, query, attributes)


def _verb(method: str, target: paths.PathTarget | None, query: Query) -> str:
    """Return the request's verb for authorization; for non-resource paths the lower-case HTTP method."""
    if target is None:
        return method.lower()
    if method in _VERBS:
        return _VERBS[method]
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if target.name and not target.watch:
        return "get"
    return "watch" if target.watch or query.flag("watch") else "list"


def _attributes(verb: str, target: paths.PathTarget | None, path: str, query: Query) -> RequestAttributes:
    if target is None:
        return RequestAttributes(verb, path=path)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    name = unquote(target.name)
    if not name and verb in ("list", "watch", "deletecollection"):
        # A user who may read one object by its name may also list and watch it by the field selector metadata.name.
        name = next(iter(_ONE_NAME.findall(query.get("fieldSelector"))), "")
    if target.plural == "namespaces" and not target.group:
        return RequestAttributes(verb, target.group, resource, name, name)
    return RequestAttributes(verb, target.group, resource, target.namespace or "", name)


def _not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def _check_verb(resource: ServedResource, target: paths.PathTarget, verb: str, method: str) -> None:
    """Check that the resource supports the verb at this path. Raises ApiError (404, 405)."""
    if target.namespace is not None and not resource.namespaced:
        raise no_such_path()
    if method == "HEAD":
        raise _not_allowed()
    if target.subresource:
        sub = resource.subresource(target.subresource)
        if sub is None:
            raise no_such_path()
        if verb not in sub.verbs:
            raise _not_allowed()
        return
    on_collection = verb in ("list", "watch", "create", "deletecollection")
    if verb not in resource.verbs or on_collection == bool(target.name and not target.watch):
        raise _not_allowed()
    if verb in ("create", "deletecollection") and resource.namespaced and target.namespace is None:
        raise _not_allowed()
    if resource.namespaced and target.namespace is None and target.name:
        raise no_such_path()


def _aggregated(request: web.BaseRequest, document: dict[str, object]) -> web.StreamResponse:
    tag = f'"{etag(document)}"'
    headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    return web.Response(body=orjson.dumps(document), headers=headers)


def _response(answer: Answer, warnings: list[str]) -> web.Response:
    headers = CIMultiDict({"Content-Type": answer.media, "Cache-Control": "no-cache, private"})
    headers.update(answer.headers)
    for text in dict.fromkeys(warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return web.Response(body=answer.body, status=answer.status, headers=headers)
