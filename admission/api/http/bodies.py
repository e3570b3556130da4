"""Request bodies: JSON and YAML parsed into documents, with limits on size and depth."""

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
_JSON = ("application/json", "application/octet-stream")  # aiohttp reports the latter if there is no Content-Type
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")


_MAX_ANONYMOUS_BYTES = 32 * 1024
"""Largest body of requests without authentication."""
_MAX_YAML_BYTES = 256 * 1024
"""Largest body in YAML, which takes a hundred times as long to parse as JSON."""
_MAX_VALUES = 20_000
"""Most values in one object, with YAML aliases expanded: validation takes time for each of them, too."""
_MAX_PATCH_VALUES = 50_000
"""Most values in one JSON patch: 10,000 operations."""
_MAX_BYTES_IN_LOOP = 16 * 1024
"""Largest body that is parsed in the event loop; a larger one is parsed in a thread."""
PARSER_SLOTS = web.AppKey("parser_slots", asyncio.Semaphore)
"""Limits the bodies that are parsed in threads concurrently."""


@dataclass(frozen=True, slots=True)
class Body:
    """A parsed request body."""

    value: Any
    duplicates: tuple[str, ...] = ()
    """Paths of fields that occur more than once in an object, such as `spec.cohortName`."""


async def read_object(request: web.Request) -> Body | None:
    """Read the body of a POST, PUT or DELETE; None if it is empty.

    Raises UnsupportedMediaType, TooLarge and BadRequest.
    """
    media = request.content_type
    if media not in (*_JSON, *_YAML):
        raise UnsupportedMediaType(f"{media} is not supported here; send application/json or application/yaml")
    return await _read(request, is_json=media in _JSON)


async def read_anonymous(request: web.Request) -> Document:
    """Read the JSON object in the body of a request without authentication, at most 32 KiB.

    Raises UnsupportedMediaType, TooLarge and BadRequest.
    """
    if request.content_type not in _JSON:
        raise UnsupportedMediaType(f"{request.content_type} is not supported here; send application/json")
    raw = await _bytes(request, _MAX_ANONYMOUS_BYTES)
    return as_object(_parsed(raw, is_json=True).value) if raw.strip() else {}


async def read_patch(request: web.Request) -> Body:
    """Read the body of a PATCH. Raises UnsupportedMediaType, TooLarge and BadRequest."""
    media = request.content_type
    if media not in (JSON_PATCH, MERGE_PATCH, APPLY_PATCH):
        listed = f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
        raise UnsupportedMediaType(f"{media} is not a supported type of patch; supported are {listed}")
    body = await _read(request, is_json=media != APPLY_PATCH)
    if body is None:
        raise BadRequest("the body is empty; send a patch")
    return body


async def read_document(request: web.Request) -> Document | None:
    """Read the object in a body, without its duplicate fields; None if it is empty.

    Raises UnsupportedMediaType, TooLarge and BadRequest.
    """
    body = await read_object(request)
    return None if body is None else as_object(body.value)


def check_patched(document: Any, what: str) -> None:
    """Check the result of a patch against the limits of request bodies. Raises InvalidObject."""
    check_size(document, what, max_values=_MAX_VALUES)


def as_object(value: Any) -> Document:
    """Return a parsed body if it is a JSON object. Raises BadRequest."""
    if not isinstance(value, dict):
        raise BadRequest("the body must be exactly one object")
    return value


async def _read(request: web.Request, *, is_json: bool) -> Body | None:
    raw = await _bytes(request, MAX_BYTES)
    if not raw.strip():
        return None
    if len(raw) <= _MAX_BYTES_IN_LOOP:
        return _parsed(raw, is_json=is_json)
    async with request.app[PARSER_SLOTS]:
        return await asyncio.to_thread(_parsed, raw, is_json=is_json)


async def _bytes(request: web.Request, most: int) -> bytes:
    """Read the body. Raises UnsupportedMediaType for a compressed one, and TooLarge."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not supported; send it without Content-Encoding")
    if (request.content_length or 0) > most:
        raise _too_large(most)
    found = bytearray()
    async for chunk in request.content.iter_any():
        found += chunk
        if len(found) > most:
            raise _too_large(most)
    return bytes(found)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most // 1024} KiB, the limit of this request")


def _parsed(raw: bytes, *, is_json: bool) -> Body:
    try:
        if is_json or raw.lstrip()[:1] in (b"{", b"["):
            return _json(raw)
    except orjson.JSONDecodeError as error:
        if is_json:  # else it may be YAML in flow style
            raise BadRequest(f"the body is not JSON: {error}") from error
    except InvalidObject as error:
        raise BadRequest(str(error)) from error
    except RecursionError as error:  # in a duplicate field, which the checked value does not contain
        raise BadRequest("the body is nested too deep") from error
    return Body(_yaml(raw))


def _json(raw: bytes) -> Body:
    value = orjson.loads(raw)
    # A list is a JSON patch.
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
