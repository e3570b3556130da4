"""The servers behind: one for each APIService, probed without end, and known by the paths that are theirs."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from admission.sandbox.aggregation.backend import Backend, Unavailable
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.background import background
from admission.sandbox.builtin.api_services import GROUP, PLURAL, condition
from admission.sandbox.local import LocalClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.sandbox.aggregation.front_proxy import FrontProxy
    from admission.sandbox.apiserver.registry import Registry
    from admission.sandbox.apiserver.requests import User

# Seconds, of the wall's clock: the servers behind live in real time, whatever the speed of the sandbox.
PROBE_INTERVAL = 2.0
FIRST_RETRY = 0.1
# How long what a server says that it serves is believed.
LEARN_INTERVAL = 30.0


class Aggregator:
    """All servers behind APIServices, as long as it runs."""

    def __init__(self, registry: Registry, front_proxy: FrontProxy, user: User) -> None:
        self._registry = registry
        self._front_proxy = front_proxy
        self._client = LocalClient(registry, user)
        self._services = registry.store.collections[GROUP, PLURAL]
        self._backends: dict[str, Backend] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    def backends(self) -> list[Backend]:
        """Those that are known, the most important group first, then the most important version."""

        def rank(backend: Backend) -> tuple[int, str, int, str]:
            spec = backend.spec
            return -spec["groupPriorityMinimum"], backend.group, -spec["versionPriority"], backend.version

        return sorted(self._backends.values(), key=rank)

    def owner(self, path: str) -> Backend | None:
        """Whose a path is; None when it is the API server's own."""
        match path.split("/", 5 if path.startswith("/openapi/") else 4):
            case ["", "apis", group, version, *_] | ["", "openapi", "v3", "apis", group, version]:
                return self._backends.get(f"{version}.{group}")
            case _:
                return None

    # ------------------------------------------------------------------ following the APIServices

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the APIServices for the time of the block."""
        try:
            async with background(aggregator=self._follow()):
                yield
        finally:
            for backend in self._backends.values():
                await backend.close()
            self._backends.clear()

    async def _follow(self) -> None:
        wake = asyncio.Event()
        addresses = self._registry.store.collections["", "services"]
        self._services.subscribe(wake.set)
        addresses.subscribe(self._wake_all)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    wake.clear()
                    await self._adopt(group)
                    await wake.wait()
        finally:
            self._services.unsubscribe(wake.set)
            addresses.unsubscribe(self._wake_all)

    def _wake_all(self) -> None:
        for backend in self._backends.values():
            backend.wake.set()

    async def _adopt(self, group: asyncio.TaskGroup) -> None:
        """Begin with the APIServices that are new or changed, be done with those that are gone."""
        wanted = {
            version.obj["metadata"]["name"]: version.obj["spec"]
            for version in self._services.versions()
            if "service" in version.obj["spec"]
        }
        for name, backend in list(self._backends.items()):
            if wanted.get(name) != backend.spec:
                self._watches.pop(name).cancel()
                await self._backends.pop(name).close()
        for name, spec in wanted.items():
            if name not in self._backends:
                backend = self._backends[name] = Backend.of(name, spec, self._front_proxy)
                self._watches[name] = group.create_task(self._watch_over(backend))

    # ------------------------------------------------------------------ probing one

    async def _watch_over(self, backend: Backend) -> None:
        failures, learned = 0, 0.0
        while True:
            backend.wake.clear()
            try:
                await backend.probe(self._registry)
                if not backend.available or time.monotonic() - learned > LEARN_INTERVAL:
                    await backend.learn(self._registry)
                    learned = time.monotonic()
            except Unavailable as error:
                backend.available, failures = False, failures + 1
                await self._tell(backend.name, error)
            else:
                backend.available, failures = True, 0
                await self._tell(backend.name, None)
            with suppress(TimeoutError):
                async with asyncio.timeout(_pause(failures)):
                    await backend.wake.wait()

    async def _tell(self, name: str, fault: Unavailable | None) -> None:
        """Write the condition, if it is another."""
        found = self._client.get(PLURAL, "", name)
        if found is None:
            return
        status, reason, message = ("False", fault.reason, str(fault)) if fault else _PASSED
        told = condition(status, reason, message, self._registry.now())
        for known in found.get("status", {}).get("conditions", ()):
            if known["status"] == status:
                told["lastTransitionTime"] = known["lastTransitionTime"]
            if known == told:
                return
        # The APIService may have gone in the meantime.
        with suppress(ApiError):
            await self._client.patch(PLURAL, "", name, {"status": {"conditions": [told]}}, subresource="status")


def _pause(failures: int) -> float:
    """Seconds until the next probe: short after a first failure, then longer and longer."""
    return min(FIRST_RETRY * 2 ** min(failures, 8), PROBE_INTERVAL) if failures else PROBE_INTERVAL


_PASSED = ("True", "Passed", "all checks passed")
