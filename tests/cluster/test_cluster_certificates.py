"""Renewal of certificates while the client runs: of the client, of the cluster's authority, in files and inline."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes_asyncio.config import incluster_config
from scripted_server import Certificate, failure, issue, reply

from admission.cluster import errors
from admission.cluster.client import Client
from admission.cluster.credentials import RENEW_SECONDS, load_kubeconfig

REFUSED = failure(401, "Unauthorized", "Unauthorized")
BRIEF = dt.timedelta(seconds=4)
"""Validity in which the client connects also on a busy machine."""
LAST = reply({}, Connection="close")
"""Answers, and closes the connection, so that the next request needs another."""


class Credentials:
    """A kubeconfig with certificates, in files or inline, and a clock for the client that uses it."""

    def __init__(self, write: Callable[..., Path], directory, authority: Certificate, *, inline: bool) -> None:
        self.write = write
        self.directory = directory
        self.inline = inline
        self.url = ""
        self.files = {"certificate-authority": authority.pem}
        self.now = 0.0
        self.loads = 0

    def use(self, certificate: Certificate) -> None:
        """Write a client certificate into the kubeconfig, or its files."""
        self.put(**{"client-certificate": certificate.pem, "client-key": certificate.key_pem})

    def put(self, **files: bytes) -> None:
        self.files |= files
        entries = {}
        for name, content in self.files.items():
            if self.inline:
                entries[f"{name}-data"] = base64.b64encode(content).decode()
            else:
                (self.directory / name).write_bytes(content)
                entries[name] = str(self.directory / name)
        cluster = {name: entry for name, entry in entries.items() if name.startswith("certificate")}
        user = {name: entry for name, entry in entries.items() if name.startswith("client")}
        self.path = self.write(self.url, user=user, cluster=cluster)

    async def load(self):
        self.loads += 1
        return await load_kubeconfig(str(self.path), None)

    def client(self, sleep=asyncio.sleep) -> Client:
        return Client(self.load, clock=lambda: self.now, sleep=sleep)

    def later(self) -> None:
        """Let the time pass after which the files are read again."""
        self.now += RENEW_SECONDS


@pytest.fixture(params=["files", "inline"])
def credentials(request, kubeconfig, tmp_path, authority) -> Credentials:
    return Credentials(kubeconfig, tmp_path, authority, inline=request.param == "inline")


async def test_replaced_client_certificate_is_used_after_401_and_open_watches_stay(serve, authority, credentials):
    server = await serve()
    credentials.url = server.url
    credentials.use(issue("old", authority))
    more = asyncio.Event()

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"before")
        await more.wait()
        await response.write(b"after")
        return response

    server.script = [watch, REFUSED, reply({"a": 1}), reply({"a": 2})]
    async with credentials.client() as client, client.stream("/watch", params={}, idle_timeout=60) as pieces:
        assert await anext(pieces) == b"before"
        credentials.use(issue("new", authority))
        assert await client.create("/api", {}) == {"a": 1}
        assert await client.get("/api") == {"a": 2}
        more.set()
        assert await anext(pieces) == b"after"
    assert server.client_certificates == ["CN=old", "CN=old", "CN=new", "CN=new"]
    assert credentials.loads == 2


@pytest.mark.costly
async def test_expired_client_certificate_is_named_and_its_successor_used(serve, authority, credentials, sleeps):
    """The server rejects it in TLS, as a load balancer may do; a file that is half written must not end that."""
    server = await serve(required=True)
    credentials.url = server.url
    brief = issue("brief", authority, ends=BRIEF)
    credentials.use(brief)
    async with credentials.client(sleeps) as client:
        server.script = [LAST]
        await client.get("/api")
        while dt.datetime.now(dt.UTC) <= brief.certificate.not_valid_after_utc:  # noqa: ASYNC110  the server's clock
            await asyncio.sleep(0.05)
        expired = rf"GET {server.url}/api: .*; the client certificate for {server.url} expired on .* UTC: renew it"
        for _ in range(2):
            with pytest.raises(errors.Unreachable, match=expired):
                await client.get("/api")
        successor = issue("successor", authority)
        credentials.put(**{"client-certificate": successor.pem})  # the key is still missing
        credentials.later()
        with pytest.raises(errors.Unreachable, match=r"the client certificate for .* cannot be used .*check client-"):
            await client.get("/api")
        credentials.use(successor)
        credentials.later()
        server.script = [reply({}), reply({})]
        await client.get("/api")
        await client.create("/api", {})
    assert server.client_certificates == ["CN=brief", "CN=successor", "CN=successor"]


async def test_expired_client_certificate_is_named_after_401(serve, authority, credentials):
    server = await serve()
    credentials.url = server.url
    brief = issue("brief", authority, ends=BRIEF)
    credentials.use(brief)
    async with credentials.client() as client:
        server.script = [reply({}), REFUSED]
        await client.get("/api")
        while dt.datetime.now(dt.UTC) <= brief.certificate.not_valid_after_utc:  # noqa: ASYNC110  the client's clock
            await asyncio.sleep(0.05)
        with pytest.raises(errors.Unauthorized, match=r"401: .*; the client certificate for .* expired on .* UTC"):
            await client.get("/api")


async def test_replaced_authority_is_used_for_new_connections(serve, authority, credentials):
    """Also for requests that must not be repeated: nothing was sent to a server that is not trusted."""
    server = await serve()
    credentials.url = server.url
    credentials.use(issue("me", authority))
    successor = issue("successor")
    async with credentials.client() as client:
        server.script = [reply({})]
        await client.get("/api")
        await server.stop()
        port = int(server.url.rpartition(":")[2])
        rotated = await serve(issue("server", successor), port=port)
        with pytest.raises(errors.Misdirected, match="certificate is not trusted"):
            await client.get("/api")
        credentials.put(**{"certificate-authority": successor.pem[:100]})
        credentials.later()
        with pytest.raises(errors.Misdirected, match=r"not trusted .*; the certificate authority for .* is no PEM"):
            await client.get("/api")
        credentials.put(**{"certificate-authority": authority.pem + successor.pem})
        credentials.later()
        rotated.script = [reply({"kind": "Job"})]
        assert await client.create("/api", {}) == {"kind": "Job"}
    assert len(rotated.requests) == 1


async def test_replaced_authority_of_a_pod_is_used(serve, authority, tmp_path, monkeypatch):
    server = await serve()
    (tmp_path / "token").write_text("of-the-pod\n")
    (tmp_path / "ca.crt").write_bytes(issue("former authority").pem)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    server.script = [reply({})]
    async with Client.in_cluster() as client:
        (tmp_path / "ca.crt").write_bytes(authority.pem)
        await client.get("/api")
    assert server.requests[0].headers["Authorization"] == "Bearer of-the-pod"


async def test_connection_that_breaks_while_a_file_is_half_written_loses_nothing(serve, authority, credentials, sleeps):
    async def abort(request: web.Request) -> web.StreamResponse:
        request.transport.abort()
        return web.Response()

    server = await serve()
    credentials.url = server.url
    credentials.use(issue("me", authority))
    async with credentials.client(sleeps) as client:
        credentials.put(**{"client-key": b""})
        server.script = [abort, abort, reply({"a": 1})]
        assert await client.get("/api") == {"a": 1}
    assert server.client_certificates == ["CN=me"] * 3  # aiohttp repeats a GET once itself
    assert credentials.loads == 2


async def test_certificates_are_read_again_at_most_every_ten_seconds(serve, authority, credentials, sleeps):
    server = await serve(issue("server", issue("another authority")))
    credentials.url = server.url
    credentials.use(issue("me", authority))
    async with credentials.client(sleeps) as client:
        for credentials.now in (1.0, 5.0, 10.9, 11.0, 12.0):
            with pytest.raises(errors.Misdirected):
                await client.get("/api")
    assert credentials.loads == 3
