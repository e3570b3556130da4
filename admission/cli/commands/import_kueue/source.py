"""Sources of an import: manifests, or the cluster in which Kueue runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission.cli.arguments.foreign import is_kueue_configuration
from admission.cli.errors import CommandError
from admission.cluster.errors import Forbidden, NotFound
from admission.cluster.informer import WatchedChange
from admission.controller.intake.served import listed
from admission.controller.state.context import PATHS, Context
from admission.kinds.devices import Inventory
from admission.model.devices import DeviceRules
from admission.model.manifests import Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cluster.client import Client
    from admission.kinds import Kinds

GROUP: Final = "kueue.x-k8s.io"
CONFIG_MAP: Final = "kueue-manager-config"
"""Name of the ConfigMap with Kueue's configuration in all of its installations."""
_NAMESPACE: Final = "kueue-system"
_VERSIONS: Final = ("v1beta2", "v1beta1")
_NEEDED: Final = {"ResourceFlavor": "resourceflavors", "ClusterQueue": "clusterqueues", "LocalQueue": "localqueues"}
_OPTIONAL: Final = {
    "Cohort": "cohorts",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "AdmissionCheck": "admissionchecks",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "Topology": "topologies",
    "MultiKueueConfig": "multikueueconfigs",
    "MultiKueueCluster": "multikueueclusters",
    "Workload": "workloads",
}
"""Resources that older versions of Kueue, or some installations, do not have."""
_ALPHA: Final = (("Cohort", "cohorts", "v1alpha1"), ("Topology", "topologies", "v1alpha1"))
"""Kind, plural and version of the Cohorts of Kueue 0.9 to 0.12, and the Topologies of 0.9 to 0.13, which have them in
no other version."""


@dataclass(frozen=True, slots=True)
class Importable:
    """Everything that can be imported. Manifests have queue objects only."""

    documents: list[Document]
    """Queue objects, and the other configuration objects of Kueue."""
    workloads: list[dict[str, Any]] = field(default_factory=list)
    """Kueue's Workloads."""
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Jobs with a queue label, by uid: those that Kueue may have admitted."""
    # What Kueue has counted for claims is in its admissions.
    context: Context = field(default_factory=lambda: Context(Inventory(DeviceRules(ignore_unmapped=True))))
    """Cluster objects that the requests of a Job depend on, such as LimitRanges and PriorityClasses."""


async def in_cluster(client: Client, kinds: Kinds) -> Importable:
    """Read everything from the cluster. Raises CommandError if it has no Kueue, ClusterError for failed requests."""
    version = await _version(client)
    documents: list[Document] = []
    workloads: list[dict[str, Any]] = []
    resources = [(name, plural, version) for name, plural in (_NEEDED | _OPTIONAL).items()]
    for name, plural, at in (*resources, *_ALPHA):
        if at != version and any(document.body["kind"] == name for document in documents):
            continue
        try:
            async for item in _items(client, f"/apis/{GROUP}/{at}/{plural}"):
                item |= {"apiVersion": f"{GROUP}/{at}", "kind": name}
                if name == "Workload":
                    workloads.append(item)
                else:
                    documents.append(Document(client.server, item))
        except NotFound:
            if name in _NEEDED:
                raise
    found = Importable(documents, workloads)
    for kind in kinds:
        named = {"apiVersion": kinds.api_version(kind), "kind": kind.kind}  # items of a list do not have these
        async for page in listed(client, kinds, kind):
            found.objects.update((item["metadata"]["uid"], item | named) for item in page if kind.queue_name(item))
    for resource, path in PATHS.items():
        async for item in _items(client, path):
            metadata = item["metadata"]
            key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            found.context.update(resource, WatchedChange("ADDED", key, metadata["uid"], item))
    return found


async def configurations_in(client: Client) -> list[Document]:
    """Return the ConfigMaps with Kueue's configuration, as far as they may be read."""
    try:
        found = await client.get("/api/v1/configmaps", params={"fieldSelector": f"metadata.name={CONFIG_MAP}"})
        items = found["items"]
    except Forbidden:
        try:
            items = [await client.get(f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{CONFIG_MAP}")]
        except (Forbidden, NotFound):
            return []
    documents = [
        Document(f"ConfigMap {item['metadata']['namespace']}/{CONFIG_MAP}", {**item, "kind": "ConfigMap"})
        for item in items
    ]
    return [document for document in documents if is_kueue_configuration(document.body)]


async def _version(client: Client) -> str:
    """Return the newest version of Kueue's API that the cluster serves and Sluice reads. Raises CommandError."""
    try:
        group = await client.get(f"/apis/{GROUP}")
    except NotFound as error:
        raise CommandError(
            f"Kueue is not installed in {client.server} (no API group {GROUP}); check --context"
        ) from error
    served = {version["version"] for version in group["versions"]}
    for version in _VERSIONS:
        if version in served:
            return version
    raise CommandError(
        f"{client.server} serves {GROUP} in {', '.join(sorted(served))}, but Sluice reads {', '.join(_VERSIONS)} only"
    )


async def _items(client: Client, path: str) -> AsyncIterator[dict[str, Any]]:
    async for page in client.list_pages(path):
        for item in page["items"]:
            yield item
