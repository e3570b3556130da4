"""What the API refuses by itself; what the model and the store refuse is translated in `admission.api.http.failures`.

ApiError                    the request cannot be served; code and reason are those of its Kubernetes Status
    BadRequest              400, it makes no sense as it was sent
    Unauthorized            401, it carries no valid token
    Forbidden               403, its user may not do that
    UnknownObject           404, there is no such workload
    ApplyConflict           409, it would change what other field managers have set
    Expired                 410, what it continues or watches is too old
    TooLarge                413, its body is larger than what is read
    UnsupportedMediaType    415, its body is in a format that is not read
    TooManyRequests         429, its user asks for too much
    TooNew                  504, it asks for a state that has not been reached
    NotLeading              503, it is for the leader, which is another replica
    Unanswered              503, the cluster does not answer what it takes
    ReviewUnavailable       503, the cluster does not say who its user is, or what the user may
    Starting                503, Sluice is being started, and waits
    IssuerUnavailable       503, the OIDC issuer does not do its part
AddressUnusable             the API cannot listen where it was told to
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ApiError(SluiceError):
    """A request that is refused."""

    code: ClassVar[int]
    reason: ClassVar[str]
    retry_after: int | None = None
    """After how many seconds it is worth another try."""

    def __init__(self, message: str, *, causes: Sequence[Mapping[str, str]] = (), continuation: str = "") -> None:
        super().__init__(message)
        self.causes = causes
        """For `details.causes` of the Status."""
        self.continuation = continuation
        """For `metadata.continue` of the Status."""


class BadRequest(ApiError):
    """The request makes no sense as it was sent."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The request carries no valid token."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The user may not do that."""

    code, reason = 403, "Forbidden"


class UnknownObject(ApiError):
    """There is no workload of that name."""

    code, reason = 404, "NotFound"


class ApplyConflict(ApiError):
    """A server-side apply would change what other field managers have set."""

    code, reason = 409, "Conflict"


class Expired(ApiError):
    """A list cannot be continued, or a watch begun, from so long ago."""

    code, reason = 410, "Expired"


class TooLarge(ApiError):
    """The body has more bytes than are read on this path."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The body is in a format that is not read."""

    code, reason = 415, "UnsupportedMediaType"


class TooManyRequests(ApiError):
    """The user asks for too much; again after `retry_after` seconds."""

    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooNew(ApiError):
    """A resourceVersion that there has not been yet."""

    code, reason = 504, "Timeout"
    retry_after = 1


class NotLeading(ApiError):
    """Only the replica that leads can do that; the message says which one does."""

    code, reason = 503, "ServiceUnavailable"


class Unanswered(ApiError):
    """The cluster does not answer what is needed for it."""

    code, reason = 503, "ServiceUnavailable"


class ReviewUnavailable(ApiError):
    """The cluster does not say who the user is, or what the user may; so nothing is allowed."""

    code, reason = 503, "ServiceUnavailable"
    retry_after = 1


class Starting(ApiError):
    """Sluice has only just been started, and waits for its database or its cluster."""

    code, reason = 503, "ServiceUnavailable"
    retry_after = 1


class IssuerUnavailable(ApiError):
    """The OIDC issuer does not do its part, so that nobody can sign in there."""

    code, reason = 503, "ServiceUnavailable"


class AddressUnusable(SluiceError):
    """Another process listens there already, or the address is not one of this machine."""
