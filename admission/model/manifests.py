"""Conversion of manifests to queue objects and back: `sluice.dev/v1`, and Kueue's `v1beta1` and `v1beta2`.

The three differ in a few names only. The `status` of a manifest is ignored: Sluice computes it.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import ValidationError

from admission.model.base import FieldFaultsError, Model
from admission.model.errors import InvalidObject
from admission.model.queues import MODELS, QueueObject
from admission.model.reading import Document, parse_documents
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

__all__ = ["API_VERSION", "Document", "faults", "near_kind", "parse_documents", "parse_manifest", "to_manifest"]

API_VERSION: Final = "sluice.dev/v1"
_KUEUE: Final = "kueue.x-k8s.io"
_API_VERSIONS: Final = (API_VERSION, f"{_KUEUE}/v1beta2", f"{_KUEUE}/v1beta1")
_ALPHA: Final = {(f"{_KUEUE}/v1alpha1", kind) for kind in ("Cohort", "Topology")}
"""Cohorts of Kueue 0.9 to 0.12, and Topologies of 0.9 to 0.14, whose fields are those of v1beta1."""
_FROM_ALPHA: Final = {
    "ClusterQueue": "spec.resources as spec.resourceGroups, quota.min as nominalQuota, quota.max - quota.min as "
    "borrowingLimit",
    "ResourceFlavor": "nodeSelector as spec.nodeLabels, taints as spec.nodeTaints",
    "LocalQueue": "the rest as it is",
}
"""Kind of Kueue 0.1 and 0.2 (`v1alpha1`, `v1alpha2`) -> how to write it in `v1beta1`."""
_MEANT_EMPTY: Final = frozenset({"dispatch", "namespaceSelector", "scope"})
"""Fields that mean something if they are empty, and something else if they are missing."""
_MAX_FAULTS: Final = 20
"""Faults of one object that are reported at most; formatting a hundred thousand messages would take minutes."""
_MAX_FIELD_LENGTH: Final = 64
"""Characters of an unknown field's name up to which a similar field is searched."""


def parse_manifest(
    document: Mapping[str, Any],
    *,
    source: str = "",
    namespace: str = "default",
    unknown: list[str] | None = None,
    suggested: str = API_VERSION,
) -> QueueObject:
    """Return the queue object that a manifest describes.

    `source` (a file, a document in it) precedes error messages. `namespace` is the default for namespaced objects. With
    `unknown`, unknown fields are dropped and a message about each is appended to that list; without, they are faults.
    `suggested` is the apiVersion that the message about an unknown one names.
    Raises InvalidObject with path and message of each fault.
    """
    body = _without_nulls(document)
    cls = _kind_of(body, source, suggested)
    api_version = body.pop("apiVersion")
    del body["kind"]
    body.pop("status", None)
    subject = _subject(cls.kind, body, source)
    if api_version.endswith(("/v1beta1", "/v1alpha1")):
        _upgrade(cls.kind, body)
    _default_namespace(cls, body, namespace, subject)
    while True:
        try:
            return cls.model_validate(body, by_alias=True, by_name=False)
        except ValidationError as error:
            details = _details(error)
            unknown_fields = [detail for detail in details if detail["type"] == "extra_forbidden"]
            if unknown is None or not unknown_fields:
                raise InvalidObject(_field_faults(details), subject=subject) from error
            for detail in unknown_fields[:_MAX_FAULTS]:
                field = clean(_path(detail["loc"]))
                unknown.append(_message(detail).replace("unknown field", f'unknown field "{field}"'))
            if len(unknown_fields) > _MAX_FAULTS:
                unknown.append(f"and {len(unknown_fields) - _MAX_FAULTS} more unknown fields")
            for detail in unknown_fields:
                _remove(body, detail["loc"])


def near_kind(kind: object) -> str:
    """Return the kind of queue objects that a misspelled one may stand for; empty: none."""
    near = (
        difflib.get_close_matches(kind, MODELS, n=1) if isinstance(kind, str) and len(kind) <= _MAX_FIELD_LENGTH else ()
    )
    return near[0] if near else ""


def faults(error: ValidationError) -> list[tuple[str, str]]:
    """Return (field path, message) of the first faults of a validation, and the number of further ones."""
    return _field_faults(_details(error))


def to_manifest(item: QueueObject, api_version: str = API_VERSION) -> dict[str, Any]:
    """Return the manifest of an object, which `parse_manifest` reads back as an equal one; defaults are spelt out."""
    metadata = item.metadata.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"managed_fields"})
    rest = item.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"metadata"})
    return {"apiVersion": api_version, "kind": item.kind, "metadata": metadata, **_without_empty(rest)}


def _kind_of(body: Mapping[str, Any], source: str, suggested: str) -> type[QueueObject]:
    causes = []
    api_version, kind = body.get("apiVersion"), body.get("kind")
    if api_version not in _API_VERSIONS and (api_version, kind) not in _ALPHA:
        causes.append(("apiVersion", _unknown_version(api_version, kind, suggested)))
    if not isinstance(kind, str) or kind not in MODELS:
        given = "is required" if kind is None else f'"{kind}" is not known'
        near = near_kind(kind) if api_version in _API_VERSIONS else ""
        causes.append(
            ("kind", f'{given}; did you mean "{near}"?' if near else f"{given}; use one of {', '.join(MODELS)}")
        )
    if causes:
        raise InvalidObject(causes, subject=source)
    assert isinstance(kind, str)
    return MODELS[kind]


def _unknown_version(api_version: object, kind: object, suggested: str) -> str:
    if api_version is None:
        return f"is required; use {suggested}"
    if api_version in (f"{_KUEUE}/v1alpha1", f"{_KUEUE}/v1alpha2") and isinstance(kind, str) and kind in _FROM_ALPHA:
        return f'"{api_version}" is that of Kueue 0.2 and older; write {_KUEUE}/v1beta1, and {_FROM_ALPHA[kind]}'
    return f'"{api_version}" is not known; use {suggested}'


def _subject(kind: str, body: Mapping[str, Any], source: str) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    subject = f'{kind} "{clean(name)}"' if isinstance(name, str) else kind
    return f"{source}: {subject}" if source else subject


def _default_namespace(cls: type[QueueObject], body: dict[str, Any], namespace: str, subject: str) -> None:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return  # the validation of the model reports it
    if cls.namespaced:
        metadata.setdefault("namespace", namespace)
    elif metadata.get("namespace"):
        raise InvalidObject([("metadata.namespace", f"must not be set: a {cls.kind} has none")], subject=subject)


def _upgrade(kind: str, body: dict[str, Any]) -> None:
    """Convert a `v1beta1` body, or a Cohort of `v1alpha1`, to `v1beta2` in place, like Kueue's conversion webhook."""
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    if kind == "Cohort":
        _rename(spec, "parent", "parentName")
    elif kind == "AdmissionCheck":
        spec.pop("retryDelayMinutes", None)  # has no effect in Kueue, either
    elif kind == "ClusterQueue":
        _rename(spec, "cohort", "cohortName")
        if isinstance(checks := spec.get("admissionChecks"), list) and "admissionChecksStrategy" not in spec:
            del spec["admissionChecks"]
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        if isinstance(fungibility := spec.get("flavorFungibility"), dict):
            for field, old in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
                if fungibility.get(field) == old:
                    fungibility[field] = "MayStopSearch"


def _rename(spec: dict[str, Any], old: str, new: str) -> None:
    if old in spec and new not in spec:
        spec[new] = spec.pop(old)


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy without null fields, which an API server treats as absent."""
    return {key: _copy(item) for key, item in value.items() if item is not None}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_nulls(value)
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _remove(value: Any, place: Sequence[int | str]) -> None:
    for part in place[:-1]:
        value = value[part]
    del value[place[-1]]


def _without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    pruned = {key: _prune(item) for key, item in value.items()}
    return {key: item for key, item in pruned.items() if item not in ({}, [], "") or key in _MEANT_EMPTY}


def _prune(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_empty(value)
    return [_prune(item) for item in value] if isinstance(value, list) else value


def _field_faults(details: Sequence[ErrorDetails]) -> list[tuple[str, str]]:
    causes = [cause for detail in details[:_MAX_FAULTS] for cause in _causes(detail)][:_MAX_FAULTS]
    found = [(clean(path), clean(message)) for path, message in causes]
    if len(details) > _MAX_FAULTS:
        found.append(("", f"there are {len(details) - _MAX_FAULTS} more faults"))
    return found


def _details(error: ValidationError) -> list[ErrorDetails]:
    details = error.errors(include_url=False)
    # pydantic does not count an invalid item, and so reports its list as too short as well.
    inner = {detail["loc"][:n] for detail in details for n in range(len(detail["loc"]))}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            detail["ctx"] = {"model": error.title}
    return [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in inner]


def _causes(detail: ErrorDetails) -> Iterator[tuple[str, str]]:
    path = _path(detail["loc"])
    fault = detail.get("ctx", {}).get("error")
    if isinstance(fault, FieldFaultsError):
        for relative, message in fault.causes:
            yield f"{path}.{relative}" if path else relative, message
    elif isinstance(fault, ValueError):
        yield path, str(fault)
    else:
        yield path, _message(detail)


def _message(detail: ErrorDetails) -> str:
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            name = str(detail["loc"][-1])
            known = _fields_beside(detail) if len(name) <= _MAX_FIELD_LENGTH else []
            near = difflib.get_close_matches(name, known, n=1)
            return f'unknown field; did you mean "{near[0]}"?' if near else "unknown field"
        case "literal_error":
            return f'"{given}" is not one of {context["expected"]}'
        case "string_type":
            return "must be a string (put it in quotes)" if isinstance(given, int | float) else "must be a string"
        case "int_type" | "int_from_float" | "int_parsing":
            return "must be an integer"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "tuple_type":
            return "must be a list"
        case "model_type" | "mapping_type" | "dict_type" | "model_attributes_type":
            return "must be an object"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "too_short":
            return f"must have at least {context['min_length']} entries"
        case _:
            text = detail["msg"].replace("Input should be", "must be")
            return text[:1].lower() + text[1:]


def _path(loc: Sequence[int | str]) -> str:
    path = ""
    for part in loc:
        if part == "[key]":  # pydantic's mark for a fault in the key itself
            continue
        if isinstance(part, int) or not part.isidentifier():
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _fields_beside(detail: ErrorDetails) -> list[str]:
    """Return the known fields where an unknown one was given."""
    models = [cls for cls in _models() if cls.__name__ == detail["ctx"]["model"]] or [*_models()]  # settings are none
    for part in detail["loc"][:-1]:
        known = [field for cls in models for name, field in cls.model_fields.items() if part in (field.alias, name)]
        if known:  # else it is an item of a list, or of a mapping
            models = [cls for field in known for cls in _models_in(field.annotation)]
    return [field.alias or name for cls in models for name, field in cls.model_fields.items()]


def _models_in(annotation: object) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def _models() -> Iterator[type[Model]]:
    pending: list[type[Model]] = [Model]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        yield cls
