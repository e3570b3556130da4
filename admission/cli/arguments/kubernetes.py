"""Kubernetes API access of commands about Jobs: client of the caller's kubeconfig, and paths."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from admission.cli.arguments.connection import NAMESPACE_HINT, has_no_namespace_flag
from admission.cli.arguments.job_kinds import kind_named, kind_of
from admission.cli.errors import CommandError
from admission.cluster.client import Client
from admission.cluster.errors import BadKubeconfig, Forbidden, StatusError, Unauthorized
from admission.cluster.kubeconfig import kubeconfig_namespace
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import api_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cli.arguments.connection import ApiConnection
    from admission.client import Workload
    from admission.kinds import Kind

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@asynccontextmanager
async def kubernetes(connection: ApiConnection) -> AsyncIterator[Client]:
    """Context manager: a client of the API server of the kubeconfig, with the caller's own permissions.

    Raises CommandError for a kubeconfig that cannot be used, and for each error status of the API server in the block.
    """
    try:
        async with Client.from_kubeconfig(connection.kubeconfig, connection.context) as client:
            yield client
    except BadKubeconfig as error:
        raise CommandError(f"this command uses the Kubernetes API directly: {error}") from error
    except StatusError as error:
        # The server's message about a missing or expired token is only "Unauthorized": Sluice's has a remedy.
        text = str(error) if isinstance(error, Unauthorized) else str(error.status.get("message") or error)
        if isinstance(error, Forbidden) and "in the namespace" in text and has_no_namespace_flag():
            text = f"{text}; {NAMESPACE_HINT}"
        raise CommandError(text) from error


def namespace_of(connection: ApiConnection, given: str | None) -> str:
    """Return the given namespace, else that of the kubeconfig's context, else `default`. Raises CommandError."""
    try:
        return given or kubeconfig_namespace(connection.kubeconfig, connection.context) or "default"
    except BadKubeconfig as error:
        raise CommandError(f"this command uses the Kubernetes API directly: {error}") from error


async def current_user(client: Client) -> str:
    """Return the caller's user name in Kubernetes; `spec.user` of a workload has that of its submitter."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(_REVIEWS, review)
    return str(answer["status"]["userInfo"].get("username", ""))


def kind_of_workload(workload: Workload) -> Kind:
    """Return the adapter for a workload's object in `local`.

    Raises CommandError for an unknown kind, a pod group, and an object in another cluster.
    """
    if cluster := workload.document.get("spec", {}).get("cluster"):
        raise CommandError(
            f"{workload.object_kind} {workload.object_name} is in the cluster {cluster}, of which you need credentials "
            f"of your own: use kubectl with them, and -n {workload.namespace}"
        )
    object_reference = workload.document.get("spec", {}).get("object", {})
    if workload.object_kind == PodGroupKind.kind:
        name, namespace = workload.object_name, workload.namespace
        label = f"{GROUP_NAME[0]}={name}, or -l {GROUP_NAME[1]}={name}"
        raise CommandError(
            f"{name} is a pod group, for which Kubernetes has no object: select its pods with kubectl and "
            f"-n {namespace} -l {label}; if they belong to a StatefulSet, Volcano Job or LeaderWorkerSet, name that"
        )
    return kind_of(object_reference) or kind_named(workload.object_kind)


def qualified_name(kind: Kind, name: str) -> str:
    """Return the name of an object as kubectl prints it: `job.batch/train`, `pod/train`."""
    return f"{kind.kind.lower()}{'.' if kind.group else ''}{kind.group}/{name}"


def object_path(kind: Kind, namespace: str, name: str = "", *, version: str = "") -> str:
    """Return the API path of an object, or without `name` of the collection in its namespace.

    Without `version` it is that of the preferred version.
    """
    root = api_root(kind.group, version or kind.versions[0])
    return f"{root}/namespaces/{namespace}/{kind.plural}" + (f"/{name}" if name else "")
