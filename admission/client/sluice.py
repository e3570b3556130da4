"""The client: `async with Sluice(url, token=...) as sluice`."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Self, TypeVar

from admission.client import reading
from admission.client.access import by_kubeconfig, by_url
from admission.client.collections import Collection
from admission.client.documents import Documents
from admission.client.errors import BadAnswer, NotReady, Unreachable
from admission.client.transport import PREFIX, Transport
from admission.client.workloads import Workloads
from admission.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueObject,
    ResourceFlavor,
    WorkloadPriorityClass,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from admission.client.access import Door
    from admission.client.answers import Pending, UsageReport
    from admission.client.transport import Document

Q = TypeVar("Q", bound=QueueObject)

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_PAGE = 1000


def usage_path(*, namespace: str = "", mine: bool = False) -> str:
    """Where usage is reported: of all, of one namespace, or of what the caller has submitted."""
    if mine:
        return f"{PREFIX}/reports/mine"
    return f"{PREFIX}/namespaces/{namespace}/reports/usage" if namespace else f"{PREFIX}/reports/usage"


class Sluice:
    """One Sluice, as one user; to be entered by `async with`, which opens the connections and closes them.

    `token` is a bearer token; `ca` a PEM file with the authority of the server's certificate, if the system does not
    know it. `namespace` is for LocalQueues and workloads where a call names none. `warn` is told what the server
    warns of; without it, the log is. `sleep` waits between attempts. Every method raises branches of ClientError.
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
        """Through the API server of a cluster that Sluice is registered in; None: the usual file, its current context.

        The namespace is that of the context if none is given.
        """
        self = cls.__new__(cls)
        self._set_up(by_kubeconfig(path, context), namespace, warn, asyncio.sleep)
        return self

    @classmethod
    def from_environment(cls, *, warn: Callable[[str], None] = _log.warning) -> Self:
        """By SLUICE_SERVER, SLUICE_TOKEN and SLUICE_CA; without SLUICE_SERVER, by the usual kubeconfig."""
        server = os.environ.get("SLUICE_SERVER")
        if not server:
            return cls.from_kubeconfig(warn=warn)
        return cls(server, token=os.environ.get("SLUICE_TOKEN", ""), ca=os.environ.get("SLUICE_CA") or None, warn=warn)

    def _set_up(
        self,
        opener: Callable[[], Awaitable[Door]],
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
        """Raises BadConnection for credentials that cannot be used; nothing is sent yet."""
        door = await self._opener()
        self._namespace = self._namespace or door.namespace
        self._entered = Transport(door, warn=self._warn, sleep=self._sleep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    @property
    def _transport(self) -> Transport:
        if self._entered is None:
            raise RuntimeError("a Sluice must be entered first: async with Sluice(...) as sluice")
        return self._entered

    @property
    def where(self) -> str:
        """The address, for messages."""
        return self._transport.door.where

    @property
    def namespace(self) -> str:
        """Where LocalQueues and workloads are looked for if a call names no namespace."""
        return self._namespace

    @property
    def cluster_queues(self) -> Collection[ClusterQueue]:
        """The leaves of the quota tree."""
        return self.collection(ClusterQueue)

    @property
    def cohorts(self) -> Collection[Cohort]:
        """The inner nodes of the quota tree."""
        return self.collection(Cohort)

    @property
    def local_queues(self) -> Collection[LocalQueue]:
        """The queues of namespaces."""
        return self.collection(LocalQueue)

    @property
    def resource_flavors(self) -> Collection[ResourceFlavor]:
        """The kinds of nodes."""
        return self.collection(ResourceFlavor)

    @property
    def workload_priority_classes(self) -> Collection[WorkloadPriorityClass]:
        """The named priorities."""
        return self.collection(WorkloadPriorityClass)

    @property
    def admission_checks(self) -> Collection[AdmissionCheck]:
        """The conditions beside quota."""
        return self.collection(AdmissionCheck)

    @property
    def workloads(self) -> Workloads:
        """What waits and what runs."""
        return Workloads(self._transport, self._namespace)

    def collection(self, model: type[Q]) -> Collection[Q]:
        """The queue objects of a kind."""
        return Collection(self._transport, model, self._namespace)

    def documents(self, plural: str) -> Documents:
        """Any resource of the API by its plural name, on plain JSON."""
        return Documents(self._transport, plural)

    async def pending(
        self, *, cluster_queue: str = "", local_queue: str = "", namespace: str | None = None
    ) -> AsyncGenerator[Pending]:
        """The line before a ClusterQueue, or a LocalQueue's part of it, from its head; name one of the two."""
        if bool(cluster_queue) == bool(local_queue):
            raise ValueError("name either a cluster_queue or a local_queue")
        queues = self.documents("clusterqueues" if cluster_queue else "localqueues")
        scope = None if cluster_queue else namespace or self._namespace
        offset = 0
        while True:
            page = await queues.get(
                cluster_queue or local_queue, scope, "pendingworkloads", limit=str(_PAGE), offset=str(offset)
            )
            items = reading.read(reading.pending, page)
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
        period: str = "",
        namespace: str = "",
        mine: bool = False,
        **only: str | Sequence[str],
    ) -> UsageReport:
        """Who held how much for how long, by any of queue, clusterqueue, user, namespace, flavor, priority,
        kind, workload, resource.

        `period` (day or month) divides it by time, too. `only` names what it is about alone, one or several of each:
        queue, clusterqueue, user, flavor, kind, resource. With a `namespace` the right to that namespace's report is
        enough; `mine` asks for what the caller has submitted, in all namespaces if none is named.
        """
        params = [("by", ",".join(by))] + ([("period", period)] if period else [])
        params += [(key, at.isoformat()) for key, at in (("from", start), ("to", end)) if at is not None]
        params += [(key, one) for key, value in only.items() for one in ([value] if isinstance(value, str) else value)]
        params += [("namespace", namespace)] if mine and namespace else []
        path = usage_path(namespace=namespace, mine=mine)
        return reading.read(reading.usage, await self.request("GET", path, params=params))

    async def user_name(self) -> str:
        """Who the caller is, as `spec.user` of a workload names who submitted it."""
        if not self._transport.door.aggregated:
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
        """Whatever else the API has: one request on plain JSON."""
        return await self._transport.request(method, path, params=params, body=body, content_type=content_type)

    async def text(self, path: str) -> str:
        """What a path has that is no JSON, as `/metrics` and `/readyz`; of a probe, also what it says when it fails.

        Raises BadAnswer where the way leads through the API server of a cluster, which has such paths of its own.
        """
        if self._transport.door.aggregated:
            raise BadAnswer(f"{path} is not to be had through the API server of a cluster: talk to Sluice itself")
        status, text = await self._transport.probe(path)
        if status not in (200, 503):
            raise BadAnswer(f"{path} is answered by {status}")
        return text

    async def wait_until_ready(self, timeout: float, notice: Callable[[str], None] = _log.info) -> None:
        """Return as soon as Sluice is ready; NotReady after `timeout` seconds. `notice` is told what is waited for."""
        deadline = asyncio.get_running_loop().time() + timeout
        told = ""
        while fault := await self._unreadiness():
            if asyncio.get_running_loop().time() >= deadline:
                raise NotReady(f"Sluice was not ready within {timeout:g} s: {fault}")
            if fault != told:
                notice(f"waiting for Sluice: {fault}")
                told = fault
            await self._sleep(_POLL_SECONDS)

    async def _unreadiness(self) -> str:
        """What is missing; the probes of a Kubernetes API server would tell of itself, so there discovery must do."""
        aggregated = self._transport.door.aggregated
        try:
            status, text = await self._transport.probe(PREFIX if aggregated else "/readyz")
        except Unreachable as error:
            return str(error)
        if status == 200:
            return ""
        if status != 503 and not aggregated:
            raise BadAnswer(f"what answers at {self.where} is no Sluice (/readyz: {status})")
        if status == 404:
            way = "if it is not to be, set SLUICE_SERVER and SLUICE_TOKEN to talk to Sluice itself"
            return f"no APIService v1.sluice.dev is registered at {self.where}; {way}"
        failed = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
        return "; ".join(failed) or f"not ready ({status})"
