"""OpenAPI v3: what `kubectl explain` teaches, what clients are generated from, and what tests hold the API to."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from admission.api.http.bodies import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from admission.api.http.responses import reply
from admission.api.openapi.model_schemas import META, OWN, components, group_version_kind, ref
from admission.api.registry import (
    ATTENTION_REPORT,
    AUDIT_RECORDS,
    AUDITS,
    GROUP,
    NODE_REPORT,
    PENDING_REPORT,
    PREFIX,
    REPORTS,
    RESOURCES,
    SUBRESOURCES,
    VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.api.http.responses import Document
    from admission.api.registry import Resource, Subresource

PLACE: Final = f"apis/{GROUP}/{VERSION}"
_YEAR: Final = 365 * 86400

_PARAMETERS: Final[dict[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "Whether a watch is told now and then how far it has got."),
    "by": ("string", "What the report is divided by, separated by commas: queue, user, ..."),
    "clusterqueue": ("string", "Only of this ClusterQueue; repeatable, as all that follow of this kind."),
    "continue": ("string", "The token of a list that gives its next page."),
    "dryRun": ("string", "All: check, and tell what would follow, but write nothing."),
    "fieldManager": ("string", "Who sets the fields; required for server-side apply."),
    "fieldSelector": ("string", "Only objects with these values of fields, as in metadata.name=a."),
    "fieldValidation": ("string", "What becomes of unknown and doubled fields: Ignore, Warn (default) or Strict."),
    "flavor": ("string", "Only of this ResourceFlavor."),
    "force": ("boolean", "Whether a server-side apply takes fields from other managers."),
    "from": ("string", "The beginning: an instant (RFC 3339), or how long ago, as 30d."),
    "interval": ("string", "Divides the report by time, too: the length of each part, as 5m, 1h or 1d."),
    "kind": ("string", "Only of workloads of this kind, such as Job."),
    "labelSelector": ("string", "Only objects with these labels, as in team=a,gpu."),
    "limit": ("integer", "The most objects of a page."),
    "namespace": ("string", "Only of this namespace."),
    "offset": ("integer", "How many are left out at the beginning."),
    "period": ("string", "Divide by time, too: day or month (UTC)."),
    "queue": ("string", "Only of LocalQueues of this name."),
    "reason": ("string", "Why it is written, for the history and the audit."),
    "resource": ("string", "Only of this resource."),
    "resourceVersion": ("string", "The list must not be older; a watch begins after it."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant: NotOlderThan or Exact."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with what exists."),
    "timeoutSeconds": ("integer", "A watch ends after so long."),
    "to": ("string", "The end, as `from`."),
    "top": ("integer", "Only so many, those that used most of each resource; the others are added up."),
    "user": ("string", "Only of workloads that this user submitted."),
    "watch": ("boolean", "Not the list, but what becomes of it, event by event."),
}
_LIST: Final = ("allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
                "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch")  # fmt: skip
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation", "reason")
_QUERY: Final[dict[str, tuple[str, ...]]] = {
    "create": _WRITE,
    "delete": ("dryRun", "reason"),
    "deletecollection": ("dryRun", "fieldSelector", "labelSelector", "reason"),
    "get": (),
    "list": _LIST,
    "patch": (*_WRITE, "force"),
    "update": _WRITE,
}
_METHODS: Final = {"create": "post", "delete": "delete", "deletecollection": "delete", "get": "get", "list": "get",
                   "patch": "patch", "update": "put"}  # fmt: skip
_ACTIONS: Final = {"create": "post", "update": "put"}
_FAILURES: Final = {
    400: "The request makes no sense as it was sent.",
    401: "Nobody knows the user.",
    403: "The user may not do that.",
    404: "There is no such object.",
    406: "The client accepts nothing that can be given.",
    409: "The object is there already, has changed meanwhile, is in use, or fields are another manager's.",
    410: "What it continues is too old.",
    413: "The body is too large.",
    415: "The body is in a format that is not read.",
    422: "The object is invalid; the causes name the fields.",
    429: "The user asks for too much.",
    503: "The database or the cluster does not answer; try again.",
    504: "A state that has not been reached yet.",
}
_READING: Final = (400, 401, 403, 404, 406, 410, 422, 429, 503, 504)
_WRITING: Final = (400, 401, 403, 404, 406, 409, 413, 415, 422, 429, 503)


async def index(request: web.Request) -> web.Response:
    """`/openapi/v3`: which documents there are, under a name that changes with their content."""
    del request
    _, digest = _document()
    return reply({"paths": {PLACE: {"serverRelativeURL": f"/openapi/v3/{PLACE}?hash={digest}"}}})


async def document(request: web.Request) -> web.Response:
    """`/openapi/v3/apis/sluice.dev/v1`."""
    body, digest = _document()
    etag = f'"{digest}"'
    headers = {"Etag": etag, "Vary": "Accept", "Cache-Control": "no-cache, private"}
    if request.query.get("hash") == digest:  # under this address there will never be anything else
        headers["Cache-Control"] = f"public, max-age={_YEAR}, immutable"
    if etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type="application/json", headers=headers)


@cache
def _document() -> tuple[bytes, str]:
    body = orjson.dumps(describe())
    return body, hashlib.sha256(body).hexdigest().upper()


def describe() -> Document:
    """The whole document."""
    paths: Document = {}
    for resource in RESOURCES:
        for verb in resource.verbs:
            if verb != "watch":
                operation = _operation(verb, resource.kind, _answer(verb, resource), _body(verb, resource.kind))
                for path in _paths(resource, verb):
                    _add(paths, path, verb, operation)
    for row in SUBRESOURCES:
        for verb in row.verbs:
            _add(paths, f"{_collection(row.resource)}/{{name}}/{row.name}", verb, _sub(row, verb))
    listing = _operation("list", AUDIT_RECORDS.kind, ref(f"{OWN}AuditRecordList"), None)
    listing["parameters"] = _query(("continue", "fieldSelector", "limit"))
    _add(paths, AUDIT_RECORDS.collection(), "list", listing)
    for verb in AUDITS.verbs:
        audit = _operation(verb, AUDITS.kind, ref(f"{OWN}Audit"), None)
        _makes_nothing(audit)
        audit["parameters"] = _query(("dryRun",) if verb == "create" else ())
        _add(paths, AUDITS.collection(), verb, audit)
    report = _operation("get", REPORTS.kind, ref(f"{OWN}UsageReport"), None)
    filters = ("clusterqueue", "flavor", "kind", "namespace", "queue", "resource", "user")
    report["parameters"] = _query(("by", "from", "to", "interval", "period", "top", *filters))
    for path in (f"{REPORTS.collection()}/usage", f"{PREFIX}/namespaces/{{namespace}}/reports/usage"):
        _add(paths, path, "get", report)
    _add(paths, f"{REPORTS.collection()}/mine", "get", report)
    pending = _operation("get", PENDING_REPORT, ref(f"{OWN}{PENDING_REPORT}"), None)
    pending["parameters"] = _query(("by",))
    _add(paths, f"{REPORTS.collection()}/pending", "get", pending)
    nodes = _operation("get", NODE_REPORT, ref(f"{OWN}{NODE_REPORT}"), None)
    _add(paths, f"{REPORTS.collection()}/nodes", "get", nodes)
    attention = _operation("get", ATTENTION_REPORT, ref(f"{OWN}{ATTENTION_REPORT}"), None)
    _add(paths, f"{REPORTS.collection()}/attention", "get", attention)
    return {
        "openapi": "3.0.0",
        "info": {
            "title": "Sluice",
            "version": VERSION,
            "description": "Queues for batch jobs: quota, order, fairness.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components(),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"BearerToken": []}],
    }


def _collection(resource: Resource) -> str:
    return resource.collection("{namespace}" if resource.namespaced else "")


def _paths(resource: Resource, verb: str) -> Iterable[str]:
    if verb not in ("create", "deletecollection", "list"):
        return (f"{_collection(resource)}/{{name}}",)
    everywhere = (resource.collection(),) if verb == "list" and resource.namespaced else ()
    return (_collection(resource), *everywhere)


def _add(paths: Document, path: str, verb: str, operation: Document) -> None:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    where = path.removeprefix(PREFIX).replace("{", "").replace("}", "").replace("/", "_")
    entry = paths.setdefault(path, {})
    if names:
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": f"The {name}."}
            for name in names
        ]
    entry[_METHODS[verb]] = {**operation, "operationId": f"{verb}{where}"}


def _operation(verb: str, kind: str, answer: Document, body: Document | None) -> Document:
    writes = verb not in ("get", "list")
    code = {"create": "201"}.get(verb, "200")
    operation: Document = {
        "description": f"{verb} {kind}",
        "tags": [kind],
        "parameters": _query(_QUERY[verb]),
        "responses": {
            code: _response("What was asked for.", answer),
            **({"201": _response("It was not there, and is now.", answer)} if verb == "patch" else {}),
            **{
                str(failure): _response(_FAILURES[failure], ref(f"{META}Status"))
                for failure in (_WRITING if writes else _READING)
            },
        },
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": group_version_kind(kind),
    }
    return operation if body is None else {**operation, "requestBody": body}


def _query(names: Iterable[str]) -> list[Document]:
    return [
        {"name": name, "in": "query", "schema": {"type": _PARAMETERS[name][0]}, "description": _PARAMETERS[name][1]}
        for name in names
    ]


def _response(text: str, schema: Document) -> Document:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _answer(verb: str, resource: Resource) -> Document:
    if verb == "delete":
        return ref(f"{META}Status")
    return ref(f"{OWN}{resource.kind}{'List' if verb in ('list', 'deletecollection') else ''}")


def _body(verb: str, kind: str) -> Document | None:
    if verb in ("create", "update"):
        media = ("application/json", "application/yaml")
        return {"required": True, "content": {each: {"schema": ref(f"{OWN}{kind}")} for each in media}}
    if verb == "patch":
        part = {"schema": ref(f"{META}Patch")}
        operations = {"schema": {"type": "array", "items": {"type": "object"}, "description": "Operations."}}
        content = {MERGE_PATCH: part, JSON_PATCH: operations}
        return {"required": True, "content": content if kind == "Workload" else content | {APPLY_PATCH: part}}
    if verb in ("delete", "deletecollection"):
        return {"content": {"application/json": {"schema": ref(f"{META}DeleteOptions")}}}
    return None


def _sub(row: Subresource, verb: str) -> Document:
    if row.name == "rollback":
        body = {"required": True, "content": {"application/json": {"schema": ref(f"{OWN}Rollback")}}}
        operation = _operation(verb, row.kind, ref(f"{OWN}{row.resource.kind}"), body)
        _makes_nothing(operation)
        operation["parameters"] = _query(("dryRun", "reason"))
        return operation
    operation = _operation(verb, row.kind, ref(f"{OWN}{row.kind}"), _body(verb, row.kind))
    if row.name == "pendingworkloads":
        operation["parameters"] = _query(("limit", "offset"))
    elif row.name == "history" and row.kind == "HistoryList":
        operation["parameters"] = _query(("continue", "limit"))
    return operation


def _makes_nothing(operation: Document) -> None:
    """A POST that is answered 200, since there is no new object."""
    responses = operation["responses"]
    if "201" in responses:
        operation["responses"] = {"200": responses.pop("201"), **responses}
