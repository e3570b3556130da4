"""Cost of open dashboard pages for the leader: a hundred overviews of a thousand ClusterQueues.

The pages are connections of another process, which sends the requests of an overview at the same times. Beside them the
responses for the page of all workloads are timed, of 20,000 pending ones and 2,000 with quota.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from playwright.async_api import async_playwright

from admission.api.application import create_app, listening
from admission.api.registry import PREFIX
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.serving.runtime import tune, without_garbage
from admission.store.database.migrations import migrate
from admission.store.records import Changes, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.benchmarks.measure import Figure, at_most
from tests.queue_objects import cluster_queue, cohort, create_objects, flavor, local_queue

_QUEUES, _COHORTS = 1000, 40
_PENDING, _RUNNING = 20_000, 2_000
_PAGES = 100
_SECONDS = 20
_COMMITS_PER_SECOND = 2
_ADMITTED_TOGETHER = 5
_GOAL_PERCENT = 5.0
_PAINTS = 9
_PAINT_GOAL = 200.0
_SEARCH_GOAL = 100.0
_SEARCHES = (
    ("first page", "from=1d"),
    ("in the middle", "from=1d&offset=11000"),
    ("by text", "from=1d&find=r-1"),
    ("of a user", "from=1d&user=user-3"),
    ("of a state and reason", "from=1d&state=pending&reason=WaitingForQuota"),
    ("of a ClusterQueue", "from=1d&clusterqueue=cq-7"),
    ("by name", "from=1d&order=name"),
    ("counted by user", "from=1d&by=user"),
    ("counted by ClusterQueue", "from=1d&by=clusterqueue"),
)
_FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_OF_THE_DASHBOARD = {"X-Requested-With": "sluice-dashboard"}
_TOKEN = "benchmark-" + "token"
_SHAPE = (PodSet("main", 1, {"cpu": 1000}),)


async def run() -> list[Figure]:
    """Measure the cost while the cluster is idle and while workloads are admitted, with and without pages."""
    tune()  # as `serve` does
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'sluice.db'}"
        await migrate(url)
        async with Store.open(url) as store:
            with without_garbage():
                epoch = await _fill(store)
            app = create_app(store, token=_TOKEN, checks={})
            async with listening(app, "127.0.0.1", 0) as address:
                alone = await _share(store, epoch, "a")
                began = time.process_time()
                pages = await _open(address)
                opening = time.process_time() - began
                try:
                    quiet = await _share(store, epoch, "")
                    busy = await _share(store, epoch, "b")
                finally:
                    pages.terminate()
                    await pages.wait()
                painted = await _painted(address)
                searches = await _searched(address)
    admissions = _COMMITS_PER_SECOND * _ADMITTED_TOGETHER
    return [
        painted,
        Figure(f"{_PAGES} overviews of {_QUEUES} ClusterQueues opened", f"{opening:.1f} s of processor time"),
        at_most("they stay open, nothing happens", quiet, _GOAL_PERCENT, "% of a core", 1),
        at_most(f"they stay open, {admissions} admissions/s", busy - alone, _GOAL_PERCENT, "% of a core more", 1),
        Figure("the admissions alone, without pages", f"{alone:.1f} % of a core"),
        *searches,
    ]


async def _searched(address: str) -> list[Figure]:
    """Measure the responses for the page of all workloads: processor time, the median of several each.

    The searches of one round differ, so that none is answered from the cache.
    """
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    figures = []
    async with aiohttp.ClientSession(headers=headers) as session:
        for what, query in _SEARCHES:
            times = []
            for number in range(_PAINTS):
                began = time.process_time()
                url = f"{address}/session/workloads?limit={100 - number}&{query}"
                async with session.get(url) as response:
                    assert response.status == 200, await response.text()
                    await response.read()
                times.append(1000 * (time.process_time() - began))
            figures.append(at_most(f"all workloads, {what}", statistics.median(times), _SEARCH_GOAL, "ms", 0))
    return figures


async def _painted(address: str) -> Figure:
    """Measure the first paint of the overview, in a browser with a warm cache and a session."""
    what = "first paint of the overview"
    executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if executable is None:
        return Figure(what, "not measured: there is no chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = await browser.new_page()
            await page.request.post(f"{address}/login", data={"token": _TOKEN}, headers=_OF_THE_DASHBOARD)
            times = []
            for _ in range(_PAINTS + 1):
                await page.goto(f"{address}/ui/")
                await page.get_by_role("heading", name="Overview").wait_for()
                found = await page.wait_for_function(_FIRST_PAINT)
                times.append(float(await found.json_value()))
        finally:
            await browser.close()
    return at_most(f"{what}, median of {_PAINTS}", statistics.median(times[1:]), _PAINT_GOAL, "ms", 0)


async def _share(store: Store, epoch: int, prefix: str) -> float:
    """Return the percentage of a core used during `_SECONDS`; with a `prefix` for names, workloads are admitted."""
    began, used = time.perf_counter(), time.process_time()
    for step in range(_SECONDS * _COMMITS_PER_SECOND):
        await asyncio.sleep(max(0.0, began + step / _COMMITS_PER_SECOND - time.perf_counter()))
        if prefix:
            numbers = range(step * _ADMITTED_TOGETHER, (step + 1) * _ADMITTED_TOGETHER)
            records = [_record(f"{prefix}-{number}", number * 37, State.ADMITTED) for number in numbers]
            await store.commit(Changes(tuple(records), opened=tuple(_opened(records))), epoch=epoch)
    return 100 * (time.process_time() - used) / (time.perf_counter() - began)


async def _fill(store: Store) -> int:
    await create_objects(store, *_manifests())
    epoch = await store.lead("benchmark", elected=True)
    for prefix, count, state in (("p", _PENDING, State.PENDING), ("r", _RUNNING, State.ADMITTED)):
        for start in range(0, count, 5_000):
            records = [_record(f"{prefix}-{n}", n, state) for n in range(start, min(start + 5_000, count))]
            await store.commit(Changes(tuple(records), opened=tuple(_opened(records))), epoch=epoch)
    return epoch


def _manifests() -> Iterator[dict[str, Any]]:
    yield flavor()
    for number in range(_COHORTS):
        yield cohort(f"division-{number}", "company") if number else cohort("company")
    quotas = {"default": {"cpu": 10, "nvidia.com/gpu": 4}}
    for number in range(_QUEUES):
        yield cluster_queue(f"cq-{number}", quotas=quotas, cohortName=f"division-{1 + number % (_COHORTS - 1)}")
        yield local_queue("main", f"ns-{number}", f"cq-{number}")


def _record(name: str, number: int, state: State) -> WorkloadRecord:
    queue = number % _QUEUES
    workload = Workload(f"uid-{name}", f"ns-{queue}", name, "main", 0, time.time(), _SHAPE, user=f"user-{number % 60}")
    at = workload.created if state is State.ADMITTED else None
    return WorkloadRecord(workload, state, time.time(), f"cq-{queue}", reason="WaitingForQuota", admitted_at=at)


def _opened(records: list[WorkloadRecord]) -> Iterator[Opened]:
    for record in records:
        if record.state is State.ADMITTED:
            held = PodSetAssignment("main", {"cpu": "default"}, {"cpu": 1000}, 1)
            yield Opened(record.workload, Admission(record.cluster_queue, (held,)), time.time())


async def _open(address: str) -> Process:
    """Start the process with all pages; returns when all have received their first responses."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, address + PREFIX, str(_PAGES), _TOKEN, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    return child


# Like `useCollection` and `useAnswer` of the dashboard: watched lists, and periodic requests; the pending report is
# also requested after a change of a queue.
_CLIENT = """
import asyncio, json, sys, aiohttp
address, pages, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
async def read(session, path):
    async with session.get(f"{address}/{path}") as response:
        assert response.status == 200, await response.text()
        return await response.read()
async def repeat(session, path, every, ready):
    while True:
        await read(session, path)
        ready.release()
        await asyncio.sleep(every)
async def watch(session, path, changed, ready):
    version = json.loads(await read(session, path))["metadata"]["resourceVersion"]
    timeout = aiohttp.ClientTimeout()
    async with session.get(f"{address}/{path}?watch=1&resourceVersion={version}", timeout=timeout) as response:
        ready.release()
        async for _ in response.content.iter_any():
            changed.set()
async def pending(session, changed, ready):
    while True:
        changed.clear()
        await read(session, "reports/pending")
        ready.release()
        await asyncio.sleep(20)
        try:
            await asyncio.wait_for(changed.wait(), 10)
        except TimeoutError:
            pass
async def page(session, ready):
    changed = asyncio.Event()
    await asyncio.gather(
        watch(session, "clusterqueues", changed, ready), watch(session, "cohorts", asyncio.Event(), ready),
        repeat(session, "reports/usage?from=1d&interval=1h&by=resource", 60, ready),
        repeat(session, "subscriptions", 60, ready), repeat(session, "../../../session", 30, ready),
        repeat(session, "reports/attention", 20, ready),
        pending(session, changed, ready))
async def main():
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
        tasks = []
        for _ in range(pages):
            ready = asyncio.Semaphore(0)
            tasks.append(asyncio.create_task(page(session, ready)))
            for _ in range(7):
                await ready.acquire()
        print("open", flush=True)
        await asyncio.gather(*tasks)
asyncio.run(main())
"""
