"""API descriptor of Clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from admission.api.kinds.columns import at
from admission.api.kinds.descriptor import ObjectKind, Status
from admission.api.kinds.object_schemas import ClusterStatus
from admission.apimachinery.tables import Column
from admission.model.quantity import amount, format_amount, readable_amount
from admission.model.queues import Cluster
from admission.model.workload import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission.api.http.responses import Document
    from admission.api.kinds.descriptor import WarningContext
    from admission.model.capacity import SeenCapacity
    from admission.store.joined_clusters import JoinedCluster
    from admission.store.records import ClusterNumbers
    from admission.store.store import Store

Known: TypeAlias = "Callable[[str], KnownCluster]"
"""Returns what is known of the cluster of a name."""


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """What the database has of a cluster beside its object."""

    joined: JoinedCluster | None
    capacity: SeenCapacity | None
    used: Mapping[str, int]
    """Quota that its workloads hold, by resource."""


async def known_clusters(store: Store, numbers: Mapping[str, ClusterNumbers] | None = None) -> Known:
    """Return the function that returns what is known of a cluster, by its name. `numbers`: if they are read already."""
    joined, seen = await store.joined_clusters.load(), await store.joined_clusters.capacities()
    if numbers is None:
        numbers = await store.workloads.by_cluster() if seen else {}

    def known(name: str) -> KnownCluster:
        used: Counter[str] = Counter()
        if name in numbers and name in seen:
            for (_, resource), value in numbers[name].used().items():
                used[resource] += value
        return KnownCluster(joined.get(name), seen.get(name), used)

    return known


async def _inputs(store: Store, clusters: Sequence[Cluster]) -> list[KnownCluster]:
    known = await known_clusters(store)
    return [known(cluster.name) for cluster in clusters]


def cluster_status(cluster: Cluster, known: KnownCluster) -> Document:
    """Return the status of a Cluster, given what the leader knows of it."""
    status = _state(cluster, known.joined)
    if known.capacity is not None:
        status["capacity"] = _capacity(known.capacity, known.used)
    return status


def _state(cluster: Cluster, known: JoinedCluster | None) -> Document:
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


def _capacity(found: SeenCapacity, used: Mapping[str, int]) -> Document:
    document: Document = {}
    if found.seen is not None:
        has = found.capacity
        document |= {"nodes": has.nodes, "readyNodes": has.ready, "schedulableNodes": has.schedulable}
        document["resources"] = [
            {
                "name": name,
                "allocatable": format_amount(name, total),
                "schedulable": format_amount(name, has.usable.get(name, 0)),
                "used": format_amount(name, used.get(name, 0)),
            }
            for name, total in sorted(has.allocatable.items())
        ]
        document["seenAt"] = _timestamp(found.seen)
    return document | ({"message": found.message} if found.message else {})


def _nodes(document: Document, now: float) -> str | None:
    del now
    capacity = document["status"].get("capacity") or {}
    if "nodes" not in capacity:
        return "unknown" if capacity else None
    return f"{capacity['schedulableNodes']}/{capacity['nodes']}"


def _in_use(document: Document, now: float) -> str | None:
    del now
    resources = (document["status"].get("capacity") or {}).get("resources", ())
    return ", ".join(_use(each) for each in resources if each["name"] in ("cpu", "memory") or "/" in each["name"])


def _use(resource: Document) -> str:
    name = resource["name"]
    used, has = (readable_amount(name, amount(name, resource[field])) for field in ("used", "allocatable"))
    return f"{name} {used}/{has}"


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
        Column("Nodes", _nodes, "Nodes that get new pods, and all nodes", wide=True),
        Column("Held", _in_use, "Quota that its workloads hold, and what its nodes can allocate", wide=True),
        Column("Seen", at("status", "capacity", "seenAt"), "When its nodes were listed", wide=True),
        Column("Message", at("status", "message"), "Why it is in this state", wide=True),
    ),
    status_schema=ClusterStatus,
    status=Status(_inputs, cluster_status),
    warnings=_warnings,
)
