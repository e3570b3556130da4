"""Whether the API server answers at all: a frozen one leaves every watch open and says nothing, like a quiet cluster.

Bookmarks come once a minute at best, so that silence on a watch tells nothing for long; asking tells within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from admission.cluster.errors import ServerError, Unreachable
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cluster.client import Client

log = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between an answer and the next question."""

PATIENCE = (7.0, 3.0)
"""Seconds that an answer may take, and one to the same question asked again; with INTERVAL less than 15."""

# The cheapest request there is, and every authenticated user may send it.
_PATH = "/version"


class Pulse:
    """Asks the API server every few seconds. Any answer but a failure of the server's own is one."""

    def __init__(self, client: Client, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self._beats = asyncio.Event()
        self._beats.set()
        self.failure: str | None = None
        """The sentence that says since what the server does not answer; None while it does."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._note(await self._ask())
            await self._sleep(INTERVAL)

    async def beating(self) -> None:
        """Wait until the server answers; at once if it does."""
        await self._beats.wait()

    async def _ask(self) -> str | None:
        """Twice before it counts: the first timeout may only say that this process stood still."""
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
        self.failure = failure
        if failure is None:
            self._beats.set()
        else:
            self._beats.clear()
