"""JSON answers: objects, lists, and what every answer of the API has in its headers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Document: TypeAlias = "dict[str, Any]"
"""A JSON document, as it goes over the wire."""


_MOST_WARNINGS, _LONGEST_WARNING = 20, 256
"""Headers are read into memory by clients, and refused by many from some 8 KiB on."""


def reply(
    document: Mapping[str, Any],
    *,
    code: int = 200,
    warnings: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """A JSON response. `warnings` are shown by kubectl and by `sluice` to the user (RFC 7234, code 299)."""
    response = reply_written(written(document), code=code)
    response.headers.update(headers or {})
    for warning in islice(warnings, _MOST_WARNINGS):
        add_warning(response, warning)
    return response


def add_warning(response: web.StreamResponse, text: str) -> None:
    """Have kubectl and `sluice` show a text to the user, at most its first 256 characters."""
    printable = "".join(each if each.isprintable() else " " for each in text[:_LONGEST_WARNING])
    quoted = printable.replace("\\", "\\\\").replace('"', '\\"')
    response.headers.add("Warning", f'299 - "{quoted}"')


def written(document: Mapping[str, Any]) -> bytes:
    """The JSON document as the body of an answer."""
    return orjson.dumps(document) + b"\n"


def reply_written(body: bytes, *, code: int = 200) -> web.Response:
    """A JSON response with a body that is `written` already."""
    response = web.Response(body=body, status=code, content_type="application/json")
    response.headers["Cache-Control"] = "no-cache, private"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
