"""What-if by replay: a month of 100,000 workloads, and other quota for the trace of a GPU cluster.

The trace is Alibaba's cluster-trace-gpu-v2023: its pods with GPUs become Jobs that arrive and run as recorded. With
`SLUICE_PICTURE=FILE` the waits by quota are drawn there, as `sluice whatif -o svg` does.
"""

from __future__ import annotations

import csv
import os
import random
import time
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from admission.cli.commands.whatif import quota_chart
from admission.engine import Policy
from admission.model.manifests import parse_manifest
from admission.model.queues import QueueObject
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.simulate.what_if import CourseSummary, Waits, what_if
from admission.store.records import QueueObjectVersion, State, WorkloadRecord
from admission.store.workloads.past import Past, PastWorkload, Spell
from tests.benchmarks.measure import REPOSITORY, Figure, at_most
from tests.queue_objects import cluster_queue, flavor, local_queue

_GPU: Final = "nvidia.com/gpu"
_START: Final = 1_760_000_000.0
_MONTH: Final = 30 * 86400.0
_WORKLOADS: Final = 100_000
_TRACE: Final = REPOSITORY.parent / "shared" / "traces" / "openb_pods.csv"
_SHARES: Final = (40, 60, 80, 100)
"""Quota in percent of the largest number of GPUs that the trace has in use at a time."""
_HOUR: Final = 3600.0


async def run() -> list[Figure]:
    """Measure both."""
    return [*_month(), *_trace()]


def _month() -> list[Figure]:
    """Replay a month of one queue whose quota is used to 95 %, with its own quota and with a tenth more."""
    chance = random.Random(1)
    arrivals = sorted(chance.uniform(0, _MONTH) for _ in range(_WORKLOADS))
    runs = [(at, chance.choice((1, 1, 2, 4, 8)), chance.expovariate(1 / _HOUR)) for at in arrivals]
    quota = round(sum(gpus * seconds for _, gpus, seconds in runs) / _MONTH / 0.95)
    past = _past(runs, quota, _MONTH)
    began = time.process_time()
    found = what_if(past, Policy(), [_queue(round(quota * 1.1))], {"default": {}})
    seconds = (time.process_time() - began) / 2
    assert found.changed is not None
    waits = found.replayed.all.p90, found.changed.all.p90
    return [
        at_most(f"a month of {_WORKLOADS:,} workloads: processor time of a replay", seconds, 120, "s"),
        Figure(f"p90 of the wait with {quota} GPUs, and a tenth more", f"{waits[0]:.0f} s, {waits[1]:.0f} s"),
    ]


def _trace() -> list[Figure]:
    if not _TRACE.exists():
        return [Figure("the trace of a GPU cluster", f"skipped: there is no {_TRACE.name}")]
    with _TRACE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"]) > 0]
    runs = [(_at(row["creation_time"]), int(row["num_gpu"]), _at(row["deletion_time"]) - _began(row)) for row in rows]
    runs.sort()
    changes = sorted(
        change
        for row in rows
        for change in ((_began(row), int(row["num_gpu"])), (_at(row["deletion_time"]), -int(row["num_gpu"])))
    )
    peak = max(accumulate(gpus for _, gpus in changes))
    end = max(at + seconds for at, _, seconds in runs)
    past, figures, tried = _past(runs, peak, end), [], []
    for share in _SHARES:
        quota = peak * share // 100
        found = what_if(past, Policy(), [_queue(quota)], {"default": {}}).changed
        assert found is not None
        tried.append(_tried(quota, found.all))
        figures.append(Figure(f"the trace with {share} % of its peak, {quota} GPUs", _text(found)))
    if picture := os.environ.get("SLUICE_PICTURE"):
        place = {"resource": _GPU, "flavor": "gpu", "clusterQueue": "all"}
        needed = next((each["quota"] for each in tried if each["waitSeconds"]["p90"] <= _HOUR), None)
        Path(picture).write_text(quota_chart({"tried": tried, "p90Seconds": _HOUR, "neededQuota": needed, **place}))
    return figures


def _at(text: str) -> float:
    return float(text)


def _began(row: dict[str, str]) -> float:
    return float(row["scheduled_time"] or row["creation_time"])


def _text(course: CourseSummary) -> str:
    (use,) = course.resources
    waits = course.all
    return (
        f"{use.used / use.quota:.0%} used; waits: half {waits.p50 / 60:.0f} min, nine of ten {waits.p90 / 60:.0f} min, "
        f"longest {waits.longest / 3600:.0f} h; {waits.waiting} of {waits.workloads} not started"
    )


def _tried(quota: int, waits: Waits) -> dict[str, Any]:
    seconds = {"mean": waits.mean, "p50": waits.p50, "p90": waits.p90, "longest": waits.longest}
    return {"quota": quota, "waitSeconds": seconds}


def _past(runs: Iterable[tuple[float, int, float]], quota: int, seconds: float) -> Past:
    """Return a period of workloads that arrive, have a number of GPUs and run as given (s after its start)."""
    workloads = []
    for number, (at, gpus, ran) in enumerate(runs):
        arrived = _START + at
        pod_sets = (PodSet("main", 1, {_GPU: gpus}),)
        workload = Workload(f"w{number}", "default", f"w{number}", "all", 0, arrived, pod_sets)
        record = WorkloadRecord(workload, State.FINISHED, arrived, outcome="Succeeded", finished_at=arrived + ran)
        admission = Admission("all", (PodSetAssignment("main", {_GPU: "gpu"}, {_GPU: gpus}, 1),))
        # As if all had started on arrival: replays only take from it for how long they ran.
        spell = Spell(admission, arrived, arrived, arrived + ran, "Succeeded")
        workloads.append(PastWorkload(record, (spell,)))
    objects = (parse_manifest(flavor("gpu")), _queue(quota), parse_manifest(local_queue("all", target="all")))
    versions = [
        QueueObjectVersion(each, "create", "bench", "", _START - 1, number) for number, each in enumerate(objects)
    ]
    return Past(_START, _START + seconds, workloads, versions, (), 0)


def _queue(gpus: int) -> QueueObject:
    return parse_manifest(cluster_queue("all", quotas={"gpu": {_GPU: gpus}}))
