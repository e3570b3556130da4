"""Limits on watches: revoked permissions, ended sessions, maximum duration, and number of watches of one user."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from api_and_cluster import ADMIN_TOKEN, ApiAndCluster, serving_with_cluster
from api_client import PREFIX, TOKEN
from queue_objects import cohort

from admission.api.watch import broadcast, watch_request
from admission.model.manifests import parse_manifest
from admission.model.queues import QueueObject
from admission.store.audit_log import Author

READ = [{"apiGroups": ["sluice.dev"], "resources": ["workloads"], "verbs": ["list", "watch"]}]


@pytest.fixture
async def server(store, tmp_path, clock):
    async with serving_with_cluster(store, tmp_path, clock=clock) as found:
        await found.sandbox.local("admin").create("namespaces", "", {"metadata": {"name": "team-a"}})
        yield found


@asynccontextmanager
async def watch(
    server: ApiAndCluster, credentials: str | dict[str, str], **params: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Response of a watch of the workloads in `team-a`; the credentials are a token or headers."""
    headers = {"Authorization": f"Bearer {credentials}"} if isinstance(credentials, str) else credentials
    context = ssl.create_default_context(cafile=str(server.ca))
    url = f"{server.url}{PREFIX}/namespaces/team-a/workloads"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(url, params={"watch": "1", **params}, headers=headers) as response,
    ):
        yield response


async def events(response: aiohttp.ClientResponse) -> list[Any]:
    """All events until the watch ends."""
    async with asyncio.timeout(120):
        return [json.loads(line) async for line in response.content]


async def test_watch_ends_with_403_when_the_permission_is_revoked(server, clock, monkeypatch):
    monkeypatch.setattr(watch_request, "RECHECK_SECONDS", 0.01)
    await server.grant("bob", READ, namespace="team-a")
    admin = server.sandbox.local("admin")
    async with watch(server, server.sandbox.token("bob")) as response, watch(server, ADMIN_TOKEN) as other:
        assert (response.status, other.status) == (200, 200)
        for binding in admin.list("rolebindings", "team-a"):
            await admin.delete("rolebindings", "team-a", binding["metadata"]["name"])
        clock.advance(60)
        (event,) = await events(response)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 403, "Forbidden")
        assert not other.content.at_eof()


async def test_watch_ends_with_401_when_its_session_is_logged_out(server, monkeypatch):
    monkeypatch.setattr(watch_request, "RECHECK_SECONDS", 0.01)
    await server.grant("bob", READ, namespace="team-a")
    login = await server.send("POST", "/login", {"token": server.sandbox.token("bob")})
    cookie = {"Cookie": login.headers["Set-Cookie"].partition(";")[0]}
    async with watch(server, cookie) as response:
        assert response.status == 200
        assert (await server.send("POST", "/logout", headers=cookie | {"X-Requested-With": "x"})).status == 200
        (event,) = await events(response)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 401)


async def test_watch_ends_at_the_maximum_duration_despite_a_longer_timeout(server, monkeypatch):
    monkeypatch.setattr(watch_request, "MAX_SECONDS", 0.1)
    async with watch(server, ADMIN_TOKEN, timeoutSeconds="999999999") as response:
        assert await events(response) == []


async def test_number_of_watches_is_limited_for_each_user(server, monkeypatch):
    monkeypatch.setattr(broadcast, "MAX_WATCHERS_PER_USER", 2)
    for user in ("bob", "alice"):
        await server.grant(user, READ, namespace="team-a")
    bob, alice = server.sandbox.token("bob"), server.sandbox.token("alice")
    async with AsyncExitStack() as stack:
        for _ in range(2):
            assert (await stack.enter_async_context(watch(server, bob))).status == 200
        async with watch(server, bob) as refused, watch(server, alice) as accepted:
            status = await refused.json()
            assert (refused.status, status["reason"]) == (429, "TooManyRequests")
            assert "bob has 2 watches open" in status["message"]
            assert accepted.status == 200


@asynccontextmanager
async def unread_watch(url: str) -> AsyncIterator[socket.socket]:
    """Connection with an open watch of Cohorts, of which only the start of the response has been read."""
    loop, address = asyncio.get_running_loop(), urlsplit(url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, (address.hostname, address.port))
        lines = f"GET {PREFIX}/cohorts?watch=1 HTTP/1.1", "Host: a", f"Authorization: Bearer {TOKEN}", "", ""
        await loop.sock_sendall(connection, "\r\n".join(lines).encode())
        assert (await loop.sock_recv(connection, 15)).startswith(b"HTTP/1.1 200 OK")
        yield connection


def large_cohort(name: str, size: int) -> QueueObject:
    document = cohort(name)
    document["metadata"]["annotations"] = {"large": "x" * size}
    return parse_manifest(document)


@pytest.mark.long
async def test_client_that_does_not_read_is_disconnected_and_delays_no_other(api, store, monkeypatch):
    monkeypatch.setattr(watch_request, "MAX_QUEUED_BYTES", 2**20)
    sent, received, loop = 0, 0, asyncio.get_running_loop()
    async with api.watch("cohorts") as other, unread_watch(api.url) as connection:
        for batch in "abcdefgh":  # 6 MB in sum, more than the socket buffers hold
            names = [f"{batch}-{number}" for number in range(3)]
            for name in names:
                await store.queues.create(large_cohort(name, 250_000), author=Author("ada"))
                sent += 250_000
            assert await other.next_types_and_names(3) == [("ADDED", name) for name in names]
        try:
            while received < sent and (chunk := await loop.sock_recv(connection, 2**20)):
                received += len(chunk)
        except ConnectionResetError:
            pass
    assert received < sent
