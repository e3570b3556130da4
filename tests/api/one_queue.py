"""The API of a replica that does not lead, with one queue and workloads of this queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
from api_client import PREFIX, TOKEN, Client
from queue_objects import cluster_queue, flavor, local_queue
from workload_records import NOW, commit, record

from admission.api.application import create_app, listening
from admission.api.resources.explaining_engine import NoController
from admission.model.workload import PodSet
from admission.store.records import State, WorkloadRecord
from admission.store.store import Store

MERGE = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/merge-patch+json"}
DRY = {"dryRun": "All"}


class Replica(NoController):
    """A replica that knows the cluster and does not lead, so that responses come from the database."""

    def namespaces(self) -> dict[str, Mapping[str, str]]:
        return {"a": {}, "b": {}}


@asynccontextmanager
async def serving(store: Store, clock: Callable[[], float], **options: Any) -> AsyncIterator[Client]:
    app = create_app(store, token=TOKEN, checks={}, controller=Replica(), now=clock, **options)
    async with listening(app, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        yield Client(url, session)


@asynccontextmanager
async def one_queue(store: Store, clock: Callable[[], float]) -> AsyncIterator[Client]:
    """A flavor, the ClusterQueue `one` with 4 CPUs, and the LocalQueue `main` of namespace `a`."""
    async with serving(store, clock) as client:
        for path, document in (
            ("resourceflavors", flavor("default")),
            ("clusterqueues", cluster_queue("one")),
            ("namespaces/a/localqueues", local_queue("main", "a", "one")),
        ):
            assert (await client.post(f"{PREFIX}/{path}", document)).status == 201
        yield client


def job(name: str, *, cpu: int = 500, state: State = State.PENDING, age: float = 0, **fields: Any) -> WorkloadRecord:
    """Record of a Job with three pods of `cpu` milli-CPUs each."""
    found = record(f"uid-{name}", name, state, created=NOW - age, **fields)
    pods = (PodSet(name="main", count=3, requests={"cpu": cpu}),)
    return replace(found, workload=replace(found.workload, pod_sets=pods))


async def submitted(store: Store, *records: WorkloadRecord) -> None:
    await commit(store, await store.lead("tests"), *records)
