"""What decisions cost: the engine alone, in virtual time, in CPU time of one core. Run as a script; prints figures."""

from __future__ import annotations

import heapq
import sys
import time
import tracemalloc
from dataclasses import dataclass

from admission.engine import (
    Engine,
    NamespaceChanged,
    QueueObjectChanged,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload


@dataclass(frozen=True)
class JobClass:
    """Equal workloads that arrive in each queue: `count` of them, one every `every` seconds, each `runtime` long."""

    name: str
    count: int
    every: float
    runtime: float
    cpu: int
    priority: int


BASELINE = (
    JobClass("small", 350, 0.1, 0.2, 1, 50),
    JobClass("medium", 100, 0.5, 0.5, 5, 100),
    JobClass("large", 50, 1.2, 1.0, 20, 200),
)


def engine_with(
    cohorts: int, queues: int, *, nominal: int, borrowing: int | None = None, preemption: bool = True
) -> Engine:
    """`queues` ClusterQueues in each of `cohorts` Cohorts (0: none), with a LocalQueue of the same name each."""
    engine = Engine()
    observe(engine, "ResourceFlavor", "default", {})
    engine.observe(NamespaceChanged("ns", {}), now=0.0)
    for cohort in range(max(cohorts, 1)):
        for number in range(queues):
            quota = {"name": "cpu", "nominalQuota": nominal}
            spec = {
                "namespaceSelector": {},
                "resourceGroups": [
                    {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
                ],
            }
            if cohorts:
                spec["cohortName"] = f"cohort-{cohort}"
                if borrowing is not None:
                    quota["borrowingLimit"] = borrowing
            if preemption:
                spec["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
            name = f"cq-{cohort}-{number}"
            observe(engine, "ClusterQueue", name, spec)
            observe(engine, "LocalQueue", name, {"clusterQueue": name}, namespace="ns")
    return engine


def observe(engine: Engine, kind: str, name: str, spec: dict[str, object], *, namespace: str = "") -> None:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    body = {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}
    engine.observe(QueueObjectChanged(parse_manifest(body)), now=0.0)


def workload(
    number: int, queue: str, pod_sets: tuple[PodSet, ...], *, priority: int = 0, created: float = 0.0
) -> Workload:
    return Workload(
        uid=f"00000000-0000-4000-8000-{number:012d}",
        namespace="ns",
        name=f"{queue}-{number}",
        queue=queue,
        priority=priority,
        created=created,
        pod_sets=pod_sets,
    )


def pods(cpu: int) -> tuple[PodSet, ...]:
    return (PodSet("main", 1, {"cpu": cpu}),)


def throughput(title: str, engine: Engine, queues: list[str], classes: tuple[JobClass, ...]) -> None:
    """Arrivals and completions in virtual time; a settling after each instant at which something happened."""
    events: list[tuple[float, int, str, object]] = []
    runtimes: dict[str, float] = {}
    number = 0
    for cls in classes:
        pod_sets = pods(cls.cpu * 1000)
        for queue in queues:
            for index in range(cls.count):
                number += 1
                item = workload(number, queue, pod_sets, priority=cls.priority, created=index * cls.every)
                runtimes[item.uid] = cls.runtime
                events.append((item.created, number, "arrive", item))
    heapq.heapify(events)
    total = number
    ends: dict[str, int] = {}
    admitted = preempted = cycles = 0
    started = time.process_time()
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, stamp, what, item = heapq.heappop(events)
            if what == "arrive":
                engine.observe(WorkloadPending(item), now=now)
            elif ends.get(item) == stamp:
                del ends[item]
                engine.observe(WorkloadGone(item), now=now)
        while True:
            decisions = engine.settle(now)
            cycles += decisions.cycles
            for admit in decisions.admitted:
                number += 1
                uid = admit.workload.uid
                ends[uid] = number
                heapq.heappush(events, (now + runtimes[uid], number, "end", uid))
                admitted += 1
            for evict in decisions.evicted:
                ends.pop(evict.workload.uid, None)
                preempted += 1
                engine.observe(WorkloadGone(evict.workload.uid, requeue=evict.workload), now=now)
            if not decisions.evicted:
                break
    spent = time.process_time() - started
    left = sum(len(engine.pending(queue).active) + len(engine.pending(queue).inadmissible) for queue in queues)
    print(
        f"{title}: {total} workloads, {admitted} admissions ({preempted} preemptions, {left} left) in {spent:.2f} s: "
        f"{admitted / spent:,.0f} admissions/s, {cycles} cycles"
    )


def queue_names(cohorts: int, queues: int) -> list[str]:
    return [f"cq-{cohort}-{number}" for cohort in range(cohorts) for number in range(queues)]


def baseline() -> None:
    throughput(
        "baseline, 30 ClusterQueues in 5 cohorts",
        engine_with(5, 6, nominal=20, borrowing=100),
        queue_names(5, 6),
        BASELINE,
    )


def large() -> None:
    classes = (
        JobClass("small", 35, 0.1, 0.2, 1, 50),
        JobClass("medium", 10, 0.5, 0.5, 5, 100),
        JobClass("large", 5, 1.2, 1.0, 20, 200),
    )
    throughput(
        "large, 1000 ClusterQueues in 10 cohorts",
        engine_with(10, 100, nominal=20, borrowing=100),
        queue_names(10, 100),
        classes,
    )


def completions(waiting: int, shapes: int = 200) -> None:
    """One ClusterQueue full, `waiting` behind it; one completion at a time."""
    engine = engine_with(0, 1, nominal=1000)
    queue = "cq-0-0"
    kinds = [pods(1000 + 10 * number) for number in range(shapes)]
    for number in range(waiting + 1000):
        engine.observe(WorkloadPending(workload(number, queue, kinds[number % shapes], created=number)), now=0.0)
    running = [admit.workload.uid for admit in engine.settle(0.0).admitted]
    rounds = 200
    admitted = 0
    started = time.process_time()
    for number in range(rounds):
        engine.observe(WorkloadGone(running[number]), now=float(number))
        admitted += len(engine.settle(float(number)).admitted)
    spent = (time.process_time() - started) / rounds
    print(f"completion with {waiting:,} waiting of {shapes} shapes: {spent * 1e3:.3f} ms each ({admitted} admitted)")


def preemption(candidates: int) -> None:
    engine = engine_with(0, 1, nominal=candidates)
    queue = "cq-0-0"
    for number in range(candidates):
        item = workload(number, queue, pods(1000), created=number)
        admission = Admission(queue, (PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1),))
        engine.observe(WorkloadAdmitted(item, admission, float(number)), now=0.0)
    engine.settle(0.0)
    item = workload(candidates, queue, pods(100_000), priority=10, created=1e6)
    engine.observe(WorkloadPending(item), now=1e6)
    started = time.process_time()
    decisions = engine.cycle(1e6)
    spent = time.process_time() - started
    print(f"preemption among {candidates:,} candidates: {spent * 1e3:.1f} ms ({len(decisions.evicted)} victims)")


def memory(waiting: int) -> None:
    engine = engine_with(0, 1, nominal=1)
    kinds = [pods(1000 + 10 * number) for number in range(200)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(waiting):
        engine.observe(WorkloadPending(workload(number, "cq-0-0", kinds[number % 200], created=number)), now=0.0)
    engine.settle(0.0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    print(f"memory with {waiting:,} waiting: {used / waiting:,.0f} bytes each, the workload itself included")


def explanation(waiting: int) -> None:
    engine = engine_with(0, 1, nominal=1000)
    kinds = [pods(1000 + 10 * number) for number in range(200)]
    for number in range(waiting + 1000):
        engine.observe(WorkloadPending(workload(number, "cq-0-0", kinds[number % 200], created=number)), now=0.0)
    engine.settle(0.0)
    uid = f"00000000-0000-4000-8000-{waiting:012d}"
    started = time.process_time()
    rounds = 20
    for _ in range(rounds):
        engine.explain(uid)
    spent = (time.process_time() - started) / rounds
    print(f"explain with {waiting:,} waiting: {spent * 1e3:.2f} ms")


BENCHES = {
    "baseline": [baseline],
    "large": [large],
    "completions": [lambda: completions(1_000), lambda: completions(10_000), lambda: completions(100_000)],
    "preemption": [lambda: preemption(500), lambda: preemption(5_000), lambda: preemption(50_000)],
    "memory": [lambda: memory(1_000), lambda: memory(10_000), lambda: memory(100_000)],
    "explain": [lambda: explanation(1_000), lambda: explanation(10_000), lambda: explanation(100_000)],
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or BENCHES:
        for bench in BENCHES[chosen]:
            bench()
