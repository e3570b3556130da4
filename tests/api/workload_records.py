"""Workloads as a controller commits them, for the tests in this folder."""

from __future__ import annotations

from typing import Any

from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store

NOW = 1_750_000_000.0
NOW_TEXT = "2025-06-15T15:06:40Z"
MAIN = (PodSet(name="main", count=3, requests={"cpu": 500, "memory": 2**30}),)
ADMISSION = Admission("one", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1500}, 3),))


def record(uid: str, name: str, state: State = State.PENDING, *, namespace: str = "a", **fields: Any) -> WorkloadRecord:
    workload = Workload(
        uid=uid,
        namespace=namespace,
        name=name,
        queue=fields.pop("queue", "main"),
        priority=fields.pop("priority", 5),
        created=fields.pop("created", NOW),
        pod_sets=MAIN,
        user=fields.pop("user", "alice"),
    )
    return WorkloadRecord(workload, state, queued_at=NOW, cluster_queue="one", **fields)


async def commit(store: Store, epoch: int, *records: WorkloadRecord, closed: tuple[Closed, ...] = ()) -> int:
    """Write the records, with the admissions of those that hold quota."""
    opened = tuple(
        Opened(each.workload, ADMISSION, NOW) for each in records if each.state in (State.ADMITTED, State.EVICTING)
    )
    return await store.commit(Changes(workloads=records, opened=opened, closed=closed), epoch=epoch)
