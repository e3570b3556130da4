"""Errors of the API. Those of the model and the store are translated in `admission.api.http.failures`.

ApiError                    a request is refused; code and reason are those of its Kubernetes Status
    BadRequest              400, the request is malformed
    Unauthorized            401, it has no valid credentials
    Forbidden               403, its user lacks the right
    UnknownObject           404, there is no such workload
    ApplyConflict           409, a server-side apply conflicts with other field managers
    Expired                 410, its continue token or resourceVersion is too old
    TooLarge                413, its body exceeds the limit
    UnsupportedMediaType    415, its body has an unsupported format
    TooManyRequests         429, its user exceeds the rate limit, or causes too many reviews
    TooNew                  504, its resourceVersion has not been reached yet
    NotLeading              503, only the leader can serve it, and another replica leads
    Unanswered              503, the cluster does not answer a request that it needs
    ReviewUnavailable       503, the cluster does not answer the TokenReview or SubjectAccessReview
    Starting                503, Sluice is starting
    IssuerUnavailable       503, the OIDC issuer cannot be used
AddressUnusable             the API cannot listen on the configured address
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ApiError(SluiceError):
    """A request is refused."""

    code: ClassVar[int]
    reason: ClassVar[str]
    retry_after: int | None = None
    """Seconds after which a retry may succeed, for the header Retry-After; None: no header."""

    def __init__(self, message: str, *, causes: Sequence[Mapping[str, str]] = (), continuation: str = "") -> None:
        super().__init__(message)
        self.causes = causes
        """`details.causes` of the Status: `{"reason": ..., "message": ..., "field": ...}` each."""
        self.continuation = continuation
        """`metadata.continue` of the Status; empty: none."""


class BadRequest(ApiError):
    """The request is malformed."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The request has no valid credentials."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The user lacks the right to do that."""

    code, reason = 403, "Forbidden"


class UnknownObject(ApiError):
    """There is no workload of that name."""

    code, reason = 404, "NotFound"


class ApplyConflict(ApiError):
    """A server-side apply would change fields of other field managers."""

    code, reason = 409, "Conflict"


class Expired(ApiError):
    """The continue token of a list, or the resourceVersion of a watch, is too old."""

    code, reason = 410, "Expired"


class TooLarge(ApiError):
    """The body exceeds the size limit of this request."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The body has a media type or encoding that is not supported."""

    code, reason = 415, "UnsupportedMediaType"


class TooManyRequests(ApiError):
    """A limit of requests, watches or reviews is exceeded; a retry is possible after `retry_after` seconds."""

    code, reason = 429, "TooManyRequests"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooNew(ApiError):
    """The requested resourceVersion has not been reached yet."""

    code, reason = 504, "Timeout"
    retry_after = 1


class NotLeading(ApiError):
    """Only the leader can serve the request; the message names the leading replica."""

    code, reason = 503, "ServiceUnavailable"


class Unanswered(ApiError):
    """The cluster does not answer a request that is needed to serve this one."""

    code, reason = 503, "ServiceUnavailable"


class ReviewUnavailable(ApiError):
    """The cluster does not answer a TokenReview or SubjectAccessReview, so that nothing can be allowed."""

    code, reason = 503, "ServiceUnavailable"
    retry_after = 1


class Starting(ApiError):
    """Sluice is starting, and waits for its database or its cluster."""

    code, reason = 503, "ServiceUnavailable"
    retry_after = 1


class IssuerUnavailable(ApiError):
    """The OIDC issuer does not answer, or not as configured, so that users cannot sign in there."""

    code, reason = 503, "ServiceUnavailable"


class AddressUnusable(SluiceError):
    """The API cannot listen on its address: another process does, or the address is not one of this machine."""
