"""Errors of requests that do not depend on the kind of object, and of server certificates; Status objects.

SluiceError
    InvalidSelector         a label or field selector is malformed, or names a field that is not selectable
    PatchFailed             a JSON patch cannot be applied to the object
    NotAcceptable           the client accepts none of the supported representations
    UnusableCertificate     a certificate or its key cannot be used
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NONE: Mapping[str, Any] = MappingProxyType({})


class InvalidSelector(SluiceError):
    """A label or field selector is malformed, or names a field that is not selectable."""


class PatchFailed(SluiceError):
    """An operation of a JSON patch fails: the path is missing, a test fails, or the operation is malformed."""


class NotAcceptable(SluiceError):
    """The client accepts none of the supported representations."""


class UnusableCertificate(SluiceError):
    """A certificate or key is malformed, cannot be read, or they do not match."""


def success(**fields: Any) -> dict[str, Any]:
    """Return the Status of a request that returns no object, with further fields, such as `details`."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **fields}


def failure(
    code: int, reason: str, message: str, *, details: Mapping[str, Any] = _NONE, metadata: Mapping[str, Any] = _NONE
) -> dict[str, Any]:
    """Return the Status of a failed request; `code`: of HTTP. An empty reason, or empty details, are left out."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": dict(metadata),
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": dict(details),
        "code": code,
    }
    return {key: value for key, value in status.items() if value or key in ("metadata", "message")}
