"""Path of a Job through the code, from the controller's inbox to the PATCH that starts it.

Counted by the interpreter's profiler in `admission`, for one Job of a known shape that arrives alone and is admitted
immediately: function calls, the files they are in, and calls in another file than the previous call. These are
properties of the code. Other work of the controller may get into a trace; the shortest of several traces is the path
without it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import orjson
from sqlalchemy import Connection

from admission.cluster.client import Client
from admission.controller.controller import Controller
from admission.kinds import all_kinds
from admission.sandbox.sandbox import Sandbox
from admission.store.database.connection import Database
from admission.store.database.migrations import migrate
from admission.store.store import Store
from tests.benchmarks.measure import REPOSITORY, Figure
from tests.queue_objects import cluster_queue, create_objects, flavor, local_queue

_FIRST: Final = ("controller/state/inbox.py", "offer")
_LAST: Final = ("cluster/client.py", "patch")
"""File and function of the first and the last counted call."""

_JOBS: Final = 10
"""Number of traced Jobs, one after the other; the figures are those of the shortest trace."""

_LEFT_OUT: Final = ("sandbox/", "serving/")
_RESUMED: Final = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
_AT_THE_START: Final = 0
"""Argument of the bytecode RESUME at the start of a function; it differs after a `yield` or an `await`."""
_TEMPLATE: Final = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
    }
}
_QUEUES: Final = (flavor(type="kwok"), cluster_queue(cpu="1000"), local_queue())


class Trace:
    """All calls in `admission` from the first to the last counted one, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """(file relative to `admission`, qualified name of the function)."""
        self.decoded = 0
        """Number of stored objects that the controller decoded."""
        self.ended = asyncio.Event()
        self._began = False
        self._folder = f"{REPOSITORY / 'admission'}/"

    def __enter__(self) -> Self:
        # A transaction on SQLite runs in another thread, which needs its own profiler.
        original = self._original = Database.write_sync

        async def write_sync(database: Database, work: Callable[[Connection], Any], **options: Any) -> object:
            def traced(connection: Connection) -> object:
                sys.setprofile(self._profile)
                try:
                    return work(connection)
                finally:
                    sys.setprofile(None)

            return await original(database, traced, **options)

        Database.write_sync = write_sync  # type: ignore[assignment, method-assign]
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        Database.write_sync = self._original  # type: ignore[method-assign]

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._folder):
            return
        file = code.co_filename.removeprefix(self._folder)
        if event == "c_call":
            self.decoded += self._began and argument is orjson.loads and file.startswith("controller/")
        if event != "call" or code.co_name.startswith("<") or file.startswith(_LEFT_OUT):
            return
        # Resuming a coroutine or generator is not a call, even if the call was before the trace.
        if code.co_flags & _RESUMED and code.co_code[frame.f_lasti + 1] != _AT_THE_START:
            return
        call = file, code.co_name
        self._began = (self._began or call == _FIRST) and not self.ended.is_set()
        if self._began:
            self.calls.append((file, code.co_qualname))
        if self._began and call == _LAST:
            self.ended.set()

    def count(self, matches: Callable[[str], bool]) -> int:
        """Return the number of calls of functions whose name matches."""
        return sum(matches(name.rpartition(".")[2]) for _, name in self.calls)


async def traces(jobs: int = _JOBS) -> list[Trace]:
    """Return one trace for each of `jobs` Jobs; two earlier Jobs warm up caches by shape and are left out."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # watches are reset at the end
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'sluice.db'}"
        await migrate(url)
        async with Sandbox(controllers=False) as sandbox, Store.open(url) as store:
            await create_objects(store, *_QUEUES)
            kubeconfig = Path(folder) / "kubeconfig"
            sandbox.write_kubeconfig(kubeconfig, "sluice")
            async with Client.from_kubeconfig(str(kubeconfig)) as client:
                return await _trace(sandbox, Controller(store=store, client=client, kinds=all_kinds()), store, jobs)


async def _trace(sandbox: Sandbox, controller: Controller, store: Store, jobs: int) -> list[Trace]:
    tasks = [
        asyncio.create_task(controller.watch()),
        asyncio.create_task(controller.decide(epoch=await store.lead("bench"))),
    ]
    try:
        while await controller.health() is not None:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.01)
        admin, found = sandbox.local("admin"), []
        for number in range(2 + jobs):
            await asyncio.sleep(1.5)  # so that it arrives alone, and reasons are due for an update
            with Trace() as trace:
                await admin.create("jobs", "default", _job(f"job-{number}"))
                await trace.ended.wait()
            found.append(trace)
        return found[2:]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _job(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"sluice.dev/queue-name": "lq"}},
        "spec": {"suspend": True, "template": _TEMPLATE},
    }


async def run() -> list[Figure]:
    """Return the figures of the shortest trace."""
    trace = min(await traces(), key=lambda trace: len(trace.calls))
    files = [file for file, _ in trace.calls]
    explained = trace.count(lambda name: name in ("verdict_of", "explain_waiting"))
    return [
        Figure("calls of functions", str(len(files))),
        Figure("files that they are in", str(len(set(files)))),
        Figure("changes of file", str(sum(one != other for one, other in pairwise(files)))),
        Figure("stored object decoded", str(trace.decoded)),
        Figure("start patch computed", str(trace.count(lambda name: name == "start_patch"))),
        Figure("workloads explained", str(explained)),
    ]


def main() -> None:
    """Print the calls of the shortest trace, and the number of calls per file."""
    trace = min(asyncio.run(traces()), key=lambda trace: len(trace.calls))
    for file, name in trace.calls:
        print(f"{file:50} {name}")
    for file, number in Counter(file for file, _ in trace.calls).most_common():
        print(f"{number:5} {file}")


if __name__ == "__main__":
    main()
