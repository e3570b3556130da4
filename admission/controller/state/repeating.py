"""Work of the leader that is done again and again, beside the decisions: neither an outage nor a defect ends it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.controller.state.faults import Faults

log = logging.getLogger(__name__)


async def repeat(work: Callable[[], Awaitable[float | None]], faults: Faults, *, every: float, name: str) -> NoReturn:
    """Do `work` every so many seconds, or after those that it returns, until cancelled. `name`: for the log."""
    while True:
        pause = None
        try:
            pause = await work()
        except SluiceError as error:
            log.warning("%s is tried again: %s", name, error)
        except Exception as error:  # noqa: BLE001  a defect here must not end decisions
            faults.report(name, error)
        await asyncio.sleep(every if pause is None else pause)
