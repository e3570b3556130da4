"""The Kubernetes API as commands about Jobs use it: by the caller's kubeconfig, with the caller's own rights."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission.cli.arguments.connection import NAMESPACE_HINT, has_no_namespace_flag
from admission.cli.configuration.integrations import read_integrations
from admission.cli.errors import CommandError
from admission.cluster.client import Client
from admission.cluster.credentials import kubeconfig_namespace
from admission.cluster.errors import BadKubeconfig, Forbidden, StatusError
from admission.kinds import Kind, Kinds, all_kinds, frameworks_known, parse_form
from admission.kinds.grouping import GROUP_NAME
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.registry import api_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cli.arguments.connection import Connection
    from admission.client import Workload

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@asynccontextmanager
async def kubernetes(connection: Connection) -> AsyncIterator[Client]:
    """The API server of the kubeconfig, for the time of the block.

    Raises CommandError for a kubeconfig that cannot be used, and for what the API server refuses in the block.
    """
    try:
        async with Client.from_kubeconfig(connection.kubeconfig, connection.context) as client:
            yield client
    except BadKubeconfig as error:
        raise CommandError(f"Jobs are written and read through the Kubernetes API: {error}") from error
    except StatusError as error:
        text = str(error.status.get("message") or error)
        if isinstance(error, Forbidden) and "in the namespace" in text and has_no_namespace_flag():
            text = f"{text}; {NAMESPACE_HINT}"
        raise CommandError(text) from error


def namespace_of(connection: Connection, given: str | None) -> str:
    """The namespace that is given, else that of the kubeconfig's context, else `default`."""
    try:
        return given or kubeconfig_namespace(connection.kubeconfig, connection.context) or "default"
    except BadKubeconfig as error:
        raise CommandError(f"Jobs are written and read through the Kubernetes API: {error}") from error


async def own_name(client: Client) -> str:
    """Who the caller is to Kubernetes, as `spec.user` of a workload names who submitted it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(_REVIEWS, review)
    return str(answer["status"]["userInfo"].get("username", ""))


def known_kinds() -> Kinds:
    """All kinds that this version knows, and those that the configuration in SLUICE_CONFIG describes.

    Which of them are queued is a setting of the server's. Raises InvalidSettings.
    """
    return _kinds_of(os.environ.get("SLUICE_CONFIG", ""))


@cache
def _kinds_of(file: str) -> Kinds:
    described = read_integrations(Path(file)).kinds if file else ()
    return all_kinds(frameworks=frameworks_known(), own=map(parse_form, described))


def kind_of(manifest: dict[str, Any]) -> Kind | None:
    """The adapter for a manifest's apiVersion and kind; None for what cannot be queued."""
    group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
    kind = known_kinds().get(group, str(manifest.get("kind", "")))
    return kind if kind is not None and version in kind.versions and kind in list(known_kinds()) else None


def kind_named(name: str) -> Kind:
    """The adapter for a kind as a workload names it, in any case. Raises CommandError for one that is not known."""
    for kind in known_kinds():
        if name.lower() in (kind.kind.lower(), kind.plural):
            return kind
    raise CommandError(f"{name} is no kind that can be queued; there are {queued_kinds()}")


def is_kind(name: str) -> bool:
    """Whether a kind that can be queued is called so, in any case."""
    return any(name.lower() in (kind.kind.lower(), kind.plural) for kind in known_kinds())


def kind_of_workload(workload: Workload) -> Kind:
    """The adapter for the object of a workload. Raises CommandError for a kind that this version does not know."""
    asked = workload.document.get("spec", {}).get("object", {})
    if workload.object_kind == PodGroupKind.kind:
        name, namespace = workload.object_name, workload.namespace
        label = f"{GROUP_NAME[0]}={name}, or -l {GROUP_NAME[1]}={name}"
        raise CommandError(
            f"{name} is a group of pods: name them to kubectl, by -n {namespace} -l {label}; "
            "of a StatefulSet, Volcano Job or LeaderWorkerSet name that"
        )
    return kind_of(asked) or kind_named(workload.object_kind)


def shown(kind: Kind, name: str) -> str:
    """An object as kubectl prints it: `job.batch/train`, `pod/train`."""
    return f"{kind.kind.lower()}{'.' if kind.group else ''}{kind.group}/{name}"


def queued_kinds() -> str:
    """All kinds that can be queued, for messages."""
    return ", ".join(sorted({kind.kind for kind in known_kinds()}))


def object_path(kind: Kind, namespace: str, name: str = "", *, version: str = "") -> str:
    """The path of an object of the kind, or of all of a namespace, in the preferred version if none is named."""
    root = api_root(kind.group, version or kind.versions[0])
    return f"{root}/namespaces/{namespace}/{kind.plural}" + (f"/{name}" if name else "")
