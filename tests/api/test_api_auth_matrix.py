"""Authorization matrix: every verb on every resource, by token and by front proxy, with the roles of deploy/rbac."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from api_and_cluster import ADMIN_TOKEN, PREFIX, serving_with_cluster
from user_permissions import bind, create_roles

from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import AUTHENTICATED, MASTERS
from tests.conftest import Clock
from tests.sqlite_store import sqlite_store

pytestmark = pytest.mark.asyncio(loop_scope="module")


USERS = {
    "M": User("root", groups=(MASTERS, AUTHENTICATED)),
    "A": User("ada", groups=("sluice-admins", AUTHENTICATED)),
    "Q": User("quinn", groups=("research-leads", AUTHENTICATED)),
    "V": User("vera", groups=(AUTHENTICATED,)),
    "N": User("nils", groups=("team-a", AUTHENTICATED)),
    "C": User("carl", groups=(AUTHENTICATED,)),
    "L": User("lea", groups=(AUTHENTICATED,)),
    "X": User("xaver", groups=(AUTHENTICATED,)),
}
"""Root, admin, queue admin (of research), viewer, member of team-a, check controller, lead of team-a, no role."""

ALL = "MAQVNCLX"
ANSWERS = {200, 400, 404, 415, 503}
"""Status codes of authorized requests: no named object exists, no write has a body, and only `LED` is answered 503."""
LED = "audits"
"""Resource that only a leader can answer; there is no leader here."""
OWN, OTHER = "research-vision", "marketing"
FLAT = ("resourceflavors", "workloadpriorityclasses", "admissionchecks", "provisioningrequestconfigs", "topologies",
        "budgets", "reservations", "drains", "userlimits", "pricebooks", "clusters")  # fmt: skip

MATRIX: list[tuple[str, str, str]] = [
    ("GET", "", ALL),
    ("GET", "/apis", ALL),
    ("GET", "/apis/sluice.dev", ALL),
    ("GET", "/session", ALL),
    ("GET", "/debug/anything", "M"),
    ("GET", "auditrecords", "MA"),
    ("GET", "audits", "MA"),
    ("POST", "audits", "MA"),
    ("POST", "whatifs", "MA"),
    ("GET", "reports/usage", "MAV"),
    ("GET", "reports/pending", "MAV"),
    ("GET", "reports/pending?by=user", "MAV"),
    ("GET", "reports/mine", ALL),
    ("GET", "reports/namespaces", ALL),
    ("GET", "namespaces/team-a/reports/usage", "MAVN"),
    ("GET", "namespaces/team-b/reports/usage", "MAV"),
    ("GET", "reports/nodes", "MAV"),
    ("GET", "reports/drain", "MAV"),
    ("GET", "reports/objectives", "MAV"),
    ("GET", "reports/fairness", "MAV"),
    ("GET", "reports/clusters", "MAV"),
    ("GET", "reports/cost", "MAV"),
    ("GET", "namespaces/team-a/reports/cost", "MAVN"),
    ("GET", "namespaces/team-b/reports/cost", "MAV"),
    ("GET", "namespaces/team-a/reports/quote", "MAVN"),
    ("GET", "namespaces/team-b/reports/quote", "MAV"),
    ("GET", "reports/attention", "MAV"),
    ("GET", "reports/topology", "MAV"),
    ("GET", "reports/node", "MAV"),
    # Queues of the queue admin, and of others. A list is authorized by name only if it selects a single name.
    *(("GET", f"{plural}{query}", "MAV") for plural in ("clusterqueues", "cohorts") for query in ("", "?watch=1")),
    ("GET", f"clusterqueues?fieldSelector=metadata.name%3D{OWN}", "MAVQ"),
    ("GET", f"clusterqueues?watch=1&fieldSelector=metadata.name%3D{OWN}", "MAVQ"),
    ("GET", f"clusterqueues?fieldSelector=metadata.name%3D{OTHER}", "MAV"),
    ("GET", f"clusterqueues?fieldSelector=metadata.name%21%3D{OWN}", "MAV"),
    *((method, plural, "MA") for plural in ("clusterqueues", "cohorts") for method in ("POST", "DELETE")),
    *(("GET", f"clusterqueues/{name}", who) for name, who in ((OWN, "MAVQ"), (OTHER, "MAV"))),
    *((verb, f"clusterqueues/{name}", who) for name, who in ((OWN, "MAQ"), (OTHER, "MA")) for verb in ("PUT", "PATCH")),
    *(("DELETE", f"clusterqueues/{name}", "MA") for name in (OWN, OTHER)),
    *(
        (verb, f"clusterqueues/{name}/{subresource}", who)
        for verb, subresource, own, other in (
            ("GET", "pendingworkloads", "MAVQ", "MAV"),
            ("GET", "calendar", "MAVQ", "MAV"),
            ("GET", "history", "MAVQ", "MAV"),
            ("POST", "rollback", "MAQ", "MA"),
        )
        for name, who in ((OWN, own), (OTHER, other))
    ),
    ("GET", "cohorts/research/history", "MAVQ"),
    ("GET", "cohorts/research/calendar", "MAVQ"),
    ("GET", "cohorts/root/calendar", "MAV"),
    ("GET", "cohorts/root/history", "MAV"),
    ("POST", "cohorts/research/rollback", "MAQ"),
    ("POST", "cohorts/root/rollback", "MA"),
    ("GET", "cohorts/research", "MAVQ"),
    ("GET", "cohorts/root", "MAV"),
    *((verb, "cohorts/research", "MAQ") for verb in ("PUT", "PATCH")),
    *((verb, "cohorts/root", "MA") for verb in ("PUT", "PATCH")),
    ("DELETE", "cohorts/research", "MA"),
    *(("GET", plural, "MAV" + "C" * (plural == "admissionchecks")) for plural in FLAT),
    *(("GET", f"{plural}/x", "MAV" + "C" * (plural == "admissionchecks")) for plural in FLAT),
    *((verb, plural, "MA") for plural in FLAT for verb in ("POST", "DELETE")),
    *((verb, f"{plural}/x", "MA") for plural in FLAT for verb in ("PUT", "PATCH", "DELETE")),
    *(("GET", f"{plural}/x/history", "MAV") for plural in FLAT),
    *(("POST", f"{plural}/x/rollback", "MA") for plural in FLAT),
    # Namespaces.
    ("GET", "localqueues", "MAV"),
    ("GET", "namespaces/team-a/localqueues", "MAVN"),
    ("GET", "namespaces/team-b/localqueues", "MAV"),
    ("GET", "namespaces/team-a/localqueues/x", "MAVN"),
    ("GET", "namespaces/team-b/localqueues/x", "MAV"),
    *((verb, "namespaces/team-a/localqueues", "MA") for verb in ("POST", "DELETE")),
    *((verb, "namespaces/team-a/localqueues/x", "MA") for verb in ("PUT", "PATCH", "DELETE")),
    ("GET", "namespaces/team-a/localqueues/x/pendingworkloads", "MAVN"),
    ("GET", "namespaces/team-b/localqueues/x/pendingworkloads", "MAV"),
    ("GET", "namespaces/team-a/localqueues/x/history", "MAV"),
    ("POST", "namespaces/team-a/localqueues/x/rollback", "MA"),
    ("GET", "budgetrequests", "MAV"),
    ("GET", "namespaces/team-a/budgetrequests", "MAVN"),
    *((verb, "namespaces/team-a/budgetrequests", "MA") for verb in ("POST", "DELETE")),
    ("GET", "namespaces/team-a/budgetrequests/x", "MAVN"),
    *((verb, "namespaces/team-a/budgetrequests/x", "MA") for verb in ("PUT", "PATCH", "DELETE")),
    ("GET", "namespaces/team-a/budgetrequests/x/history", "MAV"),
    ("POST", "namespaces/team-a/budgetrequests/x/rollback", "MA"),
    ("GET", "subscriptions", "MAV"),
    *(("GET", f"namespaces/team-a/subscriptions{name}", "MAVN") for name in ("", "/x")),
    *(("GET", f"namespaces/team-b/subscriptions{name}", "MAV") for name in ("", "/x")),
    *((verb, "namespaces/team-a/subscriptions", "MA") for verb in ("POST", "DELETE")),
    *((verb, "namespaces/team-a/subscriptions/x", "MA") for verb in ("PUT", "PATCH", "DELETE")),
    ("GET", "namespaces/team-a/subscriptions/x/history", "MAV"),
    ("POST", "namespaces/team-a/subscriptions/x/rollback", "MA"),
    ("GET", "workloads", "MAVC"),
    ("GET", "workloads?watch=1", "MAVC"),
    ("GET", "namespaces/team-a/workloads", "MAVNCL"),
    ("GET", "namespaces/team-a/workloads?watch=true", "MAVNCL"),
    ("GET", "namespaces/team-b/workloads", "MAVC"),
    ("GET", "namespaces/team-a/workloads/x", "MAVNCL"),
    ("GET", "namespaces/team-b/workloads/x", "MAVC"),
    ("PATCH", "namespaces/team-a/workloads/x", "MAL"),
    ("PATCH", "namespaces/team-b/workloads/x", "MA"),
    ("PATCH", "namespaces/team-a/workloads/x/status", "MAC"),
    ("POST", "namespaces/team-a/workloads/x/cancel", "MA"),
    ("POST", "namespaces/team-b/workloads/x/cancel", "MA"),
    ("GET", "namespaces/team-a/workloads/x/status", "MAVC"),
    *(("GET", f"namespaces/team-a/workloads/x/{subresource}", "MAVN") for subresource in ("explain", "history")),
    *(("GET", f"namespaces/team-a/workloads/x/{subresource}", "M") for subresource in ("log?pod=x", "pods")),
    *(("GET", f"namespaces/team-b/workloads/x/{subresource}", "MAV") for subresource in ("explain", "history")),
]


@asynccontextmanager
async def serving(store, folder, clock):
    """The API and its cluster, with the roles of deploy/rbac and their bindings."""
    tokens = {f"{user.name}-token": user for user in USERS.values()}
    sluice = User("sluice", groups=(MASTERS, AUTHENTICATED))
    async with serving_with_cluster(store, folder, clock=clock, users=tokens | {"sluice-token": sluice}) as opened:
        root = opened.sandbox.local("root")
        await create_roles(root, "users.yaml", "queue-admin-example.yaml")
        await bind(root, "sluice-admin", "sluice-admins", kind="Group")
        await bind(root, "sluice-viewer", "vera")
        await bind(root, "sluice-check-controller", "carl")
        await root.create("namespaces", "", {"metadata": {"name": "team-a"}})
        await bind(root, "sluice-namespace-viewer", "team-a", kind="Group", namespace="team-a")
        await bind(root, "sluice-team-lead", "lea", namespace="team-a")
        yield opened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(sqlite_template, tmp_path_factory):
    """Server for tests that change nothing: their writes are dry runs."""
    folder, clock = tmp_path_factory.mktemp("matrix"), Clock()
    async with sqlite_store(sqlite_template, folder, clock) as store, serving(store, folder, clock) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def answered(server):
    """Status code of each request of the matrix with the admin token."""
    return await answers(server)


@pytest_asyncio.fixture(loop_scope="module")
async def own_server(sqlite_template, tmp_path, clock):
    """Server for a single test, which may change it."""
    async with sqlite_store(sqlite_template, tmp_path, clock) as store, serving(store, tmp_path, clock) as opened:
        yield opened


def proxy_headers(user: User) -> list[tuple[str, str]]:
    """Headers by which the front proxy names a user."""
    return [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in user.groups)]


async def ask(server, method: str, path: str, **credentials: Any) -> int:
    """Status code of a request; all writes are dry runs."""
    if method != "GET":
        path += "?dryRun=All"
        if path.startswith("auditrecords"):
            raise ValueError(path)
    return await server.status(method, path, **credentials)


def requests_of(who: str) -> list[tuple[str, str]]:
    """Requests that are refused whoever the token belongs to: all for root, who may send them, a tenth for others."""
    return [(method, path) for method, path, _ in (MATRIX if who == "M" else MATRIX[:: len(MATRIX) // 10])]


async def answers(server) -> dict[tuple[str, str], int]:
    """Status code of each request of the matrix with the admin token."""
    found = {(method, path): await ask(server, method, path, token=ADMIN_TOKEN) for method, path, _ in MATRIX}
    assert set(found.values()) == ANSWERS
    assert {path for (_, path), status in found.items() if status == 503} == {LED}
    return found


@pytest.mark.costly
@pytest.mark.parametrize("credential", ["token", "front proxy"])
@pytest.mark.parametrize("who", USERS)
async def test_each_user_is_allowed_exactly_what_the_roles_grant(server, answered, credential, who):
    user = USERS[who]
    if credential == "token":
        credentials: dict[str, Any] = {"token": f"{user.name}-token"}
    else:
        certificate = server.proxy_ca.client("front-proxy-client")
        credentials = {"certificate": certificate, "headers": proxy_headers(user)}
    wrong = []
    for method, path, allowed in MATRIX:
        status = await ask(server, method, path, **credentials)
        if status != (answered[method, path] if who in allowed else 403):
            wrong.append((method, path, status))
    assert wrong == []


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"token": "wrong"},
        {"headers": proxy_headers(USERS["M"])},
        {"headers": [*proxy_headers(USERS["M"]), ("Authorization", "Bearer wrong")]},
        {"headers": [("Authorization", "Basic cm9vdDpyb290")]},
        {"headers": [("Cookie", "__Host-sluice-session=made-up")]},
    ],
)
async def test_requests_without_valid_credentials_get_401(server, credentials):
    assert {await ask(server, method, path, **credentials) for method, path, _ in MATRIX} == {401}


async def test_proxy_certificate_with_another_common_name_gets_401(server):
    other = server.proxy_ca.client("kubelet")
    credentials = {"certificate": other, "headers": proxy_headers(USERS["M"])}
    assert {await ask(server, method, path, **credentials) for method, path, _ in MATRIX} == {401}


async def test_expired_token_gets_401(own_server, clock):
    token = own_server.sandbox.add_user(USERS["M"], expires=3600)
    assert await ask(own_server, "GET", "cohorts", token=token) == 200
    expired = own_server.sandbox.add_user(USERS["M"], expires=0)
    assert {await ask(own_server, method, path, token=expired) for method, path, _ in MATRIX} == {401}


async def test_token_of_a_deleted_service_account_gets_401(own_server, clock):
    root = own_server.sandbox.local("root")
    await root.create("serviceaccounts", "default", {"metadata": {"name": "robot"}})
    await bind(own_server.sandbox.local("root"), "sluice-admin", "system:serviceaccount:default:robot")
    issued = await own_server.cluster.create("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    token = issued["status"]["token"]
    assert await ask(own_server, "GET", "cohorts", token=token) == 200
    await root.delete("serviceaccounts", "default", "robot")
    clock.advance(11)
    assert {await ask(own_server, method, path, token=token) for method, path, _ in MATRIX} == {401}


@pytest.mark.costly
async def test_only_masters_and_discovery_are_served_while_the_api_server_is_down(own_server, clock):
    certificate = own_server.proxy_ca.client("front-proxy-client")
    answered = await answers(own_server)
    await own_server.sandbox.__aexit__(None, None, None)
    for who, user in USERS.items():
        by_proxy = {"certificate": certificate, "headers": proxy_headers(user)}
        for method, path in requests_of(who):
            clock.advance(1)  # failed reviews count towards the limit on guesses
            assert await ask(own_server, method, path, token=f"{user.name}-token") == 503
        for method, path, allowed in MATRIX:
            status = await ask(own_server, method, path, **by_proxy)
            known = who == "M" or (allowed == ALL and path not in ("reports/mine", "reports/namespaces"))
            assert status == (answered[method, path] if known else 503), (who, method, path)
    led = await own_server.send("GET", LED, certificate=certificate, headers=proxy_headers(USERS["M"]))
    assert "leads" in led.body["message"]  # the request is authorized; only the leader is missing
    assert await ask(own_server, "GET", "cohorts", token=ADMIN_TOKEN) == 200


@pytest.mark.costly
async def test_impersonation_headers_are_forbidden_for_every_user(server):
    for who, user in USERS.items():
        for header in ("Impersonate-User", "Impersonate-Group"):
            headers = {header: "root" if header == "Impersonate-User" else MASTERS}
            for method, path in requests_of(who):
                assert await ask(server, method, path, token=f"{user.name}-token", headers=headers) == 403, who


async def test_matrix_contains_every_route(server):
    asked = {(method, urlsplit(path).path) for method, path, _ in MATRIX}
    missing = set()
    for route in server.app.router.routes():
        pattern = route.resource.canonical
        if route.method == "HEAD" or not pattern.startswith(f"{PREFIX}/"):
            continue
        parts = pattern.removeprefix(f"{PREFIX}/").split("/")
        if not any(
            method == route.method and _takes(parts, path.split("/")) for method, path in asked if path[:1] != "/"
        ):
            missing.add((route.method, pattern))
    assert missing == set()


def _takes(pattern: list[str], path: list[str]) -> bool:
    return len(pattern) == len(path) and all(
        one == other or one.startswith("{") for one, other in zip(pattern, path, strict=True)
    )
