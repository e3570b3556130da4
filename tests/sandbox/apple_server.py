"""A small aggregated API server for tests: one kind, kept in memory, served over TLS; requests are recorded."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PREFIX = "/apis/fruit.example.com/v1"
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
KIND = {"group": "fruit.example.com", "version": "v1", "kind": "Apple"}


@dataclass
class AppleServer:
    """The server. `seen` has the requests: method, path, headers, and common name of the client certificate."""

    port: int = 0
    ca: str = ""
    apples: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[str, str, Any, str]] = field(default_factory=list)
    events: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a watch has ended."""
    cut: bool = False
    """Whether a watch aborts its connection instead of sending the next event."""
    aggregated: bool = True
    """Whether the server supports aggregated discovery."""

    def last_headers(self, method: str, path: str) -> Any:
        """The headers of the last request for a path."""
        return next(headers for m, p, headers, _ in reversed(self.seen) if (m, p) == (method, path))

    def apple(self, name: str, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7", "uid": name}
        return {"kind": "Apple", "apiVersion": "fruit.example.com/v1", "metadata": metadata, "spec": spec}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") or {}
        names = dict(pair for part in certificate.get("subject", ()) for pair in part)
        self.seen.append((request.method, request.raw_path, request.headers.copy(), names.get("commonName", "")))
        match request.method, request.path:
            case "GET", "/apis":
                return self._groups(request.headers.get("Accept", ""))
            case "GET", "/apis/fruit.example.com/v1":
                resources = [
                    {"name": "apples", "singularName": "apple", "namespaced": False, "kind": "Apple", "verbs": VERBS,
                     "shortNames": ["ap"]},
                    {"name": "apples/status", "singularName": "", "namespaced": False, "kind": "Apple",
                     "verbs": ["get", "patch", "update"]},
                ]  # fmt: skip
                document = {"kind": "APIResourceList", "groupVersion": "fruit.example.com/v1", "resources": resources}
                return web.json_response({"apiVersion": "v1", **document})
            case "GET", "/openapi/v3":
                url = f"/openapi/v3{PREFIX}?hash=1"
                return web.json_response({"paths": {PREFIX.strip("/"): {"serverRelativeURL": url}}})
            case "GET", "/openapi/v3/apis/fruit.example.com/v1":
                return web.json_response(_openapi())
            case "GET", "/apis/fruit.example.com/v1/apples" if "watch" in request.query:
                return await self._watch(request)
            case "GET", "/apis/fruit.example.com/v1/apples":
                return self._list(request)
            case "POST", "/apis/fruit.example.com/v1/apples":
                return await self._create(request)
            case "GET", path if path.startswith(f"{PREFIX}/apples/"):
                return self._get(path.rpartition("/")[2])
            case _:
                return web.json_response({"kind": "Status", "code": 418, "message": "no"}, status=418)

    def _groups(self, accept: str) -> web.Response:
        if "as=APIGroupDiscoveryList" not in accept or not self.aggregated:
            return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        resource = {
            "resource": "apples", "responseKind": KIND, "scope": "Cluster", "singularResource": "apple",
            "verbs": VERBS, "shortNames": ["ap"], "categories": ["fruits"],
        }  # fmt: skip
        version = {"version": "v1", "resources": [resource], "freshness": "Current"}
        item = {"metadata": {"name": "fruit.example.com"}, "versions": [version]}
        media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        document = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [item]}
        return web.Response(body=json.dumps(document).encode(), headers={"Content-Type": media})

    def _list(self, request: web.BaseRequest) -> web.Response:
        items = list(self.apples.values())
        if "as=Table" in request.headers.get("Accept", ""):
            columns = [{"name": name, "type": "string"} for name in ("Name", "Colour")]
            rows = [{"cells": [item["metadata"]["name"], item["spec"]["colour"]], "object": item} for item in items]
            table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
            return web.json_response({**table, "columnDefinitions": columns, "rows": rows})
        head = {"kind": "AppleList", "apiVersion": "fruit.example.com/v1", "metadata": {"resourceVersion": "7"}}
        return web.json_response({**head, "items": items})

    async def _create(self, request: web.BaseRequest) -> web.Response:
        body = await request.json()
        name = body["metadata"]["name"]
        apple = self.apples[name] = self.apple(name, **body["spec"])
        return web.json_response(apple, status=201, headers={"Warning": '299 - "apples are heavy"'})

    def _get(self, name: str) -> web.Response:
        if name in self.apples:
            return web.json_response(self.apples[name])
        text = f'apples.fruit.example.com "{name}" not found'
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound"}
        return web.json_response({**status, "message": text, "code": 404}, status=404)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            while line := await self.events.get():
                if self.cut:
                    request.transport.abort()
                await response.write(line)
        finally:
            self.ended.set()
        await response.write_eof()
        return response


def _openapi() -> dict[str, Any]:
    colour = {"type": "string", "description": "What it looks like."}
    spec = {"type": "object", "properties": {"colour": colour}}
    schema = {
        "type": "object", "description": "Apple is a fruit.", "x-kubernetes-group-version-kind": [KIND],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}}, "spec": spec,
        },
    }  # fmt: skip
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    answers = {"200": {"description": "OK"}}
    action = {"parameters": [parameter], "responses": answers, "x-kubernetes-group-version-kind": KIND}
    paths = {
        f"{PREFIX}/apples": {"post": {**action, "x-kubernetes-action": "post"}},
        f"{PREFIX}/apples/{{name}}": {"patch": {**action, "x-kubernetes-action": "patch"}},
    }
    info = {"title": "fruit", "version": "v1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {"Apple": schema}}}


@asynccontextmanager
async def apple_server(
    folder: Path, client_ca: str, *, port: int = 0, name: str = "apples.default.svc"
) -> AsyncIterator[AppleServer]:
    """Run the server, with a certificate for `name`; client certificates are verified against `client_ca`."""
    served = AppleServer()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    served.ca = _certificate(folder, name)
    context.load_cert_chain(folder / "tls.pem")
    runner = web.ServerRunner(web.Server(served.handle, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        served.port = runner.addresses[0][1]
        yield served
    finally:
        await runner.cleanup()


def _certificate(folder: Path, name: str) -> str:
    """Write a self-signed certificate and its key to a file; return the certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.pem").write_bytes(secret + certificate)
    return certificate.decode()
