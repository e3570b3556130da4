"""Authentication by the API server's front proxy: only with its client certificate are its headers trusted."""

from __future__ import annotations

import datetime as dt

import aiohttp
import pytest
from api_and_cluster import ADMIN_TOKEN, AUTHENTICATION_CONFIG, publish, serving_with_cluster
from pki import Authority, Pair

ALICE = [("X-Remote-User", "alice"), ("X-Remote-Group", "team-a"), ("X-Remote-Group", "system:authenticated")]
MASTER = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")]


@pytest.fixture
async def server(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as opened:
        yield opened


@pytest.fixture
def proxy(server) -> Pair:
    return server.proxy_ca.client("front-proxy-client")


async def test_front_proxy_headers_identify_the_user(server, proxy):
    answer = await server.send("GET", "/session", certificate=proxy, headers=ALICE)
    assert (answer.status, answer.body) == (
        200,
        {"user": "alice", "groups": ["team-a", "system:authenticated"], "standstill": ""},
    )
    assert server.reviews("tokenreviews") == 0


async def test_users_of_the_front_proxy_need_permissions(server, proxy, clock):
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=ALICE)).status == 403
    await server.grant(
        "team-a", [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["list"]}], kind="Group"
    )
    clock.advance(2)
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=ALICE)).status == 200
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=ALICE[:1])).status == 403


async def test_masters_are_authorized_without_a_subject_access_review(server, proxy):
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=MASTER)).status == 200
    assert server.reviews("subjectaccessreviews") == 0


async def test_subject_access_review_contains_uid_and_extra_of_the_user(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as server:
        headers = {"requestheader-uid-headers": '["X-Remote-Uid"]', "requestheader-client-ca-file": server.proxy_ca.pem}
        await publish(server.sandbox, **headers)
        await server.front_proxy.refresh(server.cluster)
        asked = []
        create = server.cluster.create

        async def listen(path, body, **options):
            asked.append(body["spec"])
            return await create(path, body, **options)

        server.cluster.create = listen
        extra = [("X-Remote-Extra-Example.com%2fTeam", "red"), ("X-Remote-Extra-Example.com%2fTeam", "blue")]
        sent = [*ALICE, ("X-Remote-Uid", "u-4"), *extra]
        proxy = server.proxy_ca.client("front-proxy-client")
        await server.send("GET", "namespaces/team-a/workloads/x", certificate=proxy, headers=sent)
        assert asked == [
            {
                "user": "alice",
                "uid": "u-4",
                "groups": ["team-a", "system:authenticated"],
                "extra": {"example.com/team": ["red", "blue"]},
                "resourceAttributes": {
                    "verb": "get",
                    "group": "sluice.dev",
                    "version": "v1",
                    "resource": "workloads",
                    "namespace": "team-a",
                    "name": "x",
                },
            }
        ]


@pytest.mark.parametrize("headers", [ALICE, MASTER])
async def test_front_proxy_headers_without_a_certificate_are_ignored(server, headers):
    assert (await server.send("GET", "/session", headers=headers)).status == 401
    with_token = await server.as_user("bob", "GET", "/session", headers=headers)
    assert with_token.body["user"] == "bob"


async def test_front_proxy_headers_with_another_common_name_are_ignored(server):
    other = server.proxy_ca.client("somebody-else")
    assert (await server.send("GET", "/session", certificate=other, headers=MASTER)).status == 401
    answer = await server.send("GET", "/session", certificate=other, headers=MASTER, token=ADMIN_TOKEN)
    assert answer.body["user"] == "sluice:admin"


async def test_untrusted_expired_or_server_certificate_gets_no_connection(server, tmp_path):
    forged = Authority(tmp_path, "forged-ca").client("front-proxy-client")
    same_name = Authority(tmp_path, "requestheader-ca").client("front-proxy-client")
    expired = server.proxy_ca.client("front-proxy-client", lifetime=-dt.timedelta(minutes=5))
    for_servers = server.proxy_ca.server("front-proxy-client")
    for certificate in (forged, same_name, expired, for_servers):
        with pytest.raises(aiohttp.ClientError):
            await server.send("GET", "/session", certificate=certificate, headers=MASTER)


async def test_front_proxy_without_a_user_header_is_identified_by_its_token_only(server, proxy):
    for headers in ([], [("X-Remote-Group", "system:masters")], [("X-Remote-User", ""), *MASTER[1:]]):
        assert (await server.send("GET", "/session", certificate=proxy, headers=headers)).status == 401
    answer = await server.as_user("alice", "GET", "/session", certificate=proxy, headers=MASTER[1:])
    assert answer.body == {"user": "alice", "groups": ["team-a", "system:authenticated"], "standstill": ""}


async def test_any_common_name_is_accepted_if_allowed_names_is_empty(server):
    await publish(
        server.sandbox,
        **{"requestheader-client-ca-file": server.proxy_ca.pem, "requestheader-allowed-names": "[]"},
    )
    await server.front_proxy.refresh(server.cluster)
    other = server.proxy_ca.client("somebody-else")
    assert (await server.send("GET", "/session", certificate=other, headers=ALICE)).body["user"] == "alice"


async def test_new_request_header_ca_replaces_the_old_ca(server, proxy, tmp_path):
    newer = Authority(tmp_path, "newer-ca")
    await publish(server.sandbox, **{"requestheader-client-ca-file": newer.pem})
    await server.front_proxy.refresh(server.cluster)
    server.context.refresh(server.front_proxy.client_ca)
    replaced = newer.client("front-proxy-client")
    assert (await server.send("GET", "/session", certificate=replaced, headers=ALICE)).body["user"] == "alice"
    with pytest.raises(aiohttp.ClientError):
        await server.send("GET", "/session", certificate=proxy, headers=ALICE)


async def test_open_connection_is_trusted_only_while_its_ca_is_trusted(server, proxy, tmp_path):
    newer = Authority(tmp_path, "newer-ca")
    assert (await server.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    for bundle, code in ((server.proxy_ca.pem + newer.pem, 200), (newer.pem, 401)):
        await publish(server.sandbox, **{"requestheader-client-ca-file": bundle})
        await server.front_proxy.refresh(server.cluster)
        server.context.refresh(server.front_proxy.client_ca)
        assert (await server.send("GET", "/session", certificate=proxy, headers=ALICE)).status == code
    with pytest.raises(aiohttp.ClientError):  # that connection was closed, and a new one is not accepted
        await server.send("GET", "/session", certificate=proxy, headers=ALICE)


async def test_unreadable_front_proxy_configuration_is_logged_and_changes_nothing(server, proxy, caplog):
    for broken in ('{"a": 1}', "front-proxy-client", "[1]"):
        await publish(server.sandbox, **{"requestheader-allowed-names": broken})
        await server.front_proxy.refresh(server.cluster)
        assert (await server.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    await server.sandbox.local("admin").delete("configmaps", "kube-system", AUTHENTICATION_CONFIG)
    await server.front_proxy.refresh(server.cluster)
    assert (await server.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    assert caplog.text.count("cannot be looked up") == 4


async def test_audit_source_is_the_last_forwarded_address_from_the_front_proxy(server, proxy, store):
    forwarded = [*MASTER, ("X-Forwarded-For", "203.0.113.9, 198.51.100.7")]
    cohort = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}}
    assert (await server.send("POST", "cohorts", cohort, certificate=proxy, headers=forwarded)).status == 201
    cohort["metadata"]["name"] = "b"
    answer = await server.send("POST", "cohorts", cohort, token=ADMIN_TOKEN, headers=forwarded)
    assert answer.status == 201
    page = await store.audit.list()
    assert [(record.user, record.source) for record in page.records] == [
        ("sluice:admin", "127.0.0.1"),
        ("root", "198.51.100.7"),
    ]


async def test_discovery_by_the_aggregator_needs_no_access_review(server, proxy):
    kube = [("X-Remote-User", "system:kube-aggregator"), ("X-Remote-Group", "system:masters")]
    assert (await server.send("GET", "/apis/sluice.dev/v1", certificate=proxy, headers=kube)).status == 200
    for user in ([("X-Remote-User", "system:aggregator")], ALICE):
        assert (await server.send("GET", "/apis", certificate=proxy, headers=user)).status == 200
    assert server.reviews("subjectaccessreviews") == 0
