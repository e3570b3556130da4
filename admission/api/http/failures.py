"""Middleware that translates every exception into a Kubernetes `Status` response."""

from __future__ import annotations

import http
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aiohttp import web

from admission.api.errors import ApiError, BadRequest
from admission.api.http.responses import reply
from admission.api.registry import GROUP, Resource
from admission.apimachinery.errors import InvalidSelector, NotAcceptable, PatchFailed, failure
from admission.model.errors import InvalidObject, StoreError
from admission.store.errors import (
    AlreadyExists,
    Conflict,
    DatabaseRefusesWrites,
    DatabaseUnavailable,
    NotFound,
    SchemaMismatch,
    TooManyReports,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from admission.api.http.responses import Document

RESOURCE = web.RequestKey("resource", Resource)
"""Request key of the resource, for the details of a Status; set by the route."""

NAME = web.RequestKey("name", str)
"""Request key of the object's name in the body, for requests without a name in the path."""

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1
"""Retry-After while the database is unavailable."""
_REFUSED_SECONDS = 10
"""Retry-After while the database accepts no writes: an admin has to free space, or a primary to take over."""
_HTTP_REASONS = {
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    413: ("RequestEntityTooLarge", "the body is larger than what is accepted"),
}


@web.middleware
async def failures(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer with a Status if a handler or a middleware further in raises an exception."""
    try:
        _check_text(request)
        return await handler(request)
    except web.HTTPException as error:
        reason, message = _HTTP_REASONS.get(error.status, (_camel(error.reason), error.reason))
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return _failure(request, error.status, reason, message, headers=headers)
    except ApiError as error:
        headers = {"WWW-Authenticate": "Bearer"} if error.code == http.HTTPStatus.UNAUTHORIZED else {}
        details: Document = {"causes": list(error.causes)} if error.causes else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
            details["retryAfterSeconds"] = error.retry_after
        metadata = {"continue": error.continuation} if error.continuation else {}
        return _failure(request, error.code, error.reason, str(error), headers=headers, metadata=metadata, **details)
    except InvalidSelector as error:
        return _failure(request, 400, "BadRequest", str(error))
    except NotAcceptable as error:
        return _failure(request, 406, "NotAcceptable", str(error))
    except PatchFailed as error:
        # For the reason Invalid kubectl shows the causes, not the message.
        causes = [{"reason": "FieldValueInvalid", "message": str(error), "field": "patch"}]
        return _failure(request, 422, "Invalid", str(error), causes=causes)
    except InvalidObject as error:
        causes = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in error.causes]
        return _failure(
            request, 422, "Invalid", f"{error.subject or 'the object'} is invalid: {_faults(error)}", causes=causes
        )
    except StoreError as error:
        return _store_failure(request, error)
    except ConnectionError:  # the client has disconnected: there is no one to answer
        raise
    except Exception:  # noqa: BLE001  the client gets a Status, and the log the traceback
        _log.exception("%s %s failed", request.method, request.path)
        return _failure(request, 500, "InternalError", "an internal error occurred; Sluice's log has the details")


def _check_text(request: web.Request) -> None:
    """Refuse text that databases or JSON cannot contain: U+0000, and bytes that are not UTF-8. Raises BadRequest."""
    for part in (request.path, request.query_string):
        if "\0" in part:
            raise BadRequest("the URL contains the character U+0000 (%00), which no name may contain; remove it")
        if not _is_utf8(part):
            raise BadRequest("the URL is not UTF-8")
    for name, value in request.headers.items():
        if not (value.isascii() or _is_utf8(value)):
            raise BadRequest(f"the header {name} is not UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _store_failure(request: web.Request, error: StoreError) -> web.Response:
    match error:
        case NotFound():
            return _failure(request, 404, "NotFound", str(error))
        case AlreadyExists():
            return _failure(request, 409, "AlreadyExists", str(error))
        case Conflict():
            return _failure(request, 409, "Conflict", str(error))
        case TooManyReports(retry_after=seconds):
            headers = {"Retry-After": str(seconds)}
            return _failure(request, 429, "TooManyRequests", str(error), headers=headers, retryAfterSeconds=seconds)
        case DatabaseUnavailable():
            headers = {"Retry-After": str(_RETRY_SECONDS)}
            return _failure(
                request, 503, "ServiceUnavailable", str(error), headers=headers, retryAfterSeconds=_RETRY_SECONDS
            )
        case DatabaseRefusesWrites():
            message = "the database accepts no writes for now: its disk is full, or it is read-only; try again later"
            return _refused(request, error, message)
        case SchemaMismatch():
            message = "the tables of the database are not those of this version of Sluice; run `sluice migrate`"
            return _refused(request, error, message)
        case _:  # its message names files and hosts, which users of the API must not learn
            _log.error("%s %s failed: %s", request.method, request.path, error)
            return _failure(request, 500, "InternalError", "the database cannot be used; Sluice's log has the reason")


def _refused(request: web.Request, error: StoreError, message: str) -> web.Response:
    """Log a failure of the database that its admin has to end, and answer that the client may try again later."""
    _log.error("%s %s failed: %s", request.method, request.path, error)
    headers = {"Retry-After": str(_REFUSED_SECONDS)}
    return _failure(request, 503, "ServiceUnavailable", message, headers=headers, retryAfterSeconds=_REFUSED_SECONDS)


def _failure(
    request: web.Request,
    code: int,
    reason: str,
    message: str,
    *,
    headers: dict[str, str] | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
    **details: Any,
) -> web.Response:
    resource = request.get(RESOURCE)
    if resource is not None:
        name = request.match_info.get("name") or request.get(NAME, "")
        about = {"name": name, "group": GROUP, "kind": resource.kind if reason == "Invalid" else resource.plural}
        details = {key: value for key, value in about.items() if value} | details
    return reply(failure(code, reason, message, details=details, metadata=metadata), code=code, headers=headers)


def _faults(error: InvalidObject) -> str:
    return "; ".join(f"{field}: {message}" if field else message for field, message in error.causes)


def _camel(reason: str) -> str:
    return reason.title().replace(" ", "")
