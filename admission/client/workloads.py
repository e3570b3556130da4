"""Typed access to workloads: list, watch, explain, history, and changes (hold, move, prioritize ...)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from admission.client import reading
from admission.client.answers import Written
from admission.client.documents import Documents, Options
from admission.client.errors import NotFound, NotReady
from admission.client.transport import PREFIX
from admission.client.watching import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from admission.client.answers import Workload
    from admission.client.transport import Document, Transport
    from admission.model.answers import WorkloadExplanation, WorkloadHistory

_PODS = 1000
"""Most pods of a workload that are returned."""


class Workloads:
    """The workloads. Methods raise subclasses of ClientError.

    `name` is the name of a workload, or of its Job (then the newest one). `namespace` None means the client's
    namespace. `documents` has the same verbs on JSON documents.
    """

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.documents = Documents(transport, "workloads")
        self._transport = transport
        self._namespace = namespace

    async def list(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Workload]:
        """Yield all workloads, also finished ones, of all namespaces if none is given; pages are read as needed."""
        found = self.documents.list(namespace=namespace, label_selector=label_selector, field_selector=field_selector)
        async with aclosing(found) as items:
            async for item in items:
                yield reading.read(reading.workload, item)

    async def watch(
        self, *, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Event[Workload]]:
        """Yield the workloads as ADDED, then all changes without end; survives outages without loss (see `Watch`)."""
        changes = self.documents.watch(
            namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        async with aclosing(changes.events()) as events:
            async for event in events:
                yield Event(event.type, reading.read(reading.workload, event.object))

    async def get(self, name: str, *, namespace: str | None = None, kind: str = "") -> Workload:
        """Return a workload; of several objects with the name the newest, or that of the `kind`. Raises NotFound.

        The name of a part of it, such as one of its pods, leads to it, too.
        """
        params = {"objectKind": kind} if kind else {}
        return reading.read(reading.workload, await self.documents.get(name, namespace or self._namespace, **params))

    async def wait(
        self,
        name: str,
        until: Callable[[Workload], bool] = lambda workload: workload.admitted or workload.finished,
        *,
        uid: str = "",
        namespace: str | None = None,
        timeout: float | None = None,
    ) -> Workload:
        """Wait until a workload is admitted or finished, or `until` returns True for it, and return it.

        The workload need not exist yet. The `uid` of the Job excludes earlier Jobs with the same name. Raises NotReady
        after `timeout` seconds, with the reason why it waits.
        """
        selector = f"metadata.uid={uid}" if uid else ""
        watch = self.watch(namespace=namespace or self._namespace, field_selector=selector)
        try:
            async with asyncio.timeout(timeout), aclosing(watch) as events:
                async for event in events:
                    matches = name in (event.object.name, event.object.object_name)
                    if matches and event.type != "DELETED" and until(event.object):
                        return event.object
        except TimeoutError as error:
            state = await self._state(name, namespace)
            raise NotReady(f'the workload of "{name}" {state} after {timeout:g} s') from error
        raise AssertionError("a watch does not end")

    async def explain(self, name: str, *, namespace: str | None = None) -> WorkloadExplanation:
        """Explain why a workload waits: missing quota, workloads ahead of it, and what would help."""
        from admission.model.answers import WorkloadExplanation

        return reading.answer(WorkloadExplanation, await self._of(name, namespace, "explain"))

    async def history(self, name: str, *, namespace: str | None = None) -> WorkloadHistory:
        """Return the history of a workload: its transitions, and the quota that it had."""
        from admission.model.answers import WorkloadHistory

        return reading.answer(WorkloadHistory, await self._of(name, namespace, "history"))

    async def pods(self, name: str, *, namespace: str | None = None) -> Sequence[Document]:
        """Return the first thousand pods of a workload, in the cluster in which they run, with their containers."""
        found = await self.documents.get(name, namespace or self._namespace, "pods", limit=str(_PODS))
        pods: Sequence[Document] = found["items"]
        return pods

    def log(
        self, name: str, params: Mapping[str, str], *, namespace: str | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the log of a pod of a workload; the context has an iterator of its pieces.

        `params`: `pod`, and as in Kubernetes `container`, `follow`, `tailLines` and `timestamps`.
        """
        path = f"{PREFIX}/namespaces/{namespace or self._namespace}/workloads/{name}/log"
        return self._transport.pieces(path, params=params)

    async def hold(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Put a workload on hold until `release`: it is not queued, and evicted if it is admitted."""
        return await self.change(name, {"hold": True}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def release(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """End a hold: the workload is queued again."""
        return await self.change(name, {"hold": False}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def activate(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Queue a deactivated workload again; its requeue count and backoff are reset."""
        return await self.change(name, {"active": True}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def deactivate(
        self, name: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Deactivate a workload: it is not queued until `activate`, and evicted if it is admitted."""
        return await self.change(name, {"active": False}, namespace=namespace, reason=reason, dry_run=dry_run)

    async def move(
        self, name: str, queue: str, *, namespace: str | None = None, reason: str = "", dry_run: bool = False
    ) -> Written[Workload]:
        """Move a workload to another LocalQueue of its namespace."""
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
        """Set the priority of a workload, or its position: on top of its ClusterQueue, or before another workload.

        Without any of them its own position is restored.
        """
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
        """Set fields of a workload's `spec`: priority, hold, active, queueName, order."""
        options = Options(reason, dry_run)
        document = await self.documents.patch(name, {"spec": spec}, namespace or self._namespace, options=options)
        return Written(reading.read(reading.workload, document), reading.read(reading.impact, document))

    async def _state(self, name: str, namespace: str | None) -> str:
        try:
            found = await self.get(name, namespace=namespace)
        except NotFound:
            return "does not exist"
        waiting = found.conditions.get("QuotaReserved")
        if waiting is None or waiting.holds:
            return "is not in the expected state"
        return f"still waits ({waiting.reason}: {waiting.message})"

    async def _of(self, name: str, namespace: str | None, subresource: str) -> Document:
        return await self.documents.get(name, namespace or self._namespace, subresource)
