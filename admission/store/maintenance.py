"""Periodic work of the leader on the database: roll-ups of the ledger, and retention."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from admission.model.errors import StoreError
from admission.store.errors import StaleEpoch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.store.retention import Retention
    from admission.store.store import Store

log = logging.getLogger(__name__)

PERIOD = 300.0
"""Seconds between two looks. Hours that were missed are caught up with."""


async def bookkeeping(
    store: Store,
    retention: Callable[[], Retention],
    *,
    epoch: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Until cancelled, while the leadership of `epoch` lasts. What `retention` keeps is asked each time.

    Raises StaleEpoch.
    """
    while True:
        try:
            await store.roll_up(epoch=epoch)
            if pruned := await store.prune(retention(), epoch=epoch):
                log.info("%d finished workloads have left the database", pruned)
        except StaleEpoch:
            raise
        except StoreError as error:
            log.warning("the ledger is not summed up, and nothing old deleted: %s", error)
        await sleep(PERIOD)
