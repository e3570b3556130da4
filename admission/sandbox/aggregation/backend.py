"""One server behind the API server: where it is, whether it answers, and what it says that it serves."""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from yarl import URL

from admission.sandbox.aggregation.front_proxy import remote_headers
from admission.sandbox.apiserver.errors import SandboxError
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import MASTERS
from admission.sandbox.service_addresses import host_of
from admission.serving.outgoing import client_connector

if TYPE_CHECKING:
    from admission.sandbox.aggregation.front_proxy import FrontProxy
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import Registry

# How long a server may take to answer the probe, in seconds.
PROBE_TIMEOUT = 5.0
_FAILED = "FailedDiscoveryCheck"
_PROBER = User("system:kube-aggregator", groups=(MASTERS,))
_READER = User("system:aggregator", groups=(MASTERS,))
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Unavailable(SandboxError):
    """The server behind an APIService cannot be asked. `reason` is that of the condition Available."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(slots=True, eq=False)
class Backend:
    """The server of one APIService, as its spec tells. Closing it ends all that goes through it."""

    name: str
    spec: Object
    session: aiohttp.ClientSession
    server_name: str
    """What its certificate must be for."""
    fault: str = ""
    """Why the trust that the spec asks for cannot be set up."""
    available: bool = False
    resources: list[Object] = field(default_factory=list)
    """Its resources as aggregated discovery shows them, when it was last asked."""
    openapi: Object = field(default_factory=dict)
    """Its part of the index of OpenAPI documents."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when something says that it should be probed at once."""

    @classmethod
    def of(cls, name: str, spec: Object, front_proxy: FrontProxy) -> Backend:
        """The server of an APIService that names a Service."""
        try:
            context, fault = _context(spec), ""
        except (ssl.SSLError, UnicodeDecodeError) as error:
            context, fault = ssl.create_default_context(), f"unable to load root certificates: {error}"
        front_proxy.load(context)
        session = aiohttp.ClientSession(
            connector=client_connector(context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PROBE_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )
        service = spec["service"]
        return cls(name, spec, session, f"{service['name']}.{service['namespace']}.svc", fault)

    @property
    def group(self) -> str:
        group: str = self.spec["group"]
        return group

    @property
    def version(self) -> str:
        version: str = self.spec["version"]
        return version

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    async def close(self) -> None:
        await self.session.close()

    def address(self, registry: Registry) -> URL:
        """Where it is now. Raises Unavailable."""
        if self.fault:
            raise Unavailable(_FAILED, self.fault)
        wanted = self.spec["service"]
        name, namespace = wanted["name"], wanted["namespace"]
        service = registry.find("", "services", namespace, name)
        if service is None:
            raise Unavailable("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
        host = host_of(service)
        if not host:
            raise Unavailable("EndpointsNotFound", f'cannot find endpoints for service/{name} in "{namespace}"')
        return URL.build(scheme="https", host=host, port=wanted["port"])

    async def probe(self, registry: Registry) -> None:
        """Ask whether it is there. Raises Unavailable."""
        url = self.address(registry).with_path(self.path)
        try:
            status, _ = await self._get(url, _PROBER, "")
        except (aiohttp.ClientError, OSError) as error:
            text = f'failing or missing response from {url}: Get "{url}": {_said(error)}'
            raise Unavailable(_FAILED, text) from error
        if not 200 <= status < 300:
            text = f"failing or missing response from {url}: bad status from {url}: {status}"
            raise Unavailable(_FAILED, text)

    async def learn(self, registry: Registry) -> None:
        """Ask what it serves. What it does not tell stays as it was; it is asked again. Raises Unavailable."""
        root = self.address(registry)
        aggregated = await self._document(root.with_path("/apis"), _PROBER, _AGGREGATED)
        plain = await self._document(root.with_path(self.path), _PROBER, "application/json")
        index = await self._document(root.with_path("/openapi/v3"), _READER, "application/json")
        own = self.path.removeprefix("/")
        try:
            found = _from_aggregated(aggregated, self.group, self.version)
            if found is None:
                found = _from_plain(plain, self.group, self.version)
            paths = {key: value for key, value in (index or {}).get("paths", {}).items() if key == own}
        except (AttributeError, KeyError, TypeError) as error:
            raise Unavailable(_FAILED, f"{root} answers with what is no discovery: {error!r}") from error
        self.resources = self.resources if found is None else found
        self.openapi = paths

    async def _document(self, url: URL, user: User, accept: str) -> Any:
        """A JSON document, None when there is none. Raises Unavailable."""
        try:
            status, body = await self._get(url, user, accept)
            return orjson.loads(body) if status == 200 else None
        except orjson.JSONDecodeError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(_FAILED, f"failing or missing response from {url}: {_said(error)}") from error

    async def _get(self, url: URL, user: User, accept: str) -> tuple[int, bytes]:
        headers = remote_headers(user)
        if accept:
            headers["Accept"] = accept
        async with (
            asyncio.timeout(PROBE_TIMEOUT),
            self.session.get(url, headers=headers, server_hostname=self.server_name, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.read()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _context(spec: Object) -> ssl.SSLContext:
    """Raises ssl.SSLError or UnicodeDecodeError for a bundle that holds no certificates."""
    bundle = base64.b64decode(spec.get("caBundle", ""))
    context = ssl.create_default_context(cadata=bundle.decode() if bundle else None)
    if spec.get("insecureSkipTLSVerify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _from_aggregated(document: Any, group: str, version: str) -> list[Object] | None:
    """The resources of a group version, None when this is no aggregated discovery that has it."""
    if document is None or document.get("kind") != "APIGroupDiscoveryList":
        return None
    for item in document.get("items") or ():
        if item.get("metadata", {}).get("name") == group:
            for offered in item.get("versions") or ():
                if offered.get("version") == version:
                    resources: list[Object] = offered.get("resources") or []
                    return resources
    return None


def _from_plain(document: Any, group: str, version: str) -> list[Object] | None:
    """The same from an APIResourceList."""
    if document is None or document.get("kind") != "APIResourceList":
        return None
    rows: list[Object] = document.get("resources") or []
    found: dict[str, Object] = {}
    for row in rows:
        kind = {
            "group": row.get("group") or group, "version": row.get("version") or version, "kind": row["kind"],
        }  # fmt: skip
        parent, _, sub = row["name"].partition("/")
        if sub:
            shown = {"subresource": sub, "responseKind": kind, "verbs": row["verbs"]}
            found.setdefault(parent, {"resource": parent}).setdefault("subresources", []).append(shown)
            continue
        shown = {
            "resource": parent, "responseKind": kind, "scope": "Namespaced" if row["namespaced"] else "Cluster",
            "singularResource": row.get("singularName", ""), "verbs": row["verbs"],
        }  # fmt: skip
        shown |= {key: row[key] for key in ("shortNames", "categories") if row.get(key)}
        found[parent] = found.get(parent, {}) | shown
    return list(found.values())
