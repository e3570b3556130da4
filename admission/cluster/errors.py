"""Errors of the Kubernetes API client; callers do not depend on the exceptions of the HTTP library.

ClusterError
    BadKubeconfig           address or credentials of the API server cannot be used as configured
    Unreachable             no response: connection refused or reset, timeout, TLS error
        IdleTimeout             no data on an open watch for too long
        Misdirected             not the intended server: its address or its certificate is wrong
    NotPermitted            not sent: this replica may no longer be the leader
    LeaseLost               this replica is no longer the leader, or is about to lose the lead
    RefusedByCluster        the cluster is claimed by another database
    NameTaken               the name of an object is taken by one that is not Sluice's
    BadAnswer               not a response of a Kubernetes API server
    StatusError             the server responded with a failure Status
        Unauthorized            401
        Forbidden               403
        NotFound                404
        Conflict                409, the object has changed since it was read
        AlreadyExists           409
        Expired                 410, a resourceVersion or continue token that is too old
        Invalid                 422
        TooManyRequests         429
        ServerError             500 and above

The exception of the HTTP library is chained.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from admission.model.errors import ClusterError
from admission.serving.certificate_faults import certificate_remedy

if TYPE_CHECKING:
    from collections.abc import Mapping


class BadKubeconfig(ClusterError):
    """The kubeconfig (or, in a pod, the service account) cannot be used; the message has the cause and a remedy."""


class Unreachable(ClusterError):
    """The API server did not respond, or the response was incomplete: the outcome of the request is unknown."""


class IdleTimeout(Unreachable):
    """No data arrived on an open watch for so long that the connection may be dead, unless the cluster is quiet."""


class Misdirected(Unreachable):
    """The configured address is invalid, or not that of the intended API server; retries do not help."""


class NotPermitted(ClusterError):
    """The request was not sent, because its `permitted` callback returned False."""


class LeaseLost(ClusterError):
    """This replica is no longer the leader: its Lease was not renewed in time, or another one holds it."""


class RefusedByCluster(ClusterError):
    """The database must not be used with this cluster: another database has claimed it, or it is another cluster."""


class NameTaken(ClusterError):
    """An object cannot be written, because one of its name exists that is not Sluice's."""


class BadAnswer(ClusterError):
    """The response is not JSON, or does not conform to the Kubernetes API."""


class StatusError(ClusterError):
    """The API server responded with an error.

    `code`: HTTP status code (or that of an ERROR event). `reason`: machine-readable reason of the Status, or empty.
    `status`: the Status object (empty if there was none). `retry_after`: seconds of Retry-After, or None.
    """

    def __init__(self, text: str, *, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.status = status
        self.reason = str(status.get("reason", ""))
        self.retry_after = retry_after


class Unauthorized(StatusError):
    """The credentials are missing, wrong or expired."""


class Forbidden(StatusError):
    """The user lacks the right, or an admission webhook has denied the request."""


class NotFound(StatusError):
    """The object or its kind does not exist."""


class Conflict(StatusError):
    """The object has changed since the resourceVersion in the request."""


class AlreadyExists(StatusError):
    """An object of that name exists already."""


class Expired(StatusError):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(StatusError):
    """The object or the patch does not pass validation."""


class TooManyRequests(StatusError):
    """The server is overloaded, or a PodDisruptionBudget prevents an eviction; nothing was done."""


class ServerError(StatusError):
    """The server has failed, or a component behind it (a webhook, etcd)."""


_BY_CODE: dict[int, type[StatusError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def status_error(
    request: str, code: int, status: Mapping[str, Any], *, retry_after: float | None = None
) -> StatusError:
    """Return the error for a failed `request` ("GET https://host/path"), by code and reason of its Status object."""
    kind = _BY_CODE.get(code, ServerError if code >= 500 else StatusError)
    if status.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    message = str(status.get("message", "")).strip() or "no reason was given"
    if kind is Unauthorized:
        message += "; the credentials are missing, wrong or expired: log in again or renew the token"
    return kind(f"{request}: {code}: {message}", code=code, status=status, retry_after=retry_after)


def response_error(request: str, code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """Return the error for an HTTP error response; its body is a Status object, or text from a proxy in between."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or "message" not in status:
        status = {"message": " ".join(body[:200].decode(errors="replace").split())}
    after = headers.get("Retry-After", "")
    is_number = after.isascii() and after.isdecimal()
    return status_error(request, code, status, retry_after=float(after) if is_number else None)


def one_line(error: Exception) -> str:
    """Return the text of an exception in one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def transport_error(request: str, error: Exception, fault: str = "") -> Unreachable:
    """Return the error for an exception of aiohttp. `fault`: what is wrong with the certificates."""
    misdirected = isinstance(error, aiohttp.ClientConnectorSSLError | aiohttp.ClientSSLError | aiohttp.InvalidURL)
    text = _explain(error, request)
    return (Misdirected if misdirected else Unreachable)(
        f"{request}: {text}; {fault}" if fault else f"{request}: {text}"
    )


def _explain(error: Exception, request: str) -> str:
    """Return a message with the cause and a remedy."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            detail = getattr(cause, "verify_message", "") or str(cause)
            remedy = certificate_remedy(cause, "check the certificate authority and the address")
            return f"the server's certificate is not trusted ({detail}): {remedy}"
        case aiohttp.ClientConnectorSSLError():
            cause = error.os_error.strerror or error.os_error
            return f"no TLS connection ({cause}): check that the server speaks TLS; http:// is for one that does not"
        case aiohttp.ClientConnectorDNSError():
            return "the host name cannot be resolved: check the server's address"
        case aiohttp.ClientConnectorError():
            return f"no connection ({error.os_error.strerror or error.os_error}): check that the server is running"
        case asyncio.TimeoutError():
            return "no answer in time: check the server and the network"
        case ssl.SSLError() | aiohttp.ClientSSLError():
            return f"the TLS connection failed ({error})"
        case aiohttp.InvalidURL():
            return "this is not an address: check the server in the kubeconfig"
        case aiohttp.ServerDisconnectedError() if "http://" in request:
            return "the server ended the connection: if it speaks TLS, write https:// instead of http://"
        case _:
            return f"the connection broke ({str(error) or type(error).__name__})"
