"""Errors of the client.

ClientError
    BadConnection           the URL, the certificate authority or the kubeconfig cannot be used as given
    Unreachable             no answer: refused, reset, timed out, TLS
        NotReady                it answered, and was not ready in time
    BadAnswer               an answer, but none of Sluice's
    Refused                 Sluice answered, and the answer was no
        Unauthorized            401
        Forbidden               403
        NotFound                404
        Conflict                409, the object has changed since it was read
        AlreadyExists           409
        Expired                 410, a resourceVersion or continue token that is too old
        Invalid                 422, with the field path of each fault
        TooManyRequests         429
        Unavailable             503, for example without its database
        ServerError             any other from 500

The exception of the library underneath is chained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClientError(SluiceError):
    """A request to Sluice failed, or its outcome is unknown."""


class BadConnection(ClientError):
    """What was given as URL, certificate authority, token or kubeconfig cannot be used; the message says why."""


class Unreachable(ClientError):
    """Sluice gave no answer, or broke off in the middle of one: whether it did anything is unknown."""


class NotReady(Unreachable):
    """Sluice was not ready, or a workload not admitted, within the time that was given."""


class BadAnswer(ClientError):
    """The answer is not one of Sluice: another server is at the address."""


class Refused(ClientError):
    """Sluice refused a request, or failed to serve it.

    `code` is the HTTP status, `reason` the machine-readable word of the Kubernetes Status, `causes` are its
    (field path, message) pairs, `about` the resource (plural) and the name of the object in question (empty: not
    said), `namespace` that of the request (empty: of none), `retry_after` the seconds that the server asks to wait
    (None: it does not ask).
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
    """Known, but without the right."""


class NotFound(Refused):
    """There is no such object."""


class Conflict(Refused):
    """The object is not any more at the resourceVersion that the request named, or others depend on it."""


class AlreadyExists(Refused):
    """The name is taken."""


class Expired(Refused):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(Refused):
    """The object or the patch does not pass validation; `causes` names the fields."""


class TooManyRequests(Refused):
    """Sluice is asked too much at the moment; nothing was done."""


class ServerError(Refused):
    """Sluice failed; its log has the details."""


class Unavailable(ServerError):
    """Sluice cannot serve this now, for example because its database is down."""


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
    """The error for a failure, by the code and reason of its Status object; `hint` is for those who are not let in.

    `path` is that of the request.
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
