"""Many users who ask for reports and histories at the same time, while the database is asked whether it answers.

The users are connections of another process, so that the processor time of this one is that of the requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress

from sqlalchemy import text

from admission.api.application import create_app, listening
from admission.api.registry import PREFIX
from admission.serving.runtime import tune
from admission.store.store import Store
from tests.benchmarks import bench_report
from tests.benchmarks.measure import Figure, in_each_database, percentile

_WORKLOADS = 40_000
_HOURS, _LAST_HOURS = 8, 1
_USERS = (1, 10, 50, 150)
_TOKEN = "benchmark-" + "token"
_PATHS = {
    "history of a workload": "namespaces/team-{queue}/workloads/w-{workload}/history",
    "report of a namespace": "namespaces/team-{queue}/reports/usage?by=user&from=1d",
    "report of a user": "reports/usage?by=queue&from=7d&user=user-{user}",
    "report of all queues": "reports/usage?by=queue",
}


async def run() -> list[Figure]:
    """Measure on SQLite and on PostgreSQL."""
    tune()  # as `serve` does
    return await in_each_database(_measure)


async def _measure(name: str, url: str) -> list[Figure]:
    hour = 3600
    end = await bench_report.fill(url, workloads=_WORKLOADS, seconds=_HOURS * hour, last_hours=_LAST_HOURS)
    figures = []
    async with Store.open(url, clock=lambda: end) as store:
        async with store._database.write() as connection:
            await connection.execute(text(_TRANSITIONS))
        app = create_app(store, token=_TOKEN, checks={})
        async with listening(app, "127.0.0.1", 0) as address:
            for what, path in _PATHS.items():
                for users in _USERS:
                    figures.append(Figure(f"{name}: {what}, {users} users", await _ask(store, address, path, users)))
    return figures


async def _ask(store: Store, address: str, path: str, users: int) -> str:
    """Let each user send the request twice; return latencies, processor time for each request, and failures."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, address + PREFIX, path, str(users), _TOKEN,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdin is not None
    assert await child.stdout.readline() == b"ready\n"
    health: list[float] = []
    asking = asyncio.create_task(_health(store, health))
    used = time.process_time()
    child.stdin.write(b"go\n")
    answers = json.loads(await child.stdout.readline())
    used = time.process_time() - used
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    await child.wait()
    took = [seconds for status, seconds in answers if status == 200]
    failed = sorted({status for status, _ in answers if status != 200})
    if not took:
        return f"all {len(answers)} failed: {failed}"
    return (
        f"p50 {1000 * percentile(took, 0.5):.0f} ms, p95 {1000 * percentile(took, 0.95):.0f} ms, "
        f"{1000 * used / len(answers):.1f} ms of processor time each; "
        f"{len(answers) - len(took)} of {len(answers)} failed {failed or ''}; "
        f"slowest health {1000 * max(health, default=0):.0f} ms"
    )


async def _health(store: Store, took: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await store.health()
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)


_TRANSITIONS = """INSERT INTO transitions (workload_uid, at, state, reason, message)
SELECT uid, created_at, state, reason, 'x' FROM (
SELECT uid, created_at, 'pending' AS state, 'Arrived' AS reason, 0 AS n FROM workloads
UNION ALL SELECT uid, created_at, 'pending', 'ExceedsQuota', 1 FROM workloads
UNION ALL SELECT uid, created_at, 'admitted', 'Admitted', 2 FROM workloads
UNION ALL SELECT uid, finished_at, 'finished', 'Finished', 3 FROM workloads) AS s ORDER BY n"""

_CLIENT = """
import asyncio, json, sys, time, aiohttp
address, path, users, token = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
async def ask(session, number, answers):
    for turn in range(2):
        where = path.format(queue=number % 20, user=number % 60, workload=number % 20 + 20 * (number * 13 + turn))
        began = time.perf_counter()
        async with session.get(f"{address}/{where}") as response:
            await response.read()
            answers.append((response.status, time.perf_counter() - began))
async def main():
    headers = {"Authorization": f"Bearer {token}"}
    answers = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(ask(session, number, answers) for number in range(users)))
    print(json.dumps(answers), flush=True)
asyncio.run(main())
"""
