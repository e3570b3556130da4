"""What Kueue has: from manifests, or straight out of the cluster that it runs in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission.cli.errors import CommandError
from admission.cluster.errors import NotFound
from admission.cluster.informer import Change
from admission.controller.intake.served import listed
from admission.controller.state.context import PATHS, Context
from admission.model.manifests import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cluster.client import Client
    from admission.kinds import Kinds

GROUP: Final = "kueue.x-k8s.io"
_VERSIONS: Final = ("v1beta2", "v1beta1")
_NEEDED: Final = {"ResourceFlavor": "resourceflavors", "ClusterQueue": "clusterqueues", "LocalQueue": "localqueues"}
_OPTIONAL: Final = {
    "Cohort": "cohorts",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "AdmissionCheck": "admissionchecks",
    "Topology": "topologies",
    "Workload": "workloads",
}
"""Older versions of Kueue, or some of their installations, are without these."""


@dataclass(frozen=True, slots=True)
class Found:
    """All that there is to import. The objects of manifests come without Jobs."""

    documents: list[Document]
    """Queue objects, and what else Kueue has configured."""
    workloads: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The Jobs that Kueue may have let run, by uid."""
    context: Context = field(default_factory=Context)


def in_manifests(documents: list[Document]) -> Found:
    """What a plan is made of when it is only about manifests; Workloads in them belong to a cluster."""
    return Found([document for document in documents if document.body.get("kind") not in ("Namespace", "Workload")])


async def in_cluster(client: Client, kinds: Kinds) -> Found:
    """All of it. Raises CommandError if the cluster has no Kueue, else branches of ClusterError."""
    version = await _version(client)
    documents: list[Document] = []
    workloads: list[dict[str, Any]] = []
    for name, plural in (_NEEDED | _OPTIONAL).items():
        try:
            async for item in _items(client, f"/apis/{GROUP}/{version}/{plural}"):
                item |= {"apiVersion": f"{GROUP}/{version}", "kind": name}
                if name == "Workload":
                    workloads.append(item)
                else:
                    documents.append(Document(client.server, item))
        except NotFound:
            if name in _NEEDED:
                raise
    found = Found(documents, workloads)
    for kind in kinds:
        async for page in listed(client, kinds, kind):
            found.objects.update((item["metadata"]["uid"], item) for item in page if kind.queue_name(item))
    for resource, path in PATHS.items():
        async for item in _items(client, path):
            metadata = item["metadata"]
            key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            found.context.see(resource, Change("ADDED", key, metadata["uid"], item))
    return found


async def _version(client: Client) -> str:
    """The newest version of Kueue's API that is served and known here."""
    try:
        group = await client.get(f"/apis/{GROUP}")
    except NotFound as error:
        raise CommandError(f"{client.server} has no Kueue (no API group {GROUP}); check --context") from error
    served = {version["version"] for version in group["versions"]}
    for version in _VERSIONS:
        if version in served:
            return version
    raise CommandError(
        f"{client.server} has {GROUP} in {', '.join(sorted(served))}, and Sluice reads {', '.join(_VERSIONS)} only"
    )


async def _items(client: Client, path: str) -> AsyncIterator[dict[str, Any]]:
    async for page in client.list_pages(path):
        for item in page["items"]:
            yield item
