"""API descriptor of Clusters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.api.kinds.columns import at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import ClusterStatus
from admission.apimachinery.tables import Column
from admission.model.queues import Cluster
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.store.joined_clusters import JoinedCluster
    from admission.store.store import Store


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _inputs(store: Store, clusters: Sequence[Cluster]) -> list[JoinedCluster | None]:
    known = await store.joined_clusters.load()
    return [known.get(cluster.name) for cluster in clusters]


def cluster_status(cluster: Cluster, known: JoinedCluster | None) -> Document:
    """Return the status of a Cluster, given what the leader knows of it."""
    if cluster.name == LOCAL:
        return {"state": cluster.spec.state}
    if known is None:
        return {"state": "Connecting", "message": "the leader has not tried yet to join it"}
    status: Document = {"state": known.state, "since": _timestamp(known.since)}
    if known.message:
        status["message"] = f"it {known.message}"
    if known.identity:
        status["uid"] = known.identity
    return status


async def _warnings(store: Store, written: Cluster, context: WarningContext) -> list[str]:
    del store
    if written.name == LOCAL or written.spec.state == "Disabled":
        return []
    return await context.check_cluster(written)


CLUSTER: Final = ObjectKind(
    Cluster,
    columns=(
        Column("State", at("status", "state"), "Active, Connecting, Lost, Draining or Disabled"),
        Column("Since", at("status", "since"), "Since when it is in this state"),
        Column("Message", at("status", "message"), "Why it is in this state", wide=True),
    ),
    status_schema=ClusterStatus,
    status=Status(_inputs, cluster_status),
    warnings=_warnings,
)
