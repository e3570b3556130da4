"""The flags of commands that ask the API server itself, and no Sluice."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cluster.client import Client


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """Which cluster; None: not given."""

    kubeconfig: str | None = None
    context: str | None = None

    def client(self) -> Client:
        """By kubeconfig if one is named or usual; in a pod by its service account."""
        from admission.cluster.client import Client

        if self.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
            return Client.in_cluster()
        return Client.from_kubeconfig(self.kubeconfig, self.context)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--kubeconfig` and `--context`; the command gets a `cluster`."""

    @click.option("--kubeconfig", help="The kubeconfig of the cluster.  [env: KUBECONFIG]")
    @click.option("--context", help="The context of the kubeconfig, if not its current one.")
    @functools.wraps(command)
    def with_cluster(*args: Any, kubeconfig: str | None, context: str | None, **kwargs: Any) -> Any:
        return command(*args, cluster=ClusterFlags(kubeconfig, context), **kwargs)

    return with_cluster
