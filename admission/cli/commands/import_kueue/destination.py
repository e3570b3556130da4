"""Where an import goes: into the database of a Sluice that is stopped, or through the API of one that runs."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from admission.cli.arguments.connection import connect
from admission.model.manifests import to_manifest
from admission.model.queues import QUEUE_OBJECTS
from admission.store.audit_log import Author
from admission.store.database.migrations import ensure_ready
from admission.store.records import Changes, State
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from admission.cli.arguments.connection import Connection
    from admission.cli.commands.import_kueue.takeover import Takeover
    from admission.client import Sluice
    from admission.model.queues import QueueObject

_HOLDER = "sluice import"


class Door(Protocol):
    """What both can do."""

    takes_over: bool
    """Whether Jobs can be taken over through it."""

    async def present(self) -> list[QueueObject]:
        """All queue objects that there are."""

    async def held(self) -> Collection[str]:
        """The uids of what holds quota, or is out of the queue for good: there is nothing to take over."""

    async def write(self, item: QueueObject) -> None:
        """Create the object, or put it in place of that of its name."""

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """All of them in one transaction."""


class Api:
    """A Sluice that runs. It would stop Jobs that run without quota before they could be taken over."""

    takes_over = False

    def __init__(self, sluice: Sluice, reason: str) -> None:
        self._sluice = sluice
        self._reason = reason

    async def present(self) -> list[QueueObject]:
        """See Door."""
        return [item for model in QUEUE_OBJECTS async for item in self._sluice.collection(model).list()]

    async def held(self) -> Collection[str]:
        """See Door."""
        found = self._sluice.documents("workloads").list()
        return {
            # That of its Job, by which Kueue's Workload names it.
            item["metadata"]["ownerReferences"][0]["uid"]
            async for item in found
            if (item.get("status") or {}).get("admission") or not item["spec"].get("active", True)
        }

    async def write(self, item: QueueObject) -> None:
        """See Door."""
        from admission.client.documents import Options

        await self._sluice.documents(item.plural).put(to_manifest(item), options=Options(self._reason))

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """Not through this door."""
        assert not takeovers


class Database:
    """A Sluice that is stopped: as long as the lead is held here, no other one can start to decide."""

    takes_over = True

    def __init__(self, store: Store, reason: str) -> None:
        self._store = store
        self._reason = reason

    async def present(self) -> list[QueueObject]:
        """See Door."""
        return [item for model in QUEUE_OBJECTS for item in await self._store.queues.list(model.kind)]

    async def held(self) -> Collection[str]:
        """See Door."""
        records = (await self._store.load()).workloads
        return {record.workload.uid for record in records if record.state is not State.PENDING or not record.active}

    async def write(self, item: QueueObject) -> None:
        """See Door."""
        await self._store.queues.write(item.key, lambda _: item, author=Author(_HOLDER, reason=self._reason))

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """See Door. Raises AlreadyRunning if a Sluice decides on this database."""
        changes = Changes(
            workloads=tuple(each.record for each in takeovers),
            opened=tuple(each.opened for each in takeovers if each.opened is not None),
            transitions=tuple(each.transition for each in takeovers),
            checks=tuple(check for each in takeovers for check in each.checks),
        )
        await self._store.commit(changes, epoch=await self._store.lead(_HOLDER))


@asynccontextmanager
async def opened(connection: Connection, database_url: str | None, *, reason: str) -> AsyncIterator[Door]:
    """The door that the flags mean, for the time of the block; `reason` is kept in the history of what is written."""
    if database_url is None:
        async with connect(connection) as sluice:
            yield Api(sluice, reason)
    else:
        await ensure_ready(database_url)
        async with Store.open(database_url, clock=time.time) as store:
            yield Database(store, reason)
