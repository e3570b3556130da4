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
from admission.store.workloads.queries import ColumnFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from admission.cli.arguments.connection import ApiConnection
    from admission.cli.commands.import_kueue.plan import Takeover
    from admission.client import Sluice
    from admission.model.queues import QueueObject

_HOLDER = "sluice import"
"""Name under which an import is the leader in the database, and the author of revisions."""
_HOLDS_QUOTA = ColumnFilter("state", frozenset({State.ADMITTED.value, State.EVICTING.value}))


class Destination(Protocol):
    """Where an import writes queue objects, and possibly takes over Jobs."""

    takes_over: bool
    """Whether Jobs can be taken over."""

    async def present(self) -> list[QueueObject]:
        """Return all queue objects that exist."""

    async def known(self) -> Mapping[str, bool]:
        """Return all workloads that were ever recorded here, by uid of the object: whether each holds quota.

        Kueue knows nothing of what became of them since: none is taken over again.
        """

    async def lead(self) -> None:
        """Keep any Sluice from deciding until the import ends. Called before `take_over`."""

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

    async def known(self) -> Mapping[str, bool]:
        """See `Destination`."""
        return {
            # The uid of the workload's Job, which is the owner of Kueue's Workload, too.
            item["metadata"]["ownerReferences"][0]["uid"]: bool((item.get("status") or {}).get("admission"))
            async for item in self._sluice.documents("workloads").list()
        }

    async def lead(self) -> None:
        """Do nothing: it is the running Sluice that decides."""

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
        self._epoch = 0

    async def present(self) -> list[QueueObject]:
        """See `Destination`."""
        return [item for model in QUEUE_OBJECTS for item in await self._store.queues.list(model.kind)]

    async def known(self) -> Mapping[str, bool]:
        """See `Destination`."""
        holding, _ = await self._store.workloads.uids(where=[_HOLDS_QUOTA])
        recorded, _ = await self._store.workloads.uids()
        return {uid: uid in holding for uid in recorded}

    async def lead(self) -> None:
        """See `Destination`. Raises AlreadyRunning if a replica of Sluice leads on this database."""
        self._epoch = await self._store.lead(_HOLDER)

    async def write(self, item: QueueObject) -> None:
        """See `Destination`."""
        await self._store.queues.write(item.key, lambda _: item, author=Author(_HOLDER, reason=self._reason))

    async def take_over(self, takeovers: Sequence[Takeover]) -> None:
        """See `Destination`. Raises StaleEpoch if a replica of Sluice was elected meanwhile."""
        changes = Changes(
            workloads=tuple(each.record for each in takeovers),
            opened=tuple(each.opened for each in takeovers if each.opened is not None),
            transitions=tuple(each.transition for each in takeovers),
            checks=tuple(check for each in takeovers for check in each.checks),
        )
        await self._store.commit(changes, epoch=self._epoch)


@asynccontextmanager
async def open_destination(
    connection: ApiConnection, database_url: str | None, *, reason: str
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
