"""Which LocalQueues exist, for the webhooks of every replica: they warn whoever submits to one that does not."""

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

RETRY = 5.0
"""Seconds between two looks at a database that does not answer."""


class LocalQueues:
    """Their names, half a second after any replica has written one; while the database is away, as they were."""

    def __init__(self, store: Store, tell: Callable[[set[tuple[str, str]]], None]) -> None:
        """`tell` is called with (namespace, name) of all of them, once they are known and after each change."""
        self._store = store
        self._tell = tell
        self._names: set[tuple[str, str]] | None = None
        self._revision = 0

    async def run(self) -> None:
        """Keep them up to date until cancelled."""
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("cannot see which LocalQueues exist: %s", error)
            await asyncio.sleep(RETRY)

    async def _follow(self) -> None:
        if self._names is None:
            self._revision = await self._store.queues.revision()
            self._names = {obj.key[1:] for obj in await self._store.queues.list(LocalQueue.kind)}
            self._tell(self._names)
        while True:
            reached = await self._store.revisions.wait_for_external(self._revision)
            changed = False
            for version in await self._store.queues.changes_since(self._revision):
                kind, *name = version.object.key
                if kind == LocalQueue.kind:
                    change = self._names.discard if version.operation == "delete" else self._names.add
                    change((name[0], name[1]))
                    changed = True
            self._revision = reached
            if changed:
                self._tell(self._names)
