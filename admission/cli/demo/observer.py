"""Independent observer: watches Jobs and pods at the API server with its own connection, and uses no other source."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from admission.cluster.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cli.demo.account import Object, SceneAccount
    from admission.cluster.client import Client


class Observer:
    """Feeds an Account with the watch events of Jobs and pods, in the order of the API server.

    A watch delivers every version of every object, so that no excess of quota can be missed.
    """

    def __init__(self, client: Client, account: SceneAccount, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = Informer(client, "/apis/batch/v1/jobs", page=0)
        self._pods = Informer(client, "/api/v1/pods", page=0)
        self._account = account
        self._clock = clock
        self._started = clock()
        self.finished = asyncio.Event()
        """Set when all planned Jobs have finished."""

    def elapsed(self) -> float:
        """Return the real seconds since the observer was created."""
        return self._clock() - self._started

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(self._jobs, self._account.job))
            tasks.create_task(self._follow(self._pods, self._account.pod))

    async def synced(self) -> None:
        """Wait until both watches have begun. Objects that are created afterwards cannot be missed."""
        await self._jobs.synced.wait()
        await self._pods.synced.wait()

    async def _follow(self, informer: Informer, update: Callable[[str, Object | None], None]) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                self._account.advance(self.elapsed())
                for change in batch:
                    update(change.key, None if change.type == "DELETED" else change.object)
                if self._account.finished():
                    self.finished.set()
