"""The OpenAPI v3 document of the API, for `kubectl explain` and client generators; tests validate responses by it."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web
from pydantic.json_schema import models_json_schema

from admission.api.http.bodies import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from admission.api.http.responses import reply
from admission.api.kinds import object_schemas
from admission.api.kinds.all_kinds import KINDS
from admission.api.openapi import report_schemas
from admission.api.registry import (
    ALL_REPORTS,
    AUDIT_RECORDS,
    AUDITS,
    GROUP,
    PREFIX,
    RESOURCES,
    SUBRESOURCES,
    VERSION,
    WHAT_IFS,
    WORKLOADS,
)
from admission.model import answers
from admission.model.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.api.http.responses import Document
    from admission.api.registry import Resource, Subresource
    from admission.model.base import Model

DOCUMENT_PATH: Final = f"apis/{GROUP}/{VERSION}"
"""Key of the document in the index `/openapi/v3`, and its path below that."""
_YEAR: Final = 365 * 86400

_PARAMETERS: Final[dict[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "Whether the watch sends BOOKMARK events with the current resourceVersion."),
    "book": ("string", "The PriceBook; default: the only one, or the one with the name default."),
    "by": ("string", "Fields to group the report by, separated by commas: queue, user, label:cost-center, ..."),
    "container": ("string", "Container of the pod; default: the only one."),
    "cohort": ("string", "Only what concerns the ClusterQueues in this Cohort."),
    "including": ("string", "A ClusterQueue that the loans name, also if it is not among the largest of its tree."),
    "cluster": ("string", "Name of a cluster: only workloads in it."),
    "clusterqueue": ("string", "Only usage in this ClusterQueue; may be repeated, as all filters of the report."),
    "continue": ("string", "Token of the previous page, for the next page of a list."),
    "dryRun": ("string", "All: validate, and return the effect on workloads, but write nothing."),
    "fieldManager": ("string", "Name of the manager that sets the fields; required for server-side apply."),
    "fieldSelector": ("string", "Only objects with these field values, as in metadata.name=a."),
    "fieldValidation": ("string", "How to treat unknown and duplicate fields: Ignore, Warn (default) or Strict."),
    "flavor": ("string", "Only usage of this ResourceFlavor."),
    "follow": ("boolean", "Whether the response goes on until the container ends."),
    "force": ("boolean", "Whether a server-side apply takes over fields of other managers."),
    "from": ("string", "Begin of the report: a time (RFC 3339), or how long ago, as 30d."),
    "interval": ("string", "Length of the intervals, as 5m or 1d; auto: begin with the first usage."),
    "kind": ("string", "Only usage of workloads of this kind, such as Job."),
    "labelSelector": ("string", "Only objects with these labels, as in team=a,gpu."),
    "level": ("string", "Node label of the last level to show, or the part after its slash; default: all levels."),
    "limit": ("integer", "Most objects in a page."),
    "measured": ("boolean", "Whether to return how much of the usage was measured, and used, of full hours."),
    "month": ("string", "Instead of from and to: a month of the calendar, as 2026-10; this or last."),
    "namespace": ("string", "Only usage in this namespace."),
    "most": ("integer", "Show levels with at most so many domains each; the deepest of them has the pods."),
    "weeks": ("integer", "Number of weeks of the report, the present one included; default: 8."),
    "within": ("string", "Values of a domain, joined by slashes: only what is above, in and below it is shown."),
    "node": ("string", "Name of a node, or of another domain of a topology."),
    "objectKind": ("string", "Kind of the object that has the name, such as pod or rayjob; default: any."),
    "offset": ("integer", "Number of workloads to skip at the beginning."),
    "period": ("string", "Divide the report into periods: day or month."),
    "pod": ("string", "Name of the pod."),
    "quarter": ("string", "Instead of from and to: a quarter of the calendar, as 2026-Q3; this or last."),
    "queue": ("string", "Only usage in LocalQueues of this name."),
    "quota": ("boolean", "Whether to return quota and idle quota of each group; with interval: quota over time."),
    "reason": ("string", "Reason for the write, for the history and the audit."),
    "request": ("string", "What all pods of a workload request, as cpu=4; may be repeated."),
    "seconds": ("integer", "Time limit of a workload; default: none."),
    "resource": ("string", "Only usage of this resource."),
    "resourceVersion": ("string", "A list is at least as new as this version; a watch begins after it."),
    "resourceVersionMatch": ("string", "How a list interprets resourceVersion: NotOlderThan or Exact."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the existing objects."),
    "tailLines": ("integer", "Lines from the end of the log to begin with; default: all."),
    "timeoutSeconds": ("integer", "Seconds after which the watch ends."),
    "timestamps": ("boolean", "Whether each line begins with its time."),
    "timezone": ("string", "Zone of dates, months, quarters and periods, as Europe/Berlin; default: UTC."),
    "to": ("string", "End of the report, in the same format as `from`."),
    "top": ("integer", "Only this many groups, by largest usage of each resource; one item sums up the others."),
    "user": ("string", "Only usage of workloads of this user."),
    "watch": ("boolean", "Return events of changes to the list instead of the list."),
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
_LED_TO_BY_NAMES: Final = ("Workload", "WorkloadExplanation", "WorkloadHistory")
"""Kinds of responses about workloads, which the names of other objects lead to."""
_METHODS: Final = {"create": "post", "delete": "delete", "deletecollection": "delete", "get": "get", "list": "get",
                   "patch": "patch", "update": "put"}  # fmt: skip
_ACTIONS: Final = {"create": "post", "update": "put"}
_FAILURES: Final = {
    400: "The request is malformed.",
    401: "The request has no valid credentials.",
    403: "The user lacks the right to do that.",
    404: "The object does not exist.",
    406: "No supported representation is acceptable to the client.",
    409: "The object exists already, has changed meanwhile or is in use, or fields belong to another manager.",
    410: "The continue token or resourceVersion is too old.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "The object is invalid; the causes name the fields.",
    429: "The user exceeds the rate limit.",
    503: "The database or the cluster does not answer; try again.",
    504: "The resourceVersion has not been reached yet.",
}
_READING: Final = (400, 401, 403, 404, 406, 410, 422, 429, 503, 504)
_WRITING: Final = (400, 401, 403, 404, 406, 409, 413, 415, 422, 429, 503)


async def index(request: web.Request) -> web.Response:
    """Handle `/openapi/v3`: the index, with the URL of the document, which contains the hash of its content."""
    del request
    _, digest = _document()
    return reply({"paths": {DOCUMENT_PATH: {"serverRelativeURL": f"/openapi/v3/{DOCUMENT_PATH}?hash={digest}"}}})


async def document(request: web.Request) -> web.Response:
    """Handle `/openapi/v3/apis/sluice.dev/v1`: the document, cacheable by ETag or by the hash in its URL."""
    body, digest = _document()
    etag = f'"{digest}"'
    headers = {"Etag": etag, "Vary": "Accept", "Cache-Control": "no-cache, private"}
    if request.query.get("hash") == digest:  # the content of a URL with hash never changes
        headers["Cache-Control"] = f"public, max-age={_YEAR}, immutable"
    if etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type="application/json", headers=headers)


@cache
def _document() -> tuple[bytes, str]:
    body = orjson.dumps(describe())
    return body, hashlib.sha256(body).hexdigest().upper()


def describe() -> Document:
    """Return the whole document."""
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
        _creates_nothing(audit)
        audit["parameters"] = _query(("dryRun",) if verb == "create" else ())
        _add(paths, AUDITS.collection(), verb, audit)
    question = {"required": True, "content": {"application/json": {"schema": ref(f"{OWN}WhatIfQuestion")}}}
    replay = _operation("create", WHAT_IFS.kind, ref(f"{OWN}WhatIf"), question)
    _creates_nothing(replay)
    replay["parameters"] = []
    _add(paths, WHAT_IFS.collection(), "create", replay)
    for report in ALL_REPORTS:
        reading = _operation("get", report.kind, ref(f"{OWN}{report.kind}"), None)
        reading["parameters"] = _query(report.parameters)
        for path in report.paths:
            _add(paths, path, "get", reading)
    return {
        "openapi": "3.0.0",
        "info": {
            "title": "Sluice",
            "version": VERSION,
            "description": "Queue manager for batch jobs: quota, order, fair sharing.",
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
        "parameters": _query(("objectKind",) if verb == "get" and kind in _LED_TO_BY_NAMES else _QUERY[verb]),
        "responses": {
            code: _response("Success.", answer),
            **({"201": _response("The object did not exist, and was created.", answer)} if verb == "patch" else {}),
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
    if verb == "create":  # an action on the object
        answer = row.resource.kind if row.kind == "Rollback" else row.kind
        body = {"required": True, "content": {"application/json": {"schema": ref(f"{OWN}{row.kind}")}}}
        operation = _operation(verb, row.kind, ref(f"{OWN}{answer}"), body)
        _creates_nothing(operation)
    else:
        operation = _operation(verb, row.kind, ref(f"{OWN}{row.kind}"), _body(verb, row.kind))
    if row.parameters:
        operation["parameters"] = _query(row.parameters)
    if row.name == "log":
        operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return operation


def _creates_nothing(operation: Document) -> None:
    """Describe a POST that creates no object, and therefore answers 200 instead of 201."""
    responses = operation["responses"]
    if "201" in responses:
        operation["responses"] = {"200": responses.pop("201"), **responses}


OWN, META = "dev.sluice.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
_REF: Final = "#/components/schemas/"
_STATUS: Final[Mapping[str, type[Model]]] = {
    **{kind: described.status_schema for kind, described in KINDS.items()},
    WORKLOADS.kind: object_schemas.WorkloadStatus,
}
_ANSWERS: Final = (
    answers.PendingWorkloadsSummary,
    report_schemas.CalendarPreview,
    answers.WorkloadExplanation,
    answers.WorkloadHistory,
    report_schemas.WorkloadPods,
    answers.HistoryList,
    report_schemas.Rollback,
    report_schemas.Cancellation,
    report_schemas.NamespaceReport,
    report_schemas.NodeReport,
    report_schemas.DrainReport,
    report_schemas.ObjectiveReport,
    report_schemas.FairnessReport,
    report_schemas.ClusterReport,
    report_schemas.CostReport,
    report_schemas.Quote,
    report_schemas.TopologyReport,
    report_schemas.StayReport,
    report_schemas.PendingReport,
    report_schemas.AttentionReport,
    report_schemas.UsageReport,
    report_schemas.AuditRecord,
    report_schemas.Audit,
    report_schemas.WhatIf,
    report_schemas.WhatIfQuestion,
)
_TYPE_OF: Final = {
    "apiVersion": "The versioned schema of this object: sluice.dev/v1.",
    "kind": "Kind of this object, in CamelCase.",
}


def components() -> dict[str, Document]:
    """Return all schemas by name."""
    written = [resource.model for resource in RESOURCES if resource.model is not None]
    described: list[type[Model]] = [
        *written,
        *dict.fromkeys(_STATUS.values()),
        object_schemas.WorkloadSpec,
        *_ANSWERS,
        ObjectMeta,
    ]
    _, found = models_json_schema(
        [(model, "validation") for model in described], by_alias=True, ref_template=f"{_REF}{OWN}{{model}}"
    )
    schemas = {f"{OWN}{name}": _plain(schema) for name, schema in found["$defs"].items()}
    metadata = schemas.pop(f"{OWN}ObjectMeta")
    schemas[f"{META}ObjectMeta"] = {key: value for key, value in metadata.items() if key != "required"}
    schemas[f"{OWN}Workload"] = _workload()
    for resource in RESOURCES:
        status = _STATUS[resource.kind]
        schemas[f"{OWN}{resource.kind}"] = _kind(schemas[f"{OWN}{resource.kind}"], resource.kind, status)
    for resource in (*RESOURCES, AUDIT_RECORDS):
        schemas[f"{OWN}{resource.kind}List"] = _list(resource.kind)
    for model in _ANSWERS:
        name = f"{OWN}{model.__name__}"
        schemas[name] = _kind(schemas[name], model.__name__, None)
    return dict(sorted((_meta() | schemas).items()))


def ref(name: str) -> Document:
    """Return a schema that references another by name."""
    return {"$ref": f"{_REF}{name}"}


def group_version_kind(kind: str) -> Document:
    """Return group, version and kind, as in `x-kubernetes-group-version-kind`."""
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _workload() -> Document:
    return {
        "type": "object",
        "description": "A unit that is queued, such as one Job: its pod sets and the quota reserved for it.",
        "required": ["spec"],
        "properties": {
            "spec": _described(f"{OWN}WorkloadSpec", "Specification of the workload."),
        },
    }


def _kind(schema: Document, kind: str, status: type[Model] | None) -> Document:
    properties = {
        **{name: {"type": "string", "description": text} for name, text in _TYPE_OF.items()},
        "metadata": _described(f"{META}ObjectMeta", "Metadata: name, labels, versions and more."),
        **{name: value for name, value in schema["properties"].items() if name != "metadata"},
    }
    if status is not None:
        about = "Current status; computed, and ignored in writes."
        properties["status"] = _described(f"{OWN}{status.__name__}", about)
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [group_version_kind(kind)]}


def _list(kind: str) -> Document:
    items = {"type": "array", "items": ref(f"{OWN}{kind}"), "description": f"The objects of kind {kind}."}
    return {
        "type": "object",
        "description": f"A list of objects of kind {kind}.",
        "required": ["items"],
        "properties": {
            **{name: {"type": "string", "description": text} for name, text in _TYPE_OF.items()},
            "metadata": _described(f"{META}ListMeta", "Metadata: version and next page of the list."),
            "items": items,
        },
        "x-kubernetes-group-version-kind": [group_version_kind(f"{kind}List")],
    }


def _described(name: str, text: str) -> Document:
    return {"allOf": [ref(name)], "description": text}


def _plain(schema: Any) -> Any:
    """Convert a schema of pydantic (JSON Schema 2020-12) to OpenAPI 3.0."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:  # null in optional fields means "not set"
        (only,) = (item for item in schema["anyOf"] if item != {"type": "null"})
        nullable = {} if "default" in schema else {"nullable": True}  # a required field may be null
        schema = {**only, **nullable, **{key: value for key, value in schema.items() if key != "anyOf"}}
    result = dict(_converted_keys(schema))
    if "$ref" in result and len(result) > 1:  # OpenAPI 3.0 ignores all keys beside $ref
        result = {"allOf": [{"$ref": result.pop("$ref")}], **result}
    return result


def _converted_keys(schema: Document) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        match key:
            case "properties":
                yield key, {name: _plain(item) for name, item in value.items()}
            case "title" | "propertyNames":
                continue
            case "additionalProperties" if value is False:
                continue  # unknown fields are dropped, unless fieldValidation says otherwise
            case "default" if value is None or isinstance(value, dict | list):
                continue
            case "exclusiveMaximum":
                yield "maximum", value - 1
            case "const":
                yield "enum", [value]
            case _:
                yield key, _plain(value)


def _meta() -> dict[str, Document]:
    """Return the schemas of Kubernetes' meta types, with the fields that are used here."""
    text: Document = {"type": "string"}
    cause = {"type": "object", "description": "One error.", "properties": {
        "field": text | {"description": "Path of the invalid field."},
        "message": text | {"description": "Description of the error, for people."},
        "reason": text | {"description": "Type of the error, for programs."},
    }}  # fmt: skip
    details = {"type": "object", "description": "Details of a Status.", "properties": {
        "name": text | {"description": "Name of the object."},
        "group": text | {"description": "API group of the resource."},
        "kind": text | {"description": "Kind of the object, or name of the resource."},
        "uid": text | {"description": "Uid of the object."},
        "causes": {"type": "array", "items": ref(f"{META}StatusCause"), "description": "All errors."},
        "retryAfterSeconds": {"type": "integer", "description": "Seconds after which a retry may succeed."},
    }}  # fmt: skip
    status = {"type": "object", "description": "Outcome of a request that returns no object.", "properties": {
        "apiVersion": text | {"description": "v1"},
        "kind": text | {"description": "Status"},
        "metadata": _described(f"{META}ListMeta", "Empty, except after a list has expired: a token to go on with."),
        "status": text | {"description": "Success or Failure."},
        "message": text | {"description": "Description of the failure, for people."},
        "reason": text | {"description": "Type of the failure, for programs."},
        "details": _described(f"{META}StatusDetails", "Object and errors that the Status is about."),
        "code": {"type": "integer", "description": "HTTP status code."},
    }}  # fmt: skip
    metadata = {"type": "object", "description": "Metadata of a list.", "properties": {
        "resourceVersion": text | {"description": "Version of the list, to begin a watch from."},
        "continue": text | {"description": "Token of the next page; empty: this is the last one."},
        "remainingItemCount": {"type": "integer", "description": "Number of objects after this page, if known."},
    }}  # fmt: skip
    conditions = {"type": "object", "description": "Conditions that the object must fulfil.", "properties": {
        "uid": text | {"description": "Uid that the object must have."},
        "resourceVersion": text | {"description": "Version that the object must have: it must not have changed since."},
    }}  # fmt: skip
    deletion = {"type": "object", "description": "Options of a deletion.", "properties": {
        "apiVersion": text | {"description": "v1"},
        "kind": text | {"description": "DeleteOptions"},
        "dryRun": {"type": "array", "items": {"type": "string", "enum": ["All"]}, "description": "Delete nothing."},
        "preconditions": _described(f"{META}Preconditions", "Conditions that the object must fulfil."),
        "propagationPolicy": text | {"description": "Ignored: these objects own no others."},
        "gracePeriodSeconds": {"type": "integer", "description": "Ignored: they are deleted immediately."},
    }}  # fmt: skip
    patch = {"type": "object", "description": "A part of an object."}
    found: dict[str, Document] = {
        "StatusCause": cause,
        "StatusDetails": details,
        "Status": status,
        "ListMeta": metadata,
        "Preconditions": conditions,
        "DeleteOptions": deletion,
        "Patch": patch,
    }
    return {f"{META}{name}": schema for name, schema in found.items()}
