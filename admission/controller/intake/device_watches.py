"""Watches of what ResourceClaims request: DeviceClasses, ResourceSlices, templates and claims (`resource.k8s.io/v1`).

They run only if a DeviceClass has a quota. While one of them fails, workloads that depend on it wait, and no others.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import Forbidden, NotFound
from admission.cluster.informer import Informer
from admission.controller.state.inbox import DevicesChanged
from admission.kinds.devices import RESOURCES, SLICES, Inventory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import Any, NoReturn

    from admission.cluster.client import Client
    from admission.controller.state.inbox import Message
    from admission.kinds.devices import Claimed
    from admission.model.devices import DeviceRules

GROUP: Final = "resource.k8s.io"
PATH: Final = f"/apis/{GROUP}/v1/"
_PAUSE: Final = 0.2
"""Seconds between two times at which workloads are read again at most: who changes claims quickly delays only these."""
_PAUSE_OF_SLICES: Final = 5.0
"""The same for ResourceSlices, which drivers of many nodes write one after the other."""

_REFILL: Final = 1.0
"""Seconds in which users may have `Inventory` evaluate expressions for a quarter of a second."""


class DeviceWatches:
    """Informers that keep an inventory up to date. `put` passes on what has changed, `sleep` waits for a retry."""

    def __init__(
        self,
        client: Client,
        rules: DeviceRules,
        *,
        put: Callable[[Message], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.inventory = Inventory(rules, self._unread)
        watched = RESOURCES if self.inventory.is_on else ()
        self.informers = {
            plural: Informer(client, f"{PATH}{plural}", sleep=partial(self._pause, plural=plural)) for plural in watched
        }
        """By plural; none if no device counts."""
        self._put = put
        self._sleep = sleep
        self._answered = {plural: asyncio.Event() for plural in self.informers}
        """Set when the first list is complete, or has failed."""

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return what is to be run until cancelled."""
        for plural, informer in self.informers.items():
            yield self._follow(plural, informer)
            yield self._wait_for_list(plural, informer)
        if self.informers:
            yield self._refill()

    async def settled(self) -> None:
        """Wait until each list is complete, or has failed: workloads with devices then wait, and others do not."""
        for answered in self._answered.values():
            await answered.wait()

    def _unread(self, plural: str) -> str:
        """Return why objects of a resource cannot be read now; empty: they can."""
        informer = self.informers[plural]
        match informer.failure:
            case None:
                return "" if informer.synced.is_set() else "the first list from the API server is not complete yet"
            case Forbidden():
                return f"Sluice is not permitted to list and watch {plural}.{GROUP}"
            case NotFound():
                return f"the API server does not serve {plural} of {GROUP}/v1, which Kubernetes has since 1.34"
            case failure:
                return str(failure)

    async def _follow(self, plural: str, informer: Informer) -> None:
        async with aclosing(informer.batches()) as batches:
            async for batch in batches:
                claims: set[Claimed] = set()
                everything = False
                for change in batch:
                    found = self.inventory.update(
                        plural, change.key, change.object if change.type != "DELETED" else None
                    )
                    claims |= found.claims
                    everything = everything or found.everything
                if everything:
                    self._put(DevicesChanged())
                elif claims:
                    self._put(DevicesChanged(frozenset(claims)))
                if (everything or claims) and informer.synced.is_set():
                    await asyncio.sleep(_PAUSE_OF_SLICES if plural == SLICES else _PAUSE)

    async def _wait_for_list(self, plural: str, informer: Informer) -> None:
        await informer.synced.wait()
        self._answered[plural].set()
        self._put(DevicesChanged())  # workloads may wait because it could not be read

    async def _refill(self) -> NoReturn:
        while True:
            await asyncio.sleep(_REFILL)
            if self.inventory.refill():
                self._put(DevicesChanged())

    async def _pause(self, seconds: float, *, plural: str) -> None:
        """Sleep before an informer tries again. Workloads that need it are told of its first failure."""
        if self.informers[plural].failure is not None and not self._answered[plural].is_set():
            self._answered[plural].set()
            self._put(DevicesChanged())
        await self._sleep(seconds)
