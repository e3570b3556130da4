"""Checks of the database after a chaos test, by queries that share no code with Sluice's writes."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select, text

from admission.api.resources.history import waiting_times
from admission.cli.demo.gangs import UNTIL_DELETED
from admission.engine import Budgets, Policy, Reservations, UserLimits
from admission.simulate.what_if import Replay, Timeline
from admission.store.database.connection import Location, connect
from admission.store.database.tables import admissions as rows
from admission.store.database.tables import transitions, workloads
from admission.store.records import GOES_ON, Transition
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.cli.demo.plan import ScenePlan

_OPEN = text("SELECT count(*) FROM admissions WHERE to_at IS NULL")
_UNFINISHED = text("SELECT count(*) FROM workloads WHERE state <> 'finished'")
_OUTCOMES = text("SELECT outcome, count(*) FROM workloads GROUP BY outcome")
# Per workload name: the number of commits that ended an admission, and how many of them because the Job had ended.
# Rows that end as Reclaimed are not counted: the admission continues with less quota.
_ADMISSIONS = text(
    "SELECT w.namespace, w.name, count(DISTINCT CASE WHEN a.end_reason <> 'Reclaimed' THEN a.to_revision END), "
    "count(DISTINCT CASE WHEN a.end_reason IN ('Succeeded', 'Deleted') THEN a.to_revision END) FROM workloads w "
    "LEFT JOIN admissions a ON a.workload_uid = w.uid GROUP BY w.namespace, w.name"
)
_AT_FIRST = text(
    "SELECT w.namespace, w.name, sum(a.count) FROM workloads w JOIN admissions a ON a.workload_uid = w.uid "
    "WHERE a.resource = 'cpu' AND a.from_revision = "
    "(SELECT min(b.from_revision) FROM admissions b WHERE b.workload_uid = w.uid) GROUP BY w.uid, w.namespace, w.name"
)
# Compared by revisions, which do not depend on clocks: rows of one workload, pod set and resource must not overlap.
_LEDGER_ROWS = text(
    "SELECT a.from_at, a.to_at, a.from_revision, a.to_revision, a.end_reason FROM workloads w "
    "JOIN admissions a ON a.workload_uid = w.uid WHERE w.namespace = :namespace AND w.name = :name "
    "AND a.resource = 'cpu' ORDER BY a.id"
)
_TRANSITIONS = text(
    "SELECT t.at, t.state, t.reason, t.message FROM workloads w JOIN transitions t ON t.workload_uid = w.uid "
    "WHERE w.namespace = :namespace AND w.name = :name ORDER BY t.id"
)
_OVERLAPS = text(
    "SELECT count(*) FROM admissions a JOIN admissions b ON a.workload_uid = b.workload_uid "
    "AND a.pod_set = b.pod_set AND a.resource = b.resource AND a.id < b.id "
    "WHERE a.to_revision IS NULL OR a.to_revision > b.from_revision"
)
_BACKWARDS = text("SELECT count(*) FROM admissions WHERE to_at < from_at OR to_revision < from_revision")
_PEAK = text(
    "WITH changes AS ("
    "  SELECT cluster_queue, resource, from_revision AS revision, amount FROM admissions"
    "  UNION ALL SELECT cluster_queue, resource, to_revision, -amount FROM admissions WHERE to_revision IS NOT NULL"
    "), commits AS (SELECT cluster_queue, resource, revision, sum(amount) AS amount FROM changes GROUP BY 1, 2, 3),"
    " wholes AS (SELECT '' AS cluster_queue, resource, revision, sum(amount) AS amount FROM changes GROUP BY 2, 3),"
    " held AS (SELECT cluster_queue, resource,"
    "   sum(amount) OVER (PARTITION BY cluster_queue, resource ORDER BY revision) AS amount"
    "   FROM (SELECT * FROM commits UNION ALL SELECT * FROM wholes) AS every)"
    " SELECT cluster_queue, resource, max(amount) FROM held GROUP BY 1, 2"
)
Promise = tuple[bool, str]


class _Interval(NamedTuple):
    """Interval of an admission in which one pod set, or several with equal times, held quota."""

    from_at: float
    to_at: float
    to_revision: int
    end_reason: str


_AHEAD = 86_400.0
_AGREES_WITHIN = 2.0
"""Seconds by which a start in a replay may differ from what happened, and still agree ..."""
_AGREES_WITHIN_SHARE = 0.1
"""... or this share of its wait; both also hold for the mean of all waits."""
_AGREE = 0.8
"""The share of starts that have to agree."""
_TOLERANCE = 0.01
"""Tolerated difference in seconds between ledger row and workload, which are written in one transaction."""


async def settled(database_url: str) -> bool:
    """Return whether no quota is held and every workload has finished."""
    database = connect(Location.parse(database_url))
    try:
        async with database.read() as connection:
            return not (await connection.scalar(_OPEN)) and not (await connection.scalar(_UNFINISHED))
    finally:
        await database.close()


async def replay_agrees(database_url: str) -> Promise:
    """Check that a replay of the ledger without changes, as that of `sluice whatif`, starts all when they did."""
    async with Store.open(database_url) as store:
        past = await store.past(start=0.0, end=store.now() + 1.0)
    past = replace(past, start=min(version.at for version in past.versions))
    namespaces = {one.record.workload.namespace: dict[str, str]() for one in past.workloads}
    policy = Policy(policies=(Budgets(), UserLimits(), Reservations()))
    replay = Replay(past, policy, Timeline(past.versions, (), past.start, past.end), namespaces)
    replay.run()
    waits = [
        (course.past.spells[0].admitted_at - course.arrives_at, course.spells[0].admitted_at - course.arrives_at)
        for course in replay.courses.values()
        if course.past.spells and course.spells
    ]
    agree = sum(abs(again - wait) <= _allowed(wait) for wait, again in waits)
    happened, replayed = (statistics.fmean(waited) for waited in zip(*waits, strict=True))
    text = f"a replay of the ledger starts {agree} of {len(past.workloads)} when they did, to {_AGREES_WITHIN:g} s or "
    text += f"{_AGREES_WITHIN_SHARE:.0%} of their wait; mean wait {replayed:.1f} s, and {happened:.1f} s as it happened"
    return agree >= _AGREE * len(past.workloads) and abs(replayed - happened) <= _allowed(happened), text


def _allowed(wait: float) -> float:
    return max(_AGREES_WITHIN, _AGREES_WITHIN_SHARE * wait)


async def promises(
    database_url: str,
    plan: ScenePlan,
    starts: Mapping[str, int],
    *,
    again: Mapping[str, int] = MappingProxyType({}),
    unseen: int = 0,
) -> tuple[Promise, ...]:
    """Check the ledger; `starts` is the observed number of starts by Job (`namespace/name`).

    `again`: how often each may have been submitted again, as its cluster was destroyed; `unseen`: how many had ended in
    clusters that were destroyed, so that it may not be known how.
    """
    database = connect(Location.parse(database_url))
    try:
        async with database.read() as connection:
            endless = {f"{job.team}/{job.name}" for job in plan.jobs if job.kind in UNTIL_DELETED}
            unfinished, still_open = await connection.scalar(_UNFINISHED), await connection.scalar(_OPEN)
            overlaps, backwards = await connection.scalar(_OVERLAPS), await connection.scalar(_BACKWARDS)
            outcomes = Counter(dict((await connection.execute(_OUTCOMES)).all()))
            admissions = {f"{space}/{name}": counts for space, name, *counts in await connection.execute(_ADMISSIONS)}
            most = {(queue, resource): int(amount) for queue, resource, amount in await connection.execute(_PEAK)}
            wrong = [
                f"{key}: {total} admissions, {ended} of them to its end, {count} starts{await _rows(connection, key)}"
                for key, count in starts.items()
                for total, ended in [admissions.get(key, (0, 0))]
                if not 1 <= count <= total or ended > 1 + again.get(key, 0) or (ended == 0 and key not in endless)
            ]
            pods = {f"{job.team}/{job.name}": job.pods for job in plan.jobs}
            parts = [
                f"{space}/{name} with {count} pods"
                for space, name, count in await connection.execute(_AT_FIRST)
                if count != pods[f"{space}/{name}"]
            ]
            held, wrong_times = await _amount_seconds(connection)
            contradictory, compared = await _check_histories(connection)
    finally:
        await database.close()
    limits = {(team.name, resource): plan.limit(team, resource) for team in plan.teams for resource in plan.resources}
    limits |= {("", resource): plan.total(resource) for resource in plan.resources}
    over = [
        f"{queue or 'all'}: {amount} {resource}"
        for (queue, resource), amount in most.items()
        if amount > limits[queue, resource]
    ]
    violations, differing = await _reports(database_url, held)
    thing = plan.noun.removesuffix("s")
    return (
        (
            _as_planned(outcomes, plan, sum(again.values()), unseen),
            f"the database knows how each {thing} ended: {dict(outcomes)}",
        ),
        (
            not unfinished and not still_open,
            f"no quota is held any more ({unfinished} unfinished, {still_open} rows open)",
        ),
        (not wrong, f"each {thing} was started at most once for each admission, and ended in one {''.join(wrong[:2])}"),
        (not parts, f"each was admitted as a whole {parts[:2] or ''}"),
        (
            not overlaps and not backwards,
            f"no admission overlaps another ({overlaps}) or ends before it begins ({backwards})",
        ),
        (not wrong_times, f"each row lasted from admission to end {wrong_times[:2] or ''}"),
        (
            not contradictory,
            f"waiting times and admissions add up in {compared} histories {contradictory[:2] or ''}",
        ),
        (not differing, f"the report gives exactly the sum of all rows {differing[:2] or ''}"),
        (not over, f"committed quota never exceeded what may be, by a query over the ledger {over[:3] or ''}"),
        (not violations, f"nor what was allowed at that revision, by a replay of the ledger {violations[:2] or ''}"),
    )


async def _reports(database_url: str, held: Mapping[tuple[str, str], float]) -> tuple[Sequence[object], list[str]]:
    """Return violations of quota by a replay of the ledger, and differences between the usage report and `held`."""
    # The end lies in the future, so that rows written by a clock that was set ahead are included.
    async with Store.open(database_url, clock=lambda: time.time() + _AHEAD) as store:
        violations = await store.reports.violations()
        report = await store.reports.usage(("clusterqueue",), start=0.0, end=math.inf)
    reported = {
        (str(row.group["cluster_queue"]), str(row.group["resource"])): row.amount_seconds for row in report.rows
    }
    differing = [
        f"{key}: {held.get(key, 0.0)} and {reported.get(key, 0.0)}"
        for key in held.keys() | reported.keys()
        if not math.isclose(held.get(key, 0.0), reported.get(key, 0.0), rel_tol=1e-9, abs_tol=1e-3)
    ]
    return violations, differing


def _as_planned(outcomes: Mapping[str, int], plan: ScenePlan, again: int, unseen: int) -> bool:
    """Return whether all objects that end by themselves have succeeded and all endless ones were deleted.

    An object that is deleted during its eviction has the outcome Evicted; so has a group of pods that was evicted and
    submitted again, as another workload, and one that was in a cluster that is gone Deleted.
    """
    endless = sum(job.kind in UNTIL_DELETED for job in plan.jobs)
    deleted, evicted = outcomes["Deleted"], outcomes["Evicted"]
    return (
        set(outcomes) <= {"Succeeded", "Deleted", "Evicted"}
        and len(plan.jobs) - endless - unseen <= outcomes["Succeeded"] <= len(plan.jobs) - endless + again
        and deleted <= endless + again + unseen
        and endless <= deleted + evicted
        and (evicted == 0 or "pod" in plan.kinds)
    )


async def _rows(connection: AsyncConnection, key: str) -> str:
    """Return the stored ledger rows and transitions of one Job, for failure messages."""
    namespace, name = key.split("/")
    lines = [
        "\n    " + " ".join(map(str, row))
        for statement in (_LEDGER_ROWS, _TRANSITIONS)
        for row in await connection.execute(statement, {"namespace": namespace, "name": name})
    ]
    return "".join(lines)


async def _check_histories(connection: AsyncConnection) -> tuple[list[str], int]:
    """Return descriptions of inconsistent histories, and the number of compared ones.

    The waiting times by reason, as users read them, and the ledger's seconds must add up to the time from queueing to
    end, and each admission of the history must have rows in the ledger. Histories are left out if a clock was set back
    in them or in their ledger rows, because part of their time was never counted.
    """
    histories: defaultdict[str, list[Transition]] = defaultdict(list)
    for line in await connection.execute(select(transitions).order_by(transitions.c.id)):
        histories[line.workload_uid].append(
            Transition(line.workload_uid, line.at, line.state, line.reason, line.message)
        )
    parts: defaultdict[str, set[_Interval]] = defaultdict(set)
    for row in await connection.execute(select(rows).where(rows.c.to_at.is_not(None))):
        parts[row.workload_uid].add(_Interval(row.from_at, row.to_at, row.to_revision, row.end_reason))
    wrong, compared = [], 0
    for uid, history in histories.items():
        held = parts[uid]
        started = sum(one.state == "admitted" != before.state for before, one in pairwise(history))
        # By revisions: a leader whose clock is behind its predecessor's repeats one time until its clock has caught up.
        if started != (ended := len({part.to_revision for part in held if part.end_reason not in GOES_ON})):
            wrong.append(f"{uid}: {started} admissions in the history, {ended} in the ledger{_describe(history, held)}")
        if any(one.at < before.at for before, one in pairwise(history)):
            continue
        if any(part.to_at > history[-1].at for part in held):  # quota was released while the clock was ahead
            continue
        compared += 1
        waited = sum(waiting_times(history, until=math.nan).values())
        whole, of_ledger = history[-1].at - history[0].at, _length([(part.from_at, part.to_at) for part in held])
        if not abs(waited + of_ledger - whole) <= _TOLERANCE * len(history):
            sums = f"{waited:.3f} s of waiting and {of_ledger:.3f} s of admissions in {whole:.3f} s"
            wrong.append(f"{uid}: {sums}{_describe(history, held)}")
    return wrong, compared


def _describe(history: Sequence[Transition], held: set[_Interval]) -> str:
    """Return a history and its ledger rows, for failure messages."""
    lines = [f"{line.at:.6f} {line.state} {line.reason} {line.message}" for line in history]
    lines += [f"held {part}" for part in sorted(held)]
    return "".join(f"\n    {line}" for line in lines)


def _length(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals: pod sets may release their quota at different times."""
    length, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        length += max(end - max(begin, reached), 0.0)
        reached = max(reached, end)
    return length


async def _amount_seconds(connection: AsyncConnection) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Return amount-seconds by (ClusterQueue, resource), and descriptions of rows with another duration than admitted.

    Workloads that were resized or admitted twice are not compared.
    """
    columns = (
        rows.c.cluster_queue, rows.c.resource, rows.c.workload_uid, rows.c.amount, rows.c.from_at, rows.c.to_at,
        workloads.c.admitted_at, workloads.c.finished_at,
    )  # fmt: skip
    found = (await connection.execute(select(*columns).join(workloads, workloads.c.uid == rows.c.workload_uid))).all()
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    parts: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in found:
        seconds = (round((row.to_at or row.from_at) * 1e6) - round(row.from_at * 1e6)) / 1e6  # exact to what is stored
        held[row.cluster_queue, row.resource] += row.amount * seconds
        if row.admitted_at is not None and row.finished_at is not None:
            # If the clock was set back meanwhile, the row has a length of zero.
            parts[row.workload_uid, row.resource].append((seconds, max(row.finished_at - row.admitted_at, 0.0)))
    wrong = [
        f"{uid}: {seconds:.6f} s of {resource} instead of {should:.6f}"
        for (uid, resource), [(seconds, should), *more] in parts.items()
        if not more and abs(seconds - should) > _TOLERANCE
    ]
    return dict(held), wrong
