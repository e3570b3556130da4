"""Periodic maintenance of the database by the leader: roll-ups of the ledger, and retention."""

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
"""Seconds between two runs. Hours that were missed, for lack of a leader, are summed up by the next run."""


async def run_maintenance(
    store: Store,
    retention: Callable[[], Retention],
    *,
    epoch: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run roll-ups and retention every PERIOD seconds until cancelled. Raises StaleEpoch once the leader is deposed.

    `retention` is called for each run, because the settings can be reloaded.
    """
    while True:
        try:
            await store.roll_up(epoch=epoch)
            if pruned := await store.prune(retention(), epoch=epoch):
                log.info("%d finished workloads were deleted from the database", pruned)
        except StaleEpoch:
            raise
        except StoreError as error:
            log.warning("roll-ups of the ledger and deletion of old rows have failed: %s", error)
        except Exception:  # one row that cannot be read must not end the leader
            log.exception("roll-ups of the ledger and deletion of old rows have failed, and are tried again")
        await sleep(PERIOD)
