"""Upper bound of admissions in jobbench's baseline by quota and preemption: the engine in virtual time."""

from __future__ import annotations

import heapq
import importlib.util
from itertools import count
from types import ModuleType
from typing import Any

from admission.engine import Engine, NamespaceChanged, QueueObjectChanged, WorkloadGone, WorkloadPending
from admission.model.manifests import parse_manifest
from admission.model.workload import PodSet, Workload
from tests.benchmarks.measure import TOOLS, Figure, Skipped

_SCALE = 0.1
_LATENCIES = (0.0, 0.05, 0.1, 0.2)


async def run() -> list[Figure]:
    """Return admissions per second for several latencies from decision to start, with and without preemption."""
    if not (TOOLS / "jobbench.py").exists():
        raise Skipped(f"the load generator jobbench.py is not in {TOOLS.name}/ next to the repository")
    jobbench = _load()
    return [
        Figure(f"admissions/s, {1000 * latency:.0f} ms to start or stop, {name}", f"{rate:.1f}")
        for preempting, name in ((True, "preempting"), (False, "not preempting"))
        for latency in _LATENCIES
        for rate in (_rate(jobbench, latency, preempting=preempting),)
    ]


def _load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("jobbench", TOOLS / "jobbench.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _rate(jobbench: ModuleType, latency: float, *, preempting: bool) -> float:
    """Return the number of Jobs divided by the time of the last first start, as jobbench reports it."""
    scenario: dict[str, Any] = jobbench.baseline(_SCALE)
    if not preempting:
        scenario["preemption"] = None
    engine = Engine()
    for cohort in range(scenario["cohorts"]):
        engine.observe(NamespaceChanged(f"ns-{cohort}", {}), now=0.0)
    for document in jobbench.queue_docs(scenario):
        engine.observe(QueueObjectChanged(parse_manifest(document)), now=0.0)
    runtimes = {each["name"]: each["runtime"] for each in scenario["classes"]}
    workloads = {workload.uid: workload for workload in _workloads(scenario)}
    order = count()
    agenda = [(workload.created, next(order), "arrive", workload.uid, 0) for workload in workloads.values()]
    heapq.heapify(agenda)
    attempts: dict[str, int] = {}
    started: dict[str, float] = {}
    while agenda:
        now = agenda[0][0]
        while agenda and agenda[0][0] <= now:
            _, _, what, uid, attempt = heapq.heappop(agenda)
            if what == "arrive":
                engine.observe(WorkloadPending(workloads[uid]), now=now)
            elif what == "stopped":
                engine.observe(WorkloadGone(uid, requeue=workloads[uid]), now=now)
            elif attempts[uid] == attempt:
                engine.observe(WorkloadGone(uid), now=now)
        decisions = engine.settle(now=now)
        for admitted in decisions.admitted:
            uid = admitted.workload.uid
            attempts[uid] = attempts.get(uid, 0) + 1
            started.setdefault(uid, now + latency)
            end = now + latency + runtimes[admitted.workload.priority_class]
            heapq.heappush(agenda, (end, next(order), "end", uid, attempts[uid]))
        for evicted in decisions.evicted:
            uid = evicted.workload.uid
            attempts[uid] += 1
            heapq.heappush(agenda, (now + latency, next(order), "stopped", uid, 0))
    return len(started) / max(started.values())


def _workloads(scenario: dict[str, Any]) -> list[Workload]:
    shapes = {each["name"]: (PodSet("main", 1, {"cpu": 1000 * each["cpu"]}),) for each in scenario["classes"]}
    return [
        Workload(
            uid=f"{cohort}-{queue}-{each['name']}-{number}",
            namespace=f"ns-{cohort}",
            name=f"{queue}-{each['name']}-{number}",
            queue=f"lq-{cohort}-{queue}",
            priority=each["prio"],
            created=number * each["every"],
            pod_sets=shapes[each["name"]],
            priority_class=each["name"],
        )
        for cohort in range(scenario["cohorts"])
        for queue in range(scenario["cqs"])
        for each in scenario["classes"]
        for number in range(each["count"])
    ]
