"""Browser sessions: login, session cookie, lifetime, storage, and protection against requests of other sites."""

from __future__ import annotations

import asyncio
import base64
from http.cookies import SimpleCookie

import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster
from api_client import TOKEN, serving
from sqlalchemy import select, update

from admission.api.auth.sessions import RECHECK_SECONDS, Sessions
from admission.store.database.tables import browser_sessions

COHORT = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}}
OURS = {"X-Requested-With": "sluice", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def server(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as opened:
        yield opened


async def logged_in(server, token: str) -> dict[str, str]:
    """Log in with a token, and return the Cookie header of the session."""
    answer = await server.send("POST", "/login", {"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status == 200, answer.body
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return {"Cookie": f"{cookie.key}={cookie.value}"}


async def test_login_sets_an_http_only_secure_same_site_cookie(server):
    answer = await server.send("POST", "/login", {"token": "alice-token"})
    assert answer.body == {"user": "alice", "groups": ["team-a", "system:authenticated"]}
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert cookie.key == "__Host-sluice-session"
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"]) == (True, True, "Strict")
    assert (cookie["path"], cookie["domain"], cookie["max-age"]) == ("/", "", "28800")
    assert "alice" not in cookie.value
    assert len(cookie.value) >= 43


async def test_session_has_the_identity_and_permissions_of_its_user(server):
    cookie = await logged_in(server, "alice-token")
    assert (await server.send("GET", "/session", headers=cookie)).body["user"] == "alice"
    assert (await server.send("GET", "cohorts", headers=cookie)).status == 403
    cookie = await logged_in(server, ADMIN_TOKEN)
    assert (await server.send("GET", "cohorts", headers=cookie)).status == 200
    assert (await server.send("POST", "cohorts", COHORT, headers=cookie | OURS)).status == 201


@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 3}, {"token": ["alice-token"]}])
async def test_login_without_a_token_is_a_bad_request_naming_the_field(server, body):
    answer = await server.send("POST", "/login", body)
    assert (answer.status, "Set-Cookie" in answer.headers) == (400, False)
    assert answer.body["message"].startswith("token: send")


async def test_login_with_a_wrong_token_gets_401_and_no_cookie(server):
    answer = await server.send("POST", "/login", {"token": "wrong"})
    assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)


async def test_login_attempts_are_rate_limited(server, clock):
    statuses = [(await server.send("POST", "/login", {"token": f"guess{n}"})).status for n in range(21)]
    assert statuses == [401] * 20 + [429]
    clock.advance(1)
    assert (await server.send("POST", "/login", {"token": "alice-token"})).status == 200


async def test_logout_deletes_the_cookie_and_ends_the_session(server):
    cookie = await logged_in(server, "alice-token")
    answer = await server.send("POST", "/logout", headers=cookie | OURS)
    assert answer.status == 200
    (gone,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert (gone.value, gone["max-age"]) == ("", "0")
    assert (await server.send("GET", "/session", headers=cookie)).status == 401


async def test_a_session_lasts_eight_hours(server, clock):
    cookie = await logged_in(server, ADMIN_TOKEN)
    clock.advance(8 * 3600 - 1)
    assert (await server.send("GET", "/session", headers=cookie)).status == 200
    clock.advance(1)
    assert (await server.send("GET", "/session", headers=cookie)).status == 401


async def test_session_ends_when_its_token_becomes_invalid(server, clock):
    admin = server.sandbox.local("admin")
    await admin.create("serviceaccounts", "default", {"metadata": {"name": "robot"}})
    issued = await server.cluster.create("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    cookie = await logged_in(server, issued["status"]["token"])
    assert (await server.send("GET", "/session", headers=cookie)).status == 200
    await admin.delete("serviceaccounts", "default", "robot")
    clock.advance(10.1)
    assert (await server.send("GET", "/session", headers=cookie)).status == 401


async def test_ended_session_stays_ended_when_its_token_becomes_valid_again(server, clock):
    admin = "/sandbox/users"
    carol = {"name": "carol", "token": "carol-token"}
    await server.cluster.create(admin, carol)
    cookie = await logged_in(server, "carol-token")
    await server.cluster.delete(f"{admin}/carol")
    clock.advance(10.1)
    assert (await server.send("GET", "/session", headers=cookie)).status == 401
    await server.cluster.create(admin, carol)
    clock.advance(10.1)
    assert (await server.send("GET", "/session", token="carol-token")).status == 200
    assert (await server.send("GET", "/session", headers=cookie)).status == 401


@pytest.mark.long
async def test_oldest_session_ends_when_there_are_too_many_sessions(server, clock, store):
    first = await logged_in(server, ADMIN_TOKEN)
    clock.advance(1)
    second = await logged_in(server, ADMIN_TOKEN)
    for number in range(998):
        clock.advance(1)
        await store.browser_sessions.add(f"digest-{number}", b"sealed", seconds=8 * 3600)
    clock.advance(1)
    last = await logged_in(server, ADMIN_TOKEN)
    for cookie, status in ((first, 401), (second, 200), (last, 200)):
        assert (await server.send("GET", "/session", headers=cookie)).status == status


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        OURS | {"Sec-Fetch-Site": "cross-site"},
        OURS | {"Sec-Fetch-Site": "same-site"},
        OURS | {"Sec-Fetch-Site": "none"},
        OURS | {"Origin": "https://evil.example"},
        OURS | {"Origin": "null"},
        {"X-Requested-With": "sluice", "Origin": "https://evil.example"},
    ],
)
async def test_another_site_cannot_write_in_a_session(server, headers, store):
    cookie = await logged_in(server, ADMIN_TOKEN)
    for method, path, body in (("POST", "cohorts", COHORT), ("DELETE", "cohorts/a", None), ("POST", "/logout", None)):
        answer = await server.send(method, path, body, headers=cookie | headers)
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert await store.queues.list("Cohort") == ()
    assert (await server.send("GET", "/session", headers=cookie)).status == 200


async def test_page_of_the_same_site_can_write_in_a_session(server):
    cookie = await logged_in(server, ADMIN_TOKEN)
    answer = await server.send("POST", "cohorts", COHORT, headers=cookie | OURS | {"Origin": server.url})
    assert answer.status == 201


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_another_site_cannot_log_a_browser_in(server, headers):
    answer = await server.send("POST", "/login", {"token": ADMIN_TOKEN}, headers=headers)
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_refusal_of_a_foreign_origin_names_both_hosts_and_the_header_that_a_proxy_must_pass(server):
    answer = await server.send("POST", "/login", {"token": ADMIN_TOKEN}, headers={"Origin": "https://sluice.example"})
    host = server.url.removeprefix("https://")
    assert f"by a page of https://sluice.example to {host}: " in answer.body["message"]
    assert "proxy in front that does not pass the header Host" in answer.body["message"]


async def test_invented_session_cookie_gets_401(server):
    for value in ("", "x", "a" * 43, "%00", '"'):
        answer = await server.send("GET", "/session", headers={"Cookie": f"__Host-sluice-session={value}"})
        assert answer.status == 401


async def test_bearer_token_takes_precedence_over_the_session_cookie(server):
    cookie = await logged_in(server, ADMIN_TOKEN)
    assert (await server.as_user("bob", "GET", "/session", headers=cookie)).body["user"] == "bob"
    assert (await server.send("GET", "/session", token="wrong", headers=cookie)).status == 401


async def test_cookie_on_loopback_without_tls_has_no_secure_flag_and_no_host_prefix(store):
    async with serving(store) as api:
        answer = await api.post("/login", {"token": "correct-horse-battery"}, headers={})
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        assert (cookie.key, cookie["secure"], cookie["samesite"]) == ("sluice-session", "", "Strict")


async def test_cookie_is_secure_if_a_proxy_terminates_tls_for_a_server_on_loopback(store):
    async with serving(store) as api:
        origin = {"Origin": api.url.replace("http://", "https://")}
        answer = await api.post("/login", {"token": TOKEN}, headers=origin)
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        assert (cookie.key, cookie["secure"]) == ("sluice-session", True)
        ours = {"Cookie": f"{cookie.key}={cookie.value}", "X-Requested-With": "sluice"}
        assert (await api.get("/session", headers=ours)).body["user"] == "sluice:admin"
        answer = await api.post("/logout", {}, headers=origin | ours)
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        assert (cookie["max-age"], cookie["secure"]) == ("0", True)


async def test_session_and_its_logout_take_effect_on_every_replica(server, store, tmp_path, clock):
    (another := tmp_path / "another").mkdir()
    async with serving_with_cluster(store, another, clock=clock) as other:
        cookie = await logged_in(server, ADMIN_TOKEN)
        assert (await other.send("GET", "/session", headers=cookie)).body["user"] == "sluice:admin"
        assert (await other.send("POST", "/logout", headers=cookie | OURS)).status == 200
        clock.advance(RECHECK_SECONDS)
        assert (await server.send("GET", "/session", headers=cookie)).status == 401


async def test_logout_ends_a_session_during_a_concurrent_lookup(store, clock):
    sessions = Sessions(store.browser_sessions, clock=clock)
    for _ in range(10):  # repeated, as the order of the two operations varies
        secret = await sessions.open("token")
        found, _ = await asyncio.gather(sessions.content(secret), sessions.close(secret))
        assert found in ("token", None)
        assert await sessions.content(secret) is None


async def test_session_is_valid_on_a_newly_started_server(store, clock):
    async with serving(store) as api:
        answer = await api.post("/login", {"token": TOKEN}, headers={})
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    async with serving(store) as api:
        headers = {"Cookie": f"{cookie.key}={cookie.value}"}
        assert (await api.get("/session", headers=headers)).body["user"] == "sluice:admin"


async def test_stored_session_contains_neither_token_nor_secret_and_is_not_dumped(server, store):
    cookie = await logged_in(server, ADMIN_TOKEN)
    secret = cookie["Cookie"].partition("=")[2]
    async with store._database.read() as connection:
        (row,) = (await connection.execute(select(browser_sessions))).all()
    kept = repr(tuple(row))
    assert ADMIN_TOKEN not in kept
    assert secret not in kept
    lines: list[bytes] = []
    await store.dump(lines.append, lambda *_: None)
    dumped = b"".join(lines)
    assert b"browser_sessions" not in dumped
    for kept in (row.digest.encode(), row.sealed_token.hex().encode(), base64.b64encode(row.sealed_token)):
        assert kept not in dumped
    for kept in (ADMIN_TOKEN, secret):
        assert kept.encode() not in dumped


async def test_session_with_a_forged_sealed_token_gets_401(server, store):
    cookie = await logged_in(server, ADMIN_TOKEN)
    async with store._database.write() as connection:
        await connection.execute(update(browser_sessions).values(sealed_token=b"0" * 60))
    assert (await server.send("GET", "/session", headers=cookie)).status == 401
