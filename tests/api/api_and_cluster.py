"""Authentication by token or front proxy for tests: a sandbox with its users, the API behind TLS, and clients."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from api_client import Answer
from pki import Authority, Pair
from user_permissions import allow
from yarl import URL

from admission.api.application import create_app, listening
from admission.api.auth.delegation import Delegation
from admission.api.auth.front_proxy import AuthenticatingProxy, FrontProxy
from admission.api.auth.oidc.client import OidcClient
from admission.api.registry import PREFIX
from admission.api.resources.clusters_in_reach import Reach
from admission.api.resources.explaining_engine import LocalController
from admission.cluster.client import Client
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import DEFAULT_USERS
from admission.sandbox.sandbox import Sandbox
from admission.serving.tls import ReloadingContext
from admission.store.store import Store

ADMIN_TOKEN = "the-admins-token"
AUTHENTICATION_CONFIG = "extension-apiserver-authentication"


@dataclass
class ApiAndCluster:
    """The API at `url`, whose certificate `ca` has signed, and the cluster that it asks."""

    url: str
    ca: Path
    sandbox: Sandbox
    cluster: Client
    """Sluice's own client of the cluster."""
    proxy_ca: Authority
    front_proxy: FrontProxy
    context: ReloadingContext
    app: web.Application
    sessions: AsyncExitStack
    _clients: dict[Pair | None, aiohttp.ClientSession] = field(default_factory=dict)

    async def send(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        token: str | None = None,
        certificate: Pair | None = None,
        headers: Any = None,
        **options: Any,
    ) -> Answer:
        """A request over a connection that shows `certificate`; a path is absolute or below the group's version."""
        if document is not None:
            options["json"] = document
        async with await self._request(method, path, token, certificate, headers, options) as response:
            is_json = response.content_type == "application/json"
            body = await response.json() if is_json else await response.text()
            return Answer(response.status, response.headers, body)

    async def status(
        self, method: str, path: str, *, token: str | None = None, certificate: Pair | None = None, headers: Any = None
    ) -> int:
        """Status code of the response, whose body is not read."""
        async with await self._request(method, path, token, certificate, headers, {}) as response:
            if "watch=" in path:
                response.close()
            return response.status

    async def _request(
        self, method: str, path: str, token: str | None, certificate: Pair | None, headers: Any, options: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        given = [*(headers.items() if isinstance(headers, dict) else headers or ())]
        if token is not None:
            given.append(("Authorization", f"Bearer {token}"))
        session = await self._session(certificate)
        target = URL(self.url + (path if path.startswith("/") else f"{PREFIX}/{path}".rstrip("/")), encoded=True)
        return await session.request(method, target, headers=given, **options)

    async def as_user(self, user: str, method: str, path: str, document: Any = None, **options: Any) -> Answer:
        return await self.send(method, path, document, token=self.sandbox.token(user), **options)

    def reviews(self, plural: str) -> int:
        """Number of requests for `plural`, such as `tokenreviews`, that the cluster has received."""
        return sum(n for (_, resource, _), n in self.sandbox.requests.items() if resource == plural)

    async def grant(self, user: str, rules: list[dict[str, Any]], *, namespace: str = "", kind: str = "User") -> None:
        """Let a user (or group) do what the rules say, in one namespace or everywhere."""
        await allow(self.sandbox.local("admin"), user, *rules, namespace=namespace, kind=kind)

    async def _session(self, certificate: Pair | None) -> aiohttp.ClientSession:
        if certificate not in self._clients:
            if certificate is None:
                context = ssl.create_default_context(cafile=str(self.ca))
            else:
                context = certificate.client_context(self.ca)
            connector = aiohttp.TCPConnector(ssl=context)
            session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            self._clients[certificate] = await self.sessions.enter_async_context(session)
        return self._clients[certificate]


async def publish(sandbox: Sandbox, **data: str) -> None:
    """Publish the configuration of the front proxy in its ConfigMap, as the API server does; "" leaves a key out."""
    standard = {
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    merged = {key: value or None for key, value in (standard | data).items()}
    admin = sandbox.local("admin")
    if admin.get("configmaps", "kube-system", AUTHENTICATION_CONFIG) is None:
        await admin.create("configmaps", "kube-system", {"metadata": {"name": AUTHENTICATION_CONFIG}})
    await admin.patch("configmaps", "kube-system", AUTHENTICATION_CONFIG, {"data": merged})


async def _anything(_: web.Request) -> web.Response:
    return web.json_response({})


@asynccontextmanager
async def serving_with_cluster(
    store: Store,
    folder: Path,
    *,
    clock: Callable[[], float],
    users: Mapping[str, User] = DEFAULT_USERS,
    deciding: LocalController | None = None,
    oidc: OidcClient | None = None,
    own_proxy: AuthenticatingProxy | None = None,
    reach: Reach | None = None,
    **checks: Any,
) -> AsyncIterator[ApiAndCluster]:
    """Serve the API, with a sandbox as its cluster and certificates, for the time of the block."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(controllers=False, users=users))
        kubeconfig = folder / "sluice.kubeconfig"
        sandbox.write_kubeconfig(kubeconfig, "sluice")
        cluster = await stack.enter_async_context(Client.from_kubeconfig(str(kubeconfig)))
        proxy_ca = Authority(folder, "requestheader-ca")
        await publish(sandbox, **{"requestheader-client-ca-file": proxy_ca.pem})
        front_proxy = FrontProxy(own_proxy)
        await front_proxy.refresh(cluster)
        serving_ca = Authority(folder, "serving-ca")
        pair = serving_ca.server("localhost", "127.0.0.1")
        context = ReloadingContext(pair.certificate, pair.key)
        context.refresh(front_proxy.client_ca)
        app = create_app(
            store,
            checks=checks,
            token=ADMIN_TOKEN,
            delegation=Delegation(cluster, clock=clock),
            front_proxy=front_proxy,
            oidc=oidc,
            controller=deciding,
            cluster=cluster,
            reach=reach,
            clock=clock,
        )
        app.router.add_get("/debug/anything", _anything)
        url = await stack.enter_async_context(listening(app, "127.0.0.1", 0, ssl_context=context))
        yield ApiAndCluster(url, serving_ca.file, sandbox, cluster, proxy_ca, front_proxy, context, app, stack)
