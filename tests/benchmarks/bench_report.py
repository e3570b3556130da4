"""Duration of usage reports over a year, with a million workloads in the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import text

from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.database.connection import Location, connect
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.benchmarks.measure import Figure, at_most, in_each_database
from tests.queue_objects import cluster_queue

_WORKLOADS = 1_000_000
_QUEUES = 20
_USERS = 60
_HOUR, _DAY = 3600, 86400
_YEAR = 365 * _DAY
_START = 20_000 * _DAY
"""Start of the year: 2024-10-04 at midnight (UTC), in seconds since the epoch."""
_LAST_HOURS = 2
"""Number of hours at the end that are not rolled up yet."""
_LONGEST = 4 * _HOUR + 600
_SECONDS = 1.0
_SUMS = (("usage_rollups", "hour", _HOUR), ("usage_days", "day", _DAY))


async def run() -> list[Figure]:
    """Measure the same year in both databases."""
    return await in_each_database(_measure)


async def fill(url: str, *, workloads: int = _WORKLOADS, seconds: int = _YEAR, last_hours: int = _LAST_HOURS) -> float:
    """Fill a new database with workloads that began within `seconds`; return the end in seconds since the epoch.

    `last_hours`: number of hours at the end that are not rolled up.
    """
    await migrate(url)
    end = float(_START + seconds)
    async with Store.open(url, clock=lambda: float(_START)) as store:
        for number in range(_QUEUES):
            await store.queues.create(parse_manifest(_queue(number)), author=Author("benchmark"))
    # With the settings of a migration: these statements exceed the store's timeout of a minute.
    database = connect(Location.parse(url), migrating=True)
    try:
        async with database.write() as connection:
            sqlite = connection.dialect.name == "sqlite"
            for statement in _bulk(workloads, seconds, last_hours, sqlite=sqlite):
                await connection.execute(text(statement))
        async with database.write() as connection:
            await connection.execute(text("ANALYZE"))
    finally:
        await database.close()
    return end


async def _measure(name: str, url: str) -> list[Figure]:
    end = await fill(url)
    async with Store.open(url, clock=lambda: end) as store:
        figures = []
        reports = {
            "by queue": (["queue"], 0.0),
            "by user and flavor": (["user", "flavor"], 0.0),
            "by user, from the middle of an hour": (["user"], 30 * _DAY + 1000.0),
        }
        for what, (by, since) in reports.items():
            started = time.perf_counter()
            report = await store.reports.usage(by, start=_START + since, end=end)
            seconds = time.perf_counter() - started
            assert report.rows
            figures.append(at_most(f"{name}: a year {what}, {len(report.rows)} rows", seconds, _SECONDS, "s"))
        started = time.perf_counter()
        epoch = await store.lead("benchmark")
        hours = await store.roll_up(epoch=epoch)
        figures.append(Figure(f"{name}: an hour summed up", f"{(time.perf_counter() - started) / hours:.2f} s"))
    return figures


def _queue(number: int) -> dict[str, object]:
    amounts = {"cpu": 50, "memory": "1Ti"}
    return cluster_queue(f"cq-{number}", quotas={"spot": amounts, "reserved": amounts})


def _bulk(count: int, seconds: int, last_hours: int, *, sqlite: bool) -> Iterator[str]:
    """Yield statements for workloads, ledger and roll-ups, all computed from the number of the workload."""
    unit = 1_000_000 if sqlite else 1

    def instant(seconds: str) -> str:
        return f"({seconds}) * {unit}" if sqlite else f"to_timestamp({seconds})"

    numbers = (
        f"(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {count - 1}) SELECT i FROM s)"
        if sqlite
        else f"(SELECT generate_series(0, {count - 1}) AS i)"
    )
    every = seconds / (count + 1000)
    begins = f"{_START} + cast(i * {every} as bigint)"
    lasts = f"600 + (cast(i as bigint) * 7919) % {_LONGEST - 600}"
    yield f"""CREATE TEMPORARY TABLE made AS SELECT i, 'w-' || i AS uid, i % {_QUEUES} AS q,
        'user-' || (i % {_USERS}) AS u, (i / 7 % 2) * 100 AS p, CASE WHEN i % 3 = 0 THEN 'spot' ELSE 'reserved' END
        AS f, {begins} AS b, {begins} + {lasts} AS e FROM {numbers} AS n"""
    yield f"""INSERT INTO workloads (uid, namespace, name, kind, local_queue, cluster_queue, priority,
        priority_class, submitted_by, created_at, shape, state, reason, message, evict_reason, outcome, queued_at,
        finished_at, revision) SELECT uid, 'team-' || q, uid, 'Job', 'main', 'cq-' || q, p, '', u, {instant("b")},
        'none', 'finished', '', '', '', 'Succeeded', {instant("b")}, {instant("e")}, i + 1 FROM made"""
    resources = "(SELECT 'cpu' AS r, 4000 AS a UNION ALL SELECT 'memory', 17179869184) AS resources"
    yield f"""INSERT INTO admissions (workload_uid, pod_set, resource, flavor, amount, count, cluster_queue,
        local_queue, namespace, submitted_by, priority, from_at, to_at, end_reason, from_revision, to_revision)
        SELECT uid, 'main', r, f, a, 1, 'cq-' || q, 'main', 'team-' || q, u, p, {instant("b")}, {instant("e")},
        'Finished', i + 1, i + 1 FROM made, {resources}"""
    until = _START + seconds - last_hours * _HOUR
    for table, period, length in _SUMS:
        spans = " UNION ALL ".join(f"SELECT {k} AS k" for k in range(_LONGEST // length + 2))
        least, most = ("min", "max") if sqlite else ("least", "greatest")
        span = f"(b / {length} + k) * {length}"
        overlap = f"({least}(e, {span} + {length}) - {most}(b, {span}))"
        for flavor in ("spot", "reserved"):
            yield f"""INSERT INTO {table} ({period}, cluster_queue, local_queue, namespace, submitted_by, priority,
            flavor, resource, amount_seconds, borrowed_seconds)
            SELECT {instant(span)}, 'cq-' || q, 'main', 'team-' || q, u, p, f, r,
            sum(cast(a as bigint) * {overlap}), sum(cast(a as bigint) * {overlap}) / 10
            FROM made, ({spans}) AS spans, {resources}
            WHERE f = '{flavor}' AND {span} < e AND {span} < {until // length * length}
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"""
    yield f"UPDATE head SET rolled_up_to = {instant(str(until))}, revision = {count + 1000}"
    yield "DROP TABLE made"
