"""Cost of policies: admissions with 1,000 Budgets, limits of 10,000 users, 200 calendars and 100 Reservations defined.

`sluice serve` has a goal, the engine alone has none: a Job costs it a tenth of what it costs `serve`.

The engine alone admits the same workloads without and with them, in turns, so that both have the same machine; each
workload is charged to four Budgets. Then `sluice serve` starts a burst of Jobs, without and with them.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from admission.cli.demo.account import Phase, SceneAccount
from admission.cli.demo.children import alongside
from admission.cli.demo.load import prepare, submit
from admission.cli.demo.observer import Observer
from admission.cli.demo.plan import queue_documents
from admission.engine import (
    Budgets,
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    Reservations,
    UserLimits,
    WorkloadGone,
    WorkloadPending,
)
from admission.model.manifests import parse_manifest
from admission.model.workload import LOCAL, PodSet, Workload
from tests.benchmarks.bench_burst import SPEED, plan, until
from tests.benchmarks.measure import Figure, at_least, running
from tests.queue_objects import cluster_queue, flavor, local_queue, manifest

_BUDGETS, _USERS, _CALENDARS, _RESERVATIONS, _QUEUES = 1000, 10_000, 200, 100, 200
_WORKLOADS = 2000
_ROUNDS = 3
_NOW: Final = 1_793_520_000.0
"""A moment of November 2026, when no Reservation has begun."""


def policies(queues: list[str], namespaces: list[str]) -> Iterable[dict[str, Any]]:
    """Yield the Budgets, UserLimits and Reservations, for these ClusterQueues and namespaces."""

    def document(kind: str, name: str, **spec: Any) -> dict[str, Any]:
        return manifest(kind, name, spec=spec)

    hours = [{"name": "cpu", "hours": "100000000"}]
    month = {"every": "Month"}
    yield document("Budget", "all", resources=hours, period=month, scope={})
    yield document("Budget", "reserve", resources=hours, period=month, scope={}, enforcement="Reserve",
                   assumedSeconds=600)  # fmt: skip
    for number in range(_BUDGETS - 2):
        scope = [
            {"clusterQueues": [queues[number % len(queues)]]},
            {"users": [f"user-{each}" for each in range(number, _USERS, 400)]},
            {"namespaces": [namespaces[number % len(namespaces)], f"other-{number}"], "users": [f"user-{number}"]},
        ][number % 3]
        yield document("Budget", f"budget-{number}", resources=hours, period=month, scope=scope)
    yield document("UserLimit", "everybody", running=5000, submitted=5000, resources={"cpu": "100000"})
    for number in range(0, _USERS, 1000):
        users = [f"user-{each}" for each in range(number, number + 1000)]
        yield document("UserLimit", f"limit-{number}", users=users, running=5000, pending=5000)
    for number in range(_RESERVATIONS):
        yield document(
            "Reservation", f"reservation-{number}", clusterQueue=queues[number % len(queues)],
            quotas=[{"flavor": "default", "resource": "cpu", "amount": "1"}], holders={"users": [f"user-{number}"]},
            start=f"2027-{1 + number % 12:02}-{1 + number // 12:02}T08:00",
            end=f"2027-{1 + number % 12:02}-{1 + number // 12:02}T18:00",
        )  # fmt: skip


def _queue(number: int, *, calendar: bool) -> Iterable[dict[str, Any]]:
    spec: dict[str, Any] = {"cohortName": f"cohort-{number % 20}"}
    if calendar and number < _CALENDARS:
        amount = {"flavor": "default", "resource": "cpu", "nominalQuota": 2_000_000}
        rule = {"name": "weekend", "start": "2026-01-03T00:00", "end": "2026-01-05T00:00", "quotas": [amount],
                "recurrence": "FREQ=WEEKLY;BYDAY=SA"}  # fmt: skip
        spec["calendar"] = {"entries": [rule]}
    yield cluster_queue(f"cq-{number}", cpu=1_000_000, **spec)
    yield local_queue(f"cq-{number}", "ns", f"cq-{number}")


def engine_with(*, defined: bool) -> Engine:
    """Return an engine with the queues, and with the policies if they are `defined`."""
    engine = Engine(Policy(policies=(Budgets(), Reservations(), UserLimits())))
    documents = [flavor()]
    for number in range(_QUEUES):
        documents += _queue(number, calendar=defined)
    if defined:
        documents += policies([f"cq-{number}" for number in range(_QUEUES)], ["ns"])
    engine.observe(NamespaceChanged("ns", {}), now=_NOW)
    for document in documents:
        engine.observe(QueueObjectChanged(parse_manifest(document)), now=_NOW)
    engine.settle(_NOW)
    return engine


def admissions_per_second(engine: Engine, first: int) -> float:
    """Return how many workloads a second the engine admits and releases, in processor time."""
    pods = (PodSet("main", 1, {"cpu": 1000}),)
    batches = [
        [
            Workload(
                uid=f"w{number}", namespace="ns", name=f"w{number}", queue=f"cq-{number % _QUEUES}", priority=0,
                created=_NOW, pod_sets=pods, user=f"user-{number * 7 % _USERS}", max_seconds=600,
            )
            for number in range(start, start + 100)
        ]
        for start in range(first, first + _WORKLOADS, 100)
    ]  # fmt: skip
    gc.collect()
    gc.disable()
    began, now, admitted = time.process_time(), _NOW, 0
    for batch in batches:
        for one in batch:
            engine.observe(WorkloadPending(one), now=now)
        admitted += len(engine.settle(now).admitted)
        now += 1.0
        for one in batch:
            engine.observe(WorkloadGone(one.uid), now=now)
        engine.settle(now)
    spent = time.process_time() - began
    gc.enable()
    if admitted != _WORKLOADS:
        raise AssertionError(f"{admitted} of {_WORKLOADS} workloads were admitted")
    return admitted / spent


def _engine_figures() -> list[Figure]:
    engines = {False: engine_with(defined=False), True: engine_with(defined=True)}
    best = dict.fromkeys(engines, 0.0)
    for number in range(_ROUNDS):
        for defined, engine in engines.items():
            best[defined] = max(best[defined], admissions_per_second(engine, number * _WORKLOADS))
    return [
        Figure("engine alone, admissions a second, none defined", f"{best[False]:.0f}"),
        Figure("engine alone, all defined", f"{best[True]:.0f} ({100 * best[True] / best[False]:.0f} %)"),
    ]


async def _served(documents: list[dict[str, Any]]) -> float:
    """Return how many Jobs of a burst `sluice serve` starts in a second of its processor time."""
    load = plan()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        async with running(Path(folder), documents, speed=SPEED) as sluice:
            await prepare(sluice.client, load)
            account = SceneAccount(load)
            observer = Observer(sluice.client, account)
            async with alongside(observer.run()):
                await observer.synced()
                cpu = sluice.cpu_seconds()
                async with alongside(submit({LOCAL: sluice.client}, load, account, observer.elapsed)):
                    await until(lambda: len(account.jobs) == len(load.jobs) and not account.count(Phase.WAITING))
                return len(load.jobs) / (sluice.cpu_seconds() - cpu)


async def run() -> list[Figure]:
    """Measure the engine, then bursts of Jobs."""
    figures = _engine_figures()
    plain = queue_documents(plan())
    queues = [each["metadata"]["name"] for each in plain if each["kind"] == "ClusterQueue"]
    namespaces = sorted({each["metadata"]["namespace"] for each in plain if each["kind"] == "LocalQueue"})
    everything = [*plain, *policies(queues, namespaces)]
    best = {"none": 0.0, "all": 0.0}
    for _ in range(2):
        for which, documents in (("none", plain), ("all", everything)):
            best[which] = max(best[which], await _served(documents))
    return [
        *figures,
        Figure("`sluice serve`, Jobs started in a second of processor time, none defined", f"{best['none']:.0f}"),
        at_least("`sluice serve`, all defined, compared with none", 100 * best["all"] / best["none"], 80, "%"),
    ]
