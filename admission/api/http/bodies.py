"""Bodies of requests: JSON or YAML into documents, none of which is too large or too deep."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from admission.api.errors import BadRequest, TooLarge, UnsupportedMediaType
from admission.apimachinery.bodies import duplicate_fields
from admission.model.errors import InvalidObject
from admission.model.reading import MAX_BYTES, check_size, parse_documents

if TYPE_CHECKING:
    from admission.api.http.responses import Document

JSON_PATCH, MERGE_PATCH, APPLY_PATCH = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_JSON = ("application/json", "application/octet-stream")  # the latter is what no Content-Type at all means
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")


_MAX_ANONYMOUS_BYTES = 32 * 1024
_MAX_YAML_BYTES = 256 * 1024
"""YAML takes a hundred times as long to read as JSON."""
_MAX_VALUES = 20_000
"""Values in one object, with what aliases stand for: to validate each of them takes time, too."""
_MAX_PATCH_VALUES = 50_000
"""Values in one patch: 10,000 operations."""
_AT_ONCE = 16 * 1024
"""Bytes; a longer body is parsed in a thread, while the event loop goes on."""
READERS = web.AppKey("readers", asyncio.Semaphore)
"""How many longer bodies are parsed at the same time; the others wait."""


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


async def read_anonymous(request: web.Request) -> Document:
    """The object in a body of somebody whom nobody knows yet: JSON, and little of it.

    Raises UnsupportedMediaType, TooLarge and BadRequest.
    """
    if request.content_type not in _JSON:
        raise UnsupportedMediaType(f"{request.content_type} is not read here; send application/json")
    raw = await _bytes(request, _MAX_ANONYMOUS_BYTES)
    return as_object(_parsed(raw, is_json=True).value) if raw.strip() else {}


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


def check_patched(document: Any, what: str) -> None:
    """Raises InvalidObject for what a patch has made larger or deeper than what may be sent."""
    check_size(document, what, max_values=_MAX_VALUES)


def as_object(value: Any) -> Document:
    """The value, which must be an object. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest("the body must be exactly one object")
    return value


async def _read(request: web.Request, *, is_json: bool) -> Body | None:
    raw = await _bytes(request, MAX_BYTES)
    if not raw.strip():
        return None
    if len(raw) <= _AT_ONCE:
        return _parsed(raw, is_json=is_json)
    async with request.app[READERS]:
        return await asyncio.to_thread(_parsed, raw, is_json=is_json)


async def _bytes(request: web.Request, most: int) -> bytes:
    """The body. Raises UnsupportedMediaType for a compressed one, and TooLarge."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("a compressed body is not read here; send it without Content-Encoding")
    if (request.content_length or 0) > most:
        raise _too_large(most)
    found = bytearray()
    async for chunk in request.content.iter_any():
        found += chunk
        if len(found) > most:
            raise _too_large(most)
    return bytes(found)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than the {most // 1024} KiB that are read here")


def _parsed(raw: bytes, *, is_json: bool) -> Body:
    try:
        if is_json or raw.lstrip()[:1] in (b"{", b"["):
            return _json(raw)
    except orjson.JSONDecodeError as error:
        if is_json:  # else it may be YAML in flow style
            raise BadRequest(f"the body is not JSON: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    except RecursionError as error:  # in a field that is given again, and so not in the value
        raise BadRequest("the body is nested too deep") from error
    return Body(_yaml(raw))


def _json(raw: bytes) -> Body:
    value = orjson.loads(raw)
    # A list is one of operations.
    check_size(value, "the body", max_values=_MAX_VALUES if isinstance(value, dict) else _MAX_PATCH_VALUES)
    return Body(value, tuple(duplicate_fields(raw, value)))


def _yaml(raw: bytes) -> Document:
    if len(raw) > _MAX_YAML_BYTES:
        raise TooLarge(f"the body is YAML of more than {_MAX_YAML_BYTES // 1024} KiB; send it as JSON")
    try:
        documents = parse_documents(raw.decode(), source="the body", max_values=_MAX_VALUES)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    if len(documents) != 1 or documents[0].source != "the body":
        raise BadRequest("the body must be exactly one object")
    return dict(documents[0].body)
