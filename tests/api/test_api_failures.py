"""Responses to errors of the store, the models, handlers and HTTP parsing."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from admission.api.application import listening
from admission.api.http.failures import failures
from admission.model.errors import InvalidObject
from admission.store.errors import (
    AlreadyExists,
    Conflict,
    DatabaseBusy,
    DatabaseRefusesWrites,
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
        (web.HTTPNotAcceptable(), 406, "NotAcceptable"),
    ],
)
async def test_known_errors_are_answered_with_their_code_reason_and_message(error, code, reason):
    status, body, _ = await answer_to(error)
    assert (status, body["code"], body["reason"], body["status"]) == (code, code, reason, "Failure")
    if not isinstance(error, web.HTTPException):
        assert str(error).removeprefix("Cohort: ") in body["message"]


@pytest.mark.parametrize("error", [DatabaseUnavailable("it is gone"), DatabaseBusy("it is locked")])
async def test_unavailable_database_is_answered_with_503_and_retry_after(error):
    status, body, headers = await answer_to(error)
    assert (status, body["reason"], body["message"]) == (503, "ServiceUnavailable", str(error))
    assert headers["Retry-After"] == "1"


async def test_full_disk_is_answered_with_503_without_the_path_of_the_database(caplog):
    status, body, headers = await answer_to(DatabaseRefusesWrites("the disk of the database /secret.db is full"))
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert "accepts no writes for now" in body["message"]
    assert "secret" not in str(body)
    assert headers["Retry-After"] == "10"
    assert "/secret.db is full" in caplog.text


async def test_tables_of_another_version_are_answered_with_503_without_the_path_of_the_database(caplog):
    status, body, headers = await answer_to(SchemaMismatch("/secret.db has schema 0005"))
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert "run `sluice migrate`" in body["message"]
    assert "secret" not in str(body)
    assert headers["Retry-After"] == "10"
    assert "/secret.db has schema 0005" in caplog.text


async def test_unusable_database_is_answered_with_500_and_details_only_in_the_log(caplog):
    status, body, _ = await answer_to(DatabaseUnusable("no right to /secret.db"))
    assert (status, body["reason"]) == (500, "InternalError")
    assert "secret" not in str(body)
    assert "/secret.db" in caplog.text


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"GET /" + 9000 * b"x" + b" HTTP/1.1\r\n\r\n", "the URL or a header is longer than 8190 bytes"),
        (b"GET / HTTP/1.1\r\nX: " + 9000 * b"x" + b"\r\n\r\n", "the URL or a header is longer than 8190 bytes"),
        (b"\x16\x03\x01\r\n\r\n", "the request is not a valid HTTP/1.1 request"),
    ],
)
async def test_malformed_http_request_gets_a_bad_request_status(sent, says):
    async with listening(web.Application(), "127.0.0.1", 0) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(sent)
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.split()[1] == "400"
    status = json.loads(answer.partition("\r\n\r\n")[2])
    assert (status["kind"], status["reason"]) == ("Status", "BadRequest")
    assert says in status["message"]


async def test_unexpected_exception_is_logged_and_hidden_from_the_client(caplog):
    status, body, _ = await answer_to(RuntimeError("secret detail"))
    assert (status, body["reason"]) == (500, "InternalError")
    assert "secret detail" not in str(body)
    assert "secret detail" in caplog.text
