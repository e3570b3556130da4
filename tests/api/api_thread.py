"""The API on a thread of its own, with a meter of how long its event loop is blocked."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from api_client import TOKEN
from queue_objects import admission_check, cluster_queue, cohort, flavor, local_queue, priority_class
from workload_records import NOW, commit, record

from admission.api.application import create_app, listening
from admission.model.manifests import parse_manifest
from admission.store.audit_log import Author
from admission.store.records import State
from admission.store.store import Store
from tests.event_loop import run

OBJECTS = (
    flavor("default", pool="a"),
    cohort("root"),
    admission_check("check"),
    priority_class("high", 7),
    cluster_queue("one", cohortName="root"),
    local_queue("main", "a", "one"),
)
NAMES = sorted({each["metadata"]["name"] for each in OBJECTS} | {"train", "run", "done"})


class Meter:
    """Processor time of the loop's thread between two of its iterations, for which other requests had to wait."""

    def __init__(self) -> None:
        self._last = 0.0
        self._longest = 0.0

    def tick(self) -> None:
        """Start to measure; has to be called once in the loop, and schedules itself again."""
        now = time.thread_time()
        self._longest = max(self._longest, now - self._last if self._last else 0.0)
        self._last = now
        asyncio.get_running_loop().call_later(0.002, self.tick)

    def read(self) -> float:
        """The longest such time in seconds since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest


@dataclass(frozen=True)
class Running:
    """A running API: its URL, and the meter of its event loop."""

    url: str
    meter: Meter


@contextmanager
def running(database_url: str) -> Iterator[Running]:
    """The API on a database; the clock of its rate limits advances by a second at each reading.

    Garbage collection is off meanwhile: its duration, and the thread that it interrupts, depend on what other tests of
    this process have left in memory.
    """
    gc.disable()
    started, found, stop, meter = threading.Event(), [], [], Meter()

    async def serve() -> None:
        seconds = count()
        async with Store.open(database_url, clock=lambda: NOW) as store:
            app = create_app(store, token=TOKEN, checks={}, clock=lambda: next(seconds), now=lambda: NOW)
            async with listening(app, "127.0.0.1", 0) as base:
                end = asyncio.Event()
                found.append(base)
                stop.append((asyncio.get_running_loop(), end))
                meter.tick()
                started.set()
                await end.wait()

    thread = threading.Thread(target=lambda: run(serve()))
    thread.start()
    started.wait()
    try:
        yield Running(found[0], meter)
    finally:
        loop, end = stop[0]
        loop.call_soon_threadsafe(end.set)
        thread.join()
        gc.enable()


async def fill(database_url: str) -> None:
    """Write the objects and workloads that requests can name into an empty database."""
    async with Store.open(database_url, clock=lambda: NOW) as store:
        for document in OBJECTS:
            await store.queues.create(parse_manifest(document), author=Author("ada"))
        await commit(
            store,
            await store.lead("tests"),
            record("u1", "train", reason="ExceedsQuota", message="x"),
            record("u2", "run", State.ADMITTED, admitted_at=NOW),
            record("u3", "done", State.FINISHED, finished_at=NOW, outcome="Succeeded"),
        )
