"""Errors of the API server, each of which becomes a Kubernetes Status object, and constructors for the usual ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from admission.apimachinery.errors import failure
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from admission.sandbox.apiserver.resources import ServedResource


class SandboxError(SluiceError):
    """The sandbox cannot do what its caller (not an API client) requested."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One validation error. `reason` is a Kubernetes cause type, `field` a path like `spec.template.spec`."""

    reason: str
    field: str
    message: str


def required(field: str, message: str = "") -> Cause:
    return Cause("FieldValueRequired", field, f"Required value: {message}" if message else "Required value")


def invalid(field: str, value: object, message: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown}: {message}")


def forbidden(field: str, message: str) -> Cause:
    return Cause("FieldValueForbidden", field, f"Forbidden: {message}")


def duplicate(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", field, f'Duplicate value: "{value}"')


def unsupported(field: str, value: object, allowed: tuple[str, ...]) -> Cause:
    names = ", ".join(f'"{name}"' for name in allowed)
    return Cause("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {names}')


class ApiError(SandboxError):
    """A rejected request. `code` is the HTTP status, `reason` a Kubernetes status reason or empty."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """Return the Status object that the client receives."""
        return failure(self.code, self.reason, self.message, details=self.details or {}, metadata=self.metadata)


def _details(resource: ServedResource | None, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource is not None:
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.plural
    return details


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def not_found(resource: ServedResource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_details(resource, name))


def no_such_path() -> ApiError:
    """Return 404 for a path that names no served resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: ServedResource, name: str, *, deleting: bool = False) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(resource: ServedResource, name: str, message: str = "") -> ApiError:
    why = message or "the object has been modified; please apply your changes to the latest version and try again"
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", text, details=_details(resource, name))


def denied(
    message: str, resource: ServedResource | None = None, name: str = "", causes: list[Cause] | None = None
) -> ApiError:
    details = _details(resource, name)
    if causes:
        details["causes"] = _causes(causes)
    return ApiError(403, "Forbidden", message, details=details)


def internal(message: str) -> ApiError:
    """Return 500 with the message of an unexpected failure, such as an unreachable webhook."""
    return ApiError(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def unprocessable(group: str, kind: str, name: str, causes: list[Cause]) -> ApiError:
    """Return 422 for an object that fails validation; `causes` must not be empty."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind, "causes": _causes(causes)}
    return ApiError(
        422,
        "Invalid",
        f'{subject} "{name}" is invalid: {joined}',
        details={key: value for key, value in details.items() if value},
    )


def bad_patch(message: str) -> ApiError:
    """Return 422 for a patch whose result cannot be decoded as an object of its kind."""
    return unprocessable("", "", "", [invalid("patch", "", message)])


def _causes(causes: list[Cause]) -> list[dict[str, str]]:
    return [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
