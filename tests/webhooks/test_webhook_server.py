"""Webhook server over TLS: responses to reviews, and HTTP errors for all other requests."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import ssl

import aiohttp
import pytest

from admission.kinds import all_kinds
from admission.serving.listener import open_sockets
from admission.serving.tls import ReloadingContext
from webhooks.review import Reviewer
from webhooks.server import MAX_BODY, answering


@pytest.fixture
async def post(certificates, tmp_path):
    reviewer = Reviewer(all_kinds(), own_usernames=["sluice"])
    directory = tmp_path / "certificates"
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    (socket,) = await open_sockets("127.0.0.1", 0)
    async with (
        answering(reviewer, [socket], ssl_context=ReloadingContext(directory / "tls.crt", directory / "tls.key")),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):

        async def post(path, body):
            url = f"https://127.0.0.1:{socket.getsockname()[1]}{path}"
            data = io.BytesIO(body) if isinstance(body, bytes) else body
            async with session.post(url, data=data) as response:
                return response.status, await response.read()

        yield post


def make_review(size=0):
    job = {
        "metadata": {"name": "j", "labels": {"sluice.dev/queue-name": "main"}, "annotations": {"filler": "x" * size}},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    request = {
        "uid": "r-1",
        "operation": "CREATE",
        "namespace": "team-a",
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "userInfo": {"username": "alice"},
        "object": job,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


async def test_mutate_returns_a_patch_that_suspends_the_job(post):
    status, body = await post("/mutate?timeout=5s", make_review())
    assert status == 200
    response = json.loads(body)["response"]
    assert {"op": "add", "path": "/spec/suspend", "value": True} in json.loads(base64.b64decode(response["patch"]))


async def test_large_objects_are_reviewed(post):
    status, _ = await post("/mutate", make_review(5 * 2**20))
    assert status == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"request": {}}', b"[" * 100_000, b"x" * (5 * 2**20)]
)
async def test_malformed_bodies_are_bad_requests(post, body, caplog):
    status, text = await post("/mutate", body)
    assert status == 400
    assert b"Traceback" not in text
    assert len(text) < 500
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_body_above_the_maximum_size_is_refused_before_its_end(post):
    async def body():
        yield b"x" * (MAX_BODY + 1)
        await asyncio.Event().wait()

    status, _ = await post("/mutate", body())
    assert status == 413


async def test_other_paths_are_not_found(post):
    status, _ = await post("/", make_review())
    assert status == 404
