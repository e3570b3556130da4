"""Aggregator: the extension API servers of APIServices, their probes and the paths they serve."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from admission.sandbox.aggregation.backend import Backend, BackendUnavailable
from admission.sandbox.apiserver.errors import ApiError
from admission.sandbox.background import background
from admission.sandbox.builtin.api_services import GROUP, PLURAL, condition
from admission.sandbox.local import LocalClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.sandbox.aggregation.front_proxy import ProxyCertificate
    from admission.sandbox.apiserver.registry import ObjectRegistry
    from admission.sandbox.apiserver.requests import User

# Seconds between probes, of real time: the extension servers run in real time, whatever the sandbox's speed.
PROBE_INTERVAL = 2.0
# Seconds; doubled with each failed probe, up to PROBE_INTERVAL.
FIRST_RETRY = 0.1
# Seconds after which the discovery documents of a server are read again.
DISCOVERY_INTERVAL = 30.0


class Aggregator:
    """All extension API servers; follows the APIServices while `running`."""

    def __init__(self, registry: ObjectRegistry, front_proxy: ProxyCertificate, user: User) -> None:
        self._registry = registry
        self._front_proxy = front_proxy
        self._client = LocalClient(registry, user)
        self._services = registry.store.collections[GROUP, PLURAL]
        self._backends: dict[str, Backend] = {}
        self._probes: dict[str, asyncio.Task[None]] = {}

    def backends(self) -> list[Backend]:
        """Return all backends, ordered by group priority, group, version priority and version."""

        def rank(backend: Backend) -> tuple[int, str, int, str]:
            spec = backend.spec
            return -spec["groupPriorityMinimum"], backend.group, -spec["versionPriority"], backend.version

        return sorted(self._backends.values(), key=rank)

    def backend_for(self, path: str) -> Backend | None:
        """Return the backend that serves a path; None: the API server itself."""
        match path.split("/", 5 if path.startswith("/openapi/") else 4):
            case ["", "apis", group, version, *_] | ["", "openapi", "v3", "apis", group, version]:
                return self._backends.get(f"{version}.{group}")
            case _:
                return None

    # ------------------------------------------------------------------ following the APIServices

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the APIServices during the block."""
        try:
            async with background(aggregator=self._follow()):
                yield
        finally:
            for backend in self._backends.values():
                await backend.close()
            self._backends.clear()

    async def _follow(self) -> None:
        wake = asyncio.Event()
        services = self._registry.store.collections["", "services"]
        self._services.subscribe(wake.set)
        services.subscribe(self._wake_all)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    wake.clear()
                    await self._sync(group)
                    await wake.wait()
        finally:
            self._services.unsubscribe(wake.set)
            services.unsubscribe(self._wake_all)

    def _wake_all(self) -> None:
        for backend in self._backends.values():
            backend.wake.set()

    async def _sync(self, group: asyncio.TaskGroup) -> None:
        """Start probes of new and changed APIServices, stop those of deleted and changed ones."""
        wanted = {
            version.obj["metadata"]["name"]: version.obj["spec"]
            for version in self._services.versions()
            if "service" in version.obj["spec"]
        }
        for name, backend in list(self._backends.items()):
            if wanted.get(name) != backend.spec:
                self._probes.pop(name).cancel()
                await self._backends.pop(name).close()
        for name, spec in wanted.items():
            if name not in self._backends:
                backend = self._backends[name] = Backend.of(name, spec, self._front_proxy)
                self._probes[name] = group.create_task(self._probe_loop(backend))

    # ------------------------------------------------------------------ probing one

    async def _probe_loop(self, backend: Backend) -> None:
        failures, discovered = 0, 0.0
        while True:
            backend.wake.clear()
            try:
                await backend.probe(self._registry)
                if not backend.available or time.monotonic() - discovered > DISCOVERY_INTERVAL:
                    await backend.discover(self._registry)
                    discovered = time.monotonic()
            except BackendUnavailable as error:
                backend.available, failures = False, failures + 1
                await self._update_condition(backend.name, error)
            else:
                backend.available, failures = True, 0
                await self._update_condition(backend.name, None)
            with suppress(TimeoutError):
                async with asyncio.timeout(_pause(failures)):
                    await backend.wake.wait()

    async def _update_condition(self, name: str, error: BackendUnavailable | None) -> None:
        """Update the condition Available of an APIService if it changed; `error` None: the probe succeeded."""
        found = self._client.get(PLURAL, "", name)
        if found is None:
            return
        status, reason, message = ("False", error.reason, str(error)) if error else _PASSED
        new = condition(status, reason, message, self._registry.now())
        for old in found.get("status", {}).get("conditions", ()):
            if old.get("status") == status:
                new["lastTransitionTime"] = old.get("lastTransitionTime", new["lastTransitionTime"])
            if old == new:
                return
        # The APIService may have been deleted in the meantime.
        with suppress(ApiError):
            await self._client.patch(PLURAL, "", name, {"status": {"conditions": [new]}}, subresource="status")


def _pause(failures: int) -> float:
    """Return the seconds until the next probe: short after a first failure, with exponential backoff after more."""
    return min(FIRST_RETRY * 2 ** min(failures, 8), PROBE_INTERVAL) if failures else PROBE_INTERVAL


_PASSED = ("True", "Passed", "all checks passed")
