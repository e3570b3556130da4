"""The webhook server over real TLS: reviews are answered, everything else gets a plain HTTP error."""

from __future__ import annotations

import base64
import io
import json
import logging
import ssl
from datetime import UTC, datetime

import aiohttp
import pytest

from admission.kinds import all_kinds
from webhooks.certificates import Certificates
from webhooks.review import Reviewer
from webhooks.server import MAX_BODY, WebhookServer


@pytest.fixture
def certificates(tmp_path):
    certificates = Certificates(tmp_path / "certificates", ["127.0.0.1"], now=lambda: datetime.now(UTC))
    certificates.refresh()
    return certificates


@pytest.fixture
async def post(certificates):
    reviewer = Reviewer(all_kinds(), own_usernames=["sluice"])
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    async with (
        WebhookServer(reviewer, ssl_context=certificates.ssl_context, host="127.0.0.1", port=0) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):

        async def post(path, body):
            url = f"https://127.0.0.1:{server.port}{path}"
            async with session.post(url, data=io.BytesIO(body)) as response:
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


async def test_mutate(post):
    status, body = await post("/mutate?timeout=5s", make_review())
    assert status == 200
    response = json.loads(body)["response"]
    assert {"op": "add", "path": "/spec/suspend", "value": True} in json.loads(base64.b64decode(response["patch"]))


async def test_validate(post):
    status, body = await post("/validate", make_review())
    assert (status, json.loads(body)["response"]) == (200, {"uid": "r-1", "allowed": True})


async def test_large_objects_are_reviewed(post):
    status, _ = await post("/mutate", make_review(5 * 2**20))
    assert status == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"request": {}}', b"[" * 100_000, b"x" * (5 * 2**20)]
)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_malformed_bodies_are_bad_requests(post, path, body, caplog):
    status, text = await post(path, body)
    assert status == 400
    assert b"Traceback" not in text
    assert len(text) < 500
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_bodies_beyond_all_objects_are_refused_unread(post):
    status, _ = await post("/mutate", b"x" * (MAX_BODY + 1))
    assert status == 413


async def test_other_paths_are_not_found(post):
    status, _ = await post("/", make_review())
    assert status == 404


async def test_a_taken_port_is_told_and_leaves_nothing_open(certificates):
    reviewer = Reviewer(all_kinds(), own_usernames=[])
    options = {"ssl_context": certificates.ssl_context, "host": "127.0.0.1"}
    async with WebhookServer(reviewer, port=0, **options) as server:
        with pytest.raises(OSError, match="address already in use"):
            await WebhookServer(reviewer, port=server.port, **options).__aenter__()
