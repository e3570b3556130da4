"""Errors of the client.

ClientError
    BadConnection           the URL, certificate authority, token or kubeconfig cannot be used
    Unreachable             no response: connection refused or reset, timeout, TLS error
        NotReady                Sluice was not ready, or a workload not admitted, in time
    BadAnswer               the response is not one of Sluice
    Refused                 Sluice answered with an error
        Unauthorized            401
        Forbidden               403
        NotFound                404
        Conflict                409, the object has changed since it was read
        AlreadyExists           409
        Expired                 410, a resourceVersion or continue token is too old
        Invalid                 422, with the path of each invalid field
        TooManyRequests         429
        Unavailable             503, for example without its database
        ServerError             any other code from 500

The exception of the HTTP library is chained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClientError(SluiceError):
    """A request to Sluice failed, or its outcome is unknown."""


class BadConnection(ClientError):
    """The URL, certificate authority, token or kubeconfig cannot be used; the message says why."""


class Unreachable(ClientError):
    """Sluice gave no response, or an incomplete one: whether the request took effect is unknown."""


class NotReady(Unreachable):
    """Sluice was not ready, or a workload not admitted, within the timeout."""


class BadAnswer(ClientError):
    """The response is not one of Sluice: another server or version is at the address."""


class Refused(ClientError):
    """Sluice refused a request, or failed to serve it.

    code: the HTTP status.
    reason: the reason of the Kubernetes Status, such as `NotFound`.
    causes: its causes as pairs of field path and message.
    about: resource (plural) and name of the object; empty if unknown.
    namespace: namespace of the request; empty: none.
    retry_after: seconds after which the server asks to retry; None: not given.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        reason: str = "",
        causes: tuple[tuple[str, str], ...] = (),
        about: tuple[str, str] = ("", ""),
        namespace: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.about = about
        self.namespace = namespace
        self.retry_after = retry_after


class Unauthorized(Refused):
    """The credentials are missing, wrong or expired."""


class Forbidden(Refused):
    """The user lacks the right."""


class NotFound(Refused):
    """The object does not exist."""


class Conflict(Refused):
    """The object has changed since the given resourceVersion, or other objects depend on it."""


class AlreadyExists(Refused):
    """An object with that name exists already."""


class Expired(Refused):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(Refused):
    """The object or the patch does not pass validation; `causes` names the fields."""


class TooManyRequests(Refused):
    """The rate limit is exceeded, or too many watches are open; nothing was done."""


class ServerError(Refused):
    """Sluice failed; its log has the details."""


class Unavailable(ServerError):
    """Sluice cannot serve the request now, for example because its database is down."""


_BY_CODE: dict[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
}


def refusal(
    code: int,
    status: Mapping[str, Any],
    *,
    retry_after: float | None = None,
    hint: str = "",
    path: str = "",
) -> Refused:
    """Return the error for a failed request, by code and reason of its Status.

    `hint` is appended to the message of a 401. `path` is that of the request.
    """
    kind = _BY_CODE.get(code, ServerError if code >= 500 else Refused)
    reason = str(status.get("reason") or "")
    if reason == "AlreadyExists":
        kind = AlreadyExists
    message = str(status.get("message") or "") or f"the answer was {code}, without a reason"
    found = status.get("details")
    details = found if isinstance(found, dict) else {}
    return kind(
        f"{message} {hint}" if hint and kind is Unauthorized else message,
        code=code,
        reason=reason,
        causes=tuple(
            (str(cause.get("field", "")), str(cause.get("message", ""))) for cause in details.get("causes") or ()
        ),
        about=(str(details.get("kind") or ""), str(details.get("name") or "")),
        namespace=path.partition("/namespaces/")[2].partition("/")[0],
        retry_after=retry_after,
    )
