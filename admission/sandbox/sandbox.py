"""The sandbox: API server, controllers, users, certificates and kubeconfigs, started and stopped together."""

from __future__ import annotations

import base64
import copy
import ssl
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import yaml
from aiohttp import web

from admission.sandbox.admission.chain import ConfiguredAdmission
from admission.sandbox.aggregation.aggregator import Aggregator
from admission.sandbox.aggregation.front_proxy import ProxyCertificate
from admission.sandbox.apiserver.bodies import MAX_BODY_BYTES
from admission.sandbox.apiserver.decoding import decode_new
from admission.sandbox.apiserver.errors import SandboxError
from admission.sandbox.apiserver.registry import ObjectRegistry
from admission.sandbox.auth.bootstrap_roles import AUTHENTICATION_READER, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from admission.sandbox.auth.certificates import Authority
from admission.sandbox.auth.rbac import RBAC, Authorizer, aggregate
from admission.sandbox.auth.users import DEFAULT_USERS, Authenticator, named_user
from admission.sandbox.builtin.kinds import built_in
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import controllers as run_controllers
from admission.sandbox.http.faults import InjectedFaults
from admission.sandbox.http.server import Server
from admission.sandbox.local import LocalClient
from admission.serving.listener import protocol_log

if TYPE_CHECKING:
    import asyncio
    from collections import Counter
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import User

INITIAL_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
# PriorityClasses that exist in every cluster and that users cannot create: name, priority, description.
SYSTEM_PRIORITIES = (
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's dumper, where available: it takes a tenth of the time."""


class Sandbox:
    """A Kubernetes API server on loopback, with simulated controllers, while the context is open.

    `speed` is the speed of its clock relative to real time, unless a `clock` is given; `port` 0 takes any free port;
    `users` maps bearer tokens to users. A `minor` below 36 simulates an older Kubernetes, with the differences that the
    README lists. `admission_delay`: seconds until a webhook configuration or policy that was written is in force; a
    deletion takes effect immediately.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        speed: float = 1.0,
        clock: Clock | None = None,
        port: int = 0,
        users: Mapping[str, User] = DEFAULT_USERS,
        minor: int = 36,
        admission_delay: float = 0.0,
    ) -> None:
        self.clock = clock or Clock(speed)
        self.registry = ObjectRegistry(self.clock, partial(ConfiguredAdmission, delay=admission_delay), minor=minor)
        self._with_controllers = controllers
        self._port = port
        self._authority = Authority("sandbox-ca")
        self._stack = AsyncExitStack()
        for resource in built_in(minor):
            self.registry.add(resource)
        self._front_proxy = ProxyCertificate()
        self._aggregator = Aggregator(self.registry, self._front_proxy, named_user("system:apiserver"))
        self._authenticator = Authenticator(users, self.clock)
        self.faults = InjectedFaults()
        """Faults injected into requests over HTTP; none until they are installed."""
        self.authorizer = Authorizer(self.registry)
        self._server = Server(self.registry, self._authenticator, self.authorizer, self._aggregator, self.faults)
        self._create_initial_objects()

    # ------------------------------------------------------------------ start and stop

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._aggregator.running())
            await self._listen(stack)
            stack.push_async_callback(self.registry.admission.close)
            if self._with_controllers:
                await stack.enter_async_context(
                    run_controllers(
                        self.local,
                        self.clock,
                        before_1_36=self.registry.before_1_36,
                        issue_token=self._token_of_account,
                    )
                )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _listen(self, stack: AsyncExitStack) -> None:
        server = web.Server(
            self._server.handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            logger=protocol_log,  # of the connections that faults cut off, too, nothing is said
        )
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self._context())
        try:
            await site.start()
        except OSError as error:
            raise SandboxError(f"The sandbox cannot listen on 127.0.0.1:{self._port}: {error.strerror}.") from error
        self._port = runner.addresses[0][1]

    def _create_initial_objects(self) -> None:
        """Store the objects of a new cluster: namespaces, PriorityClasses, RBAC policy, the front proxy's ConfigMap."""
        for name in INITIAL_NAMESPACES:
            status = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
            self._create("", "v1", "namespaces", name, status)
        for name, value, text in SYSTEM_PRIORITIES:
            self._create("scheduling.k8s.io", "v1", "priorityclasses", name, {"value": value, "description": text})
        for name, content in CLUSTER_ROLES:
            self._create(RBAC, "v1", "clusterroles", name, content)
        for name, groups in CLUSTER_ROLE_BINDINGS:
            subjects = [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
            self._create(RBAC, "v1", "clusterrolebindings", name, {"subjects": subjects, "roleRef": reference})
        aggregate(self.registry)
        name, content = AUTHENTICATION_READER
        self._create(RBAC, "v1", "roles", name, content, namespace="kube-system")
        config = self._front_proxy.config_map(self.ca_pem)
        self._create("", "v1", "configmaps", config["metadata"]["name"], config, namespace="kube-system")

    def _create(
        self, group: str, version: str, plural: str, name: str, content: Object, *, namespace: str = ""
    ) -> None:
        resource = self.registry.resources[group, version, plural]
        metadata = {**content.get("metadata", {}), "name": name}
        if namespace:
            metadata["namespace"] = namespace
        obj = decode_new(resource, copy.deepcopy({**content, "metadata": metadata}), [])
        self.registry.seed(resource, obj)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.server().load(context)
        return context

    def _token_of_account(self, namespace: str, name: str, is_valid: Callable[[], bool]) -> tuple[str, str]:
        user = named_user(f"system:serviceaccount:{namespace}:{name}")
        return self._authenticator.add(user, is_valid=is_valid), self.ca_pem

    # ------------------------------------------------------------------ access

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_pem(self) -> str:
        """Certificate of the authority that signed the server's, in PEM."""
        return self._authority.pem

    @property
    def requests(self) -> Counter[tuple[str, str, str]]:
        """Number of requests received over HTTP, by (method, plural or plural/subresource, user)."""
        return self._server.requests

    def local(self, user: str) -> LocalClient:
        """Return an in-process client for a user; it is not subject to authorization."""
        return LocalClient(self.registry, named_user(user))

    def token(self, user: str) -> str:
        """Return the bearer token of a user. Raises SandboxError if there is no such user."""
        token = self._authenticator.token(user)
        if token is None:
            raise SandboxError(f"The sandbox has no user {user!r}: there are {', '.join(self._authenticator.names)}.")
        return token

    def add_user(self, user: User, *, expires: float | None = None) -> str:
        """Register a user and return a new token; `expires` is its lifetime in seconds of the sandbox's clock."""
        return self._authenticator.add(user, expires=expires)

    def kubeconfig(self, user: str = "admin") -> Object:
        """Return a kubeconfig for a user. Raises SandboxError if there is no such user."""
        authority = base64.b64encode(self.ca_pem.encode()).decode()
        context = {"cluster": "sandbox", "user": user, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "sandbox", "context": context}],
        }

    def write_kubeconfig(self, path: Path, user: str = "admin") -> None:
        """Write a user's kubeconfig; a new file is readable by its owner only."""
        path.touch(mode=0o600)
        path.write_text(yaml.dump(self.kubeconfig(user), Dumper=_Dumper, sort_keys=False))

    def expire_history(self) -> None:
        """Drop all past versions: watches and lists that continue from one get 410 Gone."""
        self.registry.store.compact(keep=0)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Create a request with the API server's limit on the size of bodies."""
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=MAX_BODY_BYTES)
