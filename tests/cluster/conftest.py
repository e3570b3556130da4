"""Fixtures of the cluster tests: certificates, scripted API servers over TLS, and kubeconfigs for them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from scripted_server import Certificate, ScriptedServer, Sleeps, issue

from admission.cluster.client import Client
from admission.cluster.credentials import load_kubeconfig


@pytest.fixture(scope="session")
def authority() -> Certificate:
    return issue("test authority")


@pytest.fixture
async def serve(authority, tmp_path):
    """Return a function that starts a scripted server, by default with a certificate of `authority`.

    It requests a client certificate of `authority`, but does not require one unless `required`.
    """
    async with AsyncExitStack() as stack:

        async def start(
            certificate: Certificate | None = None, *, required: bool = False, port: int = 0
        ) -> ScriptedServer:
            certificate = certificate or issue("server", authority)
            pem = tmp_path / "server.pem"
            pem.write_bytes(certificate.pem + certificate.key_pem)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            context.load_verify_locations(cadata=authority.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            server = ScriptedServer("")
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", server.answer)
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, reuse_address=True)
            await site.start()
            server.stop = runner.cleanup
            server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            return server

        yield start


@pytest.fixture
async def server(serve) -> ScriptedServer:
    return await serve()


@pytest.fixture
def kubeconfig(authority, tmp_path) -> Callable[..., Path]:
    """Return a function that writes a kubeconfig; `user` and `cluster` replace parts of it, `extra` the top level."""

    def write(url: str, *, user: dict | None = None, cluster: dict | None = None, **extra: object) -> Path:
        ca = tmp_path / "ca.pem"
        ca.write_bytes(authority.pem)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [
                {"name": "test", "cluster": {"server": url, "certificate-authority": str(ca)} | (cluster or {})}
            ],
            "users": [{"name": "test", "user": {"token": "secret"} if user is None else user}],
        } | extra
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
        return path

    return write


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
async def client(server, kubeconfig, sleeps):
    async with Client(lambda: load_kubeconfig(str(kubeconfig(server.url)), None), sleep=sleeps) as client:
        yield client
