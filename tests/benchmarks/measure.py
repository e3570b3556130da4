"""What the benchmarks share: processes to measure, how to read their use of the processor, and how figures are told."""

from __future__ import annotations

import math
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission.cli.demo.children import guarded
from admission.cli.demo.stage import Cluster, Sluice, apply, running_sandbox, running_sluice
from admission.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

REPOSITORY = Path(__file__).parents[2]
TOOLS = REPOSITORY.parent / "shared" / "tools"
"""Where the load generator that queue managers are compared by is found, when it is there."""


class Skipped(Exception):
    """A benchmark that cannot be run here, and why."""


@dataclass(frozen=True)
class Figure:
    """One line of the table: what was measured, and whether that is as good as it must be (None: no such goal)."""

    what: str
    value: str
    goal: str = ""
    met: bool | None = None


def at_most(what: str, value: float, goal: float, unit: str, digits: int = 2) -> Figure:
    """A figure that must not exceed `goal`."""
    return Figure(what, f"{value:.{digits}f} {unit}".strip(), f"at most {goal:g} {unit}".strip(), met=value <= goal)


@dataclass(frozen=True)
class Running:
    """A sandbox and a Sluice with its queues set up; `client` is the administrator's."""

    cluster: Cluster
    serving: Sluice
    client: Client

    async def transactions(self) -> int:
        """Write transactions of Sluice so far."""
        count: int = (await self.serving.statistics())["writeTransactions"]
        return count

    def cpu_seconds(self) -> float:
        """Processor time of Sluice so far, of the process that decides and of the one that answers the webhook."""
        pid = self.serving.child.process.pid
        return cpu_seconds(pid) + sum(map(cpu_seconds, children(pid)))


@asynccontextmanager
async def running(
    directory: Path, documents: list[dict[str, Any]], *, controllers: bool = True, speed: float = 1.0
) -> AsyncIterator[Running]:
    """A sandbox and a Sluice, both in processes of their own, with the queue objects in `documents`."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_sandbox(directory, speed=speed, controllers=controllers))
        serving = await stack.enter_async_context(running_sluice(directory, cluster))
        await stack.enter_async_context(guarded(serving.child))
        client = await stack.enter_async_context(Client.from_kubeconfig(str(cluster.kubeconfig)))
        await apply(directory, serving, documents)
        yield Running(cluster, serving, client)


def children(pid: int) -> list[int]:
    """The process ids of what a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_mib(pid: int) -> float:
    """Memory of a process that it shares with no other (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
