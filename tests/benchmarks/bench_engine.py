"""Cost of decisions: the engine in virtual time, in processor time of one core. A script that prints figures."""

from __future__ import annotations

import heapq
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from admission.engine import (
    Engine,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.model.manifests import parse_manifest
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from tests.queue_objects import cluster_queue, flavor, local_queue, manifest, resource_group


@dataclass(frozen=True)
class JobClass:
    """Equal workloads in each queue: `count` arrive, one every `every` seconds, each with a run time of `runtime` s."""

    name: str
    count: int
    every: float
    runtime: float
    cpu: int
    priority: int


_COMPLETIONS = 61
"""Measured completions under fair sharing: the first, and 60 others for their average and extremes."""

BASELINE = (
    JobClass("small", 350, 0.1, 0.2, 1, 50),
    JobClass("medium", 100, 0.5, 0.5, 5, 100),
    JobClass("large", 50, 1.2, 1.0, 20, 200),
)


def engine_with(
    cohorts: int, queues: int, *, nominal: int, borrowing: int | None = None, preemption: bool = True
) -> Engine:
    """Return an engine with `queues` ClusterQueues in each of `cohorts` Cohorts (0: none), each with a LocalQueue."""
    engine = Engine()
    build(engine, cohorts, queues, nominal=nominal, borrowing=borrowing, preemption=preemption)
    return engine


def build(
    engine: Engine,
    cohorts: int,
    queues: int,
    *,
    nominal: int,
    borrowing: int | None = None,
    preemption: bool = True,
    weights: tuple[str, ...] = ("1",),
) -> None:
    """Add these queue objects to the engine; `weights` are assigned to the ClusterQueues of a cohort in turn."""
    observe(engine, flavor())
    engine.observe(NamespaceChanged("ns", {}), now=0.0)
    for cohort in range(max(cohorts, 1)):
        for number in range(queues):
            quota: dict[str, object] = {"nominalQuota": nominal}
            spec: dict[str, object] = {"fairSharing": {"weight": weights[number % len(weights)]}}
            if cohorts:
                spec["cohortName"] = f"cohort-{cohort}"
                if borrowing is not None:
                    quota["borrowingLimit"] = borrowing
            if preemption:
                spec["preemption"] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
            name = f"cq-{cohort}-{number}"
            observe(engine, cluster_queue(name, cpu=quota, **spec), local_queue(name, "ns", name))


def observe(engine: Engine, *documents: dict[str, Any]) -> None:
    for document in documents:
        engine.observe(QueueObjectChanged(parse_manifest(document)), now=0.0)


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
    """Measure arrivals and completions in virtual time, with a `settle` after each instant with events."""
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
    """Measure single completions in a full ClusterQueue with `waiting` pending workloads."""
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
    """Measure one cycle in which a workload preempts others out of `candidates`."""
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
    """Print the memory per pending workload."""
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
    """Measure `explain` of one workload among `waiting` pending ones."""
    engine = filled(waiting)
    uid = f"00000000-0000-4000-8000-{waiting:012d}"
    started = time.process_time()
    rounds = 20
    for _ in range(rounds):
        engine.explain(uid)
    spent = (time.process_time() - started) / rounds
    print(f"explain with {waiting:,} waiting: {spent * 1e3:.2f} ms")


def arrivals(waiting: int, shapes: int = 200) -> None:
    """Measure single arrivals behind `waiting` others in a full ClusterQueue."""
    engine = filled(waiting, shapes)
    rounds = 1000
    kinds = [pods(1000 + 10 * number) for number in range(shapes)]
    started = time.process_time()
    for number in range(rounds):
        late = workload(1_000_000 + number, "cq-0-0", kinds[number % shapes], created=1e7 + number)
        engine.observe(WorkloadPending(late), now=1.0)
        engine.settle(1.0)
    spent = (time.process_time() - started) / rounds
    print(f"arrival with {waiting:,} waiting: {spent * 1e3:.3f} ms each")


def filled(waiting: int, shapes: int = 200) -> Engine:
    """Return an engine with one full ClusterQueue and `waiting` pending workloads, all of them tried."""
    engine = engine_with(0, 1, nominal=1000)
    kinds = [pods(1000 + 10 * number) for number in range(shapes)]
    for number in range(waiting + 1000):
        engine.observe(WorkloadPending(workload(number, "cq-0-0", kinds[number % shapes], created=number)), now=0.0)
    engine.settle(0.0)
    return engine


def listing(waiting: int) -> None:
    """Measure a page of 500 workloads from the middle of the pending order."""
    engine = filled(waiting)
    started = time.process_time()
    page = engine.listing("cq-0-0", limit=500, offset=waiting // 2)
    spent = time.process_time() - started
    print(f"page of {len(page)} among {waiting:,} waiting: {spent * 1e3:.1f} ms")


def fair_cohort(queues: int, *, even: bool = True) -> None:
    """Measure a saturated cohort under fair sharing: the first `settle`, then single completions.

    Unless `even`, weights and sizes differ and preemption is off: many heads do not fit into the quota that a
    completion releases.
    """
    engine = Engine(Policy(fair_sharing=True))
    build(engine, 1, queues, nominal=1, preemption=even, weights=("1",) if even else ("1", "2", "0.5"))
    lender = resource_group(default={"cpu": queues})
    observe(engine, manifest("Cohort", "cohort-0", spec={"resourceGroups": [lender]}))
    kinds = [pods(1000)] if even else [pods(1000), pods(3000), pods(2000)]
    for number in range(4 * queues):
        # The sizes of the workloads in one queue differ as well.
        kind = kinds[(number + number // queues) % len(kinds)]
        engine.observe(WorkloadPending(workload(number, f"cq-0-{number % queues}", kind, created=number)), now=0.0)
    started = time.process_time()
    running = [admit.workload.uid for admit in engine.settle(0.0).admitted]
    settled = time.process_time() - started
    spent = []
    for number, uid in enumerate(running[:_COMPLETIONS]):
        started = time.process_time()
        engine.observe(WorkloadGone(uid), now=1.0 + number)
        engine.settle(1.0 + number)
        spent.append(1e3 * (time.process_time() - started))
    later = spent[1:]
    print(
        f"fair sharing of {queues:,} {'equal' if even else 'unequal'} ClusterQueues: {len(running):,} admitted in "
        f"{settled:.2f} s; completions: the first, which learns of all, {spent[0]:.1f} ms, {len(later)} others "
        f"{statistics.mean(later):.1f} ms on average, {min(later):.1f} to {max(later):.1f} ms"
    )


SIZES = (1_000, 10_000, 100_000)
BENCHES: dict[str, list[Callable[[], None]]] = {
    "baseline": [baseline],
    "large": [large],
    "arrivals": [partial(arrivals, size) for size in SIZES],
    "completions": [partial(completions, size) for size in SIZES],
    "preemption": [partial(preemption, size) for size in (500, 5_000, 50_000)],
    "fair": [partial(fair_cohort, size, even=even) for even in (True, False) for size in (10, 100, 1_000)],
    "memory": [partial(memory, size) for size in SIZES],
    "explain": [partial(explanation, size) for size in SIZES],
    "listing": [partial(listing, size) for size in SIZES],
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or BENCHES:
        for bench in BENCHES[chosen]:
            bench()
