"""Bodies of requests: JSON or YAML into documents, none of which is too large or too deep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from admission.api.errors import BadRequest, UnsupportedMediaType
from admission.machinery.bodies import duplicate_fields
from admission.model.errors import InvalidObject
from admission.model.reading import check_size, parse_documents

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.replies import Document

JSON_PATCH, MERGE_PATCH, APPLY_PATCH = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_JSON = ("application/json", "application/octet-stream")  # the latter is what no Content-Type at all means
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")


@dataclass(frozen=True, slots=True)
class Body:
    """What was sent, and the paths of the fields that were given twice in it."""

    value: Any
    doubled: tuple[str, ...] = ()


async def read_object(request: web.Request) -> Body | None:
    """The object in a POST, PUT or DELETE; None for no body. Raises UnsupportedMediaType and BadRequest."""
    media = request.content_type
    if media not in (*_JSON, *_YAML):
        raise UnsupportedMediaType(f"{media} is not read here; send application/json or application/yaml")
    return await _read(request, is_json=media in _JSON)


async def read_patch(request: web.Request) -> Body:
    """What was sent by PATCH. Raises UnsupportedMediaType and BadRequest."""
    media = request.content_type
    if media not in (JSON_PATCH, MERGE_PATCH, APPLY_PATCH):
        listed = f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
        raise UnsupportedMediaType(f"{media} is not a patch that is supported; these are: {listed}")
    body = await _read(request, is_json=media != APPLY_PATCH)
    if body is None:
        raise BadRequest("the body is empty; send a patch")
    return body


async def read_document(request: web.Request) -> Document | None:
    """The object in a body of which doubled fields do not matter. Raises UnsupportedMediaType and BadRequest."""
    body = await read_object(request)
    return None if body is None else as_object(body.value)


def as_object(value: Any) -> Document:
    """The value, which must be an object. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest("the body must be exactly one object")
    return value


async def _read(request: web.Request, *, is_json: bool) -> Body | None:
    raw = await request.read()
    if not raw.strip():
        return None
    try:
        if is_json or raw.lstrip()[:1] in (b"{", b"["):
            return _json(raw)
    except orjson.JSONDecodeError as error:
        if is_json:  # else it may be YAML in flow style
            raise BadRequest(f"the body is not JSON: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    return Body(_yaml(raw))


def _json(raw: bytes) -> Body:
    value = orjson.loads(raw)
    check_size(value, "the body")
    return Body(value, tuple(duplicate_fields(raw, value)))


def _yaml(raw: bytes) -> Document:
    try:
        documents = parse_documents(raw.decode(), source="the body")
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    if len(documents) != 1 or documents[0].source != "the body":
        raise BadRequest("the body must be exactly one object")
    return dict(documents[0].body)
