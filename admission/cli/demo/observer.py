"""The independent watcher: it asks the API server alone, with its own connection, and believes nothing else."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from admission.cluster.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cli.demo.account import Account, Object
    from admission.cluster.client import Client


class Observer:
    """Feeds an Account with what happens to Jobs and pods, in the order in which the API server tells it.

    A watch brings every version of every object, so each moment in which quota was exceeded would be seen.
    """

    def __init__(self, client: Client, account: Account, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = Informer(client, "/apis/batch/v1/jobs", page=0)
        self._pods = Informer(client, "/api/v1/pods", page=0)
        self._account = account
        self._clock = clock
        self._started = clock()
        self.finished = asyncio.Event()
        """Set when all planned Jobs have ended."""

    def elapsed(self) -> float:
        """Real seconds since this observer was made."""
        return self._clock() - self._started

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(self._jobs, self._account.job))
            tasks.create_task(self._follow(self._pods, self._account.pod))

    async def synced(self) -> None:
        """Return when both watches have begun: nothing that is created from now on can be missed."""
        await self._jobs.synced.wait()
        await self._pods.synced.wait()

    async def _follow(self, informer: Informer, tell: Callable[[str, Object | None], None]) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                self._account.advance(self.elapsed())
                for change in batch:
                    tell(change.key, None if change.type == "DELETED" else change.object)
                if self._account.finished():
                    self.finished.set()
