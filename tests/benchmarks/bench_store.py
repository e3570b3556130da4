"""Admissions per second through engine and store on PostgreSQL, without a cluster; small reads on either database."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from admission.controller.state.leader_state import LeaderState
from admission.controller.state.tracked import StartPatch, Tracked
from admission.controller.state.workload_change import WorkloadChange
from admission.engine import Engine
from admission.engine.events import NamespaceChanged, QueueObjectChanged
from admission.model.manifests import parse_manifest
from admission.model.workload import PodSet, Workload
from admission.store.database.connection import Location, connect
from admission.store.database.migrations import migrate
from admission.store.records import State, WorkloadRecord
from admission.store.store import Store
from tests.benchmarks.measure import Figure, Skipped
from tests.postgresql_server import NoPostgreSQL, PostgreSQL, running_postgresql
from tests.queue_objects import cluster_queue, flavor, local_queue

_WORKLOADS = 40_000
_AT_ONCE = 200
"""Workloads that arrive, are admitted and end in each cycle: the size of a busy leader's inbox."""

_GOAL = 2000
_READS = 1_000


async def run() -> list[Figure]:
    """Measure workloads that arrive, are admitted and end; each of the three changes is stored. Then measure reads."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        sqlite = f"sqlite:///{Path(folder) / 'sluice.db'}"
        await migrate(sqlite)
        reads = [await _measure_reads("SQLite", sqlite)]
    try:
        with running_postgresql() as server:
            await asyncio.to_thread(_prepare, server)
            url = server.url("bench")
            return [*await _measure(url), *reads, await _measure_reads("PostgreSQL", url)]
    except NoPostgreSQL as error:
        raise Skipped(str(error)) from error


def _prepare(server: PostgreSQL) -> None:
    server.execute("CREATE DATABASE bench")
    asyncio.run(migrate(server.url("bench")))


async def _measure(url: str) -> list[Figure]:
    async with Store.open(url) as store:
        epoch = await store.lead("benchmark")
        state = _state()
        shape = (PodSet("main", 1, {"cpu": 1000}),)
        began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for start in range(0, _WORKLOADS, _AT_ONCE):
            running = [tracked for tracked in state.registry if tracked.holds_quota]
            for number in range(start, start + _AT_ONCE):
                workload = Workload(
                    uid=f"00000000-0000-4000-8000-{number:012}",
                    namespace="ns",
                    name=f"job-{number}",
                    queue=f"lq-{number % 10}",
                    priority=0,
                    created=time.time(),
                    pod_sets=shape,
                )
                record = WorkloadRecord(workload, State.PENDING, queued_at=time.time())
                arrival = WorkloadChange(Tracked(record), now=time.time(), is_new=True)
                arrival.arrive()
                state.apply(arrival)
            for tracked in running:
                end = WorkloadChange(tracked, now=time.time())
                end.finish(outcome="Succeeded", message="")
                state.apply(end)
            for decision in state.engine.settle(now=time.time()).admitted:
                tracked_now = state.registry.get(decision.workload.uid)
                assert tracked_now is not None
                admission = WorkloadChange(tracked_now, now=time.time())
                admission.admit(decision.admission, StartPatch("1", [], {}))
                state.apply(admission)
            await store.commit(state.batch.take(), epoch=epoch)
        took = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_SELF)
        async with store._database.read() as connection:
            admissions = (await connection.exec_driver_sql("SELECT count(*) FROM admissions")).scalar_one()
    assert admissions == _WORKLOADS, admissions
    rate = _WORKLOADS / took
    processor = used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime
    return [
        Figure("admissions a second, sustained, on PostgreSQL", f"{rate:.0f}", f"at least {_GOAL}", met=rate >= _GOAL),
        Figure("of which processor time of Sluice", f"{100 * processor / took:.0f} %"),
        Figure("for", f"{took:.1f} s, {_WORKLOADS} workloads from arrival to end"),
    ]


async def _measure_reads(name: str, url: str) -> Figure:
    """Return this process's processor time for a transaction of three SELECTs that return one row each."""
    database, select = connect(Location.parse(url)), text("SELECT count(*) FROM alembic_version")
    try:
        for number in (100, _READS):  # the first ones fill caches
            cpu = time.process_time()
            for _ in range(number):
                async with database.read() as connection:
                    for _ in range(3):
                        await connection.execute(select)
        used = time.process_time() - cpu
    finally:
        await database.close()
    return Figure(f"processor time of a read of three statements, {name}", f"{1000 * used / _READS:.2f} ms")


def _state() -> LeaderState:
    state = LeaderState(Engine(), clock=time.time)
    state.observe(NamespaceChanged("ns", {}))
    documents = [flavor()]
    for number in range(10):
        documents += [cluster_queue(f"cq-{number}", cpu=10_000), local_queue(f"lq-{number}", "ns", f"cq-{number}")]
    for document in documents:
        state.observe(QueueObjectChanged(parse_manifest(document)))
    return state
