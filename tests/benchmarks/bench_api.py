"""API with much data: lists of 100,000 workloads, explanations, and a thousand watchers."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from sqlalchemy import text

from admission.api.application import create_app, listening
from admission.api.registry import PREFIX
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.database.migrations import migrate
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.benchmarks.measure import Figure, at_most, in_each_database
from tests.queue_objects import create_objects, local_queue, manifest

_WORKLOADS = 100_000
_AT_ONCE = 5_000
_NAMESPACES, _USERS = 100, 60
_NOW = 1_750_000_000.0
_SHAPE = (PodSet("main", 1, {"cpu": 1000, "memory": 2**30}),)
_ADMISSION = Admission("cq", (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
_TOKEN = "benchmark-" + "token"
_TIMES = 15
_GOAL_MS = 50.0
_QUERIES = {
    "all": "",
    "one namespace": "namespaces/ns-7/",
    "pending": "?fieldSelector=status.state%3Dpending",
    "a rare state (evicting: none)": "?fieldSelector=status.state%3Devicting",
    "one user": "?fieldSelector=spec.user%3Duser-3",
    "one LocalQueue": "?fieldSelector=spec.queueName%3Dlq-3",
    "a rare priority": "?fieldSelector=spec.priority%3D77",
    "one ClusterQueue, not finished": "?fieldSelector=status.clusterQueue%3Dcq,status.state%21%3Dfinished",
    "one Job's uid": f"?labelSelector=kueue.x-k8s.io/job-uid%3Duid-{_WORKLOADS // 2:06}",
}
_WATCHERS = 1000
_STEP_SECONDS, _STEPS, _PER_STEP = 0.2, 60, 35
"""175 admissions per second, in batches like those of a busy leader."""


async def run() -> list[Figure]:
    """Measure on SQLite and on PostgreSQL."""
    return await in_each_database(_measure)


async def _measure(name: str, url: str) -> list[Figure]:
    await migrate(url)
    async with Store.open(url) as store:
        await _fill(store)
        async with _serving(store) as (address, session):
            figures = []
            for what, query in _QUERIES.items():
                path = f"{query}workloads?limit=500" if query.endswith("/") else f"workloads{query or '?'}&limit=500"
                milliseconds = await _fastest_half(session, f"{address}{PREFIX}/{path}")
                figures.append(at_most(f"{name}: first page of {_WORKLOADS}, {what}", milliseconds, _GOAL_MS, "ms", 1))
            why = f"{address}{PREFIX}/namespaces/ns-1/workloads/job-000001/explain"
            await _fastest_half(session, why, times=2)
            figures.append(at_most(f"{name}: why, through HTTP", await _fastest_half(session, why), _GOAL_MS, "ms", 1))
            quiet, cost = await _steps(store, "q")
            async with _watching(address):
                watched, watched_cost = await _steps(store, "w")
        figures += [
            Figure(f"{name}: step of {_PER_STEP} admissions, median", f"{1000 * quiet:.1f} ms, {100 * cost:.0f} % CPU"),
            Figure(
                f"{name}: the same, with {_WATCHERS} watchers of {_NAMESPACES} namespaces",
                f"{1000 * watched:.1f} ms, {100 * watched_cost:.0f} % CPU",
            ),
        ]
    return figures


@asynccontextmanager
async def _serving(store: Store) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    app = create_app(store, token=_TOKEN, checks={})
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    async with listening(app, "127.0.0.1", 0) as address, aiohttp.ClientSession(headers=headers) as session:
        yield address, session


async def _fill(store: Store) -> None:
    queues = (local_queue(f"lq-{number % 50}", f"ns-{number}") for number in range(_NAMESPACES))
    await create_objects(store, manifest("ClusterQueue", "cq"), *queues)
    epoch = await store.lead("benchmark")
    for start in range(0, _WORKLOADS, _AT_ONCE):
        records = [_record(number) for number in range(start, start + _AT_ONCE)]
        opened = [Opened(one.workload, _ADMISSION, _NOW) for one in records if one.state is State.ADMITTED]
        await store.commit(Changes(workloads=tuple(records), opened=tuple(opened)), epoch=epoch)
    async with store._database.write() as connection:
        await connection.execute(text("ANALYZE"))  # PostgreSQL's autovacuum does that within a minute


def _record(number: int) -> WorkloadRecord:
    states = (State.PENDING,) * 14 + (State.ADMITTED,) + (State.FINISHED,) * 5
    workload = Workload(
        uid=f"uid-{number:06}",
        namespace=f"ns-{number % _NAMESPACES}",
        name=f"job-{number:06}",
        queue=f"lq-{number % _NAMESPACES % 50}",
        priority=77 if number == _WORKLOADS - 1 else number % 5,
        created=_NOW + number,
        pod_sets=_SHAPE,
        user=f"user-{number % _USERS}",
    )
    return WorkloadRecord(workload, states[number % 20], queued_at=_NOW, cluster_queue="cq", reason="ExceedsQuota")


async def _fastest_half(session: aiohttp.ClientSession, url: str, *, times: int = _TIMES) -> float:
    """Return the median duration of several requests in milliseconds, from the first byte sent to the last one read."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        async with session.get(url) as response:
            await response.read()
            assert response.status == 200, await response.text()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


async def _steps(store: Store, prefix: str) -> tuple[float, float]:
    """Commit admissions at a fixed rate; return the median duration of a commit (s) and the share of a CPU used."""
    epoch = await store.lead("benchmark", elected=True)
    took = []
    began, used = time.perf_counter(), time.process_time()
    for step in range(_STEPS):
        await asyncio.sleep(max(0.0, began + step * _STEP_SECONDS - time.perf_counter()))
        records = [_fresh(f"{prefix}-{step:03}-{number:02}", number) for number in range(_PER_STEP)]
        opened = tuple(Opened(record.workload, _ADMISSION, _NOW) for record in records)
        start = time.perf_counter()
        await store.commit(Changes(workloads=tuple(records), opened=opened), epoch=epoch)
        took.append(time.perf_counter() - start)
    return statistics.median(took), (time.process_time() - used) / (time.perf_counter() - began)


def _fresh(name: str, number: int) -> WorkloadRecord:
    workload = Workload(
        uid=f"uid-{name}",
        namespace=f"ns-{number % _NAMESPACES}",
        name=f"job-{name}",
        queue="lq",
        priority=0,
        created=_NOW,
        pod_sets=_SHAPE,
    )
    return WorkloadRecord(workload, State.ADMITTED, queued_at=_NOW, cluster_queue="cq", admitted_at=_NOW)


@asynccontextmanager
async def _watching(address: str) -> AsyncIterator[None]:
    """Open a thousand watches in another process during the block, so that only the server's side is measured."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, address, str(_WATCHERS), str(_NAMESPACES), _TOKEN, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"watching\n"
        yield
    finally:
        child.terminate()
        await child.wait()


_CLIENT = f"""
import asyncio, sys, aiohttp
address, watchers, namespaces, token = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
async def watch(session, number, ready):
    url = f"{{address}}{PREFIX}/namespaces/ns-{{number % namespaces}}/workloads?watch=1&resourceVersion=999999"
    async with session.get(url) as response:
        ready.release()
        async for _ in response.content.iter_any():
            pass
async def main():
    ready = asyncio.Semaphore(0)
    headers = {{"Authorization": f"Bearer {{token}}"}}
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout()
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        tasks = [asyncio.create_task(watch(session, number, ready)) for number in range(watchers)]
        for _ in tasks:
            await ready.acquire()
        print("watching", flush=True)
        await asyncio.gather(*tasks)
asyncio.run(main())
"""
