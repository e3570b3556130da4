"""What can go wrong with the Kubernetes API, so that nobody above needs to know the HTTP library.

ClusterError
    BadKubeconfig           the way to the API server, or the credentials for it, cannot be used as configured
    Unreachable             no answer: refused, reset, timed out, TLS
        Silent                  an open watch on which nothing came for too long
        Misdirected             not the server that was meant: its address, or its certificate, is wrong
    NotPermitted            not sent: the sender is no longer sure to lead
    LeaseLost               leadership has ended, or is about to
    RefusedByCluster        another database decides for the cluster
    NameTaken               an object of the name that ours has is somebody else's
    BadAnswer               an answer that is not what a Kubernetes API server says
    StatusError             the server answered with a failure
        Unauthorized            401
        Forbidden               403
        NotFound                404
        Conflict                409, the object has changed since it was read
        AlreadyExists           409
        Expired                 410, a resourceVersion or continue token that is too old
        Invalid                 422
        TooManyRequests         429
        ServerError             500 and above

The exception of the library underneath is chained.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping


class BadKubeconfig(ClusterError):
    """The kubeconfig (or, in a pod, the service account) cannot be used; the message says why and what to do."""


class Unreachable(ClusterError):
    """The API server gave no answer, or broke off in the middle of one: whether it did anything is unknown."""


class Silent(Unreachable):
    """Nothing came over an open watch for so long that the connection may be dead, unless the cluster is quiet."""


class Misdirected(Unreachable):
    """What is at the configured address, if that is one, is not the API server; no time will change that."""


class NotPermitted(ClusterError):
    """The request was not sent, because whoever asked for it may not change anything any more."""


class LeaseLost(ClusterError):
    """This replica leads no more: its Lease was not renewed in time, or somebody else holds it."""


class RefusedByCluster(ClusterError):
    """The database may not decide for this cluster: another one does, or the cluster is another one."""


class NameTaken(ClusterError):
    """An object is to be written, and one of its name is there that is somebody else's."""


class BadAnswer(ClusterError):
    """The server sent something that is not JSON, or not what the Kubernetes API promises."""


class StatusError(ClusterError):
    """The API server refused or failed.

    `code` is the HTTP status (or that of an ERROR event), `reason` the machine-readable word of the Status, if any,
    `status` the whole Status object as sent (empty if there was none), `retry_after` the seconds that the server
    asks to wait (None: it does not ask).
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
    """Known, but without the right; or an admission webhook said no."""


class NotFound(StatusError):
    """No such object, or no such kind."""


class Conflict(StatusError):
    """The object is not any more at the resourceVersion that the request named."""


class AlreadyExists(StatusError):
    """The name is taken."""


class Expired(StatusError):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(StatusError):
    """The object or the patch does not pass validation."""


class TooManyRequests(StatusError):
    """The server is overloaded, or a budget is used up; nothing was done."""


class ServerError(StatusError):
    """The server failed, or something behind it (a webhook, etcd)."""


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
    """The error for a failed `request` ("GET https://host/path"), by the code and reason of its Status object."""
    kind = _BY_CODE.get(code, ServerError if code >= 500 else StatusError)
    if status.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    message = str(status.get("message", "")).strip() or "no reason was given"
    if kind is Unauthorized:
        message += "; the credentials are missing, wrong or expired: log in again or renew the token"
    return kind(f"{request}: {code}: {message}", code=code, status=status, retry_after=retry_after)


def response_error(request: str, code: int, headers: Mapping[str, str], body: bytes) -> StatusError:
    """The error for an HTTP answer that is no success; its body is a Status object, or text from something between."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or "message" not in status:
        status = {"message": " ".join(body[:200].decode(errors="replace").split())}
    after = headers.get("Retry-After", "")
    return status_error(request, code, status, retry_after=float(after) if after.isdigit() else None)


def transport_error(request: str, error: Exception) -> Unreachable:
    """The error for an exception of aiohttp: no answer, or half of one."""
    misdirected = isinstance(error, aiohttp.ClientConnectorSSLError | aiohttp.ClientSSLError | aiohttp.InvalidURL)
    return (Misdirected if misdirected else Unreachable)(f"{request}: {_explain(error, request)}")


def _explain(error: Exception, request: str) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            detail = getattr(cause, "verify_message", "") or str(cause)
            return (
                f"the server's certificate is not trusted ({detail}): check the certificate authority and the address"
            )
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
