"""Address of and credentials for the API server: kubernetes_asyncio's loaders, with clear errors and renewal.

The library supports kubeconfig files, exec plugins, OIDC and service accounts. This module adds one-sentence messages
about what is wrong with a kubeconfig, and renews credentials that expire while the process runs.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import hashlib
import logging
import os
import shutil
import ssl
import tempfile
import time
import weakref
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
from cryptography import x509

from admission.cluster.errors import BadKubeconfig, one_line
from admission.cluster.kubeconfig import checked_context
from admission.serving.outgoing import client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kubernetes_asyncio.config.kube_config import ConfigNode

    from admission.cluster.credential_loaders import Configuration, KubeConfigLoader

log = logging.getLogger(__name__)

Load: TypeAlias = "Callable[[], Awaitable[Configuration]]"

REFRESH_SECONDS = 60.0
"""Seconds between two reloads of token files, exec plugins and OIDC tokens that can expire; as in client-go."""

LONGEST_PAUSE = 30.0
"""Maximum number of seconds until a failed reload is tried again."""

RENEW_SECONDS = 10.0
"""Minimum number of seconds between two attempts to renew credentials that the server rejects."""

RENEW_TLS_SECONDS = 5.0
"""Timeout in seconds of an attempt to renew credentials because a connection failed; less than a Lease can wait."""

PLUGIN_SECONDS = 60.0
"""Timeout in seconds of an exec plugin or an identity provider."""

SLOW_SECONDS = 5.0
"""Seconds after which a renewal is the reason for which a request has not been answered."""

_SILENT = "its exec plugin or identity provider has not answered"


class Access:
    """Address of an API server, and valid credentials for it."""

    def __init__(self, load: Load, configuration: Configuration, clock: Callable[[], float]) -> None:
        self._load = load
        self._clock = clock
        self._configuration = configuration
        self._renewing = asyncio.Lock()
        self._renew_from = float("-inf")
        self._failure = ""
        self.server = str(configuration.host).rstrip("/")
        self.server_hostname: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy
        self._tls = Tls.of(configuration, self.server)

    @classmethod
    async def open(cls, load: Load, *, clock: Callable[[], float] = time.monotonic) -> Access:
        """Load the configuration. Raises BadKubeconfig."""
        return cls(load, await load(), clock)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for new connections; None for a plain HTTP server. A new object if a certificate changed."""
        return self._tls.context

    @property
    def fault(self) -> str:
        """What is known to be wrong with the certificates, for messages about failed requests; empty: nothing."""
        return self._failure or self._tls.expired(self.server)

    @property
    def silence(self) -> str:
        """A message if requests have waited for seconds for an exec plugin or identity provider; empty: they do not."""
        hook = self._configuration.refresh_api_key_hook
        since = hook.since if isinstance(hook, _Refresh) else None
        if since is None or self._clock() - since < SLOW_SECONDS:
            return ""
        return f"the credentials for {self.server} cannot be renewed: {_SILENT} yet"

    async def authorization(self) -> str | None:
        """Return the current Authorization header; None: a client certificate is used, or no credentials."""
        try:
            header = await self._configuration.get_api_key_with_prefix("BearerToken")
        except _loader_failures() as error:
            raise BadKubeconfig(f"the credentials for {self.server} cannot be renewed: {one_line(error)}") from error
        return header.strip() if header else None

    async def renew(self, refused: str | None) -> str | None:
        """Return a new Authorization header after the server answered 401 to `refused`; the same if there is none.

        `tls` is another one afterwards if the certificates have changed.
        """
        async with self._renewing:
            if await self.authorization() == refused:
                await self._reload()
            return await self.authorization()

    async def renew_tls(self) -> None:
        """Load changed certificates after a TLS connection has failed; `tls` is another one afterwards.

        Does not delay the request for long: a plugin may hang just because the network is down.
        """
        if self._renewing.locked():
            return
        with suppress(BadKubeconfig, TimeoutError):
            async with self._renewing, asyncio.timeout(RENEW_TLS_SECONDS):
                await self._reload()

    async def _reload(self) -> None:
        """Load the configuration again, unless that was tried some seconds ago. Raises BadKubeconfig."""
        if self._clock() < self._renew_from:
            return
        self._renew_from = self._clock() + RENEW_SECONDS
        try:
            self._configuration = await self._load()
            if contents_of(self._configuration) != self._tls.contents:
                self._tls = Tls.of(self._configuration, self.server)
                log.info("connects to %s with changed certificates", self.server)
        except BadKubeconfig as error:
            self._failure = str(error)
            raise
        self._failure = ""


async def load_in_cluster() -> Configuration:
    """Return the in-cluster configuration of a pod; its token is read again every minute."""
    from admission.cluster.credential_loaders import ConfigException, Configuration, incluster_config

    configuration = Configuration()
    try:
        files = incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME
        incluster_config.InClusterConfigLoader(*files).load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise BadKubeconfig(
            f"this is no pod with a service account ({one_line(error)}): name a kubeconfig instead"
        ) from error
    return configuration


async def load_kubeconfig(
    path: str | None, context: str | None, *, clock: Callable[[], float] = time.monotonic
) -> Configuration:
    """Return the configuration of a kubeconfig's context. Raises BadKubeconfig.

    `path`: may be several files joined by ":"; None: $KUBECONFIG, else ~/.kube/config. `context`: None: the current
    context.
    """
    # Imported late: most commands of the CLI need no kubeconfig.
    from admission.cluster.credential_loaders import Configuration, KubeConfigLoader, KubeConfigMerger

    where = path or os.environ.get("KUBECONFIG") or "~/.kube/config"
    checked_context(where, context)
    configuration = Configuration()
    try:
        loader = KubeConfigLoader(KubeConfigMerger(where).config, active_context=context, config_base_path=None)
        for section in (loader._cluster, loader._user):
            _embedded_to_files(section, configuration)
        async with _in_time():
            await loader.load_and_set(configuration)
    except _loader_failures() as error:
        raise BadKubeconfig(f"kubeconfig {where}: {one_line(error)}") from error
    if _can_expire(loader):
        configuration.refresh_api_key_hook = _Refresh(loader, clock)
    return configuration


def _embedded_to_files(section: ConfigNode | None, configuration: Configuration) -> None:
    """Replace base64 data in a cluster or user of a kubeconfig by paths of files, because `ssl` reads files only.

    The library does the same, but with files in the temporary directory, which remain if the process is killed.
    """
    for name in ("certificate-authority", "client-certificate", "client-key"):
        if section is not None and (encoded := section.value.pop(f"{name}-data", None)):
            content = base64.standard_b64decode(encoded)
            section.value[name] = _in_memory(content, configuration) or _on_disk(content)


def _in_memory(content: bytes, configuration: Configuration) -> str:
    """Return the path of an in-memory file that lives as long as the configuration; empty: not supported here."""
    if not hasattr(os, "memfd_create"):
        return ""
    file = os.memfd_create("sluice-kubeconfig")
    weakref.finalize(configuration, os.close, file)
    with open(file, "wb", closefd=False) as opened:
        opened.write(content)
    path = f"/proc/self/fd/{file}"
    return path if os.access(path, os.R_OK) else ""


def _on_disk(content: bytes) -> str:
    """Return the path of a file that only this user can read."""
    file = _private_directory() / hashlib.sha256(content).hexdigest()
    file.write_bytes(content)
    return str(file)


@cache
def _private_directory() -> Path:
    """Return a directory that only this user can read; it is removed when the process ends."""
    directory = tempfile.mkdtemp(prefix="sluice-kubeconfig-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


class _Refresh:
    """Hook that the library calls before each request; reloads the credentials at most once every REFRESH_SECONDS.

    After a failure requests fail with the same error, until the next attempt: after 1 s, then after twice as long as
    before, up to LONGEST_PAUSE.
    """

    def __init__(self, loader: KubeConfigLoader, clock: Callable[[], float]) -> None:
        self._loader = loader
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next = clock() + REFRESH_SECONDS
        self._pause = 0.5
        """Seconds between the last two attempts of which the first failed, or half of the first pause."""
        self._failure: Exception | None = None
        self.since: float | None = None
        """Time since which a renewal is under way, also one that was cancelled with its request; None: it is not."""

    async def __call__(self, configuration: Configuration) -> None:
        async with self._lock:
            if self._clock() < self._next:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                return
            if self.since is None:
                self.since = self._clock()
            try:
                async with _in_time():
                    await self._loader._load_authentication()
            except _loader_failures() as error:
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._next, self._failure, self.since = self._clock() + self._pause, error, None
                raise
            configuration.api_key["BearerToken"] = self._loader.token
            self._next, self._pause, self._failure = self._clock() + REFRESH_SECONDS, 0.5, None
            self.since = None


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Context manager that ends what a plugin or an identity provider does not answer. Raises TimeoutError."""
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{_SILENT} within {PLUGIN_SECONDS:g} s") from error


def _can_expire(loader: KubeConfigLoader) -> bool:
    """Whether the credentials can expire. Those of an exec plugin without an expiry time count as permanent."""
    user = loader._user
    return user is not None and (
        "auth-provider" in user
        or hasattr(loader, "exec_plugin_expiry")
        or ("tokenFile" in user and "token" not in user)
    )


def _loader_failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that the library's loaders raise in practice: some of its checks are asserts or lookups."""
    from admission.cluster.credential_loaders import ConfigException

    return (
        ConfigException, aiohttp.ClientError, AssertionError, AttributeError, LookupError,
        OSError, RuntimeError, TimeoutError, TypeError, ValueError,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tls:
    """A TLS context, and what it was made of."""

    context: ssl.SSLContext | None
    """None: the server is a plain HTTP server."""
    contents: tuple[object, ...]
    """See `contents_of`."""
    certificate: x509.Certificate | None = None
    """The client certificate."""

    @classmethod
    def of(cls, configuration: Configuration, server: str) -> Tls:
        """Return the TLS context for a configuration. Raises BadKubeconfig for an unusable certificate."""
        contents = contents_of(configuration)  # before it is used: a file that changes in between counts as changed
        if not server.startswith("https:"):
            return cls(None, contents)
        try:
            context = client_context(ca_file=configuration.ssl_ca_cert)
        except OSError as error:
            raise BadKubeconfig(
                f"the certificate authority for {server} is no PEM certificate ({one_line(error)}): "
                "check certificate-authority(-data)"
            ) from error
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if not configuration.cert_file:
            return cls(context, contents)
        certificate = _load_client_certificate(context, configuration.cert_file, configuration.key_file, server)
        tls = cls(context, contents, certificate)
        if expired := tls.expired(server):
            raise BadKubeconfig(expired)
        return tls

    def expired(self, server: str) -> str:
        """Return a message if the client certificate has expired, else an empty text."""
        if self.certificate is None or self.certificate.not_valid_after_utc >= datetime.now(UTC):
            return ""
        return (
            f"the client certificate for {server} expired on {self.certificate.not_valid_after_utc:%Y-%m-%d %H:%M} "
            "UTC: renew it and write it into the kubeconfig"
        )


def contents_of(configuration: Configuration) -> tuple[object, ...]:
    """Return a digest of each file that a TLS context is made of, for comparison; None for one that cannot be read."""

    def digest(file: str | None) -> str | None:
        try:
            return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
        except OSError:
            return None

    files = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    return configuration.verify_ssl, *map(digest, files)


def _load_client_certificate(
    context: ssl.SSLContext, cert_file: str, key_file: str | None, server: str
) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ValueError) as error:
        raise BadKubeconfig(
            f"the client certificate for {server} cannot be used ({one_line(error)}): "
            "check client-certificate(-data) and client-key(-data)"
        ) from error
    return certificate
