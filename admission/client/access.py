"""Address and credentials of a client: by URL and token, or through the API server of a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from yarl import URL

from admission.client.errors import BadConnection
from admission.cluster.proxies import proxy_of_environment
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class ApiAccess(Protocol):
    """A server's address with credentials; `admission.cluster.credentials.Access` implements it, too."""

    @property
    def server(self) -> str:
        """URL without a trailing slash."""

    @property
    def server_hostname(self) -> str | None:
        """Name that the server's certificate must have, if not that of the URL."""

    @property
    def proxy(self) -> str | None:
        """URL of an HTTP proxy."""

    async def authorization(self) -> str | None:
        """Return the current Authorization header; None: send none."""

    async def renew(self, refused: str | None) -> str | None:
        """Return the header to send after a 401 for the header `refused`; the same one if it cannot be renewed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API endpoint of Sluice: connection parameters, and texts for messages about it."""

    access: ApiAccess
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    where: str
    """Address, for messages."""
    login: str
    """End of the message after a 401: what the credentials were for, and what to do."""
    aggregated: bool = False
    """Whether it is a Kubernetes API server with Sluice as an aggregated API: its probes are not Sluice's."""
    namespace: str = "default"
    """Namespace of calls without one."""


def by_url(url: str, *, token: str, ca: str | Path | None) -> Callable[[], Awaitable[Endpoint]]:
    """Return an opener of the endpoint at a URL. Raises BadConnection for a URL, token or CA file that is unusable."""
    try:
        base = URL(url)
    except ValueError as error:
        raise BadConnection(_no_url(url)) from error
    if base.scheme not in ("http", "https") or not base.host:
        raise BadConnection(_no_url(url))
    if not token.isascii() or not token.isprintable():
        raise BadConnection("the token has control or non-ASCII characters; check that it is the right text")
    server = str(base).rstrip("/")
    access = _Token(server, token, proxy_of_environment(server))
    tls = None if base.scheme == "http" else _tls(ca)
    login = f"for {server}; give a token that is valid there, by SLUICE_TOKEN or --token-file"

    async def open_endpoint() -> Endpoint:
        return Endpoint(access, tls, server, login)

    return open_endpoint


def by_kubeconfig(path: str | None, context: str | None) -> Callable[[], Awaitable[Endpoint]]:
    """Return an opener of the endpoint behind the API server of a kubeconfig.

    `path` None: $KUBECONFIG or ~/.kube/config; `context` None: its current context. Opening raises BadConnection.
    """

    async def open_endpoint() -> Endpoint:
        # Imported here because programs with a URL do not need it.
        from admission.cluster import credentials
        from admission.cluster.kubeconfig import kubeconfig_namespace

        try:
            namespace = kubeconfig_namespace(path, context)
            access = await credentials.Access.open(lambda: credentials.load_kubeconfig(path, context))
        except ClusterError as error:
            raise BadConnection(str(error)) from error
        access.proxy = access.proxy or proxy_of_environment(access.server)
        where = f"{access.server} ({f'context {context}' if context else 'the current context'} of the kubeconfig)"
        login = "by the credentials of the kubeconfig; log in to the cluster again"
        return Endpoint(access, access.tls, where, login, aggregated=True, namespace=namespace or "default")

    return open_endpoint


def _no_url(url: str) -> str:
    return f'"{url}" is not a URL of Sluice; give one such as http://127.0.0.1:8080'


@dataclass(frozen=True, slots=True)
class _Token:
    server: str
    token: str = field(repr=False)
    proxy: str | None
    server_hostname: str | None = None

    async def authorization(self) -> str | None:
        return f"Bearer {self.token}" if self.token else None

    async def renew(self, refused: str | None) -> str | None:
        return refused


def _tls(ca: str | Path | None) -> ssl.SSLContext:
    try:
        from admission.serving.outgoing import client_context  # it imports aiohttp, which completion does not need

        return client_context(ca_file=ca)
    except FileNotFoundError as error:
        raise BadConnection(f"the certificate authority {ca} cannot be used: there is no such file") from error
    except OSError as error:
        raise BadConnection(f"the certificate authority {ca} cannot be used: it is not a PEM certificate") from error
