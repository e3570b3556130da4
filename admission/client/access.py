"""Address and credentials of a client: by URL and token, or through the API server of a kubeconfig."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from yarl import URL

from admission.client.errors import BadConnection
from admission.cluster.proxies import proxy_of_environment
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


class Access(Protocol):
    """An address and valid credentials for it; `admission.cluster.credentials.Access` is one, too."""

    @property
    def server(self) -> str:
        """The URL, without a slash at its end."""

    @property
    def server_hostname(self) -> str | None:
        """The name that the server's certificate must have, if not that of the URL."""

    @property
    def proxy(self) -> str | None:
        """The URL of an HTTP proxy."""

    async def authorization(self) -> str | None:
        """The Authorization header to send now."""

    async def renew(self, refused: str | None) -> str | None:
        """What to send after the answer to `refused` was 401; the same again if there is nothing better."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way in, once it is open: how to reach Sluice there, and how to speak of it to the user."""

    access: Access
    tls: ssl.SSLContext | None
    """None for plain http."""
    where: str
    """The address, for messages."""
    login: str
    """What to do when the credentials are refused."""
    aggregated: bool = False
    """Through a Kubernetes API server, which has probes of its own."""
    namespace: str = "default"
    """The namespace of calls that name none."""


def by_url(url: str, *, token: str, ca: str | Path | None) -> Callable[[], Awaitable[Door]]:
    """Door one. Raises BadConnection for a URL, token or CA file that cannot be used."""
    try:
        base = URL(url)
    except ValueError as error:
        raise BadConnection(_no_url(url)) from error
    if base.scheme not in ("http", "https") or not base.host:
        raise BadConnection(_no_url(url))
    if not token.isascii() or not token.isprintable():
        raise BadConnection("the token has control or non-ASCII characters; check that it is the token")
    server = str(base).rstrip("/")
    access = _Token(server, token, proxy_of_environment(server))
    tls = None if base.scheme == "http" else _tls(ca)
    login = f"for {server}; give a token that is valid there, by SLUICE_TOKEN or --token-file"

    async def open_door() -> Door:
        return Door(access, tls, server, login)

    return open_door


def by_kubeconfig(path: str | None, context: str | None) -> Callable[[], Awaitable[Door]]:
    """Door two; None: $KUBECONFIG or ~/.kube/config, and its current context."""

    async def open_door() -> Door:
        # Here, not above: a program with a URL needs none of it.
        from admission.cluster import credentials

        try:
            namespace = credentials.kubeconfig_namespace(path, context)
            access = await credentials.Access.open(lambda: credentials.load_kubeconfig(path, context))
            tls = access.ssl_context()
        except ClusterError as error:
            raise BadConnection(str(error)) from error
        access.proxy = access.proxy or proxy_of_environment(access.server)
        where = f"{access.server} ({f'context {context}' if context else 'the current context'} of the kubeconfig)"
        login = "by the credentials of the kubeconfig; log in to the cluster again"
        return Door(access, tls, where, login, aggregated=True, namespace=namespace or "default")

    return open_door


def _no_url(url: str) -> str:
    return f'"{url}" is no URL of Sluice; write one such as http://127.0.0.1:8080'


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
        return ssl.create_default_context(cafile=ca)
    except FileNotFoundError as error:
        raise BadConnection(f"the certificate authority {ca} cannot be used: there is no such file") from error
    except OSError as error:
        raise BadConnection(f"the certificate authority {ca} cannot be used: it is no PEM certificate") from error
