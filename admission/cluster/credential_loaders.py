"""kubernetes_asyncio's loaders of credentials, without its classes for all of Kubernetes, which take 0.5 s to import.

To import any module of it imports them: its packages do, by their `__init__`. While the loaders are imported, packages
without it stand in their place; whoever imports kubernetes_asyncio later gets all of it.
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
    """The library's client of an API server, which its loaders name and nothing here uses; imported when it is made."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        from kubernetes_asyncio.client import ApiClient

        return ApiClient(*arguments, **options)


@contextmanager
def _bare_packages() -> Iterator[None]:
    names = ("kubernetes_asyncio", "kubernetes_asyncio.client")
    if names[0] in sys.modules:  # somebody else needs all of it
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
