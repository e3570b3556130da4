"""The newest revision of the database: known immediately for writes of this process, by polling for those of others.

Every write to the database takes the next revision, and revisions become visible in order. So a reader that has read
everything up to one revision only has to know that there is a newer one, whichever replica has written it.
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
"""Seconds between two polls of the database, while there are waiters."""


def _newest(connection: Connection) -> int:
    revision: int = connection.execute(select(head.c.revision)).scalar_one()
    return revision


class Revisions:
    """The newest known revision, and waiting for a newer one. The database is polled only while there are waiters."""

    def __init__(self, database: Database, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.newest = 0
        """The newest known revision: everything up to it can be read."""
        self.newest_external = 0
        """The newest revision that may be other than a decision of this process: a write through the API of any
        replica, or by another leader."""
        self._database = database
        self._sleep = sleep
        self._waiters = 0
        self._any_write = asyncio.Event()
        self._external_write = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None

    async def wait_for(self, since: int) -> int:
        """Wait for a write after revision `since`, by any replica; return the newest revision."""
        return await self._wait(since, lambda: self.newest, lambda: self._any_write)

    async def wait_for_external(self, since: int) -> int:
        """Wait like `wait_for`, but not for decisions of this process: a leader does not have to read its own.

        In rare cases it returns although nothing but those decisions was written.
        """
        return await self._wait(since, lambda: self.newest_external, lambda: self._external_write)

    def announce(self, revision: int, *, decision: bool = False) -> None:
        """Note the revision of a write by this process, and wake waiters. `decision`: a commit of the leader."""
        # A gap in the revisions means that another process has written in between.
        self._reached(revision, external=not decision or revision > self.newest + 1)

    async def close(self) -> None:
        """Stop polling. There must be no waiters."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)

    async def _wait(self, since: int, reached: Callable[[], int], event: Callable[[], asyncio.Event]) -> int:
        self._waiters += 1
        try:
            while reached() <= since:
                if self._poll is None or self._poll.done():
                    self._poll = asyncio.create_task(self._poll_database(), name="revisions")
                    self._poll.add_done_callback(lambda _: self._wake(external=True))
                await event().wait()
                if self._poll.done() and not self._poll.cancelled():
                    self._poll.result()  # raise an unexpected error of the poll, instead of waiting without a poll
            return reached()
        finally:
            self._waiters -= 1

    async def _poll_database(self) -> None:
        while self._waiters:
            try:
                revision = await self._database.read_sync(_newest)
            except StoreError as error:
                log.debug("cannot poll the newest revision: %s", error)  # at debug: /readyz reports the outage
            else:
                if revision > self.newest:
                    self._reached(revision, external=True)
            await self._sleep(POLL_SECONDS)

    def _reached(self, revision: int, *, external: bool) -> None:
        self.newest = max(self.newest, revision)
        if external:
            self.newest_external = max(self.newest_external, revision)
        self._wake(external=external)

    def _wake(self, *, external: bool) -> None:
        # The events are replaced, so that present waiters are woken and later ones wait for the next write.
        self._any_write.set()
        self._any_write = asyncio.Event()
        if external:
            self._external_write.set()
            self._external_write = asyncio.Event()
