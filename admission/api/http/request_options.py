"""What a request says in its query, and about deletions in its body: the options of each verb."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from admission.api.errors import BadRequest, Expired
from admission.api.http.bodies import read_document
from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from aiohttp import web

Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid: the order of every list. Queue objects have no two of one name, and leave the uid empty."""
Validation: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""What becomes of fields that there are not, or that are given twice."""

CONTINUE_SECONDS = 900.0
"""A list can be continued for so long."""
LARGEST_PAGE = 10_000
"""A longer list is given in pages, whether they were asked for or not."""
_LONGEST_MANAGER = 128
_MAX_REVISION = 2**63
_FALSE = ("", "0", "f", "false")
_VALIDATIONS: tuple[Validation, ...] = ("Ignore", "Warn", "Strict")


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where the next page of a list begins. The pages together show the list as of `revision` or later."""

    after: Key
    revision: int
    since: float
    """When the first page was given, in seconds since the epoch."""

    def token(self) -> str:
        """The opaque text for clients."""
        return base64.urlsafe_b64encode(orjson.dumps([self.revision, int(self.since), *self.after])).decode()

    @classmethod
    def parse(cls, token: str) -> Continuation:
        """From the text. Raises BadRequest."""
        try:
            parts = orjson.loads(base64.urlsafe_b64decode(token.encode()))
        except (binascii.Error, UnicodeEncodeError, orjson.JSONDecodeError) as error:
            raise BadRequest("continue: not a token that a list has given out; start without it") from error
        match parts:
            case [int(revision), int(since), str(namespace), str(name), str(uid)] if (
                0 <= revision < _MAX_REVISION and 0 <= since < _MAX_REVISION and "\0" not in namespace + name + uid
            ):
                return cls((namespace, name, uid), revision, since)
            case _:
                pass
        raise BadRequest("continue: not a token that a list has given out; start without it")


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list is wanted: at most `limit` objects from the continuation (None: the beginning) on."""

    limit: int
    start: Continuation | None
    resource_version: int | None
    """The list must not be older than that; None: as it is."""
    exact: bool = False
    """... nor newer."""

    @classmethod
    def of(cls, request: web.Request, *, now: float) -> Paging:
        """Raises BadRequest, and Expired for a continuation that is too old, with one that goes on."""
        if request.query.get("sendInitialEvents"):
            raise BadRequest("sendInitialEvents is for watches only")
        asked = number(request, "limit") or LARGEST_PAGE
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
            anew = Continuation(start.after, 0, now).token()
            raise Expired(
                "the provided continue parameter is too old to give a consistent list; start a new list without it, or "
                "go on inconsistently with the token in metadata.continue",
                continuation=anew,
            )
        return cls(min(asked, LARGEST_PAGE), start, version or None, exact=match == "Exact")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a create, update or patch is meant."""

    dry_run: bool
    validation: Validation
    manager: str
    """The field manager; empty: not named."""
    force: bool
    """Whether a server-side apply takes fields from other managers."""

    @classmethod
    def of(cls, request: web.Request, *, apply: bool = False) -> WriteOptions:
        """`apply`: for a server-side apply. Raises BadRequest, and InvalidObject for what apply demands."""
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
class Deletion:
    """What a DELETE asks for beside the name: DeleteOptions in its body, and its query.

    Nothing depends on queue objects by ownerReferences, so that propagation and grace have no meaning here.
    """

    dry_run: bool
    uid: str = ""
    resource_version: str = ""

    @classmethod
    async def of(cls, request: web.Request) -> Deletion:
        """Raises BadRequest for what would be deleted otherwise than it was meant."""
        options = await read_document(request) or {}
        required = options.get("preconditions") or {}
        if not isinstance(required, dict) or not all(isinstance(value, str) for value in required.values()):
            raise BadRequest("preconditions must be an object with the strings uid and resourceVersion")
        dry = dry_run(request) or _is_dry_run(options.get("dryRun") or [])
        return cls(dry, required.get("uid", ""), required.get("resourceVersion", ""))


def dry_run(request: web.Request) -> bool:
    """Whether nothing is to be written. Raises BadRequest for an unknown directive."""
    return _is_dry_run([value for value in request.query.getall("dryRun", []) if value])


def flag(request: web.Request, name: str) -> bool:
    """Whether a boolean parameter is there and not false."""
    return request.query.get(name, "").lower() not in _FALSE


def number(request: web.Request, name: str) -> int | None:
    """A parameter that is a count; None if it is missing. Raises BadRequest."""
    text = request.query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise BadRequest(f'{name}: "{text}" is not a number that can be')
    return int(text)


def resource_version(request: web.Request) -> int | None:
    """The parameter of that name; 0: any, None: it is missing. Raises BadRequest."""
    text = request.query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadRequest(f'resourceVersion: "{text}" is none that a list or watch has given out')
    return int(text)


def _is_dry_run(directives: object) -> bool:
    if directives not in ([], ["All"]):
        raise BadRequest("dryRun: the only value that is supported is All")
    return bool(directives)
