"""`sluice logs`: the logs of a Job's pods. The functions that find and follow a Job are shared with `sluice submit`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.job_kinds import kind_named
from admission.cli.arguments.kubernetes import kind_of_workload, kubernetes, namespace_of, object_path
from admission.cli.arguments.objects import namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload
from admission.cli.commands.why import position_message
from admission.cli.errors import CommandError
from admission.cli.output.pod_logs import ClusterPods, DispatchedPods, LogOptions, PodLogs
from admission.cli.serve.signals import until_signal
from admission.cluster.errors import NotFound
from admission.kinds.dispatched import is_dispatched, runs_in
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cli.output.pod_logs import PodSource
    from admission.cluster.client import Client
    from admission.kinds import Kind, Object


@dataclass(frozen=True, slots=True)
class JobFound:
    """A Job, or object of another kind, whose pods have logs."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    pods: int
    """Number of pods that it wants, or still has."""
    is_dispatched: bool = False
    """Whether they run in another cluster."""

    @property
    def path(self) -> str:
        """API path of the object."""
        return object_path(self.kind, self.namespace, self.name)

    @property
    def selector(self) -> dict[str, str]:
        """Parameters of a list request for its pods."""
        if not self.kind.pods_label:  # it is a pod itself
            return {"fieldSelector": f"metadata.name={self.name}"}
        return {"labelSelector": f"{self.kind.pods_label}={self.uid}"}


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
            async with pods_of(client, connection, found) as source:
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
    adapter = kind_of_workload(workload)
    try:
        return _found(adapter, await client.get(object_path(adapter, workload.namespace, workload.object_name)))
    except NotFound as error:
        raise CommandError(
            f"{workload.object_kind} {workload.object_name} is deleted; its logs are no longer available"
        ) from error


async def follow_job(client: Client, connection: ApiConnection, found: JobFound, options: LogOptions) -> None:
    """Print the logs of its pods until it has finished or is deleted."""
    async with pods_of(client, connection, found) as source:
        await PodLogs(source, options).follow(partial(has_finished, client, found), expected=found.pods)


@asynccontextmanager
async def pods_of(client: Client, connection: ApiConnection, found: JobFound) -> AsyncIterator[PodSource]:
    """Context manager: the pods of a Job, wherever they run."""
    if not found.is_dispatched:
        yield ClusterPods(client, found.namespace, found.selector)
        return
    async with connect(connection) as sluice:
        workload = await sluice.workloads.get(found.name, namespace=found.namespace, kind=found.kind.kind)
        yield DispatchedPods(sluice, workload.namespace, workload.name)


async def has_finished(client: Client, found: JobFound) -> bool:
    """Return whether it has succeeded or failed, or is deleted."""
    try:
        job = await client.get(found.path)
    except NotFound:
        return True
    return job["metadata"]["uid"] != found.uid or found.kind.observe(job).finished is not None


def _found(kind: Kind, obj: Object) -> JobFound:
    observed = kind.observe(obj)
    pods = sum(max(count.wanted, count.left or 0) for count in observed.counts)
    is_elsewhere = is_dispatched(kind, obj) or bool(runs_in(obj))
    return JobFound(kind, observed.namespace, observed.name, observed.uid, pods, is_elsewhere)


async def _why_no_pods(connection: ApiConnection, found: JobFound) -> str:
    """Return the end of a message with the state of its workload; empty if Sluice does not answer."""
    try:
        async with connect(connection) as sluice:
            workload = await sluice.workloads.get(found.name, namespace=found.namespace, kind=found.kind.kind)
            return f": {await position_message(sluice, workload)}"
    except SluiceError:
        return ""
