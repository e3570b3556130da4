"""Request bodies that are malformed, too large or costly to parse: the event loop is not blocked by them."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api_client import PREFIX, TOKEN
from api_thread import Running, running

BUSY_SECONDS = 0.5
"""Processor time for which one request may block the event loop."""
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 10)
)
ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
JSON, YAML = "application/json", "application/yaml"
COHORT = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "new"}}


@pytest.fixture
def api(filled_database: Path, tmp_path: Path) -> Iterator[Running]:
    path = tmp_path / "sluice.db"
    shutil.copyfile(filled_database, path)
    with running(f"sqlite:///{path}") as served:
        yield served


def send(api: Running, method: str, path: str, body: bytes, *, token: str = TOKEN, **headers: str) -> tuple[int, dict]:
    """Code and Status of the response."""
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=120)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        with suppress(ConnectionError):  # a body that is refused before it was sent: the response says why
            connection.request(method, path, body, given)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("media", "body", "code"),
    [
        (YAML, MERGES, 415),
        ("text/yaml", ALIASES, 415),
        (JSON, MERGES, 400),
        (JSON, '{"token": "' + "x" * 32 * 1024 + '"}', 413),
        (JSON, '{"token": ' + "[" * 30_000 + "}", 400),
        (JSON, '{"token": ' + "9" * 30_000 + "}", 400),
        (JSON, '{"token": ' + "[" * 1000 + "]" * 1000 + ', "token": "x"}', 400),
        (JSON, '{"a": ' + "9" * 30_000 + ', "a": 1, "token": "x"}', 400),
        (JSON, '{"a": ' + "9." + "9" * 30_000 + ', "a": 1, "token": "x"}', 401),
        (JSON, '["token"]', 400),
        (JSON, "{" + '"":0,' * 5_000 + '"token": "x"}', 401),
    ],
    ids=range(11),
)
def test_login_parses_only_small_valid_json_bodies(api, media, body, code):
    found, status = send(api, "POST", "/login", body.encode(), token="", Content_Type=media)
    assert (found, status["kind"]) == (code, "Status")
    assert api.meter.read() < BUSY_SECONDS


def test_anonymous_chunked_body_over_the_limit_gets_413_before_its_end(api):
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=120)
    connection.putrequest("POST", "/login")
    for name, value in (("Content-Type", JSON), ("Transfer-Encoding", "chunked")):
        connection.putheader(name, value)
    connection.endheaders()
    for _ in range(5):
        connection.send(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["reason"]) == (413, "RequestEntityTooLarge")
    connection.close()


@pytest.mark.costly
def test_a_compressed_body_is_refused(api):
    bomb = gzip.compress(bytes(50_000_000))
    for token in ("", TOKEN):
        path = f"{PREFIX}/cohorts" if token else "/login"
        code, status = send(api, "POST", path, bomb, token=token, Content_Type=JSON, Content_Encoding="gzip")
        assert (code, status["reason"]) == (415, "UnsupportedMediaType")
    assert api.meter.read() < BUSY_SECONDS


LARGE = {
    "merge keys": (YAML, MERGES, 400),
    "aliases": (YAML, ALIASES, 400),
    "much YAML": (YAML, "- a\n" * 700_000, 413),
    "as much YAML as is read": (YAML, "[" + "1," * 120_000 + "1]", 400),
    "flow YAML": ("application/apply-patch+yaml", "{a: [" + "b, " * 80_000 + "]}", 400),
    "many values": (JSON, "[" + "[]," * 1_000_000 + "[]]", 400),
    "many fields": (JSON, json.dumps(COHORT | {f"f{n}": n for n in range(90_000)}), 400),
    "many unknown fields": (JSON, json.dumps(COHORT | {f"cohortNam{n}": n for n in range(19_000)}), 201),
    "an unknown field with a long name": (JSON, json.dumps(COHORT | {"cohortName" * 200_000: 1}), 201),
    "fields that are given again": (JSON, json.dumps(COHORT)[:-1] + ', "x": 1' * 300_000 + "}", 201),
    "long text": (JSON, json.dumps(COHORT | {"metadata": {"name": "x" * 3_000_000}}), 422),
    "many labels": (
        JSON,
        json.dumps(COHORT | {"metadata": {"name": "new", "labels": {f"l{n}": "/" for n in range(19_000)}}}),
        422,
    ),
    "a long number": (JSON, json.dumps(COHORT | {"metadata": {"name": 0}}).replace("0", "9" * 3_000_000), 400),
    "deep": (JSON, "[" * 100_000, 400),
    "deep and hidden": (JSON, '{"a": ' + "[" * 1000 + "]" * 1000 + ', "a": 1}', 400),
    "not UTF-8": (JSON, json.dumps(COHORT).encode("utf-16"), 400),
    "control characters": (JSON, json.dumps(COHORT | {"a\nb\r\0": 1}), 400),
    "line ends": (JSON, json.dumps(COHORT | {"a\nb\rX-Evil: 1": 1}), 201),
    "half of a character": (JSON, json.dumps(COHORT | {"a": "\ud800"}), 400),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_or_malformed_body_does_not_block_the_event_loop(api, name):
    media, text, code = LARGE[name]
    body = text if isinstance(text, bytes) else text.encode()
    method, path = ("PATCH", "/cohorts/new?fieldManager=a") if "patch" in media else ("POST", "/cohorts")
    found, status = send(api, method, PREFIX + path, body, Content_Type=media)
    assert (found, found < 300 or status["message"]) == (code, found < 300 or status["message"])
    assert api.meter.read() < BUSY_SECONDS


def test_large_json_patch_does_not_block_the_event_loop(api):
    many = [{"op": "add", "path": "/metadata/labels/a", "value": "b" * 100}] * 9_000
    many.insert(0, {"op": "add", "path": "/metadata/labels", "value": {f"l{n}": "v" for n in range(10_000)}})
    media = "application/json-patch+json"
    code, _ = send(api, "PATCH", f"{PREFIX}/cohorts/root", json.dumps(many).encode(), Content_Type=media)
    assert code == 422
    assert api.meter.read() < BUSY_SECONDS
