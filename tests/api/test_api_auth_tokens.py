"""Authentication by bearer token: reviews by the cluster, their caching, rate limits, and outages of the cluster."""

from __future__ import annotations

import asyncio

import pytest
from api_and_cluster import ADMIN_TOKEN, serving_with_cluster


@pytest.fixture
async def server(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as opened:
        yield opened


async def test_cluster_token_authenticates_its_user(server):
    answer = await server.as_user("alice", "GET", "/session")
    assert (answer.status, answer.body) == (
        200,
        {"user": "alice", "groups": ["team-a", "system:authenticated"], "standstill": ""},
    )


async def test_admin_token_needs_no_review_by_the_cluster(server):
    answer = await server.send("GET", "clusterqueues", token=ADMIN_TOKEN)
    assert answer.status == 200
    assert (await server.send("GET", "/session", token=ADMIN_TOKEN)).body["user"] == "sluice:admin"
    assert server.reviews("tokenreviews") == server.reviews("subjectaccessreviews") == 0


@pytest.mark.parametrize("token", ["wrong", "alice-toke", "alice-token2", "admin", "x" * 7000, "tö-ken", "a b"])
async def test_unknown_token_gets_401(server, token):
    answer = await server.send("GET", "/session", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    "header", ["alice-token", "Basic alice-token", "Bearer", "Bearer Bearer alice-token", "bearer"]
)
async def test_authorization_header_without_a_single_bearer_token_gets_401(server, header):
    assert (await server.send("GET", "/session", headers={"Authorization": header})).status == 401


async def test_token_review_is_cached_10_seconds_and_1_second_for_wrong_tokens(server, clock):
    for _ in range(3):
        assert (await server.as_user("alice", "GET", "/session")).status == 200
    assert server.reviews("tokenreviews") == 1
    clock.advance(9.9)
    await server.as_user("alice", "GET", "/session")
    assert server.reviews("tokenreviews") == 1
    clock.advance(0.2)
    await server.as_user("alice", "GET", "/session")
    assert server.reviews("tokenreviews") == 2
    for seconds, asked in ((0.0, 3), (0.9, 3), (0.2, 4)):
        clock.advance(seconds)
        assert (await server.send("GET", "/session", token="wrong")).status == 401
        assert server.reviews("tokenreviews") == asked


async def test_concurrent_requests_share_a_token_review_and_an_access_review(server):
    answers = await asyncio.gather(*(server.as_user("alice", "GET", "clusterqueues") for _ in range(20)))
    assert {answer.status for answer in answers} == {403}
    assert server.reviews("tokenreviews") == server.reviews("subjectaccessreviews") == 1


async def test_token_of_a_deleted_service_account_gets_401_after_the_cache_expires(server, clock):
    admin = server.sandbox.local("admin")
    await admin.create("serviceaccounts", "default", {"metadata": {"name": "robot"}})
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    issued = await server.cluster.create(path, {"spec": {}})
    token = issued["status"]["token"]
    assert (await server.send("GET", "/session", token=token)).body["user"] == "system:serviceaccount:default:robot"
    await admin.delete("serviceaccounts", "default", "robot")
    clock.advance(10.1)
    assert (await server.send("GET", "/session", token=token)).status == 401


async def test_access_review_is_cached_5_seconds_if_allowed_and_1_second_if_denied(server, clock):
    assert (await server.as_user("alice", "GET", "clusterqueues")).status == 403
    await server.grant("alice", [{"apiGroups": ["sluice.dev"], "resources": ["clusterqueues"], "verbs": ["list"]}])
    assert (await server.as_user("alice", "GET", "clusterqueues")).status == 403
    clock.advance(1.1)
    assert (await server.as_user("alice", "GET", "clusterqueues")).status == 200
    admin = server.sandbox.local("admin")
    for binding in admin.list("clusterrolebindings"):
        if binding["metadata"]["name"].startswith("allowed-"):
            await admin.delete("clusterrolebindings", "", binding["metadata"]["name"])
    clock.advance(4.8)
    assert (await server.as_user("alice", "GET", "clusterqueues")).status == 200
    clock.advance(0.3)
    assert (await server.as_user("alice", "GET", "clusterqueues")).status == 403


async def test_requests_without_a_cached_review_get_503_while_the_cluster_is_down(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as server:
        await server.grant("alice", [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["list"]}])
        assert (await server.as_user("alice", "GET", "cohorts")).status == 200
        alice, bob = server.sandbox.token("alice"), server.sandbox.token("bob")
        await server.sandbox.__aexit__(None, None, None)
        # Cached reviews are still used ...
        assert (await server.send("GET", "cohorts", token=alice)).status == 200
        # ... and requests without a cached review get an error with Retry-After.
        for path, token in (("clusterqueues", alice), ("/session", bob), ("/session", "wrong")):
            answer = await server.send("GET", path, token=token)
            assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
            assert "the cluster did not answer a" in answer.body["message"]
            assert answer.headers["Retry-After"] == "1"
        clock.advance(10.1)
        assert (await server.send("GET", "cohorts", token=alice)).status == 503
        # The admin's own token does not depend on the cluster.
        assert (await server.send("GET", "cohorts", token=ADMIN_TOKEN)).status == 200


@pytest.mark.costly
async def test_token_guessing_is_rate_limited_before_a_token_review(server, clock):
    guesses = await asyncio.gather(*(server.send("GET", "/session", token=f"guess-{n}") for n in range(220)))
    refused = [answer for answer in guesses if answer.status == 429]
    assert len(refused) == 20
    assert {answer.body["reason"] for answer in refused} == {"TooManyRequests"}
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
    assert server.reviews("tokenreviews") == 200
    clock.advance(1)
    assert (await server.as_user("alice", "GET", "/session")).status == 200


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-group", "Impersonate-Uid", "Impersonate-Extra-a"])
@pytest.mark.parametrize("token", [ADMIN_TOKEN, "admin-token", "alice-token"])
async def test_impersonation_headers_are_forbidden(server, header, token):
    answer = await server.send("GET", "/session", token=token, headers={header: "bob"})
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert "through the cluster's API server" in answer.body["message"]


async def test_every_response_has_security_headers(server):
    for answer in (await server.send("GET", "/session"), await server.send("GET", "cohorts", token=ADMIN_TOKEN)):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Strict-Transport-Security"].startswith("max-age=")
        assert answer.headers["Cache-Control"] == "no-cache, private"


async def test_readyz_shows_failure_details_to_admins_only(store, tmp_path, clock):
    async def broken() -> str:
        return "the password of 10.1.2.3 is wrong"

    async with serving_with_cluster(store, tmp_path, clock=clock, database=broken) as server:
        for token in (None, "wrong", "alice-token"):
            answer = await server.send("GET", "/readyz", token=token)
            assert (answer.status, "10.1.2.3" in answer.body) == (503, False)
        for token in (ADMIN_TOKEN, "admin-token"):
            assert "10.1.2.3" in (await server.send("GET", "/readyz", token=token)).body


async def test_requests_are_rate_limited_for_each_user(store, tmp_path, clock, monkeypatch):
    monkeypatch.setattr("admission.api.application.REQUESTS_BURST", 5)
    monkeypatch.setattr("admission.api.application.REQUESTS_PER_SECOND", 0.5)
    async with serving_with_cluster(store, tmp_path, clock=clock) as server:
        answers = [await server.as_user("alice", "GET", "/session") for _ in range(6)]
        assert [answer.status for answer in answers] == [200] * 5 + [429]
        assert (answers[5].headers["Retry-After"], answers[5].body["reason"]) == ("2", "TooManyRequests")
        assert (await server.as_user("bob", "GET", "/session")).status == 200
        clock.advance(2)
        assert (await server.as_user("alice", "GET", "/session")).status == 200
        assert (await server.as_user("alice", "GET", "/session")).status == 429


async def test_non_resource_url_needs_its_own_permission(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as server:
        assert (await server.as_user("alice", "GET", "/debug/anything")).status == 403
        await server.grant("alice", [{"nonResourceURLs": ["/debug/*"], "verbs": ["get"]}])
        clock.advance(2)
        assert (await server.as_user("alice", "GET", "/debug/anything")).status == 200


@pytest.mark.parametrize("path", ["/apis/sluice.dev/v1/nothing", "/nothing", "/apis/sluice.dev/v2/clusterqueues"])
async def test_missing_path_gets_404_only_with_a_valid_token(server, path):
    assert (await server.send("GET", path)).status == 401
    assert (await server.as_user("alice", "GET", path)).status == 404
