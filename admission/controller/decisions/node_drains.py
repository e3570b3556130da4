"""Eviction of workloads whose pods still run on drained nodes when the deadline has passed.

The engine evicts what is placed on single nodes by topology; of other pods only the API server knows where they are. It
is asked for the pods of nodes with a deadline that has passed, and only of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from admission.controller.state.inbox import Told
from admission.controller.state.repeating import repeat
from admission.controller.state.triggers import Drained
from admission.kinds.pod import occupant
from admission.model import sentences
from admission.model.queues import Drain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from admission.cluster.client import Client
    from admission.controller.state.faults import Faults
    from admission.controller.state.inbox import Inbox
    from admission.controller.state.tracked import Tracked
    from admission.store.store import Store

INTERVAL: Final = 10.0
"""Seconds between two looks at the nodes."""


class DrainedCluster(Protocol):
    """A cluster with nodes that may be drained."""

    client: Client
    inbox: Inbox

    def pod_owners(self) -> Iterable[tuple[Tracked, str]]:
        """Yield the workloads whose pods are there, each with the uid of the object that these name."""


class NodeDrains:
    """Finds the workloads with pods on nodes that have to be empty.

    `clusters`: returns the clusters by name. `leads`: whether this replica decides now.
    """

    def __init__(
        self,
        store: Store,
        clusters: Callable[[], Mapping[str, DrainedCluster]],
        *,
        leads: Callable[[], bool],
        faults: Faults,
        interval: float = INTERVAL,
    ) -> None:
        self._store = store
        self._clusters = clusters
        self._leads = leads
        self._faults = faults
        self._interval = interval

    async def run(self) -> None:
        """Look every `interval` seconds, until cancelled."""
        await repeat(self.look, self._faults, every=self._interval, name="the drain of nodes")

    async def look(self) -> None:
        """Have the workloads evicted that have pods on such nodes. Raises SluiceError."""
        if not self._leads():
            return
        now = self._store.now()
        for drain in await self._store.queues.list(Drain.kind):
            assert isinstance(drain, Drain)
            spec = drain.spec
            cluster = self._clusters().get(spec.cluster)
            if cluster is None or not spec.nodes or spec.ends_at is None or spec.ends_at > now:
                continue
            text = sentences.evicted_by_drain(drain.name, spec.reason)
            created = drain.metadata.creation_timestamp
            until = spec.ends_at if created is None else max(spec.ends_at, created.timestamp())
            for node in spec.nodes:
                for uid in sorted(await _workloads_on(cluster, node, until)):
                    cluster.inbox.put(Told(uid, Drained(text)))


async def _workloads_on(cluster: DrainedCluster, node: str, until: float) -> frozenset[str]:
    """Return the workloads with pods on a node that were admitted `until` (Unix time, s).

    Later ones came there as nobody has cordoned the node; to evict them again and again would not empty it.
    """
    found: set[str] = set()
    groups: set[tuple[str, str]] = set()
    params = {"fieldSelector": f"spec.nodeName={node}"}
    async for page in cluster.client.list_pages("/api/v1/pods", params=params):
        for pod in page.get("items", ()):
            if (seen := occupant(pod)) is not None:
                found.update(seen.uids)
                groups.add((seen.namespace, seen.group))
    return frozenset(
        tracked.uid
        for tracked, owner in cluster.pod_owners()
        if tracked.holds_quota
        and (tracked.record.admitted_at or 0.0) < until + 1.0  # of a Drain only the second is known
        and (owner in found or (tracked.record.workload.namespace, tracked.record.workload.name) in groups)
    )
