"""The sandbox as one thing to start and stop: API server, controllers, users, certificates, kubeconfig."""

from __future__ import annotations

import base64
import copy
import ssl
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import yaml
from aiohttp import web

from admission.sandbox.admission.chain import Admission
from admission.sandbox.aggregation.aggregator import Aggregator
from admission.sandbox.aggregation.front_proxy import FrontProxy
from admission.sandbox.apiserver.bodies import LIMIT
from admission.sandbox.apiserver.decoding import decode_new
from admission.sandbox.apiserver.errors import SandboxError
from admission.sandbox.apiserver.registry import Registry
from admission.sandbox.auth.bootstrap_roles import AUTHENTICATION_READER, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from admission.sandbox.auth.certificates import Authority
from admission.sandbox.auth.rbac import RBAC, Authorizer, aggregate
from admission.sandbox.auth.users import DEFAULT_USERS, Authenticator, named_user
from admission.sandbox.builtin.kinds import built_in
from admission.sandbox.clock import Clock
from admission.sandbox.controllers import controllers as run_controllers
from admission.sandbox.http.faults import Faults
from admission.sandbox.http.server import Server
from admission.sandbox.local import LocalClient

if TYPE_CHECKING:
    import asyncio
    from collections import Counter
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import User

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
# The classes that no user may create, with their priorities.
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
"""libyaml's, where it is there: it takes a tenth of the time."""


class Sandbox:
    """A Kubernetes API server on loopback, with pretend controllers, while the context is open.

    `speed` is how many times faster than time its clock runs, `port` 0 takes any free port, `users` are bearer
    tokens and who they stand for. A `minor` below 36 is an older Kubernetes, as far as the README says what differs.
    `admission_delay`: seconds until a webhook configuration or policy that was written is in force; one that was
    deleted is in force no more at once.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        speed: float = 1.0,
        port: int = 0,
        users: Mapping[str, User] = DEFAULT_USERS,
        minor: int = 36,
        admission_delay: float = 0.0,
    ) -> None:
        self.clock = Clock(speed)
        self.registry = Registry(self.clock, partial(Admission, delay=admission_delay), minor=minor)
        self._with_controllers = controllers
        self._port = port
        self._authority = Authority("sandbox-ca")
        self._stack = AsyncExitStack()
        for resource in built_in(minor):
            self.registry.add(resource)
        self._front_proxy = FrontProxy()
        self._aggregator = Aggregator(self.registry, self._front_proxy, named_user("system:apiserver"))
        self._authenticator = Authenticator(users, self.clock)
        self.faults = Faults()
        """What goes wrong on purpose for clients that come over HTTP: nothing, until it is told to."""
        self.authorizer = Authorizer(self.registry)
        self._server = Server(self.registry, self._authenticator, self.authorizer, self._aggregator, self.faults)
        self._fill()

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._aggregator.running())
            await self._listen(stack)
            stack.push_async_callback(self.registry.admission.close)
            if self._with_controllers:
                await stack.enter_async_context(
                    run_controllers(self.local, self.clock, before_1_36=self.registry.before_1_36)
                )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _listen(self, stack: AsyncExitStack) -> None:
        server = web.Server(self._server.handle, request_factory=_request, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self._context())
        try:
            await site.start()
        except OSError as error:
            raise SandboxError(f"The sandbox cannot listen on 127.0.0.1:{self._port}: {error.strerror}.") from error
        self._port = runner.addresses[0][1]

    def _fill(self) -> None:
        """What is there from the beginning."""
        for name in FIRST_NAMESPACES:
            status = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
            self._put("", "v1", "namespaces", name, status)
        for name, value, text in SYSTEM_PRIORITIES:
            self._put("scheduling.k8s.io", "v1", "priorityclasses", name, {"value": value, "description": text})
        for name, content in CLUSTER_ROLES:
            self._put(RBAC, "v1", "clusterroles", name, content)
        for name, groups in CLUSTER_ROLE_BINDINGS:
            subjects = [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
            self._put(RBAC, "v1", "clusterrolebindings", name, {"subjects": subjects, "roleRef": reference})
        aggregate(self.registry)
        name, content = AUTHENTICATION_READER
        self._put(RBAC, "v1", "roles", name, content, namespace="kube-system")
        config = self._front_proxy.config_map(self.ca_pem)
        self._put("", "v1", "configmaps", config["metadata"]["name"], config, namespace="kube-system")

    def _put(self, group: str, version: str, plural: str, name: str, content: Object, *, namespace: str = "") -> None:
        resource = self.registry.resources[group, version, plural]
        metadata = {**content.get("metadata", {}), "name": name}
        if namespace:
            metadata["namespace"] = namespace
        obj = decode_new(resource, copy.deepcopy({**content, "metadata": metadata}), [])
        self.registry.seed(resource, obj)

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.server().load(context)
        return context

    # ------------------------------------------------------------------ access

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_pem(self) -> str:
        """The certificate of the authority that signed the server's."""
        return self._authority.pem

    @property
    def requests(self) -> Counter[tuple[str, str, str]]:
        """How many requests came over HTTP, by (method, plural or plural/subresource, user)."""
        return self._server.requests

    def local(self, user: str) -> LocalClient:
        """A client in the process, for a user known by name, who may everything."""
        return LocalClient(self.registry, named_user(user))

    def token(self, user: str) -> str:
        """The bearer token of a user. Raises SandboxError if there is no such user."""
        token = self._authenticator.token(user)
        if token is None:
            raise SandboxError(f"The sandbox has no user {user!r}: there are {', '.join(self._authenticator.names)}.")
        return token

    def add_user(self, user: User, *, expires: float | None = None) -> str:
        """A new token for a user, good for so many seconds of the sandbox's clock, or for ever."""
        return self._authenticator.add(user, expires=expires)

    def kubeconfig(self, user: str = "admin") -> Object:
        """A kubeconfig for a user."""
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
        """Write a user's kubeconfig to a file that only this account can read."""
        path.touch(mode=0o600)
        path.write_text(yaml.dump(self.kubeconfig(user), Dumper=_Dumper, sort_keys=False))

    def expire_history(self) -> None:
        """Forget every past version: watches and lists that go on from one are answered 410."""
        self.registry.store.compact(keep=0)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """A request whose body may be as large as the API server allows."""
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=LIMIT)
