"""The resource `whatifs`: a past period replayed under other queue objects, as a stream of progress and the answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from aiohttp import web

from admission.api.errors import ApiError, BadRequest, UnknownObject
from admission.api.http.bodies import read_document
from admission.api.registry import API_VERSION, WHAT_IFS
from admission.api.resources.report_times import report_times
from admission.apimachinery.errors import failure
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest

if TYPE_CHECKING:
    from admission.api.http.responses import Document
    from admission.api.resources.explaining_engine import LocalController

WhatIf: TypeAlias = Callable[["Document"], AsyncGenerator["Document"]]
"""Answers a question: yields documents with `progress` (0 to 1), and the `answer` at the end.

Raises ApiError and InvalidObject.
"""

_MOST_SECONDS: Final = 400 * 86400
"""Longest period that is replayed."""
_TIMES: Final = ("from", "to", "month", "quarter", "timezone")
_FIELDS: Final = {"apiVersion", "kind", "metadata", *_TIMES, "objects", "goal"}
_GOAL: Final[dict[str, tuple[type, ...]]] = {
    "clusterQueue": (str,), "flavor": (str,), "resource": (str,), "p90Seconds": (int, float),
}  # fmt: skip


class WhatIfs:
    """Handler of what-if questions."""

    def __init__(self, ask: WhatIf | None, controller: LocalController, *, now: Callable[[], float]) -> None:
        self._ask = ask
        self._controller = controller
        self._now = now

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Stream `PROGRESS` lines, and one `ANSWER` or `ERROR`. Raises ApiError and InvalidObject before the first."""
        question = self._question(await read_document(request) or {})
        if self._ask is None:
            raise UnknownObject("this server replays nothing; ask a `sluice serve`")
        async with aclosing(self._ask(question)) as lines:  # the process behind it ends with the request
            first = await anext(lines)
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-store"})
            await response.prepare(request)
            try:
                await response.write(_event(first))
                async for line in lines:
                    await response.write(_event(line))
            except (ApiError, InvalidObject) as error:  # the headers have been sent
                code, reason = (error.code, error.reason) if isinstance(error, ApiError) else (422, "Invalid")
                await response.write(_line("ERROR", {"object": failure(code, reason, str(error))}))
        await response.write_eof()
        return response

    def _question(self, body: Document) -> Document:
        """Return the question in a body. Raises BadRequest and InvalidObject."""
        for field in body.keys() - _FIELDS:
            raise BadRequest(f"{field}: there is no such field; fields are {', '.join(sorted(_FIELDS))}")
        now = self._now()
        times = report_times({field: _text(body, field) for field in _TIMES}, now)
        start, end = times.start, min(times.end, now)
        if start >= end:
            raise BadRequest("from must be before to, and not in the future")
        if end - start > _MOST_SECONDS:
            raise BadRequest(f"from: at most {_MOST_SECONDS // 86400} days are replayed; give a later time")
        objects = body.get("objects", [])
        if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
            raise BadRequest("objects: must be a list of queue objects")
        for number, one in enumerate(objects):
            parse_manifest(one, source=f"objects[{number}]")
        namespaces = {name: dict(labels) for name, labels in self._controller.namespaces().items()}
        return {"start": start, "end": end, "objects": objects, "goal": _goal(body), "namespaces": namespaces}


def _text(body: Document, field: str) -> str:
    value = body.get(field) or ""
    if not isinstance(value, str):
        raise BadRequest(f"{field}: must be a string, as in the parameters of reports")
    return value


def _goal(body: Document) -> Document | None:
    goal = body.get("goal")
    if goal is None:
        return None
    if not isinstance(goal, dict) or goal.keys() != _GOAL.keys():
        raise BadRequest(f"goal: must be an object with {', '.join(_GOAL)}")
    for field, types in _GOAL.items():
        if not isinstance(goal[field], types) or isinstance(goal[field], bool):
            raise BadRequest(f"goal.{field}: must be a {'string' if str in types else 'number'}")
    if not goal["p90Seconds"] >= 0:
        raise BadRequest("goal.p90Seconds: must not be negative")
    names: dict[str, Any] = {"cluster_queue": goal["clusterQueue"], "flavor": goal["flavor"]}
    return {**names, "resource": goal["resource"], "p90": float(goal["p90Seconds"])}


def _event(line: Document) -> bytes:
    if "answer" in line:
        return _line("ANSWER", {"object": {"kind": WHAT_IFS.kind, "apiVersion": API_VERSION, **line["answer"]}})
    return _line("PROGRESS", {"share": line["progress"]})


def _line(kind: str, content: Document) -> bytes:
    return orjson.dumps({"type": kind, **content}) + b"\n"
