"""Accuracy of estimated starts on a real trace, and their cost.

The trace is replayed in virtual time, with one ClusterQueue for each class of service and 60 % of the class's peak as
quota. Each workload that has to wait gets an estimate, made only from data known at that time.
"""

from __future__ import annotations

import asyncio
import csv
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from admission.cli.configuration.settings import load_settings
from admission.cli.serve.simulating import EstimatingProcess
from admission.controller.controller import Controller
from admission.engine import (
    Engine,
    Event,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    WorkloadAdmitted,
    WorkloadGone,
    WorkloadPending,
)
from admission.model.manifests import parse_manifest
from admission.model.queues import QueueObject
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.serving.runtime import tune
from admission.simulate.calibration import Calibration, Range, ReportedRange
from admission.simulate.durations import Durations
from admission.simulate.estimator import CurrentState, forecast_starts
from admission.store.audit_log import Author
from admission.store.database.migrations import migrate
from admission.store.errors import AlreadyExists
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.benchmarks.measure import Figure, Skipped, at_most
from tests.queue_objects import cluster_queue, flavor, local_queue

_TRACE = Path(os.environ.get("SLUICE_TRACE", Path(__file__).parents[3] / "shared" / "traces" / "openb_pods.csv"))
_QUOTA = 0.6
_GPU = "nvidia.com/gpu"
_PENDING = 10_000
_WITHIN = 0.10


@dataclass
class _Pod:
    workload: Workload
    arrives: float
    seconds: float
    simulated: float | None = None
    """Simulated seconds from the estimate to the start."""
    claim: ReportedRange | None = None
    naive: float | None = None
    waited: float | None = None

    @property
    def range(self) -> Range | None:
        return None if self.claim is None else self.claim.range


async def run() -> list[Figure]:
    """Replay the trace, then measure the cost with many pending workloads."""
    if not _TRACE.is_file():  # noqa: ASYNC240  nothing else runs
        raise Skipped(f"there is no trace {_TRACE}; SLUICE_TRACE names another place of openb_pods.csv")
    pods = _pods()
    started = time.process_time()
    Replay(pods).run()
    seconds = time.process_time() - started
    return [*_quality(pods, seconds), await _cost(), *await _beside_decisions()]


def _quality(pods: list[_Pod], seconds: float) -> list[Figure]:
    waited = [pod for pod in pods if pod.waited is not None and pod.naive is not None and pod.simulated is not None]
    with_range = [pod for pod in waited if pod.range is not None]
    by_p50 = sum(pod.waited <= pod.range.p50 for pod in with_range) / len(with_range)
    by_p90 = sum(pod.waited <= pod.range.p90 for pod in with_range) / len(with_range)
    ours = statistics.median(abs(pod.waited - pod.range.p50) for pod in with_range)
    naive = statistics.median(abs(pod.waited - pod.naive) for pod in with_range)
    typical = statistics.median(pod.waited for pod in with_range)
    replayed = f"{len(pods)}, {len(waited)}; replayed in {seconds:.0f} s of processor time"
    return [
        Figure("pods of the trace, of which waited", replayed),
        Figure("estimates with a range, median wait", f"{len(with_range)}, {typical:.0f} s"),
        _claim("started by p50", by_p50, 0.5),
        _claim("started by p90", by_p90, 0.9),
        _claim("started between p50 and p90", by_p90 - by_p50, 0.4),
        Figure(
            "median error of p50, and of position times mean run time",
            f"{ours:.0f} s, {naive:.0f} s",
            "less",
            ours < naive,
        ),
    ]


def _claim(what: str, share: float, claimed: float) -> Figure:
    return Figure(what, f"{share:.1%}", f"{claimed:.0%} within 10 points", abs(share - claimed) <= _WITHIN)


class Replay:
    """Replay of the trace through the engine, with the estimates that would have been admission."""

    _EVERY = 900.0
    """Minimum seconds between two forecasts; there is none without newly waiting workloads."""

    def __init__(self, pods: list[_Pod]) -> None:
        self._pods = {pod.workload.uid: pod for pod in pods}
        self._engine = Engine()
        self._objects = [NamespaceChanged("ns", {}), *map(QueueObjectChanged, _queues(pods))]
        self._waiting: dict[str, _Pod] = {}
        self._running: dict[str, tuple[_Pod, Admission, float]] = {}
        self._estimated_at: dict[str, float] = {}
        """Uid to the time of its estimate."""
        self._new: list[_Pod] = []
        self._durations = Durations()
        self._calibration = Calibration()
        self._forecast_at = 0.0

    def run(self) -> None:
        """Replay from the first arrival to the last end."""
        for event in self._objects:
            self._engine.observe(event, now=0.0)
        happenings = [(pod.arrives, 1, uid) for uid, pod in self._pods.items()]
        happenings.sort(reverse=True)
        ends: list[tuple[float, str]] = []
        while happenings or ends:
            if not happenings or (ends and ends[0][0] <= happenings[-1][0]):
                now, uid = heappop(ends)
                pod, *_ = self._running.pop(uid)
                self._durations.learn(pod.workload, pod.seconds)
                self._engine.observe(WorkloadGone(uid), now=now)
            else:
                now, _, uid = happenings.pop()
                self._waiting[uid] = self._pods[uid]
                self._new.append(self._pods[uid])
                self._engine.observe(WorkloadPending(self._pods[uid].workload), now=now)
            for admit in self._engine.settle(now).admitted:
                self._start(admit.workload.uid, admit.admission, now)
                heappush(ends, (now + self._pods[admit.workload.uid].seconds, admit.workload.uid))
            if self._new and now >= self._forecast_at:
                self._forecast(now)

    def _start(self, uid: str, admission: Admission, now: float) -> None:
        pod = self._waiting.pop(uid)
        self._running[uid] = pod, admission, now
        if (estimated := self._estimated_at.pop(uid, None)) is not None and pod.simulated is not None:
            pod.waited = now - estimated
            self._calibration.learn(pod.simulated, pod.waited)
            if pod.claim is not None:
                self._calibration.check(pod.claim, pod.waited, started=True)

    def _forecast(self, now: float) -> None:
        new = [pod for pod in self._new if pod.workload.uid in self._waiting]
        self._new = []
        if not new:
            return
        self._forecast_at = now + self._EVERY
        events: list[Event] = [*self._objects]
        events += [WorkloadAdmitted(pod.workload, admission, at=at) for pod, admission, at in self._running.values()]
        events += [WorkloadPending(pod.workload) for pod in self._waiting.values()]
        starts = forecast_starts(CurrentState(Policy(), events, now, {}), self._durations)
        simulated = {uid: starts[uid] for pod in new if (uid := pod.workload.uid) in starts}
        ranges = self._calibration.ranges(simulated, waiting=self._still_waiting(now))
        for pod in new:
            uid = pod.workload.uid
            if uid in simulated:
                self._estimated_at[uid] = now
                pod.simulated = simulated[uid]
                pod.claim = ReportedRange(ranges[uid]) if uid in ranges else None
                pod.naive = self._position(pod) * self._mean(pod)

    def _still_waiting(self, now: float) -> list[tuple[float, float]]:
        """Return (simulated wait, wait so far) since the estimate, of the workloads that still wait."""
        found = []
        for uid, estimated in self._estimated_at.items():
            pod = self._pods[uid]
            assert pod.simulated is not None, uid
            found.append((pod.simulated, now - estimated))
            if pod.claim is not None:
                self._calibration.check(pod.claim, now - estimated, started=False)
        return found

    def _position(self, pod: _Pod) -> int:
        return self._engine.explain(pod.workload.uid).position_in_cluster_queue

    def _mean(self, pod: _Pod) -> float:
        group = self._durations._groups.get((("ns", pod.workload.queue),))
        return statistics.mean(group.sorted) if group is not None else 0.0


async def _cost() -> Figure:
    """Measure one forecast with 10,000 pending workloads."""
    objects = [_queue(f"q{n}", {"cpu": 500_000, "memory": 0, _GPU: 0}) for n in range(10)]
    events: list[Event] = [NamespaceChanged("ns", {})]
    events += [QueueObjectChanged(one) for group in objects for one in group]
    durations = Durations()
    engine = Engine()
    for number in range(_PENDING + 1000):
        requests = {"cpu": 1000 * (1 + number % 9), "memory": 0, _GPU: 0}
        shaped = PodSet("main", 1, requests)
        workload = Workload(f"w{number}", "ns", f"w{number}", f"q{number % 10}", 0, float(number), (shaped,))
        if number < 1000:
            durations.learn(workload, 600.0 + 37 * (number % 100))
        events.append(WorkloadPending(workload))
    for event in events:
        engine.observe(event, now=20_000.0)
    running = {admit.workload.uid: admit.admission for admit in engine.settle(20_000.0).admitted}
    events = [
        WorkloadAdmitted(event.workload, running[event.workload.uid], at=19_000.0)
        if isinstance(event, WorkloadPending) and event.workload.uid in running
        else event
        for event in events
    ]
    waiting = sum(isinstance(event, WorkloadPending) for event in events)
    started = time.process_time()
    starts = forecast_starts(CurrentState(Policy(), events, 20_000.0, {}), durations)
    seconds = time.process_time() - started
    assert len(starts) == waiting, "every one of them is to start"
    return at_most(f"one future of {waiting} that wait, to the last one", seconds, 1.0, "s of processor time")


async def _beside_decisions() -> list[Figure]:
    """Measure forecasts from a database in the process that makes them for `serve`, and their effect on the leader.

    The latter is the longest processor time of its thread between two switches to other tasks, which does not depend on
    the load of the machine.
    """
    tune()  # as `serve` does
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'sluice.db'}"
        await migrate(url)
        controller = SimpleNamespace(
            engine=lambda: SimpleNamespace(waiting=_PENDING),
            namespaces=lambda: {"ns": {}},
            time_limits=lambda: {f"w{number}": 600.0 for number in range(_PENDING)},
        )
        estimates = EstimatingProcess(
            load_settings({"database_url": url}), cast("Controller", controller), interval=0.0
        )
        async with Store.open(url) as store:
            epoch, began = await store.lead("benchmark", elected=True), time.time() - _PENDING
            await _commit(store, epoch, range(_PENDING), State.PENDING, began)
            running = asyncio.create_task(estimates.run())
            await _until(lambda: estimates.cpu_seconds > 0)
            # Ranges are available once some workloads with an estimate have started.
            await _commit(store, epoch, range(100), State.ADMITTED, began)
            longest = await _until(lambda: estimates.of("w5000") is not None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return [
        at_most(f"{_PENDING} estimates from the database, whole", estimates.cpu_seconds, 1.0, "s of processor time"),
        at_most("longest that decisions wait for them", 1000 * longest, 20.0, "ms", 1),
    ]


async def _until(done: Callable[[], bool]) -> float:
    """Wait until `done`; return the longest uninterrupted work of this thread meanwhile, in seconds."""
    longest = 0.0
    while not done():
        before = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - before)
    return longest


async def _commit(store: Store, epoch: int, numbers: range, state: State, began: float) -> None:
    for number in range(10):
        for one in _queue(f"q{number}", {"cpu": 500_000, "memory": 0, _GPU: 0}):
            with suppress(AlreadyExists):
                await store.queues.create(one, author=Author("benchmark"))
    for first in range(numbers.start, numbers.stop, 2000):
        records, opened = [], []
        for number in numbers[first : first + 2000]:
            requests = {"cpu": 1000 * (1 + number % 9), "memory": 0, _GPU: 0}
            queue, shaped = f"q{number % 10}", (PodSet("main", 1, requests),)
            workload = Workload(f"w{number}", "ns", f"w{number}", queue, 0, began + number, shaped)
            at = time.time() if state is State.ADMITTED else None
            records.append(WorkloadRecord(workload, state, began + number, queue, admitted_at=at))
            if at is not None:
                held = PodSetAssignment("main", dict.fromkeys(requests, "default"), requests, 1)
                opened.append(Opened(workload, Admission(queue, (held,)), at))
        await store.commit(Changes(tuple(records), opened=tuple(opened)), epoch=epoch)


def _pods() -> list[_Pod]:
    with _TRACE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs = [float(row["deletion_time"]) - float(row["scheduled_time"]) for row in rows if row["scheduled_time"]]
    typical = statistics.median(runs)
    return [_pod(row, typical) for row in rows]


def _pod(row: dict[str, str], typical: float) -> _Pod:
    requests = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]), _GPU: int(row["num_gpu"])}
    arrives = float(row["creation_time"])
    seconds = float(row["deletion_time"]) - float(row["scheduled_time"]) if row["scheduled_time"] else typical
    name, queue = row["name"], row["qos"].lower()
    workload = Workload(name, "ns", name, queue, 0, arrives, (PodSet("main", 1, requests),))
    return _Pod(workload, arrives, max(seconds, 1.0))


def _queues(pods: list[_Pod]) -> Iterable[QueueObject]:
    for queue in sorted({pod.workload.queue for pod in pods}):
        members = [pod for pod in pods if pod.workload.queue == queue]
        largest = {name: max(_request(pod, name) for pod in members) for name in ("cpu", "memory", _GPU)}
        yield from _queue(
            queue, {name: max(int(_QUOTA * _peak(members, name)), most) for name, most in largest.items()}
        )


def _peak(pods: list[_Pod], resource: str) -> int:
    changes = [(pod.arrives, _request(pod, resource)) for pod in pods]
    changes += [(pod.arrives + pod.seconds, -_request(pod, resource)) for pod in pods]
    most = used = 0
    for _, amount in sorted(changes):
        used += amount
        most = max(most, used)
    return most


def _request(pod: _Pod, resource: str) -> int:
    return pod.workload.pod_sets[0].requests[resource]


def _queue(name: str, quota: dict[str, int]) -> list[QueueObject]:
    amounts = {resource: f"{amount}m" if resource == "cpu" else amount for resource, amount in quota.items()}
    queue = cluster_queue(name, quotas={"default": amounts})
    return [parse_manifest(one) for one in (flavor(), queue, local_queue(name, "ns", name))]
