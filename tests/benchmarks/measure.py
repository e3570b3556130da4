"""Helpers of the benchmarks: processes to measure, their use of processor and memory, and figures."""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admission.cli.demo.children import guarded
from admission.cli.demo.stage import DemoCluster, DemoSluice, apply, running_sandbox, running_sluice
from admission.cluster.client import Client
from admission.cluster.informer import Informer
from tests.postgresql_server import NoPostgreSQL, running_postgresql

REPOSITORY = Path(__file__).parents[2]
TOOLS = REPOSITORY.parent / "shared" / "tools"
"""Folder of the load generator by which queue managers are compared; it may be missing."""


class Skipped(Exception):
    """A benchmark cannot be run on this machine; the message says why."""


@dataclass(frozen=True)
class Figure:
    """One line of the output: what was measured, and whether its goal is met (None: no goal)."""

    what: str
    value: str
    goal: str = ""
    met: bool | None = None


def at_most(what: str, value: float, goal: float, unit: str, digits: int = 2) -> Figure:
    """Return a figure that must not exceed `goal`."""
    return Figure(what, f"{value:.{digits}f} {unit}".strip(), f"at most {goal:g} {unit}".strip(), met=value <= goal)


def at_least(what: str, value: float, goal: float, unit: str, digits: int = 0) -> Figure:
    """Return a figure that must not be below `goal`."""
    return Figure(what, f"{value:.{digits}f} {unit}".strip(), f"at least {goal:g} {unit}".strip(), met=value >= goal)


@dataclass(frozen=True)
class Running:
    """A sandbox, and Sluice with its queue objects; `client` is the administrator's."""

    cluster: DemoCluster
    serving: DemoSluice
    client: Client

    async def transactions(self) -> int:
        """Return the number of Sluice's write transactions so far."""
        count: int = (await self.serving.statistics())["writeTransactions"]
        return count

    def cpu_seconds(self) -> float:
        """Return Sluice's processor time so far in seconds, of `serve` and its child processes such as the gate."""
        pid = self.serving.child.process.pid
        return cpu_seconds(pid) + sum(map(cpu_seconds, children(pid)))


@asynccontextmanager
async def running(
    directory: Path,
    documents: list[dict[str, Any]],
    *,
    controllers: bool = True,
    speed: float = 1.0,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Running]:
    """Run a sandbox and Sluice in two processes during the block, with the queue objects in `documents`.

    `settings`: the configuration of `sluice serve`.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_sandbox(directory, speed=speed, controllers=controllers))
        serving = await stack.enter_async_context(
            running_sluice(directory, cluster.sluice_kubeconfig, settings=settings)
        )
        await stack.enter_async_context(guarded(serving.child))
        client = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
        await apply(directory, serving, documents)
        yield Running(cluster, serving, client)


@dataclass
class Watched:
    """The objects of a collection that are done, as a watch reports them."""

    informer: Informer
    is_done: Callable[[dict[str, Any]], bool]
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name."""
    times: dict[str, float] = field(default_factory=dict)
    """By name, when it was first seen done, by the clock."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        """Follow the watch until cancelled."""
        async for batch in self.informer.batches():
            for change in batch:
                if change.object is not None and self.is_done(change.object):
                    name = change.object["metadata"]["name"]
                    self.done[name] = change.object
                    self.times.setdefault(name, time.time())
            self._more.set()

    async def until(self, names: Iterable[str]) -> None:
        """Wait until all these objects are done."""
        for name in names:
            while name not in self.done:
                self._more.clear()
                await self._more.wait()

    async def any(self) -> None:
        """Wait until one object is done."""
        while not self.done:
            self._more.clear()
            await self._more.wait()


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_mib(pid: int) -> float:
    """Return the private memory of a process in MiB (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def peak_mib(pid: int) -> float:
    """Return the highest resident memory of a process so far in MiB (proc(5), VmHWM)."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far in seconds (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at a share (0 to 1) by nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


async def in_each_database(measure: Callable[[str, str], Awaitable[list[Figure]]]) -> list[Figure]:
    """Return the figures of `measure` (name of a database, URL of an empty one) on SQLite and on PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        figures = await measure("SQLite", f"sqlite:///{Path(folder) / 'sluice.db'}")
    try:
        with running_postgresql() as server:
            await asyncio.to_thread(server.execute, "CREATE DATABASE bench")
            return figures + await measure("PostgreSQL", server.url("bench"))
    except NoPostgreSQL as error:
        return [*figures, Figure("PostgreSQL", f"skipped: {error}")]
