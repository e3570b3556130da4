"""`sluice logs`: what the pods of a Job print."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.kubernetes import kind_named, kind_of_workload, kubernetes, namespace_of, object_path
from admission.cli.arguments.objects import namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload
from admission.cli.commands.why import standing
from admission.cli.errors import CommandError
from admission.cli.output.pod_logs import LogOptions, PodLogs
from admission.cli.serve.signals import until_signal
from admission.cluster.errors import NotFound
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from admission.cluster.client import Client
    from admission.kinds import Kind, Object


@dataclass(frozen=True, slots=True)
class JobFound:
    """An object whose pods have logs."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    pods: int

    @property
    def path(self) -> str:
        """Of the object."""
        return object_path(self.kind, self.namespace, self.name)

    @property
    def selector(self) -> dict[str, str]:
        """Which its pods are, as parameters of a list."""
        if not self.kind.pods_label:  # it is one itself
            return {"fieldSelector": f"metadata.name={self.name}"}
        return {"labelSelector": f"{self.kind.pods_label}={self.uid}"}


@click.command()
@workload_argument
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Go on until the Job has ended, over all its pods.")
@click.option("-c", "--container", default="", help="The container of each pod; by default the first.")
@click.option("--tail", type=click.IntRange(min=0), help="Only so many of the last lines of each pod.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@connection_options
def logs(
    *,
    name: str,
    namespace: str | None,
    follow: bool,
    container: str,
    tail: int | None,
    timestamps: bool,
    connection: Connection,
) -> None:
    """Print the logs of all pods of a Job, by your own rights in Kubernetes.

    With several pods each line says whose it is. What a Job printed before it was
    preempted is gone with its pods.

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
                await follow_job(client, found, options)
            elif not await PodLogs(client, found.namespace, found.selector, options).show():
                raise CommandError(f"{found.name} has no pods with logs{await _because(connection, found)}")

    asyncio.run(until_signal(run()) if follow else run())


async def find_job(client: Client, connection: Connection, text: str, namespace: str) -> JobFound:
    """The Job that `train`, `job/train` or `wl/job-train-a1b2c` means. Raises CommandError."""
    kind, name = parse_workload_name(text)
    if kind.lower() in ("", "job", "jobs"):
        adapter = kind_named("Job")
        try:
            return _found(adapter, await client.get(object_path(adapter, namespace, name)))
        except NotFound:
            pass  # it may be the name of a workload, or of another kind
    async with connect(connection) as sluice:
        workload = await find_workload(sluice, name, namespace, kind)
    adapter = kind_of_workload(workload)
    try:
        return _found(adapter, await client.get(object_path(adapter, workload.namespace, workload.object_name)))
    except NotFound as error:
        raise CommandError(f"{workload.object_kind} {workload.object_name} is deleted, and its logs with it") from error


async def follow_job(client: Client, found: JobFound, options: LogOptions) -> None:
    """Print what its pods print until it has ended or is deleted."""
    logs_of_pods = PodLogs(client, found.namespace, found.selector, options)
    await logs_of_pods.follow(partial(has_ended, client, found), expected=found.pods)


async def has_ended(client: Client, found: JobFound) -> bool:
    """Whether it has succeeded or failed, or is deleted."""
    try:
        job = await client.get(found.path)
    except NotFound:
        return True
    return job["metadata"]["uid"] != found.uid or found.kind.observe(job).finished is not None


def _found(kind: Kind, obj: Object) -> JobFound:
    seen = kind.observe(obj)
    pods = sum(max(count.wanted, count.left or 0) for count in seen.counts)
    return JobFound(kind, seen.namespace, seen.name, seen.uid, pods)


async def _because(connection: Connection, found: JobFound) -> str:
    """Why it has no pods, as far as Sluice knows; empty if it does not."""
    try:
        async with connect(connection) as sluice:
            workload = await sluice.workloads.get(found.name, namespace=found.namespace, kind=found.kind.kind)
            return f": {await standing(sluice, workload)}"
    except SluiceError:
        return ""
