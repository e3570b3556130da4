"""Options of requests, parsed from the query (for deletions also from the body): paging, writes, deletion, times."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import orjson

from admission.api.errors import BadRequest, Expired
from admission.api.http.bodies import read_document
from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from aiohttp import web

Key: TypeAlias = tuple[str, str, str]
"""Sort key of lists: namespace, name and uid. The uid is empty for queue objects, whose names are unique."""
Validation: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""The parameter `fieldValidation`: how unknown and duplicate fields are treated."""

CONTINUE_SECONDS = 900.0
"""Life of a continue token; after it the list answers 410 Expired."""
LARGEST_PAGE = 10_000
"""Most objects in one response; longer lists are paged also without `limit`."""
_LONGEST_MANAGER = 128
_MAX_REVISION = 2**63
_FALSE = ("", "0", "f", "false")
_VALIDATIONS: tuple[Validation, ...] = ("Ignore", "Warn", "Strict")


@dataclass(frozen=True, slots=True)
class Continuation:
    """Position in a paged list. The pages together show the list as of `revision` or later."""

    after: Key
    """Key of the last object of the previous page."""
    revision: int
    """Revision of the store at the first page."""
    since: float
    """Unix time (s) of the first page."""

    def token(self) -> str:
        """Return the opaque token for clients (`metadata.continue`)."""
        return base64.urlsafe_b64encode(orjson.dumps([self.revision, int(self.since), *self.after])).decode()

    @classmethod
    def parse(cls, token: str) -> Continuation:
        """Parse a token. Raises BadRequest."""
        try:
            parts = orjson.loads(base64.urlsafe_b64decode(token.encode()))
        except (binascii.Error, UnicodeEncodeError, orjson.JSONDecodeError) as error:
            raise BadRequest("continue: not a token of an earlier list; start a new list without it") from error
        match parts:
            case [int(revision), int(since), str(namespace), str(name), str(uid)] if (
                0 <= revision < _MAX_REVISION and 0 <= since < _MAX_REVISION and "\0" not in namespace + name + uid
            ):
                return cls((namespace, name, uid), revision, since)
            case _:
                pass
        raise BadRequest("continue: not a token of an earlier list; start a new list without it")


@dataclass(frozen=True, slots=True)
class Paging:
    """The requested page of a list: at most `limit` objects after `start` (None: from the beginning)."""

    limit: int
    start: Continuation | None
    resource_version: int | None
    """The list must be at least as new as this revision; None: any."""
    exact: bool = False
    """The list must be exactly of `resource_version`."""

    @classmethod
    def of(cls, request: web.Request, *, now: float) -> Paging:
        """Parse the paging parameters of a list. `now`: Unix time (s).

        Raises BadRequest, and Expired for a token that is too old; its `continuation` continues inconsistently, as in
        Kubernetes.
        """
        if request.query.get("sendInitialEvents"):
            raise BadRequest("sendInitialEvents is for watches only")
        limit = number(request, "limit") or LARGEST_PAGE
        token = request.query.get("continue", "")
        version = resource_version(request)
        match = request.query.get("resourceVersionMatch", "")
        if match not in ("", "Exact", "NotOlderThan"):
            raise BadRequest(f'resourceVersionMatch: "{match}" is not Exact or NotOlderThan')
        if match and version is None:
            raise BadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match == "Exact" and not version:
            raise BadRequest('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
        if token and version:
            raise BadRequest("specifying resourceVersion is not allowed when using continue")
        start = Continuation.parse(token) if token else None
        if start is not None and now - start.since > CONTINUE_SECONDS:
            inconsistent = Continuation(start.after, 0, now).token()
            raise Expired(
                "the provided continue parameter is too old to give a consistent list; start a new list without it, or "
                "go on inconsistently with the token in metadata.continue",
                continuation=inconsistent,
            )
        return cls(min(limit, LARGEST_PAGE), start, version or None, exact=match == "Exact")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a create, update or patch."""

    dry_run: bool
    validation: Validation
    manager: str
    """The field manager; empty if the request names none."""
    force: bool
    """Whether a server-side apply takes fields from other managers."""

    @classmethod
    def of(cls, request: web.Request, *, apply: bool = False) -> WriteOptions:
        """Parse the options; `apply`: of a server-side apply.

        Raises BadRequest, and InvalidObject for an apply without fieldManager or `force` without apply.
        """
        validation = request.query.get("fieldValidation") or "Warn"
        if validation not in _VALIDATIONS:
            raise BadRequest(f'fieldValidation: "{validation}" is not one of {", ".join(_VALIDATIONS)}')
        manager = request.query.get("fieldManager", "")
        if len(manager) > _LONGEST_MANAGER or not manager.isprintable():
            raise BadRequest(f"fieldManager: must be printable and not longer than {_LONGEST_MANAGER} characters")
        if apply and not manager:
            raise InvalidObject([("fieldManager", "is required for apply patch")], subject="PatchOptions")
        force = flag(request, "force")
        if force and not apply:
            raise InvalidObject([("force", "may not be specified for non-apply patch")], subject="PatchOptions")
        return cls(dry_run(request), validation, manager, force)


@dataclass(frozen=True, slots=True)
class RequestedDeletion:
    """Options of a DELETE, from its query and the DeleteOptions in its body.

    `propagationPolicy` and `gracePeriodSeconds` are ignored: queue objects have no dependents by ownerReferences.
    """

    dry_run: bool
    uid: str = ""
    resource_version: str = ""

    @classmethod
    async def of(cls, request: web.Request) -> RequestedDeletion:
        """Parse the options. Raises BadRequest, so that nothing is deleted with misunderstood preconditions."""
        options = await read_document(request) or {}
        required = options.get("preconditions") or {}
        if not isinstance(required, dict) or not all(isinstance(value, str) for value in required.values()):
            raise BadRequest("preconditions must be an object with the strings uid and resourceVersion")
        dry = dry_run(request) or _is_dry_run(options.get("dryRun") or [])
        return cls(dry, required.get("uid", ""), required.get("resourceVersion", ""))


def dry_run(request: web.Request) -> bool:
    """Return whether the request is a dry run (`?dryRun=All`). Raises BadRequest for another value."""
    return _is_dry_run([value for value in request.query.getall("dryRun", []) if value])


def flag(request: web.Request, name: str) -> bool:
    """Return whether a boolean parameter is present and not false."""
    return request.query.get(name, "").lower() not in _FALSE


def number(request: web.Request, name: str) -> int | None:
    """Return a parameter that is a non-negative integer; None if it is missing. Raises BadRequest."""
    text = request.query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise BadRequest(f'{name}: "{text}" is not a number of at most 9 digits')
    return int(text)


def resource_version(request: web.Request) -> int | None:
    """Return the parameter `resourceVersion`; 0 means any version, None that it is missing. Raises BadRequest."""
    text = request.query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadRequest(f'resourceVersion: "{text}" is not one of a list or watch')
    return int(text)


def _is_dry_run(directives: object) -> bool:
    if directives not in ([], ["All"]):
        raise BadRequest("dryRun: the only supported value is All")
    return bool(directives)


UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds of each unit of a duration."""


def instant(text: str, now: float, *, field: str, zone: tzinfo = UTC) -> float:
    """Return the Unix time (s) of an RFC 3339 time, a date (midnight of `zone`), or a duration before now (`30d`)."""
    if relative := re.fullmatch(r"(\d{1,6})([mhdw])", text, re.ASCII):
        return max(0.0, now - int(relative[1]) * UNITS[relative[2]])
    try:
        at = datetime.fromisoformat(text.upper())
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp())
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            f'{field}: "{text}" is not a time; give one such as 2025-06-01T08:00:00Z, 2025-06-01, or 7d (7 days ago)'
        ) from error
