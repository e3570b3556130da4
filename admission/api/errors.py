"""What the API refuses by itself; what the model and the store refuse is translated in `admission.api.failures`.

ApiError                    the request cannot be served; code and reason are those of its Kubernetes Status
    BadRequest              400, it makes no sense as it was sent
    Unauthorized            401, it carries no valid token
    UnknownObject           404, there is no such workload
    UnsupportedMediaType    415, its body is in a format that is not read
AddressUnusable             the API cannot listen where it was told to
"""

from __future__ import annotations

from typing import ClassVar

from admission.model.errors import SluiceError


class ApiError(SluiceError):
    """A request that is refused."""

    code: ClassVar[int]
    reason: ClassVar[str]


class BadRequest(ApiError):
    """The request makes no sense as it was sent."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The request carries no valid token."""

    code, reason = 401, "Unauthorized"


class UnknownObject(ApiError):
    """There is no workload of that name."""

    code, reason = 404, "NotFound"


class UnsupportedMediaType(ApiError):
    """The body is in a format that is not read."""

    code, reason = 415, "UnsupportedMediaType"


class AddressUnusable(SluiceError):
    """Another process listens there already, or the address is not one of this machine."""
