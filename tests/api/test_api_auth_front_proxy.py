"""Authentication by the API server's front proxy: only with its client certificate are its headers trusted."""

from __future__ import annotations

import datetime as dt

import aiohttp
import pytest
from doors_world import ADMIN_TOKEN, AUTHENTICATION_CONFIG, publish, world
from pki import Authority, Pair

ALICE = [("X-Remote-User", "alice"), ("X-Remote-Group", "team-a"), ("X-Remote-Group", "system:authenticated")]
MASTER = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")]


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


@pytest.fixture
async def doors(store, tmp_path, clock):
    async with world(store, tmp_path, clock=clock) as opened:
        yield opened


@pytest.fixture
def proxy(doors) -> Pair:
    return doors.proxy_ca.client("front-proxy-client")


async def test_front_proxy_headers_identify_the_user(doors, proxy):
    answer = await doors.send("GET", "/session", certificate=proxy, headers=ALICE)
    assert (answer.status, answer.body) == (
        200,
        {"user": "alice", "groups": ["team-a", "system:authenticated"], "standstill": ""},
    )
    assert doors.reviews("tokenreviews") == 0


async def test_users_of_the_front_proxy_need_permissions(doors, proxy, clock):
    assert (await doors.send("GET", "cohorts", certificate=proxy, headers=ALICE)).status == 403
    await doors.grant(
        "team-a", [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["list"]}], kind="Group"
    )
    clock.advance(2)
    assert (await doors.send("GET", "cohorts", certificate=proxy, headers=ALICE)).status == 200
    assert (await doors.send("GET", "cohorts", certificate=proxy, headers=ALICE[:1])).status == 403


async def test_masters_are_authorized_without_a_subject_access_review(doors, proxy):
    assert (await doors.send("GET", "cohorts", certificate=proxy, headers=MASTER)).status == 200
    assert doors.reviews("subjectaccessreviews") == 0


async def test_subject_access_review_contains_uid_and_extra_of_the_user(store, tmp_path, clock):
    async with world(store, tmp_path, clock=clock) as doors:
        headers = {"requestheader-uid-headers": '["X-Remote-Uid"]', "requestheader-client-ca-file": doors.proxy_ca.pem}
        await publish(doors.sandbox, **headers)
        await doors.front_proxy.refresh(doors.cluster)
        asked = []
        create = doors.cluster.create

        async def listen(path, body, **options):
            asked.append(body["spec"])
            return await create(path, body, **options)

        doors.cluster.create = listen
        extra = [("X-Remote-Extra-Example.com%2fTeam", "red"), ("X-Remote-Extra-Example.com%2fTeam", "blue")]
        sent = [*ALICE, ("X-Remote-Uid", "u-4"), *extra]
        proxy = doors.proxy_ca.client("front-proxy-client")
        await doors.send("GET", "namespaces/team-a/workloads/x", certificate=proxy, headers=sent)
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
async def test_front_proxy_headers_without_a_certificate_are_ignored(doors, headers):
    assert (await doors.send("GET", "/session", headers=headers)).status == 401
    with_token = await doors.as_user("bob", "GET", "/session", headers=headers)
    assert with_token.body["user"] == "bob"


async def test_front_proxy_headers_with_another_common_name_are_ignored(doors):
    other = doors.proxy_ca.client("somebody-else")
    assert (await doors.send("GET", "/session", certificate=other, headers=MASTER)).status == 401
    answer = await doors.send("GET", "/session", certificate=other, headers=MASTER, token=ADMIN_TOKEN)
    assert answer.body["user"] == "sluice:admin"


async def test_untrusted_expired_or_server_certificate_gets_no_connection(doors, tmp_path):
    forged = Authority(tmp_path, "forged-ca").client("front-proxy-client")
    same_name = Authority(tmp_path, "requestheader-ca").client("front-proxy-client")
    expired = doors.proxy_ca.client("front-proxy-client", lifetime=-dt.timedelta(minutes=5))
    for_servers = doors.proxy_ca.server("front-proxy-client")
    for certificate in (forged, same_name, expired, for_servers):
        with pytest.raises(aiohttp.ClientError):
            await doors.send("GET", "/session", certificate=certificate, headers=MASTER)


async def test_front_proxy_without_a_user_header_is_identified_by_its_token_only(doors, proxy):
    for headers in ([], [("X-Remote-Group", "system:masters")], [("X-Remote-User", ""), *MASTER[1:]]):
        assert (await doors.send("GET", "/session", certificate=proxy, headers=headers)).status == 401
    answer = await doors.as_user("alice", "GET", "/session", certificate=proxy, headers=MASTER[1:])
    assert answer.body == {"user": "alice", "groups": ["team-a", "system:authenticated"], "standstill": ""}


async def test_any_common_name_is_accepted_if_allowed_names_is_empty(doors):
    await publish(
        doors.sandbox,
        **{"requestheader-client-ca-file": doors.proxy_ca.pem, "requestheader-allowed-names": "[]"},
    )
    await doors.front_proxy.refresh(doors.cluster)
    other = doors.proxy_ca.client("somebody-else")
    assert (await doors.send("GET", "/session", certificate=other, headers=ALICE)).body["user"] == "alice"


async def test_new_request_header_ca_replaces_the_old_ca(doors, proxy, tmp_path):
    newer = Authority(tmp_path, "newer-ca")
    await publish(doors.sandbox, **{"requestheader-client-ca-file": newer.pem})
    await doors.front_proxy.refresh(doors.cluster)
    doors.context.refresh(doors.front_proxy.client_ca)
    replaced = newer.client("front-proxy-client")
    assert (await doors.send("GET", "/session", certificate=replaced, headers=ALICE)).body["user"] == "alice"
    with pytest.raises(aiohttp.ClientError):
        await doors.send("GET", "/session", certificate=proxy, headers=ALICE)


async def test_open_connection_is_trusted_only_while_its_ca_is_trusted(doors, proxy, tmp_path):
    newer = Authority(tmp_path, "newer-ca")
    assert (await doors.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    for bundle, code in ((doors.proxy_ca.pem + newer.pem, 200), (newer.pem, 401)):
        await publish(doors.sandbox, **{"requestheader-client-ca-file": bundle})
        await doors.front_proxy.refresh(doors.cluster)
        doors.context.refresh(doors.front_proxy.client_ca)
        assert (await doors.send("GET", "/session", certificate=proxy, headers=ALICE)).status == code
    with pytest.raises(aiohttp.ClientError):  # that connection was closed, and a new one is not accepted
        await doors.send("GET", "/session", certificate=proxy, headers=ALICE)


async def test_unreadable_front_proxy_configuration_is_logged_and_changes_nothing(doors, proxy, caplog):
    for broken in ('{"a": 1}', "front-proxy-client", "[1]"):
        await publish(doors.sandbox, **{"requestheader-allowed-names": broken})
        await doors.front_proxy.refresh(doors.cluster)
        assert (await doors.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    await doors.sandbox.local("admin").delete("configmaps", "kube-system", AUTHENTICATION_CONFIG)
    await doors.front_proxy.refresh(doors.cluster)
    assert (await doors.send("GET", "/session", certificate=proxy, headers=ALICE)).body["user"] == "alice"
    assert caplog.text.count("cannot be looked up") == 4


async def test_audit_source_is_the_last_forwarded_address_from_the_front_proxy(doors, proxy, store):
    forwarded = [*MASTER, ("X-Forwarded-For", "203.0.113.9, 198.51.100.7")]
    cohort = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}}
    assert (await doors.send("POST", "cohorts", cohort, certificate=proxy, headers=forwarded)).status == 201
    cohort["metadata"]["name"] = "b"
    answer = await doors.send("POST", "cohorts", cohort, token=ADMIN_TOKEN, headers=forwarded)
    assert answer.status == 201
    page = await store.audit.list()
    assert [(record.user, record.source) for record in page.records] == [
        ("sluice:admin", "127.0.0.1"),
        ("root", "198.51.100.7"),
    ]


async def test_discovery_by_the_aggregator_needs_no_access_review(doors, proxy):
    kube = [("X-Remote-User", "system:kube-aggregator"), ("X-Remote-Group", "system:masters")]
    assert (await doors.send("GET", "/apis/sluice.dev/v1", certificate=proxy, headers=kube)).status == 200
    for user in ([("X-Remote-User", "system:aggregator")], ALICE):
        assert (await doors.send("GET", "/apis", certificate=proxy, headers=user)).status == 200
    assert doors.reviews("subjectaccessreviews") == 0
