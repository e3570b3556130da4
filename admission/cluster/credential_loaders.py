"""kubernetes_asyncio's credential loaders, imported without its models of all Kubernetes kinds, which take 0.5 s.

The `__init__` modules of its packages import those models. So bare packages without an `__init__` replace them while
the loaders are imported; a later import of kubernetes_asyncio gets the full library.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from admission.cluster.credentials import read_yaml

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
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader as KubeConfigLoader
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger as KubeConfigMerger

_yaml = SimpleNamespace(safe_load=lambda file: read_yaml(file.read()), safe_dump=yaml.safe_dump)
kube_config.__dict__["yaml"] = _yaml
