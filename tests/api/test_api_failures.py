"""Every error that can come up from below, as the client sees it."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from admission.api.application import listening
from admission.api.http.failures import failures
from admission.model.errors import InvalidObject, StoreError
from admission.store.errors import (
    AlreadyExists,
    Conflict,
    DatabaseBusy,
    DatabaseUnavailable,
    DatabaseUnusable,
    NotFound,
    SchemaMismatch,
)


async def answer_to(error: Exception) -> tuple[int, dict[str, object], dict[str, str]]:
    async def handler(request: web.Request) -> web.Response:
        raise error

    app = web.Application(middlewares=[failures])
    app.router.add_get("/", handler)
    async with (
        listening(app, "127.0.0.1", 0) as url,
        aiohttp.ClientSession() as session,
        session.get(url) as response,
    ):
        return response.status, await response.json(), dict(response.headers)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (InvalidObject([("spec.x", "is wrong")], subject="Cohort"), 422, "Invalid"),
        (NotFound("it is not there"), 404, "NotFound"),
        (AlreadyExists("it is there"), 409, "AlreadyExists"),
        (Conflict("it changed"), 409, "Conflict"),
        (DatabaseUnusable("the disk is full"), 500, "InternalError"),
        (SchemaMismatch("not migrated"), 500, "InternalError"),
        (StoreError("something"), 500, "InternalError"),
        (web.HTTPNotAcceptable(), 406, "NotAcceptable"),
    ],
)
async def test_known_errors_keep_their_sentence(error, code, reason):
    status, body, _ = await answer_to(error)
    assert (status, body["code"], body["reason"], body["status"]) == (code, code, reason, "Failure")
    if not isinstance(error, web.HTTPException):
        assert str(error).removeprefix("Cohort: ") in body["message"]


@pytest.mark.parametrize("error", [DatabaseUnavailable("it is gone"), DatabaseBusy("it is locked")])
async def test_a_database_that_is_away_is_worth_another_try(error):
    status, body, headers = await answer_to(error)
    assert (status, body["reason"], body["message"]) == (503, "ServiceUnavailable", str(error))
    assert headers["Retry-After"] == "1"


async def test_a_defect_is_logged_and_not_shown(caplog):
    status, body, _ = await answer_to(RuntimeError("secret detail"))
    assert (status, body["reason"]) == (500, "InternalError")
    assert "secret detail" not in str(body)
    assert "secret detail" in caplog.text
