"""What a request says beside its path: the object in its body, and the options in its query."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from admission.api.errors import BadRequest, UnsupportedMediaType
from admission.api.registry import API_VERSION
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents, parse_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from admission.api.registry import Resource
    from admission.api.replies import Document
    from admission.model.queues import QueueObject

Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid: the order of every list. Queue objects have no two of one name, and leave the uid empty."""
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")
_UNSUPPORTED = ("labelSelector", "fieldSelector", "watch")


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list is wanted: at most `limit` objects (None: all) behind the key `after`."""

    limit: int | None
    after: Key | None

    @classmethod
    def of(cls, request: web.Request) -> Paging:
        """From `limit` and `continue`. Raises BadRequest for those, and for options that lists do not have yet."""
        for option in _UNSUPPORTED:
            if request.query.get(option, "") not in ("", "false", "0"):
                raise BadRequest(f"{option} is not supported by this version; leave it out")
        limit = request.query.get("limit", "0")
        if not (limit.isascii() and limit.isdecimal()) or len(limit) > 9:
            raise BadRequest(f'limit: "{limit}" is not a number of objects')
        token = request.query.get("continue", "")
        return cls(int(limit) or None, _decode(token) if token else None)


def continue_token(after: Key) -> str:
    """The opaque text that makes the next request go on behind the key `after`."""
    return base64.urlsafe_b64encode(orjson.dumps(after)).decode()


def dry_run(request: web.Request) -> bool:
    """Whether nothing is to be written. Raises BadRequest for an unknown directive."""
    return _is_dry_run([value for value in request.query.getall("dryRun", []) if value])


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a DELETE asks for beside the name: DeleteOptions in its body, and its query."""

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


async def read_object(request: web.Request, resource: Resource) -> QueueObject:
    """The object in the body, made to fit the path.

    Raises UnsupportedMediaType, BadRequest for a body that is malformed or belongs to another path, InvalidObject.
    """
    document = await read_document(request)
    if document is None:
        raise BadRequest(f"the body is empty; send a {resource.kind}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", resource.kind)):
        if document.get(field) != expected:
            raise BadRequest(f"{field} must be {expected} on this path, not {_shown(document.get(field))}")
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        _fit(metadata, "name", request.match_info)
        _fit(metadata, "namespace", request.match_info)
    return parse_manifest(document)


async def read_document(request: web.Request) -> Document | None:
    """The JSON or YAML object in the body; None for no body. Raises UnsupportedMediaType and BadRequest."""
    body = await request.read()
    if not body.strip():
        return None
    is_json = request.content_type in ("application/json", "application/octet-stream")
    if not is_json and request.content_type not in _YAML:
        raise UnsupportedMediaType(
            f"{request.content_type} is not read here; send application/json or application/yaml"
        )
    try:
        if is_json:
            orjson.loads(body)
        documents = parse_documents(body.decode(), source="the body")
    except (orjson.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not {'JSON' if is_json else 'UTF-8'}: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    if len(documents) != 1 or documents[0].source != "the body":
        raise BadRequest("the body must be exactly one object")
    return dict(documents[0].body)


def _is_dry_run(directives: object) -> bool:
    if directives not in ([], ["All"]):
        raise BadRequest("dryRun: the only value that is supported is All")
    return bool(directives)


def _fit(metadata: Document, field: str, path: Mapping[str, str]) -> None:
    if field in path and metadata.setdefault(field, path[field]) != path[field]:
        raise BadRequest(f"metadata.{field} is {_shown(metadata[field])}, but the path says {_shown(path[field])}")


def _decode(token: str) -> Key:
    try:
        after = orjson.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, UnicodeEncodeError, orjson.JSONDecodeError) as error:
        raise BadRequest("continue: not a token that a list has given out; start without it") from error
    if not (isinstance(after, list) and len(after) == 3 and all(isinstance(part, str) for part in after)):
        raise BadRequest("continue: not a token that a list has given out; start without it")
    namespace, name, uid = after
    return namespace, name, uid


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "missing" if value is None else "no string"
