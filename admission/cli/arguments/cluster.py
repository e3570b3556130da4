"""Options of commands that use the Kubernetes API server directly, without Sluice's API."""

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
    """Values of `--kubeconfig` and `--context`; None: not given."""

    kubeconfig: str | None = None
    context: str | None = None

    def client(self) -> Client:
        """Return a client of `--kubeconfig` or $KUBECONFIG, else of a pod's service account, else of ~/.kube/config."""
        from admission.cluster.client import Client

        if self.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
            return Client.in_cluster()
        return Client.from_kubeconfig(self.kubeconfig, self.context)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig` and `--context` to a command, which receives them as `cluster`."""

    @click.option("--kubeconfig", metavar="FILE", help="Path to the kubeconfig file.  [env: KUBECONFIG]")
    @click.option("--context", metavar="NAME", help="Kubeconfig context to use.  [default: the current context]")
    @functools.wraps(command)
    def with_cluster(*args: Any, kubeconfig: str | None, context: str | None, **kwargs: Any) -> Any:
        return command(*args, cluster=ClusterFlags(kubeconfig, context), **kwargs)

    return with_cluster
