"""Bodies of bad encodings, sizes and types on every path, from strangers and an admin: an answer at once, never 5xx.

The paths and their parameters are drawn by schemathesis from the OpenAPI document.
"""

from __future__ import annotations

import gzip
import json
import shutil
import time
import zlib
from http.client import HTTPConnection
from itertools import cycle
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from api_client import TOKEN
from api_thread import running
from hypothesis import HealthCheck, Phase, settings
from openapi_schema import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_thread import Running

BUSY_SECONDS = 0.5
"""Processor time for which others may have to wait for the event loop."""
ANSWER_SECONDS = 60.0
"""For one answer on a machine that is busy with other things; it takes milliseconds on a free one."""
TYPES = (
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
    "application/vnd.kubernetes.protobuf",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain; charset=utf-16",
    "json",
    "",
)
COHORT = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "root"}}
BODIES: dict[str, bytes] = {
    "empty object": b"{}",
    "null": b"null",
    "number": b"1e999",
    "text": b'"x"',
    "list of nulls": b"[null]",
    "half": b'{"metadata": {',
    "NUL": b"\x00",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": json.dumps(COHORT).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(COHORT).encode(),
    "lone surrogate": b'{"metadata": {"name": "\\ud800"}}',
    "NUL in a text": b'{"metadata": {"annotations": {"a": "\\u0000"}}}',
    "types": b'{"apiVersion": 1, "kind": [], "metadata": "x", "spec": [[]], "status": 0, "preconditions": []}',
    "no metadata": b'{"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": null, "spec": null}',
    "numbers": b'{"metadata": {"name": 1e400, "generation": 99999999999999999999999}, "revision": 9999999999}',
    "again and again": b"{" + b'"metadata": {}, ' * 2000 + b'"metadata": 1}',
    "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "operations": b'[{"op": "add", "path": "/metadata/a/-", "value": {}}, {"op": "move", "from": "", "path": "/"}]',
    "operations without sense": b'[{"op": 1}, {"op": "test", "path": 5}, "x", null, {"path": "/" , "op": "copy"}]',
    "alias": b"a: &a [*a]",
    "tags": b"!!python/object/apply:os.system ['true']",
    "dates": b"metadata: {creationTimestamp: 2020-99-99, deletionTimestamp: 0001-01-01T00:00:00+99:99}",
}
LARGE = {
    "values": b"[" + b"[]," * 300_000 + b"[]]",
    "fields": json.dumps(COHORT | {f"field{n}": n for n in range(15_000)}).encode(),
    "one text": json.dumps(COHORT | {"spec": "x" * 2_000_000}).encode(),
    "too much": b" " * (3 * 2**20 + 1),
    "YAML": b"a: [" + b"b, " * 80_000 + b"c]",
    "operations": json.dumps([{"op": "add", "path": "/metadata/labels", "value": {}}] * 10_000).encode(),
}
COMPRESSED = {"gzip": gzip.compress(bytes(2**20)), "deflate": zlib.compress(bytes(2**20))}
large = cycle(LARGE.items())


@pytest.fixture(scope="module")
def api(sqlite_template, tmp_path_factory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("hostile") / "sluice.db"
    shutil.copyfile(sqlite_template, path)
    with running(f"sqlite:///{path}") as served:
        yield served


def ask(url: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, float] | None:
    """Status, body and seconds of an answer, on a connection of its own; a library above this takes twice as long."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=120)
    began = time.monotonic()
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), time.monotonic() - began
    except ConnectionError:  # while it still sent a body that nobody wanted
        return None
    finally:
        connection.close()


def check(api: Running, case, body: bytes, *, media: str, token: str = "", **more: str) -> None:
    headers = {"Content-Type": media, **more} | ({"Authorization": f"Bearer {token}"} if token else {})
    drawn = {str(name): str(value) for name, value in (case.headers or {}).items() if str(value).isascii()}
    path = case.formatted_path + (f"?{urlencode(case.query, doseq=True)}" if case.query else "")
    sent = {"Connection": "close", "Accept": "*/*", "Accept-Encoding": "gzip, deflate", **drawn, **headers}
    answer = ask(api.url, case.method, quote(path, safe="!#$%&'()*+,/:;=?@[]~"), body, sent)
    busy = api.meter.read()
    what = f"{case.method} {case.formatted_path} {media} {body[:60]!r}"
    assert busy < BUSY_SECONDS, f"{what}: nobody else was heard for {busy:.2f} s of processor time"
    if answer is not None:
        status, text, seconds = answer
        assert status < 500, f"{what}: {text!r}"
        assert seconds < ANSWER_SECONDS, what
        assert token or status >= 400 or not case.path.startswith("/apis"), what


@schema.parametrize()
@settings(
    max_examples=1,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_no_body_does_harm(case, api):
    for number, body in enumerate(BODIES.values()):
        check(api, case, body, media=TYPES[number % len(TYPES)])
        check(api, case, body, media=TYPES[number % 5], token=TOKEN)
    for encoding, body in COMPRESSED.items():
        check(api, case, body, media="application/json", token=TOKEN, **{"Content-Encoding": encoding})
    _, body = next(large)
    check(api, case, body, media="application/json")
    for media in ("application/json", "application/json-patch+json", "application/apply-patch+yaml"):
        check(api, case, body, media=media, token=TOKEN)
