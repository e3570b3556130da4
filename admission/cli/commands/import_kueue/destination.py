"""Destinations of an import: the database of a stopped Sluice, or the API of a running one."""

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
"""Name under which an import is the leader in the database, and the author of revisions."""


class Destination(Protocol):
    """Where an import writes queue objects, and possibly takes over Jobs."""

    takes_over: bool
    """Whether Jobs can be taken over."""

    async def present(self) -> list[QueueObject]:
        """Return all queue objects that exist."""

    async def known_uids(self) -> Collection[str]:
        """Return the uids of objects that are admitted or deactivated here already: they are not taken over again."""

    async def write(self, item: QueueObject) -> None:
        """Create or replace the object."""

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """Write the admissions of all Jobs in one transaction."""


class ApiDestination:
    """The API of a running Sluice. It takes over no Jobs: it would stop running ones without quota before that."""

    takes_over = False

    def __init__(self, sluice: Sluice, reason: str) -> None:
        self._sluice = sluice
        self._reason = reason

    async def present(self) -> list[QueueObject]:
        """See `Destination`."""
        return [item for model in QUEUE_OBJECTS async for item in self._sluice.collection(model).list()]

    async def known_uids(self) -> Collection[str]:
        """See `Destination`."""
        found = self._sluice.documents("workloads").list()
        return {
            # The uid of the workload's Job, which is the owner of Kueue's Workload, too.
            item["metadata"]["ownerReferences"][0]["uid"]
            async for item in found
            if (item.get("status") or {}).get("admission") or not item["spec"].get("active", True)
        }

    async def write(self, item: QueueObject) -> None:
        """See `Destination`."""
        from admission.client.documents import Options

        await self._sluice.documents(item.plural).put(to_manifest(item), options=Options(self._reason))

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """Do nothing: there must be none."""
        assert not takeovers


class DatabaseDestination:
    """The database of a stopped Sluice. The import takes the leadership, so that no replica writes at the same time."""

    takes_over = True

    def __init__(self, store: Store, reason: str) -> None:
        self._store = store
        self._reason = reason

    async def present(self) -> list[QueueObject]:
        """See `Destination`."""
        return [item for model in QUEUE_OBJECTS for item in await self._store.queues.list(model.kind)]

    async def known_uids(self) -> Collection[str]:
        """See `Destination`."""
        records = (await self._store.load()).workloads
        return {record.workload.uid for record in records if record.state is not State.PENDING or not record.active}

    async def write(self, item: QueueObject) -> None:
        """See `Destination`."""
        await self._store.queues.write(item.key, lambda _: item, author=Author(_HOLDER, reason=self._reason))

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """See `Destination`. Raises AlreadyRunning if a replica of Sluice leads on this database."""
        changes = Changes(
            workloads=tuple(each.record for each in takeovers),
            opened=tuple(each.opened for each in takeovers if each.opened is not None),
            transitions=tuple(each.transition for each in takeovers),
            checks=tuple(check for each in takeovers for check in each.checks),
        )
        await self._store.commit(changes, epoch=await self._store.lead(_HOLDER))


@asynccontextmanager
async def open_destination(
    connection: Connection, database_url: str | None, *, reason: str
) -> AsyncIterator[Destination]:
    """Context manager: the database of that URL, or without one the API of `connection`.

    `reason` is kept in the history of the objects that are written.
    """
    if database_url is None:
        async with connect(connection) as sluice:
            yield ApiDestination(sluice, reason)
    else:
        await ensure_ready(database_url)
        async with Store.open(database_url, clock=time.time) as store:
            yield DatabaseDestination(store, reason)
