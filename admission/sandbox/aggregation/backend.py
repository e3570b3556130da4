"""Extension API server behind an APIService: its address, its availability and its discovery documents."""

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
from admission.serving.outgoing import client_connector, client_context

if TYPE_CHECKING:
    from admission.sandbox.aggregation.front_proxy import ProxyCertificate
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

# Seconds that a server may take to answer a probe.
PROBE_TIMEOUT = 5.0
_FAILED = "FailedDiscoveryCheck"
_PROBER = User("system:kube-aggregator", groups=(MASTERS,))
_READER = User("system:aggregator", groups=(MASTERS,))
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class BackendUnavailable(SandboxError):
    """The server of an APIService cannot be called. `reason` is that of the condition Available."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(slots=True, eq=False)
class Backend:
    """The server of one APIService; closing it aborts the requests that it serves."""

    name: str
    spec: Object
    session: aiohttp.ClientSession
    server_name: str
    """Host name that its certificate must be valid for."""
    ca_error: str = ""
    """Why the CA bundle of the spec cannot be loaded; empty: it is valid."""
    available: bool = False
    resources: list[Object] = field(default_factory=list)
    """Its resources in the form of aggregated discovery, from the last `discover`."""
    openapi: Object = field(default_factory=dict)
    """Its entry in the index of OpenAPI documents."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is to be probed immediately, because a Service changed."""

    @classmethod
    def of(cls, name: str, spec: Object, front_proxy: ProxyCertificate) -> Backend:
        """Return the backend of an APIService whose spec names a Service."""
        try:
            context, ca_error = _context(spec), ""
        except (ssl.SSLError, UnicodeDecodeError) as error:
            context, ca_error = client_context(), f"unable to load root certificates: {error}"
        front_proxy.load(context)
        session = aiohttp.ClientSession(
            connector=client_connector(context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PROBE_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )
        service = spec["service"]
        return cls(name, spec, session, f"{service['name']}.{service['namespace']}.svc", ca_error)

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

    def address(self, registry: ObjectRegistry) -> URL:
        """Return its current URL, without a path. Raises Unavailable."""
        if self.ca_error:
            raise BackendUnavailable(_FAILED, self.ca_error)
        wanted = self.spec["service"]
        name, namespace = wanted["name"], wanted["namespace"]
        service = registry.find("", "services", namespace, name)
        if service is None:
            raise BackendUnavailable("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
        host = host_of(service)
        if not host:
            raise BackendUnavailable("EndpointsNotFound", f'cannot find endpoints for service/{name} in "{namespace}"')
        return URL.build(scheme="https", host=host, port=wanted["port"])

    async def probe(self, registry: ObjectRegistry) -> None:
        """Check whether it answers. Raises Unavailable."""
        url = self.address(registry).with_path(self.path)
        try:
            status, _ = await self._get(url, _PROBER, "")
        except (aiohttp.ClientError, OSError) as error:
            text = f'failing or missing response from {url}: Get "{url}": {_error_text(error)}'
            raise BackendUnavailable(_FAILED, text) from error
        if not 200 <= status < 300:
            text = f"failing or missing response from {url}: bad status from {url}: {status}"
            raise BackendUnavailable(_FAILED, text)

    async def discover(self, registry: ObjectRegistry) -> None:
        """Read its discovery and OpenAPI documents. Missing resources stay as they were. Raises Unavailable."""
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
            raise BackendUnavailable(_FAILED, f"{root} answers with what is no discovery: {error!r}") from error
        self.resources = self.resources if found is None else found
        self.openapi = paths

    async def _document(self, url: URL, user: User, accept: str) -> Any:
        """Get a JSON document; None: there is none. Raises Unavailable."""
        try:
            status, body = await self._get(url, user, accept)
            return orjson.loads(body) if status == 200 else None
        except orjson.JSONDecodeError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            raise BackendUnavailable(
                _FAILED, f"failing or missing response from {url}: {_error_text(error)}"
            ) from error

    async def _get(self, url: URL, user: User, accept: str) -> tuple[int, bytes]:
        headers = remote_headers(user)
        if accept:
            headers["Accept"] = accept
        async with (
            asyncio.timeout(PROBE_TIMEOUT),
            self.session.get(url, headers=headers, server_hostname=self.server_name, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.read()


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _context(spec: Object) -> ssl.SSLContext:
    """Return the TLS context of an APIService.

    Raises ssl.SSLError or UnicodeDecodeError for a CA bundle without certificates.
    """
    bundle = base64.b64decode(spec.get("caBundle", ""))
    context = client_context(ca_data=bundle.decode() if bundle else None)
    if spec.get("insecureSkipTLSVerify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _from_aggregated(document: Any, group: str, version: str) -> list[Object] | None:
    """Return the resources of a group version from aggregated discovery; None: the document does not have them."""
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
    """Return the same from an APIResourceList."""
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
