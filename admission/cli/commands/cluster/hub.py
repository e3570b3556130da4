"""The hub: the Sluice that clusters join, and where its `sluice serve` reads their kubeconfigs."""

from __future__ import annotations

import base64
import os
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import click

from admission.cli.arguments.cluster import ClusterFlags
from admission.cli.arguments.connection import connect, uses_kubeconfig
from admission.cli.errors import CommandError
from admission.cluster.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from admission.cli.arguments.connection import ApiConnection
    from admission.client import Sluice
    from admission.cluster.client import Client

SECRET: Final = "sluice-system/sluice-clusters"  # noqa: S105  a name
"""The Secret that the chart mounts by default."""


class Credentials(Protocol):
    """The files of credentials of a `sluice serve`."""

    async def write(self, file: str, content: bytes) -> str:
        """Write a file; return a line about it."""

    async def remove(self, file: str) -> str:
        """Delete a file, if there is one; return a line about it, empty if there was none."""


@dataclass(frozen=True, slots=True)
class InSecret:
    """Keys of a Secret, which is made if it is missing."""

    client: Client
    namespace: str
    name: str

    @property
    def _collection(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    async def write(self, file: str, content: bytes) -> str:
        """Write a key. Raises ClusterError."""
        data = {file: base64.b64encode(content).decode()}
        try:
            await self.client.patch(f"{self._collection}/{self.name}", {"data": data})
        except NotFound:
            metadata = {"name": self.name, "namespace": self.namespace}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
            await self.client.create(self._collection, secret)
        return f"{file} written to Secret {self.namespace}/{self.name}, which reaches sluice serve within two minutes"

    async def remove(self, file: str) -> str:
        """Delete a key. Raises ClusterError."""
        path = f"{self._collection}/{self.name}"
        try:
            found = (await self.client.get(path)).get("data") or {}
        except NotFound:
            return ""
        if file not in found:
            return ""
        await self.client.patch(path, {"data": {file: None}})
        return f"{file} deleted from Secret {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class InDirectory:
    """Files that only this user can read. All methods raise CommandError."""

    directory: Path

    async def write(self, file: str, content: bytes) -> str:
        """Write a file as a whole: `serve` may read it at any time."""
        try:
            with tempfile.NamedTemporaryFile(dir=self.directory, prefix=".", delete=False) as written:
                written.write(content)
            os.replace(written.name, self.directory / file)
        except OSError as error:
            raise CommandError(f"{self.directory / file} cannot be written: {error.strerror}") from error
        return f"{self.directory / file} written"

    async def remove(self, file: str) -> str:
        """Delete a file."""
        try:
            (self.directory / file).unlink()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise CommandError(f"{self.directory / file} cannot be deleted: {error.strerror}") from error
        return f"{self.directory / file} deleted"


@dataclass(frozen=True, slots=True)
class Hub:
    """The Sluice that a cluster joins."""

    sluice: Sluice
    credentials: Credentials
    cluster: Client | None
    """The cluster `local`; None: not known."""
    namespace: str
    """Namespace of Sluice in it."""


@dataclass(frozen=True, slots=True)
class HubFlags:
    """Options that locate the hub, and the files that its `sluice serve` reads."""

    connection: ApiConnection
    secret: str
    directory: Path | None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Hub]:
        """Connect. Raises UsageError if it is not known where `sluice serve` reads credentials."""
        namespace, _, name = self.secret.partition("/")
        if not namespace or not name:
            raise click.BadParameter("must be NAMESPACE/NAME", param_hint="--secret")
        if self.directory is not None and not self.directory.is_dir():
            raise click.BadParameter(f"there is no directory {self.directory}", param_hint="--directory")
        async with AsyncExitStack() as stack:
            client: Client | None = None
            if uses_kubeconfig(self.connection):
                flags = ClusterFlags(self.connection.kubeconfig, self.connection.context)
                client = await stack.enter_async_context(flags.client())
            credentials: Credentials
            if self.directory is not None:
                credentials = InDirectory(self.directory)
            elif client is not None:
                credentials = InSecret(client, namespace, name)
            else:
                raise click.UsageError(
                    "where does sluice serve read credentials? Give --directory (its --cluster-credentials), or "
                    "--hub-kubeconfig if it runs in a cluster"
                )
            sluice = await stack.enter_async_context(connect(self.connection))
            yield Hub(sluice, credentials, client, namespace)
