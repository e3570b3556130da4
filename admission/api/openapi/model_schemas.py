"""The models as schemas of OpenAPI 3.0, in the form in which Kubernetes describes its kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from admission.api.kinds import object_schemas
from admission.api.kinds.all_kinds import KINDS
from admission.api.openapi import report_schemas
from admission.api.registry import AUDIT_RECORDS, GROUP, RESOURCES, VERSION, WORKLOADS
from admission.model.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.api.http.responses import Document
    from admission.model.base import Model

OWN, META = "dev.sluice.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
_REF: Final = "#/components/schemas/"
_STATUS: Final[Mapping[str, type[Model]]] = {
    **{kind: described.status_schema for kind, described in KINDS.items()},
    WORKLOADS.kind: object_schemas.WorkloadStatus,
}
_ANSWERS: Final = (
    report_schemas.PendingWorkloadsSummary,
    report_schemas.WorkloadExplanation,
    report_schemas.WorkloadHistory,
    report_schemas.HistoryList,
    report_schemas.Rollback,
    report_schemas.NodeReport,
    report_schemas.PendingReport,
    report_schemas.AttentionReport,
    report_schemas.UsageReport,
    report_schemas.AuditRecord,
    report_schemas.Audit,
)
_TYPE_OF: Final = {
    "apiVersion": "The versioned schema of this object: sluice.dev/v1.",
    "kind": "What this object is, in CamelCase.",
}


def components() -> dict[str, Document]:
    """All schemas by name."""
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
    """A reference to a schema, as a schema."""
    return {"$ref": f"{_REF}{name}"}


def group_version_kind(kind: str) -> Document:
    """The type of an object, as OpenAPI documents of Kubernetes have it."""
    return {"group": GROUP, "version": VERSION, "kind": kind}


def _workload() -> Document:
    return {
        "type": "object",
        "description": "What is queued: one Job, say, seen as sets of equal pods, and the quota that it holds.",
        "required": ["spec"],
        "properties": {
            "spec": _described(f"{OWN}WorkloadSpec", "What is asked for."),
        },
    }


def _kind(schema: Document, kind: str, status: type[Model] | None) -> Document:
    properties = {
        **{name: {"type": "string", "description": text} for name, text in _TYPE_OF.items()},
        "metadata": _described(f"{META}ObjectMeta", "The name, labels and versions of the object."),
        **{name: value for name, value in schema["properties"].items() if name != "metadata"},
    }
    if status is not None:
        about = "What goes on; computed, and ignored in writes."
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
            "metadata": _described(f"{META}ListMeta", "The version of the list, and where its next page begins."),
            "items": items,
        },
        "x-kubernetes-group-version-kind": [group_version_kind(f"{kind}List")],
    }


def _described(name: str, text: str) -> Document:
    return {"allOf": [ref(name)], "description": text}


def _plain(schema: Any) -> Any:
    """A schema of pydantic's (JSON Schema 2020-12) in the words of OpenAPI 3.0."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:  # what is null counts as left out
        (only,) = (item for item in schema["anyOf"] if item != {"type": "null"})
        given = {} if "default" in schema else {"nullable": True}  # what must be there may be null
        schema = {**only, **given, **{key: value for key, value in schema.items() if key != "anyOf"}}
    result = dict(_kept(schema))
    if "$ref" in result and len(result) > 1:  # beside a reference nothing counts
        result = {"allOf": [{"$ref": result.pop("$ref")}], **result}
    return result


def _kept(schema: Document) -> Iterator[tuple[str, Any]]:
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
    """What Kubernetes says about every answer, as far as it is used here."""
    text: Document = {"type": "string"}
    cause = {"type": "object", "description": "One fault.", "properties": {
        "field": text | {"description": "The path of the field that is at fault."},
        "message": text | {"description": "What is wrong with it, for people."},
        "reason": text | {"description": "What is wrong with it, for programs."},
    }}  # fmt: skip
    details = {"type": "object", "description": "What a Status is about.", "properties": {
        "name": text | {"description": "The name of the object."},
        "group": text | {"description": "The group of its kind."},
        "kind": text | {"description": "Its kind, or the name of the resource."},
        "uid": text | {"description": "Its uid."},
        "causes": {"type": "array", "items": ref(f"{META}StatusCause"), "description": "All faults."},
        "retryAfterSeconds": {"type": "integer", "description": "When it is worth another try."},
    }}  # fmt: skip
    status = {"type": "object", "description": "The outcome of a request that gives no object.", "properties": {
        "apiVersion": text | {"description": "v1"},
        "kind": text | {"description": "Status"},
        "metadata": _described(f"{META}ListMeta", "Of no meaning, but for a list that has expired."),
        "status": text | {"description": "Success or Failure."},
        "message": text | {"description": "What went wrong, for people."},
        "reason": text | {"description": "What went wrong, for programs."},
        "details": _described(f"{META}StatusDetails", "What it is about."),
        "code": {"type": "integer", "description": "The HTTP status."},
    }}  # fmt: skip
    metadata = {"type": "object", "description": "The metadata of a list.", "properties": {
        "resourceVersion": text | {"description": "The version of the list, to watch from."},
        "continue": text | {"description": "The token that gives the next page."},
        "remainingItemCount": {"type": "integer", "description": "How many follow after this page, if it is known."},
    }}  # fmt: skip
    conditions = {"type": "object", "description": "What the object must be like.", "properties": {
        "uid": text | {"description": "The uid that the object must have."},
        "resourceVersion": text | {"description": "The object must not have changed since."},
    }}  # fmt: skip
    deletion = {"type": "object", "description": "How a deletion is meant.", "properties": {
        "apiVersion": text | {"description": "v1"},
        "kind": text | {"description": "DeleteOptions"},
        "dryRun": {"type": "array", "items": {"type": "string", "enum": ["All"]}, "description": "Delete nothing."},
        "preconditions": _described(f"{META}Preconditions", "What the object must be like."),
        "propagationPolicy": text | {"description": "Of no meaning: nothing is owned by these objects."},
        "gracePeriodSeconds": {"type": "integer", "description": "Of no meaning: they are gone at once."},
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
