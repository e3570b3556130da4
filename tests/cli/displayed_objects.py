"""Queue objects, and workloads in three states, for tests of what commands display."""

from __future__ import annotations

from datetime import UTC, datetime

from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.queue_objects import cluster_queue, cohort, create_objects, flavor, local_queue, manifest, priority_class

QUEUES = (
    flavor(pool="a100"),
    cluster_queue("team-a", cohortName="research"),
    manifest("ClusterQueue", "team-b", spec={"stopPolicy": "Hold"}),
    local_queue("main", "team-a", "team-a"),
    local_queue("main", "team-b", "team-b"),
    cohort("research"),
    priority_class("high", 1000),
)
POD_SETS = (PodSet(name="main", count=2, requests={"cpu": 1000}),)


async def create_queues(store: Store, clock: Clock) -> None:
    clock.now = datetime.now(UTC).timestamp() - 3 * 86400 - 60
    await create_objects(store, *QUEUES)


async def create_workloads(store: Store) -> None:
    created = datetime.now(UTC).timestamp() - 5 * 3600 - 60

    def record(
        uid: str,
        name: str,
        state: State,
        pod_sets: tuple[PodSet, ...] = POD_SETS,
        user: str = "alice",
        admission: Admission | None = None,
        **fields: object,
    ) -> WorkloadRecord:
        workload = Workload(uid, "team-a", name, "main", 100, created, pod_sets, user=user)
        return WorkloadRecord(workload, state, queued_at=created, cluster_queue="team-a", admission=admission, **fields)

    several = (*POD_SETS, PodSet(name="driver", count=1, requests={"cpu": 3000, "memory": 2 * 2**30}))
    admission = Admission("team-a", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 2000}, 2),))
    records = (
        record("1", "waits", State.PENDING, several, "bob,a=b", reason="WaitingForQuota"),
        record("2", "runs", State.ADMITTED, admission=admission, admitted_at=created + 60),
        record("3", "ended", State.FINISHED, admitted_at=created, finished_at=created + 3600, outcome="Succeeded"),
    )
    opened = (Opened(records[1].workload, admission, 1.0),)
    await store.commit(Changes(workloads=records, opened=opened), epoch=await store.lead("tests"))
