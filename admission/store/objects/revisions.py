"""The newest revision of the database: known at once of this process's writes, polled twice a second for others'.

Every write to the database takes the next revision, and revisions become visible in their order. So a reader that has
read everything up to one revision needs to know only that there is a newer one, wherever it was written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sqlalchemy import select

from admission.model.errors import StoreError
from admission.store.database.tables import head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import Connection

    from admission.store.database.connection import Database

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


def _newest(connection: Connection) -> int:
    revision: int = connection.execute(select(head.c.revision)).scalar_one()
    return revision


class Revisions:
    """The newest known revision, to wait for. The database is polled only while there are waiters."""

    def __init__(self, database: Database, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.newest = 0
        """Everything up to it can be read."""
        self.newest_order = 0
        """The newest that may be something else than decisions committed by this process: what an API wrote, on
        whichever replica, or another leader."""
        self._database = database
        self._sleep = sleep
        self._waiters = 0
        self._told = asyncio.Event()
        self._ordered = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None

    async def wait_for(self, since: int) -> int:
        """Wait for a write after revision `since`, by any replica; the newest revision then."""
        return await self._wait(since, lambda: self.newest, lambda: self._told)

    async def wait_for_order(self, since: int) -> int:
        """As `wait_for`, but not for decisions that this process commits: a leader does not have to read its own.

        Rarely it returns although nothing but such decisions was written.
        """
        return await self._wait(since, lambda: self.newest_order, lambda: self._ordered)

    def tell(self, revision: int, *, decision: bool = False) -> None:
        """Note a write of this process; `decision`: by the leader's commit."""
        self._reached(revision, order=not decision or revision > self.newest + 1)  # a gap: others wrote meanwhile

    async def close(self) -> None:
        """Stop polling. There must be no waiters."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)

    async def _wait(self, since: int, reached: Callable[[], int], told: Callable[[], asyncio.Event]) -> int:
        self._waiters += 1
        try:
            while reached() <= since:
                if self._poll is None or self._poll.done():
                    self._poll = asyncio.create_task(self._ask(), name="revisions")
                    self._poll.add_done_callback(lambda _: self._wake(order=True))
                await told().wait()
                if self._poll.done() and not self._poll.cancelled():
                    self._poll.result()  # a defect must not leave everybody waiting
            return reached()
        finally:
            self._waiters -= 1

    async def _ask(self) -> None:
        while self._waiters:
            try:
                revision = await self._database.read_sync(_newest)
            except StoreError as error:
                log.debug("cannot see what others write: %s", error)  # /readyz tells of the outage itself
            else:
                if revision > self.newest:
                    self._reached(revision, order=True)
            await self._sleep(POLL_SECONDS)

    def _reached(self, revision: int, *, order: bool) -> None:
        self.newest = max(self.newest, revision)
        if order:
            self.newest_order = max(self.newest_order, revision)
        self._wake(order=order)

    def _wake(self, *, order: bool) -> None:
        # Present waiters are woken; later ones wait for the next change.
        self._told.set()
        self._told = asyncio.Event()
        if order:
            self._ordered.set()
            self._ordered = asyncio.Event()
