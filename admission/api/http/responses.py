"""JSON responses, and the headers and warnings that they carry."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Document: TypeAlias = "dict[str, Any]"
"""A JSON object, as it is sent and received."""


_MOST_WARNINGS, _LONGEST_WARNING = 20, 256
"""Most warnings of a response, and characters of each: many clients refuse headers of more than some 8 KiB."""


def reply(
    document: Mapping[str, Any],
    *,
    code: int = 200,
    warnings: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a JSON response. kubectl and `sluice` show the `warnings` to the user (RFC 7234, code 299)."""
    response = reply_encoded(encode(document), code=code)
    response.headers.update(headers or {})
    for warning in islice(warnings, _MOST_WARNINGS):
        add_warning(response, warning)
    return response


def add_warning(response: web.StreamResponse, text: str) -> None:
    """Add a Warning header, which kubectl and `sluice` show to the user; cut after 256 characters."""
    printable = "".join(each if each.isprintable() else " " for each in text[:_LONGEST_WARNING])
    quoted = printable.replace("\\", "\\\\").replace('"', '\\"')
    response.headers.add("Warning", f'299 - "{quoted}"')


def encode(document: Mapping[str, Any]) -> bytes:
    """Serialise a document as the body of a response."""
    return orjson.dumps(document) + b"\n"


def reply_encoded(body: bytes, *, code: int = 200) -> web.Response:
    """Return a JSON response with a body from `encode`."""
    response = web.Response(body=body, status=code, content_type="application/json")
    response.headers["Cache-Control"] = "no-cache, private"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
