"""The client class: `async with Sluice(url, token=...) as sluice`."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from admission.client import reading
from admission.client.access import by_kubeconfig, by_url
from admission.client.documents import Documents
from admission.client.errors import BadAnswer, NotReady, Unreachable
from admission.client.transport import PREFIX, Transport
from admission.client.workloads import Workloads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from admission.client.access import Endpoint
    from admission.client.answers import UsageReport
    from admission.client.collections import Collection
    from admission.client.transport import Document
    from admission.model.answers import PendingWorkload
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
    def cluster_queues(self) -> Collection[ClusterQueue]:
        """ClusterQueues, the leaves of the quota tree."""
        return self._of_kind("ClusterQueue")

    @property
    def cohorts(self) -> Collection[Cohort]:
        """Cohorts, the inner nodes of the quota tree."""
        return self._of_kind("Cohort")

    @property
    def local_queues(self) -> Collection[LocalQueue]:
        """LocalQueues, the queues of namespaces."""
        return self._of_kind("LocalQueue")

    @property
    def resource_flavors(self) -> Collection[ResourceFlavor]:
        """ResourceFlavors, the kinds of nodes."""
        return self._of_kind("ResourceFlavor")

    @property
    def workload_priority_classes(self) -> Collection[WorkloadPriorityClass]:
        """WorkloadPriorityClasses, named priorities."""
        return self._of_kind("WorkloadPriorityClass")

    @property
    def admission_checks(self) -> Collection[AdmissionCheck]:
        """AdmissionChecks, conditions for admission beside quota."""
        return self._of_kind("AdmissionCheck")

    @property
    def provisioning_request_configs(self) -> Collection[ProvisioningRequestConfig]:
        """ProvisioningRequestConfigs, how an autoscaler is asked for nodes."""
        return self._of_kind("ProvisioningRequestConfig")

    @property
    def topologies(self) -> Collection[Topology]:
        """Topologies, levels of node labels."""
        return self._of_kind("Topology")

    @property
    def budgets(self) -> Collection[Budget]:
        """Budgets, hours of resources in a period."""
        return self._of_kind("Budget")

    @property
    def reservations(self) -> Collection[Reservation]:
        """Reservations, quota that is kept for some workloads for a time."""
        return self._of_kind("Reservation")

    @property
    def drains(self) -> Collection[Drain]:
        """Drains, nodes and flavors on which nothing starts any more."""
        return self._of_kind("Drain")

    @property
    def budget_requests(self) -> Collection[BudgetRequest]:
        """BudgetRequests, requests for more hours of Budgets."""
        return self._of_kind("BudgetRequest")

    @property
    def user_limits(self) -> Collection[UserLimit]:
        """UserLimits, what one person may have running and waiting."""
        return self._of_kind("UserLimit")

    @property
    def price_books(self) -> Collection[PriceBook]:
        """PriceBooks, prices of resources for statements of cost."""
        return self._of_kind("PriceBook")

    @property
    def workloads(self) -> Workloads:
        """Workloads, pending, admitted and finished."""
        return Workloads(self._transport, self._namespace)

    def collection(self, model: type[Q]) -> Collection[Q]:
        """Return the queue objects of a kind, given its model."""
        from admission.client.collections import Collection  # with the models, which only typed access needs

        return Collection(self._transport, model, self._namespace)

    def _of_kind(self, kind: str) -> Collection[Any]:
        from admission.model.queues import MODELS

        return self.collection(MODELS[kind])

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
            items = reading.answer(PendingWorkloadsSummary, page).items
            for item in items:
                yield item
            if len(items) < _PAGE:
                return
            offset += len(items)

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
