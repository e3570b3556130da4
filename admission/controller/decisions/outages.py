"""Records of outages: from when to when nothing was decided, and why, for charts and the audit log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NoReturn

from admission.model import sentences
from admission.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.store.store import Store

log = logging.getLogger(__name__)

LEAST_SECONDS: Final = 10.0
"""Shorter times without a leader, such as a restart, are not recorded."""
_TICK: Final = 1.0


async def record_outages(
    store: Store, *, cause: Callable[[], str], is_deciding: Callable[[], bool], since: float | None
) -> NoReturn:
    """Record each outage of the leader when it is over, until cancelled.

    `cause`: returns why nothing can be decided at the moment; empty: it can. `is_deciding`: whether it is. `since`:
    when the last leader was last known to be there (Unix time, s); None: there was none.
    """
    why = sentences.NO_LEADER
    while True:
        now = store.now()
        if found := cause():
            since, why = (now if since is None else since), found
        elif since is not None and is_deciding():
            try:
                if why != sentences.NO_LEADER or now - since >= LEAST_SECONDS:
                    await store.note_outage(since, now, why)
                since = None
            except StoreError as error:
                log.warning("an outage is not recorded yet: %s", error)
        await asyncio.sleep(_TICK)
