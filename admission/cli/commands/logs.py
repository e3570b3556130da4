"""`sluice logs`: the logs of a Job's pods. The functions that find and follow a Job are shared with `sluice submit`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.job_kinds import kind_named, known_kinds
from admission.cli.arguments.kubernetes import kind_of_workload, kubernetes, namespace_of, object_path
from admission.cli.arguments.objects import namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload
from admission.cli.commands.why import position_message
from admission.cli.errors import CommandError
from admission.cli.output.pod_logs import ClusterPods, DispatchedPods, LogOptions, PodLogs
from admission.cli.serve.signals import until_signal
from admission.client.errors import NotFound as NoWorkload
from admission.cluster.errors import NotFound
from admission.kinds.dispatched import is_dispatched, runs_in
from admission.kinds.pod_group import PodGroupKind
from admission.kinds.selection import own_pods
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from admission.cli.output.pod_logs import PodSource
    from admission.client import Sluice, Workload
    from admission.cluster.client import Client
    from admission.kinds import Kind, Object


@dataclass(frozen=True, slots=True)
class JobFound:
    """A Job, object of another kind, or pod group whose pods have logs."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    pods: int
    """Number of pods that it wants, or still has."""
    is_dispatched: bool = False
    """Whether they run in another cluster."""

    is_finished: bool = False
    """Whether it has succeeded or failed, or is deleted."""

    @property
    def path(self) -> str:
        """API path of the object, which a pod group does not have."""
        return object_path(self.kind, self.namespace, self.name)

    @property
    def selector(self) -> Mapping[str, str]:
        """Parameters of a list request for its pods, if these are in the cluster of the object."""
        return own_pods((self.kind.group, self.kind.kind), self.name, self.uid)[0]


@click.command()
@workload_argument
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Follow the logs of all pods until the Job has finished.")
@click.option("-c", "--container", default="", metavar="NAME", help="Container of each pod.  [default: the first one]")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="Lines to print from the end of each pod's log.  [default: all]",
)
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@connection_options
def logs(
    *,
    name: str,
    namespace: str | None,
    follow: bool,
    container: str,
    tail: int | None,
    timestamps: bool,
    connection: ApiConnection,
) -> None:
    """Print the logs of all pods of a Job.

    This uses your own permissions in Kubernetes, also for Jobs that are sent to other
    clusters: Sluice then reads the logs there. With several pods each line is prefixed
    with the name of its pod. Logs of deleted pods, as after a preemption, are lost.
    A group of pods is named like a Job: by its own name, or that of its StatefulSet.

    \b
    Examples:
      sluice logs train
      sluice logs job/train -f -n team-a
    """
    options = LogOptions(container, tail, timestamps)

    async def run() -> None:
        async with kubernetes(connection) as client:
            found = await find_job(client, connection, name, namespace_of(connection, namespace))
            if follow:
                await follow_job(client, connection, found, options)
                return
            async with JobPods(client, connection, found) as source:
                shown = await PodLogs(source, options).show()
            if not shown:
                raise CommandError(f"{found.name} has no pods with logs{await _why_no_pods(connection, found)}")

    asyncio.run(until_signal(run()) if follow else run())


async def find_job(client: Client, connection: ApiConnection, text: str, namespace: str) -> JobFound:
    """Return the Job named by `train`, `job/train` or `wl/job-train-a1b2c`. Raises CommandError if there is none."""
    kind, name = parse_workload_name(text)
    if kind.lower() in ("", "job", "jobs"):
        adapter = kind_named("Job")
        try:
            return _found(adapter, await client.get(object_path(adapter, namespace, name)))
        except NotFound:
            pass  # the name may be that of a workload, or of an object of another kind
    async with connect(connection) as sluice:
        workload = await find_workload(sluice, name, namespace, kind)
    if workload.object_kind == PodGroupKind.kind and not workload.document["spec"].get("cluster"):
        return _group_found(workload)
    adapter = kind_of_workload(workload)
    try:
        return _found(adapter, await client.get(object_path(adapter, workload.namespace, workload.object_name)))
    except NotFound as error:
        raise CommandError(
            f"{workload.object_kind} {workload.object_name} is deleted; its logs are no longer available"
        ) from error


async def follow_job(client: Client, connection: ApiConnection, found: JobFound, options: LogOptions) -> None:
    """Print the logs of its pods until it has finished or is deleted."""
    async with JobPods(client, connection, found) as source:
        await PodLogs(source, options).follow(source.has_finished, expected=found.pods)


class JobPods:
    """The pods of a Job, wherever they run: a `PodSource`. Used as a context manager."""

    def __init__(self, client: Client, connection: ApiConnection, found: JobFound) -> None:
        """`client`: of the cluster of its object, with the permissions of the caller."""
        self._client = client
        self._connection = connection
        self._found = found
        self._stack = AsyncExitStack()
        self._sluice: Sluice | None = None
        self._here = ClusterPods(client, found.namespace, found.selector)
        self._there: DispatchedPods | None = None
        self._sources: dict[str, PodSource] = {}
        """Where each pod was found last, by its name."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def pods(self) -> Sequence[dict[str, Any]]:
        """Return the pods. Raises SluiceError."""
        source: PodSource = self._here
        if self._found.is_dispatched:  # its user has no credentials there: Sluice reads them
            source = self._there = self._there or DispatchedPods(
                await self._connected(), self._found.namespace, (await self._workload()).name
            )
        pods = await source.pods()
        self._sources |= dict.fromkeys((pod["metadata"]["name"] for pod in pods), source)
        return pods

    def log(self, pod: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the log of a pod that `pods` has returned. Raises SluiceError."""
        return self._sources[pod].log(pod, params)

    async def has_finished(self) -> bool:
        """Look whether it has finished or is deleted, and where it runs now. Raises SluiceError."""
        found = self._found
        try:
            if found.kind.is_composed:
                now = _group_found(await self._workload())
            else:
                now = _found(found.kind, await self._client.get(found.path))
        except (NotFound, NoWorkload):
            now = replace(found, is_finished=True)
        if now.uid != found.uid:
            return True
        self._found = now
        return now.is_finished

    async def _connected(self) -> Sluice:
        """Return the connection to Sluice."""
        if self._sluice is None:
            self._sluice = await self._stack.enter_async_context(connect(self._connection))
        return self._sluice

    async def _workload(self) -> Workload:
        sluice, found = await self._connected(), self._found
        return await sluice.workloads.get(found.name, namespace=found.namespace, kind=found.kind.kind)


def _found(kind: Kind, obj: Object) -> JobFound:
    observed = kind.observe(obj)
    return JobFound(
        kind,
        observed.namespace,
        observed.name,
        observed.uid,
        sum(max(count.wanted, count.left or 0) for count in observed.counts),
        is_dispatched=is_dispatched(kind, obj) or bool(runs_in(obj)),
        is_finished=observed.finished is not None,
    )


def _group_found(workload: Workload) -> JobFound:
    kind = known_kinds().get(PodGroupKind.group, PodGroupKind.kind)
    assert kind is not None, workload
    return JobFound(
        kind,
        workload.namespace,
        workload.object_name,
        workload.uid,
        sum(each["count"] for each in workload.document["spec"]["podSets"]),
        is_dispatched=bool(workload.document["status"].get("clusterName")),
        is_finished=workload.finished,
    )


async def _why_no_pods(connection: ApiConnection, found: JobFound) -> str:
    """Return the end of a message with the state of its workload; empty if Sluice does not answer."""
    try:
        async with connect(connection) as sluice:
            workload = await sluice.workloads.get(found.name, namespace=found.namespace, kind=found.kind.kind)
            return f": {await position_message(sluice, workload)}"
    except SluiceError:
        return ""
