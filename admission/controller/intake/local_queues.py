"""Existing LocalQueues, for the webhooks of every replica: they warn users who submit to a missing LocalQueue."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from admission.model.errors import StoreError
from admission.model.queues import LocalQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.store.store import Store

log = logging.getLogger(__name__)

RETRY_DELAY = 5.0
"""Seconds between two attempts to read from a database that is unavailable."""


class LocalQueues:
    """Keeps the keys of all LocalQueues up to date, half a second behind the writes of any replica.

    While the database is unavailable, the last known keys stay valid.
    """

    def __init__(self, store: Store, on_change: Callable[[set[tuple[str, str]]], None]) -> None:
        """`on_change`: called with (namespace, name) of all LocalQueues, first when loaded, then after each change."""
        self._store = store
        self._on_change = on_change
        self._keys: set[tuple[str, str]] | None = None
        self._revision = 0

    async def run(self) -> None:
        """Follow the changes in the database until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("cannot read the LocalQueues, and tries again: %s", error)
            await asyncio.sleep(RETRY_DELAY)

    async def _follow(self) -> None:
        if self._keys is None:
            self._revision = await self._store.queues.revision()
            self._keys = {obj.key[1:] for obj in await self._store.queues.list(LocalQueue.kind)}
            self._on_change(self._keys)
        while True:
            reached = await self._store.revisions.wait_for_external(self._revision)
            changed = False
            for version in await self._store.queues.changes_since(self._revision, kind=LocalQueue.kind):
                change = self._keys.discard if version.operation == "delete" else self._keys.add
                change(version.object.key[1:])
                changed = True
            self._revision = reached
            if changed:
                self._on_change(self._keys)
