"""kubernetes_asyncio's credential loaders, imported without its models of all Kubernetes kinds, which take 0.5 s.

The `__init__` modules of its packages import those models. So bare packages without an `__init__` replace them while
the loaders are imported; a later import of kubernetes_asyncio gets the full library.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from admission.cluster.kubeconfig import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator


class _ApiClient:
    """Lazy replacement of the library's API client, which its loaders refer to and which is not used here."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        from kubernetes_asyncio.client import ApiClient

        return ApiClient(*arguments, **options)


@contextmanager
def _bare_packages() -> Iterator[None]:
    """Replace the library's packages by ones without `__init__` during the block."""
    names = ("kubernetes_asyncio", "kubernetes_asyncio.client")
    if names[0] in sys.modules:  # the full library is imported already
        yield
        return
    try:
        for name in names:
            spec = find_spec(name)
            assert spec is not None
            assert spec.submodule_search_locations is not None
            sys.modules[name] = package = ModuleType(name)
            package.__path__ = spec.submodule_search_locations
        from kubernetes_asyncio.client.configuration import Configuration

        sys.modules[names[1]].__dict__.update(ApiClient=_ApiClient, Configuration=Configuration)
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


with _bare_packages():
    from kubernetes_asyncio.client.configuration import Configuration as Configuration
    from kubernetes_asyncio.config import ConfigException as ConfigException
    from kubernetes_asyncio.config import incluster_config as incluster_config
    from kubernetes_asyncio.config import kube_config
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader as KubeConfigLoader
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger as KubeConfigMerger

_yaml = SimpleNamespace(safe_load=lambda file: read_yaml(file.read()), safe_dump=yaml.safe_dump)
kube_config.__dict__["yaml"] = _yaml


class _ExecPlugin(ExecProvider):
    """A program that prints credentials; it is killed when nobody waits for it any more.

    The library leaves a program running that has not answered in time, so that a server that tries again every minute
    collects them. It also waits forever for one that fills the pipe of its standard error, and goes on as an anonymous
    user if the program prints no credentials.
    """

    async def run(self, previous_response: str | None = None) -> Any:
        interactive = sys.stdout.isatty()
        request = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
        env, pipe = self.env | {"KUBERNETES_EXEC_INFO": json.dumps(request)}, asyncio.subprocess.PIPE
        # In a session of its own it is killed with all that it has started; it would have no terminal there.
        process = await asyncio.create_subprocess_exec(
            *self.args, env=env, stdout=pipe, stderr=pipe, start_new_session=not interactive
        )
        try:
            output, errors = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError, PermissionError):
                process.kill() if interactive else os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            text = errors.decode(errors="replace").strip()
            raise ConfigException(f"exec: process returned {process.returncode}" + (f". {text}" if text else ""))
        return self._status(output)

    def _status(self, output: bytes) -> Any:
        try:
            credential = json.loads(output)
        except ValueError as error:
            raise ConfigException(f"exec: failed to decode process output: {error}") from error
        if not isinstance(credential, dict) or not isinstance(status := credential.get("status"), dict):
            raise ConfigException("exec: the output is no ExecCredential with a status")
        if (version := credential.get("apiVersion")) != self.api_version:
            raise ConfigException(f"exec: plugin api version {version} does not match {self.api_version}")
        if "token" not in status and not {"clientCertificateData", "clientKeyData"} <= status.keys():
            raise ConfigException("exec: the output has neither a token nor a client certificate with its key")
        return status


kube_config.__dict__["ExecProvider"] = _ExecPlugin
kube_config.logger.disabled = True  # it logs exceptions of plugins before it raises them
