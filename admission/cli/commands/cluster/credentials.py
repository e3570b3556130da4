"""Where `sluice serve` reads the kubeconfigs of clusters: a Secret of its cluster, or a directory."""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from admission.cli.errors import CommandError
from admission.cluster.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

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
