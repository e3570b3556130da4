"""Liveness probe of the API server: a frozen one keeps watches open and sends nothing, just like a quiet cluster.

Bookmarks come once a minute at best, so a silent watch is no sign of failure; a probe detects one within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from admission.cluster.errors import ServerError, Unreachable
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cluster.client import Client

log = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between an answer and the next probe."""

PATIENCE = (7.0, 3.0)
"""Time limits (s) of a probe and of its repetition. Together with INTERVAL less than 15 s."""

# The cheapest request there is, and every authenticated user may send it.
_PATH = "/version"


class Pulse:
    """Probes the API server every few seconds. Any answer below 500 counts as alive."""

    def __init__(self, client: Client, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self._beats = asyncio.Event()
        self._beats.set()
        self._returned = asyncio.Event()
        """Set when the server answers again; another one waits for the next time."""
        self.failure: str | None = None
        """A sentence about the failure, for `/readyz`; None while the server answers."""

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self._note(await self._ask())
            await self._sleep(INTERVAL)

    async def beating(self) -> None:
        """Return when the server answers; at once if it does."""
        await self._beats.wait()

    async def pause(self, seconds: float) -> None:
        """Sleep before another attempt, until a server that was away answers again at the longest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._returned.wait()

    async def _ask(self) -> str | None:
        """Probe twice before reporting a failure: the first timeout may mean that this process was suspended."""
        failure = None
        for patience in PATIENCE:
            try:
                async with asyncio.timeout(patience):
                    await self._client.get(_PATH)
            except TimeoutError:
                failure = f"{self._client.server} does not answer: {sum(PATIENCE):g} s were not enough"
            except (Unreachable, ServerError) as error:
                failure = str(error)
            except ClusterError:  # refused, but by somebody who is there
                return None
            else:
                return None
        return failure

    def _note(self, failure: str | None) -> None:
        if failure is not None and self.failure is None:
            log.warning("nothing is decided until the API server answers: %s", failure)
        elif failure is None and self.failure is not None:
            log.info("the API server answers again")
            self._returned.set()
            self._returned = asyncio.Event()
        self.failure = failure
        if failure is None:
            self._beats.set()
        else:
            self._beats.clear()
