"""Conversion of the pydantic models to OpenAPI 3.0 schemas, in the form of Kubernetes' own documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from admission.api.kinds import object_schemas
from admission.api.kinds.all_kinds import KINDS
from admission.api.openapi import report_schemas
from admission.api.registry import AUDIT_RECORDS, GROUP, RESOURCES, VERSION, WORKLOADS
from admission.model import answers
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
