"""The client class: `async with Sluice(url, token=...) as sluice`, with typed access to objects and workloads."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from admission.client import reading
from admission.client.access import by_kubeconfig, by_url
from admission.client.answers import Written
from admission.client.documents import Documents, Options
from admission.client.errors import BadAnswer, NotFound, NotReady, Unreachable
from admission.client.transport import PREFIX, Transport
from admission.client.watching import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from admission.client.access import Endpoint
    from admission.client.answers import UsageReport, Workload
    from admission.client.collections import Collection
    from admission.client.transport import Document
    from admission.model.answers import PendingWorkload, WorkloadExplanation, WorkloadHistory
    from admission.model.queues import (
        AdmissionCheck,
        Budget,
        BudgetRequest,
        ClusterQueue,
        Cohort,
        Drain,
        LocalQueue,
        PriceBook,
        ProvisioningRequestConfig,
        QueueObject,
        Reservation,
        ResourceFlavor,
        Topology,
        UserLimit,
        WorkloadPriorityClass,
    )

Q = TypeVar("Q", bound="QueueObject")

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
"""Interval of `wait_until_ready`."""
_PAGE = 1000
"""Pending workloads in one request."""


def usage_path(*, namespace: str = "", mine: bool = False) -> str:
    """Return the path of a usage report: of all namespaces, of one, or of the caller's workloads (`mine`)."""
    if mine:
        return f"{PREFIX}/reports/mine"
    return f"{PREFIX}/namespaces/{namespace}/reports/usage" if namespace else f"{PREFIX}/reports/usage"


class _OfKind(Generic[Q]):
    """Attribute of a client: the collection of the queue objects of a kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __get__(self, client: Sluice, owner: type[Sluice]) -> Collection[Q]:
        from admission.model.queues import MODELS  # only typed access needs the models

        return client.collection(cast("type[Q]", MODELS[self._kind]))


class Sluice:
    """Client of one Sluice as one user; `async with` opens and closes its connections.

    url: such as `https://sluice.example.com`.
    token: bearer token.
    ca: PEM file with the CA of the server's certificate, if it is not one of the system's.
    namespace: of LocalQueues and workloads in calls without a namespace.
    warn: receives warnings of the server and about broken watches; by default they are logged.
    sleep: waits between attempts.

    All methods raise subclasses of ClientError.
    """

    cluster_queues: _OfKind[ClusterQueue] = _OfKind("ClusterQueue")
    """ClusterQueues, the leaves of the quota tree."""
    cohorts: _OfKind[Cohort] = _OfKind("Cohort")
    """Cohorts, the inner nodes of the quota tree."""
    local_queues: _OfKind[LocalQueue] = _OfKind("LocalQueue")
    """LocalQueues, the queues of namespaces."""
    resource_flavors: _OfKind[ResourceFlavor] = _OfKind("ResourceFlavor")
    """ResourceFlavors, the kinds of nodes."""
    workload_priority_classes: _OfKind[WorkloadPriorityClass] = _OfKind("WorkloadPriorityClass")
    """WorkloadPriorityClasses, named priorities."""
    admission_checks: _OfKind[AdmissionCheck] = _OfKind("AdmissionCheck")
    """AdmissionChecks, conditions for admission beside quota."""
    provisioning_request_configs: _OfKind[ProvisioningRequestConfig] = _OfKind("ProvisioningRequestConfig")
    """ProvisioningRequestConfigs, how an autoscaler is asked for nodes."""
    topologies: _OfKind[Topology] = _OfKind("Topology")
    """Topologies, levels of node labels."""
    budgets: _OfKind[Budget] = _OfKind("Budget")
    """Budgets, hours of resources in a period."""
    reservations: _OfKind[Reservation] = _OfKind("Reservation")
    """Reservations, quota that is kept for some workloads for a time."""
    drains: _OfKind[Drain] = _OfKind("Drain")
    """Drains, nodes and flavors on which nothing starts any more."""
    budget_requests: _OfKind[BudgetRequest] = _OfKind("BudgetRequest")
    """BudgetRequests, requests for more hours of Budgets."""
    user_limits: _OfKind[UserLimit] = _OfKind("UserLimit")
    """UserLimits, what one person may have running and waiting."""
    price_books: _OfKind[PriceBook] = _OfKind("PriceBook")
    """PriceBooks, prices of resources for statements of cost."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        ca: str | Path | None = None,
        namespace: str = "default",
        warn: Callable[[str], None] = _log.warning,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._set_up(by_url(url, token=token, ca=ca), namespace, warn, sleep)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | None = None,
        context: str | None = None,
        *,
        namespace: str = "",
        warn: Callable[[str], None] = _log.warning,
    ) -> Self:
        """Return a client through the API server of a cluster in which Sluice is registered (aggregation layer).

        `path` None: $KUBECONFIG or ~/.kube/config. `context` None: the current one. `namespace` empty: that of the
        context.
        """
        self = cls.__new__(cls)
        self._set_up(by_kubeconfig(path, context), namespace, warn, asyncio.sleep)
        return self

    @classmethod
    def from_environment(cls, *, warn: Callable[[str], None] = _log.warning) -> Self:
        """Return a client by SLUICE_SERVER, SLUICE_TOKEN and SLUICE_CA; without SLUICE_SERVER by the kubeconfig."""
        server = os.environ.get("SLUICE_SERVER")
        if not server:
            return cls.from_kubeconfig(warn=warn)
        return cls(server, token=os.environ.get("SLUICE_TOKEN", ""), ca=os.environ.get("SLUICE_CA") or None, warn=warn)

    def _set_up(
        self,
        opener: Callable[[], Awaitable[Endpoint]],
        namespace: str,
        warn: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._opener = opener
        self._warn = warn
        self._sleep = sleep
        self._namespace = namespace
        self._entered: Transport | None = None

    async def __aenter__(self) -> Self:
        """Load the credentials; no request is sent yet. Raises BadConnection."""
        endpoint = await self._opener()
        self._namespace = self._namespace or endpoint.namespace
        self._entered = Transport(endpoint, warn=self._warn, sleep=self._sleep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    @property
    def _transport(self) -> Transport:
        if self._entered is None:
            raise RuntimeError("the client must be entered first: async with Sluice(...) as sluice")
        return self._entered

    @property
    def where(self) -> str:
        """Address of the server, for messages."""
        return self._transport.endpoint.where

    @property
    def namespace(self) -> str:
        """Namespace of LocalQueues and workloads in calls without a namespace."""
        return self._namespace

    @property
    def workloads(self) -> Workloads:
        """Workloads, pending, admitted and finished."""
        return Workloads(self._transport, self._namespace)

    def collection(self, model: type[Q]) -> Collection[Q]:
        """Return the queue objects of a kind, given its model."""
        from admission.client.collections import Collection  # with the models, which only typed access needs

        return Collection(self._transport, model, self._namespace)

    def documents(self, plural: str) -> Documents:
        """Return any resource of the API by its plural name, as JSON documents."""
        return Documents(self._transport, plural)

    async def pending(
        self, *, cluster_queue: str = "", local_queue: str = "", namespace: str | None = None
    ) -> AsyncGenerator[PendingWorkload]:
        """Yield the pending workloads of a ClusterQueue or of a LocalQueue (give one of the two), in order."""
        if bool(cluster_queue) == bool(local_queue):
            raise ValueError("name either a cluster_queue or a local_queue")
        from admission.model.answers import PendingWorkloadsSummary

        queues = self.documents("clusterqueues" if cluster_queue else "localqueues")
        scope = None if cluster_queue else namespace or self._namespace
        offset = 0
        while True:
            page = await queues.get(
                cluster_queue or local_queue, scope, "pendingworkloads", limit=str(_PAGE), offset=str(offset)
            )
            for item in reading.answer(PendingWorkloadsSummary, page).items:
                yield item
            if not page["metadata"].get("remainingItemCount"):  # some of a page may be hidden from the user
                return
            offset += _PAGE

    async def usage(
        self,
        by: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        month: str = "",
        quarter: str = "",
        timezone: str = "",
        period: str = "",
        quota: bool = False,
        namespace: str = "",
        mine: bool = False,
        **only: str | Sequence[str],
    ) -> UsageReport:
        """Return a usage report.

        by: fields to group by, of queue, clusterqueue, user, namespace, flavor, priority, kind, cluster, workload,
            resource, and label:KEY of queues.
        start, end: the reported time; by default the last 30 days.
        month, quarter: instead of these a month or quarter of the calendar: 2026-10, 2026-Q3, `this` or `last`.
        timezone: that of months, quarters and periods, such as Europe/Berlin; by default UTC.
        period: `day` or `month`, to divide the report by time, too.
        quota: whether to return quota and idle quota, of groups that have such.
        namespace: only of this namespace; the right to that namespace's report suffices.
        mine: only of the caller's workloads, in all namespaces unless `namespace` is given.
        only: filters, with one or several values each: queue, clusterqueue, user, flavor, kind, cluster, resource.
        """
        texts = {"by": ",".join(by), "month": month, "quarter": quarter, "timezone": timezone, "period": period}
        texts |= {"quota": "true"} if quota else {}
        params = [(key, text) for key, text in texts.items() if text]
        params += [(key, at.isoformat()) for key, at in (("from", start), ("to", end)) if at is not None]
        params += [(key, one) for key, value in only.items() for one in ([value] if isinstance(value, str) else value)]
        params += [("namespace", namespace)] if mine and namespace else []
        path = usage_path(namespace=namespace, mine=mine)
        return reading.read(reading.usage, await self.request("GET", path, params=params))

    async def user_name(self) -> str:
        """Return the caller's user name, as in `spec.user` of its workloads."""
        if not self._transport.endpoint.aggregated:
            return str((await self.request("GET", "/session"))["user"])
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
        return reading.read(reading.user_name, answer)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Document:
        """Send any request to the API, and return the JSON response."""
        return await self._transport.request(method, path, params=params, body=body, content_type=content_type)

    @asynccontextmanager
    async def stream(self, path: str, body: object) -> AsyncIterator[AsyncIterator[Document]]:
        """POST `body`, and yield an iterator of the lines of the response, while they arrive."""
        async with self._transport.stream(path, body=body) as lines:
            yield lines

    async def text(self, path: str) -> str:
        """Return a response that is not JSON, such as of `/metrics` and `/readyz`; also that of a failed probe.

        Raises BadAnswer for a client through the API server of a cluster, which has these paths itself.
        """
        if self._transport.endpoint.aggregated:
            raise BadAnswer(f"{path} is not available through the API server of a cluster; connect to Sluice itself")
        status, text = await self._transport.probe(path)
        if status not in (200, 503):
            raise BadAnswer(f"{path} is answered by {status}")
        return text

    async def wait_until_ready(self, timeout: float, notice: Callable[[str], None] = _log.info) -> None:
        """Wait until Sluice is ready. Raises NotReady after `timeout` seconds.

        `notice` receives a message for each new reason why it is not ready.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        noticed = ""
        while fault := await self._unreadiness():
            if asyncio.get_running_loop().time() >= deadline:
                raise NotReady(f"Sluice was not ready within {timeout:g} s: {fault}")
            if fault != noticed:
                notice(f"waiting for Sluice: {fault}")
                noticed = fault
            await self._sleep(_POLL_SECONDS)

    async def _unreadiness(self) -> str:
        """Return why Sluice is not ready; empty if it is.

        Through an API server, whose probes are about itself, discovery of Sluice's group is tested instead.
        """
        aggregated = self._transport.endpoint.aggregated
        try:
            status, text = await self._transport.probe(PREFIX if aggregated else "/readyz")
        except Unreachable as error:
            return str(error)
        if status == 200:
            return ""
        if status != 503 and not aggregated:
            raise BadAnswer(f"the server at {self.where} is not Sluice (/readyz: {status})")
        if status == 404:
            alternative = "register it, or set SLUICE_SERVER and SLUICE_TOKEN to connect to Sluice itself"
            return f"no APIService v1.sluice.dev is registered at {self.where}; {alternative}"
        failed = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
        return "; ".join(failed) or f"not ready ({status})"


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
