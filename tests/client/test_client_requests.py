"""Requests of the client: their content, retries, and the exception for each failure."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from queue_objects import cluster_queue, create_objects, local_queue

from admission import client
from admission.client import (
    AlreadyExists,
    BadAnswer,
    BadConnection,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    ServerError,
    Sluice,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    transport,
)
from admission.serving.tls import ReloadingContext
from webhooks.certificates import Certificates

COHORT = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a", "resourceVersion": "1"}}


def status(code: int, reason: str = "", message: str = "no", **details: object) -> dict[str, object]:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return body | {"message": message, "details": details}


def test_public_names_of_the_client_exist_and_are_sorted():
    assert client.__all__ == sorted(client.__all__)
    assert all(hasattr(client, name) for name in client.__all__)


async def test_400_of_a_tls_server_raises_bad_answer_that_suggests_https(scripted, script):
    sluice, _, _ = scripted
    script.answers = [(400, {"Content-Type": "text/plain"}, "Client sent an HTTP request to an HTTPS server.")]
    with pytest.raises(BadAnswer, match=r"\(400 .*\); if it speaks TLS, write https:// instead of http://$"):
        await sluice.cohorts.get("a")


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Refused),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (500, "InternalError", ServerError),
    ],
)
async def test_each_status_raises_its_own_exception(scripted, script, code, reason, error):
    sluice, pauses, _ = scripted
    script.answers = [(code, {}, status(code, reason, "so it is", causes=[{"field": "spec.x", "message": "wrong"}]))]
    with pytest.raises(Refused, match="so it is") as caught:
        await sluice.cohorts.get("a")
    assert type(caught.value) is error
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert caught.value.causes == (("spec.x", "wrong"),)
    assert pauses.seconds == []


async def test_unauthorized_error_names_the_token_options(scripted, script):
    sluice, _, _ = scripted
    script.answers = [(401, {}, status(401, "Unauthorized", "the bearer token is not valid"))]
    with pytest.raises(Unauthorized) as caught:
        await sluice.cohorts.get("a")
    assert str(caught.value) == (
        f"the bearer token is not valid for {script.url}; "
        "give a token that is valid there, by SLUICE_TOKEN or --token-file"
    )


async def test_read_is_retried_while_sluice_is_unavailable(scripted, script):
    sluice, pauses, _ = scripted
    unavailable = (503, {"Retry-After": "3"}, status(503, "ServiceUnavailable"))
    script.answers = [unavailable, (503, {}, "upstream connect error"), COHORT]
    assert (await sluice.cohorts.get("a")).name == "a"
    assert pauses.seconds == [3.0, 0.5]


async def test_unavailable_is_raised_after_three_retries(scripted, script):
    sluice, pauses, _ = scripted
    script.answers = [(503, {"Retry-After": "600"}, status(503, message="the database is away"))] * 9
    with pytest.raises(Unavailable, match="the database is away"):
        await sluice.cohorts.get("a")
    assert (len(script.requests), pauses.seconds) == (4, [30.0] * 3)


async def test_read_is_not_retried_after_a_slow_response(scripted, script, monkeypatch):
    """As with a frozen database: each further attempt would take as long."""
    monkeypatch.setattr(transport, "_RETRY_SECONDS", -1.0)
    script.answers = [(503, {}, status(503))]
    with pytest.raises(Unavailable):
        await scripted[0].cohorts.get("a")
    assert len(script.requests) == 1


async def test_write_is_retried_only_if_nothing_was_done(scripted, script):
    sluice, _, _ = scripted
    patch = {"spec": {"parentName": "b"}}
    script.answers = [(503, {"Retry-After": "1"}, status(503))]
    with pytest.raises(Unavailable):
        await sluice.cohorts.patch("a", patch)
    script.answers = [(429, {"Retry-After": "1"}, status(429)), COHORT]
    await sluice.cohorts.patch("a", patch)
    script.answers = [broken]
    with pytest.raises(Unreachable):
        await sluice.cohorts.patch("a", patch)
    assert len(script.requests) == 4


async def broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_read_is_retried_when_the_connection_breaks(scripted, script):
    sluice, pauses, _ = scripted
    script.answers = [broken, broken, COHORT]  # aiohttp tries a second time by itself
    assert (await sluice.cohorts.get("a")).name == "a"
    assert pauses.seconds == [0.25]


async def test_too_many_requests_is_raised_if_retries_do_not_help(scripted, script):
    sluice, _, _ = scripted
    script.answers = [(429, {}, status(429, "TooManyRequests"))] * 9
    with pytest.raises(TooManyRequests):
        await sluice.cohorts.delete("a")


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, "<html>hello</html>"),
        (404, {}, "404 page not found"),
        (302, {"Location": "/login"}, ""),
        (200, {}, ["a", "list"]),
        {"metadata": {}},
        {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}, "spec": {"fromTheFuture": 1}},
    ],
)
async def test_unexpected_response_raises_bad_answer(scripted, script, answer):
    sluice, _, _ = scripted
    script.answers = [answer]
    with pytest.raises(BadAnswer):
        await sluice.cohorts.get("a")


async def test_warning_headers_are_passed_to_the_callback(scripted, script):
    sluice, _, warnings = scripted
    script.answers = [(201, {"Warning": '299 - "there is no \\"b\\""'}, COHORT)]
    await sluice.cohorts.create(await cohort(sluice, script))
    assert warnings == ['there is no "b"']


async def cohort(sluice, script):
    script.answers.insert(0, COHORT)
    return await sluice.cohorts.get("a")


async def test_patch_encodes_name_reason_and_dry_run_and_returns_the_impact(scripted, script):
    sluice, _, _ = scripted
    script.answers = [
        COHORT | {"status": {"impact": {"evicted": [{"name": "t", "namespace": "n", "reason": "Preempted"}]}}}
    ]
    written = await sluice.cohorts.patch("a/../b", {}, reason="weil es müde war", dry_run=True)
    request = script.requests[-1]
    assert request.raw_path.startswith("/apis/sluice.dev/v1/cohorts/a%2F..%2Fb?")
    assert dict(request.query) == {"reason": "weil es müde war", "dryRun": "All"}
    assert written.impact is not None
    assert [(one.name, one.namespace, one.why) for one in written.impact.evicted] == [("t", "n", "Preempted")]


async def test_a_url_may_have_a_path(script):
    script.answers = [COHORT]
    async with Sluice(f"{script.url}/behind/a/proxy/", token="t") as sluice:
        await sluice.cohorts.get("a")
    assert script.requests[-1].path == "/behind/a/proxy/apis/sluice.dev/v1/cohorts/a"


async def test_client_uses_the_proxy_of_the_environment(script, monkeypatch):
    monkeypatch.setenv("http_proxy", script.url)
    script.answers = [COHORT]
    async with Sluice("http://sluice.example.com", token="t") as sluice:
        await sluice.cohorts.get("a")
    assert script.requests[-1].raw_path == "http://sluice.example.com/apis/sluice.dev/v1/cohorts/a"


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "127.0.0.1:1", "socks5://127.0.0.1:1", "http://[::"])
async def test_unusable_proxy_raises_a_client_error(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(client.ClientError, match="prox"):
        async with Sluice("http://sluice.example.com", token="t") as sluice:
            await sluice.cohorts.get("a")


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://", "http://[::", "http://x:port"])
def test_invalid_url_raises_bad_connection(url):
    with pytest.raises(BadConnection, match="is not a URL"):
        Sluice(url)


def test_invalid_token_or_ca_file_raises_bad_connection(tmp_path):
    with pytest.raises(BadConnection, match="the token has control"):
        Sluice("http://x", token="a\nb")
    (tmp_path / "ca.pem").write_text("not PEM")
    for file in ("ca.pem", "missing.pem"):
        with pytest.raises(BadConnection, match=f"{file} cannot be used"):
            Sluice("https://x", ca=tmp_path / file)


async def test_clock_is_named_first_if_a_certificate_is_not_yet_valid(tmp_path):
    certificates = Certificates(tmp_path, ["localhost"], now=lambda: datetime.now(UTC) + timedelta(days=30))
    certificates.renew()
    (tmp_path / "authority.pem").write_bytes(certificates.ca_bundle)
    context = ReloadingContext(tmp_path / "tls.crt", tmp_path / "tls.key")
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        site = web.TCPSite(runner, "localhost", 0, ssl_context=context)
        await site.start()
        url = f"https://localhost:{runner.addresses[0][1]}"
        async with Sluice(url, ca=tmp_path / "authority.pem") as sluice:
            with pytest.raises(Unreachable, match=r"\(certificate is not yet valid.*\); check this machine's clock"):
                await sluice.cohorts.get("a")
    finally:
        await runner.cleanup()


async def test_tls_needs_a_trusted_ca_and_errors_suggest_the_right_scheme(tmp_path, script):
    certificates = Certificates(tmp_path, ["localhost"], now=lambda: datetime.now(UTC))
    certificates.renew()
    (tmp_path / "authority.pem").write_bytes(certificates.ca_bundle)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, "localhost", 0, ssl_context=ReloadingContext(tmp_path / "tls.crt", tmp_path / "tls.key")
        )
        await site.start()
        url = f"https://localhost:{runner.addresses[0][1]}"
        script.answers = [COHORT]
        async with Sluice(url, ca=tmp_path / "authority.pem") as sluice:
            assert (await sluice.cohorts.get("a")).name == "a"
        async with Sluice(url) as sluice:
            with pytest.raises(Unreachable, match=r"certificate of .* is not trusted .*; name its CA") as caught:
                await sluice.cohorts.get("a")
            assert isinstance(caught.value.__cause__, ssl.SSLError | OSError)
        async with Sluice(url.replace("https", "http"), token="t") as sluice:
            with pytest.raises(Unreachable, match=r"gave no answer .*; if it speaks TLS, write https:// instead of"):
                await sluice.cohorts.get("a")
        async with Sluice(script.url.replace("http", "https"), ca=tmp_path / "authority.pem") as sluice:
            with pytest.raises(Unreachable, match=r"does not speak TLS as expected; http:// instead of https://\?"):
                await sluice.cohorts.get("a")
    finally:
        await runner.cleanup()


async def test_usage_of_a_month_has_quota_and_labels(sluice: Sluice, store, clock):
    clock.now = datetime(2024, 2, 10, tzinfo=UTC).timestamp()
    queue = cluster_queue("main", cpu=2)
    queue["metadata"]["labels"] = {"cost-center": "4711"}
    await create_objects(store, queue, local_queue("main", "a", "main"))
    clock.advance(3600)
    report = await sluice.usage(["label:cost-center"], month="2024-02", quota=True)
    (row,) = report.rows
    assert (report.partial, row.keys) == (True, {"label:cost-center": "4711"})
    assert (row.used, row.quota_seconds, row.idle_seconds) == (0.0, 7200.0, 7200.0)
