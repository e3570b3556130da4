"""Authentication by the admin's own proxy: trusted by its client certificate, and not for system users or groups."""

from __future__ import annotations

import aiohttp
import pytest
from api_and_cluster import publish, serving_with_cluster
from pki import Authority, Pair

from admission.api.auth.front_proxy import AuthenticatingProxy, FrontProxy
from admission.apimachinery.errors import UnusableCertificate

GRACE = [("X-Remote-User", "grace"), ("X-Remote-Group", "vision"), ("X-Remote-Group", "")]
MASTER = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")]
COHORT = {"apiVersion": "sluice.dev/v1", "kind": "Cohort", "metadata": {"name": "a"}}
OURS = ("X-Requested-With", "sluice")


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path, "own-proxy-ca")


def proxy_of(authority: Authority) -> AuthenticatingProxy:
    return AuthenticatingProxy(authority.file, ("sign-in-proxy",), ("X-Remote-User",), ("X-Remote-Group",))


@pytest.fixture
async def server(store, tmp_path, clock, authority):
    async with serving_with_cluster(store, tmp_path, clock=clock, own_proxy=proxy_of(authority)) as opened:
        yield opened


@pytest.fixture
def proxy(authority) -> Pair:
    return authority.client("sign-in-proxy")


async def test_proxy_headers_identify_the_user(server, proxy):
    answer = await server.send("GET", "/session", certificate=proxy, headers=GRACE)
    assert (answer.status, answer.body) == (
        200,
        {"user": "grace", "groups": ["vision", "system:authenticated"], "standstill": ""},
    )
    assert server.reviews("tokenreviews") == 0


async def test_users_of_the_proxy_need_permissions_from_the_cluster(server, proxy, clock):
    headers = [*GRACE, OURS]
    assert (await server.send("POST", "cohorts", COHORT, certificate=proxy, headers=headers)).status == 403
    rules = [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["create"]}]
    await server.grant("vision", rules, kind="Group")
    clock.advance(2)
    assert (await server.send("POST", "cohorts", COHORT, certificate=proxy, headers=headers)).status == 201


async def test_proxy_cannot_assert_system_users_or_groups(server, proxy):
    answer = await server.send("GET", "/session", certificate=proxy, headers=MASTER)
    assert answer.body == {"user": "root", "groups": ["system:authenticated"], "standstill": ""}
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=MASTER)).status == 403
    for name in ("system:admin", "system:serviceaccount:sluice-system:sluice", "a" * 513, "a\u200bb"):
        answer = await server.send("GET", "/session", certificate=proxy, headers=[("X-Remote-User", name)])
        assert (answer.status, "you may not sign in here" in answer.body["message"]) == (403, True)


async def test_proxy_headers_from_other_clients_are_ignored(server, authority):
    for certificate in (None, authority.client("somebody-else")):
        for headers in (GRACE, MASTER):
            answer = await server.send("GET", "/session", certificate=certificate, headers=headers)
            assert answer.status == 401
            with_token = await server.as_user("bob", "GET", "/session", certificate=certificate, headers=headers)
            assert with_token.body["user"] == "bob"


async def test_forged_or_server_certificate_of_the_proxy_gets_no_connection(server, authority, tmp_path):
    (folder := tmp_path / "forged").mkdir()
    forged = Authority(folder, "own-proxy-ca").client("sign-in-proxy")
    for certificate in (forged, authority.server("sign-in-proxy")):
        with pytest.raises(aiohttp.ClientError):
            await server.send("GET", "/session", certificate=certificate, headers=GRACE)


async def test_own_proxy_and_front_proxy_cannot_impersonate_each_other(server, authority, clock):
    as_cluster = authority.client("front-proxy-client")
    assert (await server.send("GET", "/session", certificate=as_cluster, headers=MASTER)).status == 401
    of_cluster = server.proxy_ca.client("sign-in-proxy")
    assert (await server.send("GET", "/session", certificate=of_cluster, headers=GRACE)).status == 401
    # With empty allowed names the front proxy may have any certificate of its CA.
    names = {"requestheader-client-ca-file": server.proxy_ca.pem, "requestheader-allowed-names": "[]"}
    await publish(server.sandbox, **names)
    await server.front_proxy.refresh(server.cluster)
    assert (await server.send("GET", "/session", certificate=as_cluster, headers=MASTER)).status == 401
    own = authority.client("sign-in-proxy")
    answer = await server.send("GET", "/session", certificate=own, headers=MASTER)
    assert answer.body["groups"] == ["system:authenticated"]


async def test_front_proxy_of_the_cluster_works_beside_the_own_proxy(server):
    certificate = server.proxy_ca.client("front-proxy-client")
    answer = await server.send("GET", "/session", certificate=certificate, headers=MASTER)
    assert answer.body == {"user": "root", "groups": ["system:masters"], "standstill": ""}


async def test_another_site_cannot_write_through_the_proxy(server, proxy, clock, store):
    rules = [{"apiGroups": ["sluice.dev"], "resources": ["cohorts"], "verbs": ["create"]}]
    await server.grant("grace", rules)
    for more in (
        [],
        [("Sec-Fetch-Site", "same-origin")],
        [OURS, ("Origin", "https://evil.example")],
        [OURS, ("Sec-Fetch-Site", "cross-site")],
    ):
        answer = await server.send("POST", "cohorts", COHORT, certificate=proxy, headers=[*GRACE, *more])
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert await store.queues.list("Cohort") == ()


async def test_own_proxy_works_when_the_cluster_has_no_front_proxy(store, tmp_path, clock, authority, proxy):
    async with serving_with_cluster(store, tmp_path, clock=clock, own_proxy=proxy_of(authority)) as server:
        await publish(server.sandbox, **{"requestheader-client-ca-file": ""})
        await server.front_proxy.refresh(server.cluster)
        assert server.front_proxy.client_ca == authority.pem
        server.context.refresh(server.front_proxy.client_ca)
        assert (await server.send("GET", "/session", certificate=proxy, headers=GRACE)).body["user"] == "grace"


async def test_own_proxy_identifies_users_while_the_cluster_is_out_of_reach(server, proxy):
    await server.sandbox.__aexit__(None, None, None)
    await server.front_proxy.refresh(server.cluster)
    server.context.refresh(server.front_proxy.client_ca)
    assert (await server.send("GET", "/session", certificate=proxy, headers=GRACE)).body["user"] == "grace"
    assert (await server.send("GET", "cohorts", certificate=proxy, headers=GRACE)).status == 503


async def test_new_ca_file_of_the_proxy_replaces_the_old_ca(server, authority, proxy, tmp_path):
    assert (await server.send("GET", "/session", certificate=proxy, headers=GRACE)).status == 200
    newer = Authority(tmp_path, "newer-ca")
    authority.file.write_text(newer.pem)
    await server.front_proxy.refresh(server.cluster)
    server.context.refresh(server.front_proxy.client_ca)
    replaced = newer.client("sign-in-proxy")
    assert (await server.send("GET", "/session", certificate=replaced, headers=GRACE)).body["user"] == "grace"
    assert (await server.send("GET", "/session", certificate=proxy, headers=GRACE)).status == 401


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff"])
async def test_proxy_ca_file_without_certificates_raises_unusable_certificate(tmp_path, content):
    file = tmp_path / "proxy-ca.crt"
    if content is not None:
        file.write_bytes(content)
    front_proxy = FrontProxy(AuthenticatingProxy(file, ("a",), ("X-Remote-User",), ()))
    with pytest.raises(UnusableCertificate, match=r"requestHeader.clientCaFile .*proxy-ca.crt"):
        await front_proxy.refresh(None)  # type: ignore[arg-type]  the file comes first
