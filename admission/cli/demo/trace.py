"""Plan of a demo from a real trace: the first pods of Alibaba's cluster-trace-gpu-v2023 become Jobs of one pod.

The trace covers months, a demo a minute. So idle periods are shortened, arrivals are compressed in time, run times are
capped, and the sandbox's clock is `speed` times as fast as real time. Order, bursts, sizes and the mix of short and
long runs remain real.
"""

from __future__ import annotations

import csv
import statistics
from itertools import islice
from typing import TYPE_CHECKING, Final

from admission.cli.demo.plan import GPU, Nodes, PlannedJob, ScenePlan, Team
from admission.cli.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_MIB: Final = 2**20
_COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "qos", "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
_SECONDS_PER_ARRIVAL: Final = 0.03
"""Average real seconds between arrivals: the first 2000 pods arrive within a minute."""
_LONGEST_PAUSE: Final = 3600.0
"""Seconds of the trace to which longer pauses between arrivals are shortened."""
_LONGEST_RUN: Final = 3600.0
"""Seconds of sandbox time at which runs are capped."""
_NODE: Final = {"cpu": 128_000, "memory": 768 * 1024 * _MIB, GPU: 8}
"""Capacity of the largest nodes of the trace, on which each of its pods fits."""
_NODES: Final = 10
# Team, quota in tenths of the nodes, priority class, its value, and QoS classes of its pods. The quotas are close to
# what each class requests over the whole trace.
_TEAMS: Final = (
    ("latency-sensitive", 5, "production", 300, ("LS",)),
    ("guaranteed", 2, "standard", 200, ("Burstable", "Guaranteed")),
    ("best-effort", 3, "spare", 100, ("BE",)),
)
_TEAM_OF: Final = {qos: name for name, *_, classes in _TEAMS for qos in classes}


class BadTrace(DemoError):
    """A trace file that cannot be replayed."""


def trace_plan(path: Path, *, jobs: int = 2000, speed: float = 360.0) -> ScenePlan:
    """Return the plan for the first `jobs` pods in `path`. Raises BadTrace; its message names line and column."""
    planned = _jobs(_read(path, jobs))
    pause, arriving = _minutes(_LONGEST_PAUSE), _arriving(len(planned))
    notes = (
        f"Pauses between arrivals are shortened to {pause}, and all arrivals compressed into {arriving:g} s.",
        f"Runs are capped at {_minutes(_LONGEST_RUN)} of sandbox time, which is {speed:g} times as fast as real time.",
    )
    whole = {resource: amount * _NODES for resource, amount in _NODE.items()}
    return ScenePlan(
        title=f"{len(planned)} pods of {path.name} as Jobs, {_NODES} nodes with {whole[GPU]} GPUs and "
        f"{whole['cpu'] // 1000} CPUs",
        notes=notes,
        teams=tuple(
            Team(name, {r: amount * tenths // 10 for r, amount in whole.items()}, None, priority_class, priority)
            for name, tenths, priority_class, priority, _ in _TEAMS
        ),
        nodes=Nodes(_NODES, _NODE),
        jobs=planned,
        speed=speed,
        shown=(GPU, "cpu"),
    )


def _read(path: Path, limit: int) -> list[tuple[int, dict[str, str]]]:
    """Return the first rows, each with its line number."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restval="")
            missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise BadTrace(
                    f"{path} is not the pod list of cluster-trace-gpu-v2023: its first line has no column "
                    f"{', '.join(missing)}; pass its openb_pods.csv"
                )
            rows = [(reader.line_num, row) for row in islice(reader, limit)]
    except OSError as error:
        raise BadTrace(f"the trace {path} cannot be read: {error.strerror}; pass the path of openb_pods.csv") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadTrace(f"the trace {path} is not a CSV file: {error}; pass the path of openb_pods.csv") from error
    if not rows:
        raise BadTrace(f"the trace {path} has a header, but no pods; pass the path of a whole openb_pods.csv")
    return rows


def _jobs(rows: list[tuple[int, dict[str, str]]]) -> tuple[PlannedJob, ...]:
    runs = [_run(line, row) for line, row in rows]
    # Pods that never started have no run time; they get the median of the others.
    typical = statistics.median([run for run in runs if run is not None] or [_LONGEST_RUN])
    arrivals = _compressed([_number(line, row, "creation_time") for line, row in rows])
    planned = [
        _job(line, row, run=min(_LONGEST_RUN, typical if run is None else run), arrival=arrival)
        for (line, row), run, arrival in zip(rows, runs, arrivals, strict=True)
    ]
    return tuple(sorted(planned, key=lambda job: job.arrival))


def _job(line: int, row: Mapping[str, str], *, run: float, arrival: float) -> PlannedJob:
    requests = {
        "cpu": int(_number(line, row, "cpu_milli")),
        "memory": int(_number(line, row, "memory_mib")) * _MIB,
        GPU: int(_number(line, row, "num_gpu")),
    }
    for resource, amount in requests.items():
        if amount > _NODE[resource]:
            raise BadTrace(f"line {line} of the trace requests more {resource} than any node of that trace has")
    team = _TEAM_OF.get(row["qos"])
    if team is None:
        raise BadTrace(f"line {line} of the trace has the unknown qos {row['qos']!r}; expected {', '.join(_TEAM_OF)}")
    return PlannedJob(row["name"], team, 1, requests, max(1.0, run), arrival)


def _run(line: int, row: Mapping[str, str]) -> float | None:
    if not row["scheduled_time"]:
        return None
    return _number(line, row, "deletion_time") - _number(line, row, "scheduled_time")


def _compressed(instants: Iterable[float]) -> list[float]:
    """Return the arrivals in real seconds after the first: proportional, except for shortened pauses."""
    elapsed, last, times = 0.0, None, []
    for instant in instants:
        elapsed += 0.0 if last is None else min(_LONGEST_PAUSE, max(0.0, instant - last))
        last = instant
        times.append(elapsed)
    return [time * _arriving(len(times)) / max(elapsed, 1.0) for time in times]


def _arriving(jobs: int) -> float:
    return round(jobs * _SECONDS_PER_ARRIVAL, 1)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"


def _number(line: int, row: Mapping[str, str], column: str) -> float:
    try:
        number = float(row[column])
    except (TypeError, ValueError) as error:
        raise BadTrace(f"line {line} of the trace has {row[column]!r} as {column}, which is not a number") from error
    if not 0 <= number < float("inf"):
        raise BadTrace(f"line {line} of the trace has {row[column]} as {column}, which is not a valid amount")
    return number
