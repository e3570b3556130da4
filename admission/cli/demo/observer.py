"""Independent observer: watches Jobs and pods at API servers with its own connections, and uses no other source."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from admission.cluster.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.cli.demo.account import Object, SceneAccount
    from admission.cluster.client import Client


class Observer:
    """Feeds an Account with the watch events of Jobs and pods, in the order of each API server.

    A watch delivers every version of every object, so that no excess of quota can be missed. Names of Jobs are unique
    over all clusters.
    """

    def __init__(
        self,
        client: Client,
        account: SceneAccount,
        *,
        others: Iterable[Client] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`others`: further clusters; Jobs of theirs do not count if they are copies of Jobs of the first one."""
        clients = [client, *others]
        self._jobs = [
            Informer(each, "/apis/batch/v1/jobs", page=0) for each in clients[: 1 if account.plan.dispatches else None]
        ]
        self._pods = [Informer(each, "/api/v1/pods", page=0) for each in clients]
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
            for jobs in self._jobs:
                tasks.create_task(self._follow(jobs, self._account.job))
            for pods in self._pods:
                tasks.create_task(self._follow(pods, self._account.pod))

    async def synced(self) -> None:
        """Wait until all watches have begun. Objects that are created afterwards cannot be missed."""
        for informer in (*self._jobs, *self._pods):
            await informer.synced.wait()

    async def _follow(self, informer: Informer, update: Callable[[str, Object | None], None]) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                self._account.advance(self.elapsed())
                for change in batch:
                    update(change.key, None if change.type == "DELETED" else change.object)
                if self._account.finished():
                    self.finished.set()
