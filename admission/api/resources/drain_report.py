"""The report `reports/drain`: which workloads stand in the way of emptying a node or a flavor."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from admission.api.errors import BadRequest, ReviewUnavailable
from admission.api.http.responses import reply
from admission.api.registry import DRAIN_REPORT
from admission.kinds.pod import occupant
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.model.names import is_dns_subdomain
from admission.model.workload import LOCAL
from admission.store.records import State
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from aiohttp import web

    from admission.api.auth.session_rights import Readable, SessionRights
    from admission.api.http.responses import Document
    from admission.api.resources.clusters_in_reach import ClustersInReach
    from admission.store.records import WorkloadRecord
    from admission.store.store import Store

_HOLDING = frozenset({State.ADMITTED.value, State.EVICTING.value})


class DrainReports:
    """Handler of the report."""

    def __init__(self, store: Store, clusters: ClustersInReach, rights: SessionRights) -> None:
        self._store = store
        self._clusters = clusters
        self._rights = rights

    async def get(self, request: web.Request) -> web.Response:
        """Return the workloads on `?node=` of `?cluster=`, or of `?flavor=`; names only of readable ones.

        Raises BadRequest, ReviewUnavailable, Unanswered and StoreError.
        """
        node, flavor = request.query.get("node", ""), request.query.get("flavor", "")
        if bool(node) is bool(flavor):
            raise BadRequest("node: give the name of a node, or that of a flavor as flavor")
        readable = await self._rights.readable(request)
        page = await self._store.workloads.list(where=[ColumnFilter("state", _HOLDING)])
        if node:
            cluster = request.query.get("cluster") or LOCAL
            here = [record for record in page.workloads if record.runs_in == cluster]
            found, others = await self._on(node, cluster, here)
        else:
            found, others = [(each, None) for each in page.workloads if flavor in _flavors(each)], 0
        found.sort(key=lambda each: (-_ends_by(each[0]), each[0].workload.key))
        items = [_item(record, pods, readable) for record, pods in found]
        return reply(DRAIN_REPORT.document(items=items, others=others))

    async def _on(
        self, node: str, cluster: str, records: list[WorkloadRecord]
    ) -> tuple[list[tuple[WorkloadRecord, int | None]], int]:
        """Return the workloads with pods on a node, with their number; and the number of other pods there."""
        if not is_dns_subdomain(node):
            raise BadRequest(f'node: "{node}" is not the name of a node')
        by_uid = {record.workload.uid: record for record in records}
        by_name = {(record.workload.namespace, record.workload.name): record for record in records}
        pods: Counter[str] = Counter()
        others = 0
        try:
            async with self._clusters.client(cluster) as client:
                pages = client.list_pages("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={node}"})
                async for page in pages:
                    for pod in page.get("items", ()):
                        if (seen := occupant(pod)) is None:
                            continue
                        uid = next((uid for uid in seen.uids if uid in by_uid), "")
                        if not uid and seen.group and (record := by_name.get((seen.namespace, seen.group))) is not None:
                            uid = record.workload.uid
                        if uid:
                            pods[uid] += 1
                        else:
                            others += 1
        except ClusterError as error:
            raise ReviewUnavailable("the cluster did not answer the request for pods; try again later") from error
        return [(by_uid[uid], number) for uid, number in pods.items()], others


def _flavors(record: WorkloadRecord) -> set[str]:
    admission = record.admission
    return set() if admission is None else {name for each in admission.pod_sets for name in each.flavors.values()}


def _ends_by(record: WorkloadRecord) -> float:
    """Return when its time limit stops a workload (Unix time, s); infinite: it has none."""
    limit = record.workload.max_seconds
    since = record.cleared_at if record.cleared_at is not None else record.admitted_at
    return inf if limit is None or since is None else since + limit


def _item(record: WorkloadRecord, pods: int | None, readable: Readable) -> Document:
    workload, ends_by = record.workload, _ends_by(record)
    is_readable = readable.includes(workload)
    return {
        "namespace": workload.namespace if is_readable else "",
        "name": workload.name if is_readable else "",
        "kind": workload.kind,
        "localQueue": workload.queue if is_readable else "",
        "priority": workload.priority,
        "pods": pods,
        "admittedAt": None if record.admitted_at is None else sentences.time(record.admitted_at),
        "endsBy": None if ends_by == inf else sentences.time(ends_by),
    }
