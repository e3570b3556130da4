"""The scene "month": a team with a Budget, a calendar of weekends and a Reservation, decided on virtual time.

The team `ml` trains; the team `vision` works in the week, and gives `ml` most of its GPUs on weekends. A user of
`vision` has reserved GPUs for a benchmark. `ml` wants more than its Budget has, and is granted more near the end.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.cli.demo.closing import Closing
from admission.cli.demo.plan import GPU, queue_object
from admission.engine import (
    Budgets,
    NamespaceChanged,
    Policy,
    QueueObjectChanged,
    Reservations,
    WorkloadGone,
    WorkloadPending,
)
from admission.engine.vocabulary import BUDGET_EXHAUSTED, RESERVED_FOR_OTHERS
from admission.model.manifests import parse_manifest
from admission.model.queues import Budget, ClusterQueue, quota_changes, quotas_at
from admission.model.workload import PodSet, Workload
from admission.simulate.virtual_time import STOPPING_SECONDS, VirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.demo.plan import Document
    from admission.cli.demo.terminal import Terminal
    from admission.model.queues import QueueObject

GPUS: Final = 64
BUDGET, GRANT = 14_000, 3_000
"""GPU hours of `ml` for the month, and those that an admin grants near its end."""
RESERVED: Final = 24
"""GPUs of the Reservation."""
BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
END: Final = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
COLUMN: Final = 12 * 3600.0
"""Seconds of a column of the chart."""
_ML, _VISION, _ADA = "ml", "vision", "ada"
QUOTA: Final = {_ML: (24, 48), _VISION: (40, 16)}
"""GPUs by team, which is its ClusterQueue: in the week, and on weekends."""
_WEEKEND: Final = {"start": "2026-10-30T20:00", "end": "2026-11-02T06:00", "recurrence": "FREQ=WEEKLY"}
_RESERVED_FROM: Final = datetime(2026, 11, 18, 8, tzinfo=UTC).timestamp()
_BENCHMARKS: Final = 3
"""Ada's runs, which share the Reservation."""
_GRANTED_AT: Final = datetime(2026, 11, 26, 9, tzinfo=UTC).timestamp()
_EVICTS_AFTER: Final = 600
"""Seconds after which Sluice evicts what holds more than its quota."""
_HOUR: Final = 3600.0

_FRAMES: Final = 120
_PACE: Final = 0.06
"""Shortest seconds between two frames, so that a fast machine shows something, too."""
_PER_ROW: Final = 4
"""GPUs of a row of the chart."""
_CELLS: Final = {_ML: ("used", "█"), _VISION: ("borrowed", "▒"), _ADA: ("done", "▓")}
"""Style and character by whose GPUs they are."""


class _Run(NamedTuple):
    workload: Workload
    seconds: float
    """How long it runs."""

    @property
    def gpus(self) -> int:
        """Its GPUs."""
        return self.workload.pod_sets[0].requests[GPU]

    @property
    def whose(self) -> str:
        """Whose it is: the user's for whom GPUs are reserved, else the team's."""
        return self.workload.user or self.workload.queue


@dataclass(slots=True)
class Account:
    """What became of the month so far. Times are Unix times in seconds, amounts GPUs."""

    now: float = BEGIN
    used: defaultdict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    """GPU seconds by column of the chart, and whose they are."""
    waits: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of each workload that has started, by uid: whose it is, and its wait until its first start."""
    evicted: Counter[str] = field(default_factory=Counter)
    """Evictions, by team."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why workloads wait: the last message of each reason."""
    limit: int = BUDGET
    """The GPU hours of the Budget."""
    is_overdrawn: bool = False
    """Whether `ml` has ever used more than its Budget."""
    is_over_quota: bool = False
    """Whether a team has ever held more than its quota, but for the minutes in which Sluice evicts it."""

    def hours(self, whose: str) -> float:
        """Return the GPU hours that somebody has used."""
        return sum(seconds for (_, user), seconds in self.used.items() if user == whose) / _HOUR


class MonthPlay:
    """The month, played by the engine on virtual time."""

    def __init__(self, seed: int = 1) -> None:
        self.account = Account()
        self._time = VirtualTime(Policy(policies=(Budgets(), Reservations())), BEGIN)
        self._runs = {run.workload.uid: run for run in _month_of_runs(seed)}
        self._held: dict[str, _Run] = {}
        """Those that hold quota, by uid."""
        self._quota: dict[str, int] = {}
        """GPUs of each team, now."""
        self._changed_at = BEGIN
        """When the calendar last changed them."""
        objects = [parse_manifest(document) for document in _queue_documents()]
        self._time.load([NamespaceChanged("default", {})])
        for item in objects:
            self._changed(first := quotas_at(item, BEGIN))
            self._time.load([QueueObjectChanged(first)])
            for at, changed in quota_changes(item, BEGIN, END):
                self._time.schedule(at, QueueObjectChanged(changed))
        self._time.schedule(_GRANTED_AT, QueueObjectChanged(parse_manifest(_budget(GRANT))))
        for run in self._runs.values():
            self._time.schedule(run.workload.created, WorkloadPending(run.workload))

    def until(self, end: float) -> None:
        """Play on until `end`."""
        time, account = self._time, self.account
        while True:
            decisions = time.settle()
            for admit in decisions.admitted:
                run = self._held[admit.workload.uid] = self._runs[admit.workload.uid]
                account.waits.setdefault(admit.workload.uid, (run.whose, time.now - run.workload.created))
                time.end(time.now + run.seconds, admit.workload.uid)
            account.evicted.update(evict.workload.queue for evict in decisions.evicted)
            account.reasons.update((park.reason, park.message) for park in decisions.parked)
            processed = time.advance(end)
            self._pass(end if processed is None else time.now)
            if processed is None:
                time.now = end
                return
            for _, event in processed:
                if isinstance(event, WorkloadGone):
                    self._held.pop(event.uid, None)
                elif isinstance(event, QueueObjectChanged):
                    self._changed(event.object)

    def _changed(self, item: QueueObject) -> None:
        if isinstance(item, ClusterQueue):
            (group,) = item.spec.resource_groups
            self._quota[item.metadata.name] = group.flavors[0].resources[0].nominal
            self._changed_at = self._time.now
        elif isinstance(item, Budget) and item.spec.grants:
            self.account.limit += GRANT

    def _pass(self, end: float) -> None:
        """Account for the time until `end`, in which nothing starts or ends."""
        account = self.account
        settled = account.now > self._changed_at + _EVICTS_AFTER + STOPPING_SECONDS
        for team, quota in self._quota.items():
            held = sum(run.gpus for run in self._held.values() if run.workload.queue == team)
            account.is_over_quota |= settled and held > quota
        while account.now < end:
            column = int((account.now - BEGIN) / COLUMN)
            until = min(BEGIN + (column + 1) * COLUMN, end)
            for run in self._held.values():
                account.used[column, run.whose] += run.gpus * (until - account.now)
            account.now = until
        account.is_overdrawn |= account.hours(_ML) > account.limit * (1 + 1e-9)  # sums of floats


def _month_of_runs(seed: int) -> Iterator[_Run]:
    """Yield the workloads of the month: of `ml` more than its Budget, of `vision` most in the week, and the benchmarks.

    Their time limits are what they run at most: nearly all end before.
    """
    chance = random.Random(seed)
    at = BEGIN
    for number in range(10_000):
        at += chance.expovariate(1 / (5 * _HOUR))
        if at >= END:
            break
        hours = chance.uniform(6, 24)
        yield _run(f"train-{number}", _ML, at, chance.choice((4, 8, 16)), hours, chance.uniform(0.6, 1))
    at = BEGIN
    for number in range(10_000):
        at += chance.expovariate(1 / (0.35 * _HOUR))
        if at >= END:
            break
        when = datetime.fromtimestamp(at, UTC)
        if chance.random() < (0.3 if when.weekday() >= 5 else 1 if 7 <= when.hour < 19 else 0.4):
            yield _run(f"notebook-{number}", _VISION, at, chance.choice((1, 2, 4)), chance.uniform(2, 10), 0.8)
    for number in range(_BENCHMARKS):
        yield _run(f"benchmark-{number}", _VISION, _RESERVED_FROM, RESERVED // _BENCHMARKS, 55, 1, user=_ADA)


def _run(name: str, queue: str, at: float, gpus: int, hours: float, used: float, user: str = "") -> _Run:
    pods = (PodSet("main", 1, {GPU: gpus}),)
    limit = int(hours * _HOUR)
    workload = Workload(name, "default", name, queue, 0, at, pods, user=user, max_seconds=limit)
    return _Run(workload, limit * used)


def _queue_documents() -> Iterator[Document]:
    yield queue_object("ResourceFlavor", "h100", spec={})
    for team, (weekdays, weekend) in QUOTA.items():
        resources = [{"name": GPU, "nominalQuota": weekdays}]
        changed = [{"flavor": "h100", "resource": GPU, "nominalQuota": weekend}]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": resources}]}],
            "queueingStrategy": "BestEffortFIFO",
            "overQuota": {"evictAfterSeconds": _EVICTS_AFTER},
            "calendar": {"entries": [{"name": "weekends", **_WEEKEND, "quotas": changed}]},
        }
        yield queue_object("ClusterQueue", team, spec=spec)
        yield queue_object("LocalQueue", team, namespace="default", spec={"clusterQueue": team})
    yield _budget(0)
    reserved = {
        "clusterQueue": _VISION,
        "quotas": [{"flavor": "h100", "resource": GPU, "amount": RESERVED}],
        "holders": {"users": [_ADA]},
        "start": "2026-11-18T08:00",
        "end": "2026-11-20T18:00",
    }
    yield queue_object("Reservation", "benchmark", spec=reserved)


def _budget(granted: int) -> Document:
    grant = {"day": "2026-11-26", "resource": GPU, "hours": granted, "reason": "paper deadline"}
    spec = {
        "scope": {"clusterQueues": [_ML]},
        "resources": [{"name": GPU, "hours": BUDGET}],
        "period": {"every": "Month"},
        "enforcement": "Reserve",
        "grants": [grant] if granted else [],
    }
    return queue_object("Budget", _ML, spec=spec)


async def play_month(terminal: Terminal) -> bool:
    """Play the month, and return whether Budget, calendar and Reservation were kept."""
    terminal.say(f"Sluice demo: a month of two teams with {GPUS} GPUs: Budget, calendar and Reservation.")
    terminal.say(
        f"On weekends ml has {QUOTA[_ML][1]} GPUs instead of {QUOTA[_ML][0]}; it has {BUDGET:,} GPU hours a month."
    )
    terminal.say(f"Ada of vision has reserved {RESERVED} GPUs from the 18th to the 20th. Decided on virtual time.")
    play = MonthPlay()
    with terminal:
        for frame in range(1, _FRAMES + 1):
            pause = asyncio.create_task(asyncio.sleep(_PACE if terminal.interactive else 0))
            play.until(BEGIN + (END - BEGIN) * frame / _FRAMES)
            await pause
            if terminal.interactive or frame == _FRAMES:
                terminal.redraw([*_picture(terminal, play.account)])
    terminal.say()
    for reason in (BUDGET_EXHAUSTED, RESERVED_FOR_OTHERS):
        for line in textwrap.wrap(f"`sluice why` of one that waited: {play.account.reasons.get(reason)}", 80):
            terminal.say(line)
    closing = _close(play.account)
    terminal.close(closing)
    return closing.kept


def _picture(terminal: Terminal, account: Account) -> Iterator[tuple[str, int]]:
    """Yield lines with their lengths: a chart in which `ml` grows from below, and `vision` hangs from above."""
    columns = int((END - BEGIN) / COLUMN)
    averages = [{whose: account.used[column, whose] / COLUMN for whose in _CELLS} for column in range(columns)]
    yield "", 0
    for row in range(GPUS // _PER_ROW):
        cells = [_cell(average, (row + 0.5) * _PER_ROW) for average in averages]
        text = "".join(terminal.paint(_CELLS[whose][0], _CELLS[whose][1]) if whose else " " for whose in cells)
        yield f"{GPUS - row * _PER_ROW if row % 4 == 0 else '':>3} {text}", 4 + columns
    days = "".join("S " if _is_weekend(BEGIN + column * COLUMN) else "· " for column in range(0, columns, 2))
    yield terminal.paint("dim", f"    {days}"), 4 + columns
    yield "    " + "".join(f"{day:<10}" for day in range(1, 31, 5)), 4 + columns
    legend = [f"{sign} {whose}" for whose, (_, sign) in _CELLS.items()]
    note = f"    {'   '.join(legend)}   S: Saturday, Sunday   blank: idle"
    yield terminal.paint("dim", note), len(note)
    spent = account.hours(_ML)
    bar = terminal.bar((("used", "█", round(spent)), ("dim", "░", account.limit)), BUDGET + GRANT)
    text = f"    {spent:,.0f} of {account.limit:,} GPU hours of ml"
    yield f"    {bar}{text}", 44 + len(text)


def _cell(average: dict[str, float], depth: float) -> str:
    """Return whose the GPUs are at a depth below the top of the chart; "": nobody uses them."""
    if depth > GPUS - average[_ML]:
        return _ML
    if depth < average[_ADA]:
        return _ADA
    return _VISION if depth < average[_ADA] + average[_VISION] else ""


def _is_weekend(at: float) -> bool:
    return datetime.fromtimestamp(at, UTC).weekday() >= 5


def _close(account: Account) -> Closing:
    rows = []
    for whose in _CELLS:
        waits = [wait for user, wait in account.waits.values() if user == whose]
        rows.append(
            (
                whose,
                str(len(waits)),
                f"{statistics.mean(waits) / _HOUR:.1f} h",
                f"{account.hours(whose):,.0f}",
                str(account.evicted[whose]),
            )
        )
    ada = [wait for user, wait in account.waits.values() if user == _ADA]
    reserved = len(ada) == _BENCHMARKS and not any(ada)
    return Closing(
        ("Whose", "started", "Mean wait", "GPU hours", "evicted"),
        tuple(rows),
        "Workloads of vision end before the Reservation starts, by their time limits, or wait until it is over. What "
        "holds more than its quota when a weekend ends is evicted ten minutes later, and starts again.",
        (("Budget of ml", f"{BUDGET:,} GPU hours, and {GRANT:,} granted on the 26th"),),
        (
            (not account.is_overdrawn, f"ml used {account.hours(_ML):,.0f} GPU hours, never more than its Budget had"),
            (not account.is_over_quota, "no team held more than its quota of weekday or weekend"),
            (reserved, "Ada's benchmarks had the reserved GPUs when they began"),
        ),
    )
