"""Workloads, typed: what waits and runs, why, and how to let it wait, move it or put it first."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from admission.client import reading
from admission.client.answers import Written
from admission.client.documents import Documents, Options
from admission.client.errors import NotFound, NotReady
from admission.client.watching import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from admission.client.answers import Explanation, Story, Workload
    from admission.client.transport import Document, Transport


class Workloads:
    """All workloads. A `name` may be the workload's own or that of the Job; methods raise branches of ClientError.

    `namespace` None means the client's own. `documents` has the same on plain JSON.
    """

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.documents = Documents(transport, "workloads")
        self._namespace = namespace

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Workload]:
        """All workloads, finished ones too, page by page as they are wanted; of all namespaces if none is named."""
        found = self.documents.list(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        async with aclosing(found) as items:
            async for item in items:
                yield reading.read(reading.workload, item)

    async def watch(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Event[Workload]]:
        """All workloads as ADDED, then every change, for ever; goes on after outages without loss (see `Watch`)."""
        changes = self.documents.watch(
            namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        async with aclosing(changes.events()) as events:
            async for event in events:
                yield Event(event.type, reading.read(reading.workload, event.object))

    async def get(self, name: str, *, namespace: str | None = None, kind: str = "") -> Workload:
        """The workload, or NotFound; of several objects of the name, the newest, or that of the `kind` (`RayJob`)."""
        namespace = namespace or self._namespace
        found = reading.read(reading.workload, await self.documents.get(name, namespace))
        if not kind or found.object_kind.lower() == kind.lower():
            return found
        async with aclosing(self.list(namespace=namespace)) as all_of_them:
            matching = [item async for item in all_of_them if _is(item, name, kind)]
        if not matching:
            raise NotFound(f'workloads.sluice.dev "{name}" of kind {kind} not found', code=404)
        return max(matching, key=lambda item: (item.created is not None, item.created))

    async def wait(
        self,
        name: str,
        until: Callable[[Workload], bool] = lambda workload: workload.admitted or workload.finished,
        *,
        uid: str = "",
        namespace: str | None = None,
        timeout: float | None = None,
    ) -> Workload:
        """The workload as soon as it is admitted, or whatever `until` asks for; it need not be there yet.

        The `uid` of the Job tells it from former ones of the same name. Raises NotReady after `timeout` seconds, with
        why it waits.
        """
        selector = f"metadata.uid={uid}" if uid else ""
        watch = self.watch(namespace=namespace or self._namespace, field_selector=selector)
        try:
            async with asyncio.timeout(timeout), aclosing(watch) as events:
                async for event in events:
                    is_it = name in (event.object.name, event.object.object_name)
                    if is_it and event.type != "DELETED" and until(event.object):
                        return event.object
        except TimeoutError as error:
            standing = await self._standing(name, namespace)
            raise NotReady(f'the workload of "{name}" {standing} after {timeout:g} s') from error
        raise AssertionError("a watch does not end")

    async def explain(self, name: str, *, namespace: str | None = None) -> Explanation:
        """Why it waits: what is missing where, who is ahead, and what would help."""
        return reading.read(reading.explanation, await self._of(name, namespace, "explain"))

    async def history(self, name: str, *, namespace: str | None = None) -> Story:
        """What has happened to it, and what it held from when to when."""
        return reading.read(reading.story, await self._of(name, namespace, "history"))

    async def hold(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Keep it out of the queue, or stop it, until `release`."""
        return await self.change(name, {"hold": True}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def release(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Let it queue again."""
        return await self.change(name, {"hold": False}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def activate(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Let it queue again after it was deactivated; what counted against it is forgotten."""
        return await self.change(name, {"active": True}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def deactivate(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Take it out of the queue for good, and stop it if it runs."""
        return await self.change(name, {"active": False}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def move(
        self, name: str, queue: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Queue it in another LocalQueue of its namespace."""
        return await self.change(name, {"queueName": queue}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def prioritize(
        self,
        name: str,
        *,
        priority: int | None = None,
        top: bool = False,
        before: str = "",
        namespace: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Written[Workload]:
        """Give it a priority, put it on top of its queue, or before another workload; with none of them, as it was."""
        spec: Document = {} if priority is None else {"priority": priority}
        if top:
            spec["order"] = {"top": True}
        elif before:
            spec["order"] = {"before": before}
        elif priority is None:
            spec["order"] = None
        return await self.change(name, spec, namespace=namespace, reason=reason, dry_run=dry_run)

    async def change(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        namespace: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Written[Workload]:
        """Set what may be set of its `spec`: priority, hold, active, queueName, order."""
        options = Options(reason, dry_run)
        document = await self.documents.patch(name, {"spec": spec}, namespace or self._namespace, options=options)
        return Written(reading.read(reading.workload, document), reading.read(reading.impact, document))

    async def _standing(self, name: str, namespace: str | None) -> str:
        try:
            found = await self.get(name, namespace=namespace)
        except NotFound:
            return "is not there"
        waiting = found.conditions.get("QuotaReserved")
        if waiting is None or waiting.holds:
            return "is not what was waited for"
        return f"still waits ({waiting.reason}: {waiting.message})"

    async def _of(self, name: str, namespace: str | None, subresource: str) -> Document:
        return await self.documents.get(name, namespace or self._namespace, subresource)


def _is(item: Workload, name: str, kind: str) -> bool:
    return name in (item.name, item.object_name) and item.object_kind.lower() == kind.lower()
