"""Liveness probe of the API server: a frozen server keeps watches open and sends nothing, just like a quiet cluster.

Bookmarks are sent about once a minute, so a silent watch is no sign of a failure; a probe detects one within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from admission.cluster.errors import BadKubeconfig, ServerError, Unauthorized, Unreachable
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.cluster.client import Client

log = logging.getLogger(__name__)

INTERVAL = 3.0
"""Seconds between a response and the next probe."""

TIMEOUTS = (7.0, 3.0)
"""Timeouts in seconds of a probe and of its repetition. Their sum plus INTERVAL is less than 15 s."""

# The cheapest request, which every authenticated user may send.
_PATH = "/version"


class ApiServerProbe:
    """Probes the API server every few seconds. Any answer below 500 counts as alive, except 401.

    Without valid credentials no admitted Job can be started, and watches that are still open end without a successor.
    """

    def __init__(self, client: Client, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._client = client
        self._sleep = sleep
        self._alive = asyncio.Event()
        self._alive.set()
        self._returned = asyncio.Event()
        """Set, and replaced by a new event, when the server answers again after a failure."""
        self.effect, self.where = "nothing is decided", ""
        """For the log: what a failure causes, and of which cluster it is, as in ` in the cluster b`."""
        self.failure: str | None = None
        """Message about the failure, for `/readyz`; None while the server answers."""

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self._note(await self._probe())
            await self._sleep(INTERVAL)

    async def wait_until_alive(self) -> None:
        """Wait until the server answers; return immediately if it does."""
        await self._alive.wait()

    async def pause(self, seconds: float) -> None:
        """Sleep before a retry; return early when the server answers again after a failure."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._returned.wait()

    async def _probe(self) -> str | None:
        """Probe, a second time after a failure; return None or a message about the failure.

        The first timeout may only mean that this process was suspended.
        """
        failure = None
        for timeout in TIMEOUTS:
            try:
                async with asyncio.timeout(timeout):
                    await self._client.get(_PATH)
            except TimeoutError:
                late = f"{self._client.server} does not answer: {sum(TIMEOUTS):g} s were not enough"
                failure = self._client.silence or late
            except (Unreachable, ServerError, Unauthorized, BadKubeconfig) as error:
                failure = str(error)
            except ClusterError:  # an error response, such as 403, which shows that the server is alive
                return None
            else:
                return None
        return failure

    def _note(self, failure: str | None) -> None:
        if failure is not None and self.failure is None:
            log.warning("%s until the API server answers: %s", self.effect, failure)
        elif failure is None and self.failure is not None:
            log.info("the API server answers again%s", self.where)
            self._returned.set()
            self._returned = asyncio.Event()
        self.failure = failure
        if failure is None:
            self._alive.set()
        else:
            self._alive.clear()
