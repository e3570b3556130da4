"""The client against a real TLS server: answers, faults, retries, credentials."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext

import orjson
import pytest
from aiohttp import web
from kubernetes_asyncio.config import incluster_config
from scripted_server import DAY, failure, issue, reply

from admission.cluster import errors
from admission.cluster.client import Client, PatchType, resource_of
from admission.cluster.credentials import load_kubeconfig
from admission.cluster.identity import whoami

PATH = "/apis/batch/v1/namespaces/ns/jobs"


async def abort(request: web.Request) -> web.StreamResponse:
    """Abort the connection instead of responding."""
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/apis/batch/v1/namespaces/ns/jobs/a/status", "jobs"),
        ("/apis/batch/v1/jobs", "jobs"),
        ("/api/v1/namespaces/ns", "namespaces"),
        ("/api/v1/namespaces/ns/pods/a", "pods"),
        ("/api/v1", ""),
        ("/version", ""),
        ("", ""),
    ],
)
def test_resource_is_derived_from_the_request_path(path, resource):
    assert resource_of(path) == resource


async def test_client_sends_credentials_user_agent_and_json_and_counts_requests(server, client):
    server.script = [reply({"kind": "Job"}), reply({"kind": "Job"})]
    assert await client.create(PATH, {"kind": "Job"}, params={"dryRun": "All"}) == {"kind": "Job"}
    await client.patch(f"{PATH}/a", b'{"spec":{}}', patch_type=PatchType.JSON)
    first, second = server.requests
    assert first.headers["Authorization"] == "Bearer secret"
    assert first.headers["User-Agent"].startswith("sluice/")
    assert first.headers["Content-Type"] == "application/json"
    assert (first.path, dict(first.query)) == (PATH, {"dryRun": "All"})
    assert orjson.loads(server.bodies[0]) == {"kind": "Job"}
    assert second.headers["Content-Type"] == "application/json-patch+json"
    assert server.bodies[1] == b'{"spec":{}}'
    assert client.requests == {("POST", "jobs", "200"): 1, ("PATCH", "jobs", "200"): 1}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.StatusError),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
    ],
)
async def test_error_response_raises_its_exception_class_with_a_one_line_message(server, client, code, reason, kind):
    server.script = [failure(code, reason, "what happened")]
    with pytest.raises(errors.StatusError) as caught:
        await client.get(f"{PATH}/a")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert str(caught.value) == f"GET {server.url}{PATH}/a: {code}: what happened"


async def test_html_error_page_of_a_gateway_is_reported_as_server_error(server, client):
    async def gateway(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>\nBad Gateway\n</html>")

    server.script = [gateway]
    with pytest.raises(errors.ServerError, match="502: <html> Bad Gateway </html>"):
        await client.get(PATH)


@pytest.mark.parametrize("text", ["<html>hello</html>", "[1]"])
async def test_successful_response_without_json_object_raises_bad_answer(server, client, text):
    async def page(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    server.script = [page]
    with pytest.raises(errors.BadAnswer, match=f"GET {server.url}{PATH}: the answer is not "):
        await client.get(PATH)


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_request_is_retried_after_the_retry_after_delay(server, client, sleeps, code, method):
    server.script = [failure(code, Retry_After="7"), reply({"kind": "Job"})]
    assert await client.request(method, PATH, body={}) == {"kind": "Job"}
    assert len(sleeps) == 1
    assert 7 <= sleeps[0] <= 8.5


async def test_retries_are_limited_in_number_and_delay(server, client, sleeps):
    server.script = [failure(429, Retry_After="86400")] * 10
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(PATH)
    assert caught.value.retry_after == 86400
    assert len(server.requests) == 5
    assert max(sleeps) < 40


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "soon"}, {"Retry_After": "²"}])
async def test_error_without_a_number_in_retry_after_is_raised_immediately(server, client, sleeps, headers):
    server.script = [failure(503, **headers), reply({})]
    with pytest.raises(errors.ServerError):
        await client.get(PATH)
    assert sleeps == []


@pytest.mark.parametrize("failures", [1, 4, 5])
async def test_failed_page_of_a_list_is_retried_and_earlier_pages_are_kept(server, client, sleeps, failures):
    first, second = {"metadata": {"continue": "next"}}, {"metadata": {}}
    server.script = [reply(first), *[failure(500)] * failures, reply(second)]
    pages = []
    with pytest.raises(errors.ServerError) if failures == 5 else nullcontext():
        async for page in client.list_pages(PATH):
            pages.append(page)
    assert pages == ([first] if failures == 5 else [first, second])
    assert len(sleeps) == min(failures, 4)
    assert max(sleeps) < 1


@pytest.mark.parametrize("metadata", [None, "x", [], {"continue": None}, {"continue": {"a": 1}}, {"continue": 7}])
async def test_list_ends_with_a_page_whose_metadata_are_not_understood(server, client, metadata):
    page = {"metadata": metadata, "items": []}
    server.script = [reply(page)]
    assert [found async for found in client.list_pages(PATH)] == [page]


@pytest.mark.parametrize(
    ("method", "content_type"),
    [("GET", ""), ("PUT", ""), ("DELETE", ""), ("PATCH", PatchType.MERGE), ("PATCH", PatchType.APPLY)],
)
async def test_idempotent_request_is_retried_after_a_broken_connection(server, client, method, content_type):
    server.script = [abort, abort, abort, reply({"kind": "Job"})]
    body = None if method == "GET" else {}
    assert await client.request(method, PATH, body=body, content_type=content_type) == {"kind": "Job"}


@pytest.mark.parametrize(("method", "content_type"), [("POST", "application/json"), ("PATCH", PatchType.JSON)])
async def test_non_idempotent_request_is_not_retried_after_a_broken_connection(server, client, method, content_type):
    server.script = [abort, reply({})]
    with pytest.raises(errors.Unreachable, match=f"{method} {server.url}{PATH}: the connection broke"):
        await client.request(method, PATH, body={}, content_type=content_type)
    assert len(server.requests) == 1


async def test_refused_connection_is_reported_immediately(kubeconfig, sleeps):
    path = str(kubeconfig("https://127.0.0.1:1"))
    async with Client(lambda: load_kubeconfig(path, None), sleep=sleeps) as client:
        with pytest.raises(
            errors.Unreachable,
            match=r"^GET https://127.0.0.1:1/version: no connection \(.*\): check that the server is running$",
        ):
            await client.get("/version")
    assert sleeps == []


async def test_unresolvable_host_name_is_reported_as_unreachable(kubeconfig):
    async with Client.from_kubeconfig(str(kubeconfig("https://nowhere.invalid:6443"))) as client:
        with pytest.raises(errors.Unreachable, match=r"https://nowhere.invalid:6443/version: "):
            await client.get("/version")


async def test_server_certificate_of_unknown_ca_is_rejected(serve, kubeconfig):
    server = await serve(issue("stranger", issue("another authority")))
    async with Client.from_kubeconfig(str(kubeconfig(server.url))) as client:
        with pytest.raises(errors.Unreachable, match=r"certificate is not trusted \(unable to get local issuer"):
            await client.get("/version")


@pytest.mark.parametrize(
    ("begins", "ends", "fault"),
    [(-2 * DAY, -DAY, "certificate has expired"), (DAY, 2 * DAY, "certificate is not yet valid")],
)
async def test_server_certificate_out_of_its_lifetime_is_rejected(serve, kubeconfig, authority, begins, ends, fault):
    server = await serve(issue("server", authority, begins=begins, ends=ends))
    async with Client.from_kubeconfig(str(kubeconfig(server.url))) as client:
        with pytest.raises(errors.Misdirected, match=rf"is not trusted \({fault}.*\): check this machine's clock"):
            await client.get("/version")


async def test_port_without_tls_is_reported_as_unreachable(kubeconfig):
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, Client.from_kubeconfig(str(kubeconfig(f"https://127.0.0.1:{port}"))) as client:
        with pytest.raises(errors.Unreachable, match="no TLS connection"):
            await client.get("/version")


async def test_wrong_token_raises_unauthorized_with_advice(server, client):
    server.script = [failure(401, "Unauthorized", "Unauthorized")]
    with pytest.raises(errors.Unauthorized, match=r"401: Unauthorized; the credentials .* renew the token$"):
        await client.get("/api")
    assert len(server.requests) == 1


async def test_renewed_token_in_kubeconfig_is_used_after_401(server, kubeconfig):
    server.script = [failure(401, "Unauthorized"), reply({}), reply({})]
    path = kubeconfig(server.url)
    async with Client.from_kubeconfig(str(path)) as client:
        kubeconfig(server.url, user={"token": "renewed"})
        await client.get("/api")
        await client.get("/api")
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer secret",
        "Bearer renewed",
        "Bearer renewed",
    ]


async def test_credentials_are_reloaded_at_most_every_ten_seconds_after_401(server, kubeconfig):
    now = [0.0]
    path = kubeconfig(server.url)
    loads = 0

    async def load():
        nonlocal loads
        loads += 1
        return await load_kubeconfig(str(path), None)

    async with Client(load, clock=lambda: now[0]) as client:
        for now[0] in (1.0, 5.0, 12.0):
            server.script = [failure(401, "Unauthorized")]
            with pytest.raises(errors.Unauthorized):
                await client.get("/api")
    assert loads == 3


async def test_token_file_is_read_again_every_minute(server, kubeconfig, tmp_path):
    now = [0.0]
    token = tmp_path / "token"
    token.write_text("first\n")
    path = str(kubeconfig(server.url, user={"tokenFile": str(token)}))
    async with Client(lambda: load_kubeconfig(path, None, clock=lambda: now[0])) as client:
        token.write_text("second\n")
        now[0] = 59.0
        assert await client.bearer_token() == "first"
        now[0] = 60.0
        assert await client.bearer_token() == "second"
        token.unlink()
        now[0] = 120.0
        with pytest.raises(errors.BadKubeconfig, match=f"credentials for {server.url} cannot be renewed: .*token"):
            await client.get("/api")


async def test_in_cluster_client_uses_the_service_account_token(server, authority, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("of-the-pod\n")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    server.script = [reply({})]
    async with Client.in_cluster() as client:
        await client.get("/api")
    assert server.requests[0].headers["Authorization"] == "Bearer of-the-pod"


async def test_exec_plugin_provides_the_token(server, kubeconfig):
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", f"print({orjson.dumps(credential).decode()!r})"],
        }
    }
    server.script = [reply({})]
    async with Client.from_kubeconfig(str(kubeconfig(server.url, user=user))) as client:
        await client.get("/api")
        assert await client.bearer_token() == "made"
    assert server.requests[0].headers["Authorization"] == "Bearer made"


async def test_client_certificate_is_presented_to_the_server_without_a_token(server, kubeconfig, tmp_path, authority):
    mine = issue("me", authority)
    (tmp_path / "me.crt").write_bytes(mine.pem)
    (tmp_path / "me.key").write_bytes(mine.key_pem)
    user = {"client-certificate": str(tmp_path / "me.crt"), "client-key": str(tmp_path / "me.key")}
    server.script = [reply({})]
    async with Client.from_kubeconfig(str(kubeconfig(server.url, user=user))) as client:
        await client.get("/api")
        assert await client.bearer_token() is None
    assert "Authorization" not in server.requests[0].headers
    assert server.client_certificates == ["CN=me"]


async def test_whoami_returns_the_user_of_the_self_subject_review(server, client):
    server.script = [reply({"status": {"userInfo": {"username": "system:serviceaccount:sluice:sluice"}}}, 201)]
    assert await whoami(client) == "system:serviceaccount:sluice:sluice"


async def test_whoami_falls_back_to_token_review(server, client):
    server.script = [failure(404), reply({"status": {"authenticated": True, "user": {"username": "admin"}}}, 201)]
    assert await whoami(client) == "admin"
    assert orjson.loads(server.bodies[1])["spec"] == {"token": "secret"}


async def test_whoami_raises_bad_answer_if_no_review_names_the_user(server, client):
    server.script = [failure(404), reply({"status": {"user": {}}}, 201)]
    with pytest.raises(errors.BadAnswer, match=f"{server.url} does not tell which user Sluice is"):
        await whoami(client)
