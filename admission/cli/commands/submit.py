"""`sluice submit`: a Job into a queue, from flags or a manifest, and what comes of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.files import filename_option, read_documents
from admission.cli.arguments.job_flags import GPU, JobFlags, job_manifest, key_value, seconds
from admission.cli.arguments.kubernetes import (
    kind_of,
    kubernetes,
    namespace_of,
    object_path,
    qualified_name,
    queued_kinds,
)
from admission.cli.arguments.objects import namespace_option
from admission.cli.commands.logs import JobFound, find_job, follow_job
from admission.cli.commands.why import standing
from admission.cli.errors import BadFlag, CommandError
from admission.cli.output.pod_logs import LogOptions
from admission.cli.output.printing import print_documents, print_line, serialized
from admission.cli.serve.signals import until_signal
from admission.cluster.errors import NotFound as NoSuchObject
from admission.kinds import check_metadata
from admission.kinds.base import KUEUE, QUEUE_NAME
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client import Sluice, Workload
    from admission.cluster.client import Client, Object

_PATIENCE: Final = 10.0
"""Seconds that Sluice has to see a new Job, before the command ends without its place in the queue."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command was asked to do, beside the Job itself."""

    output: str | None
    dry_run: bool
    wait: bool
    follow: bool


class _CommandAfterDashes(click.Command):
    """Takes words after `--` alone as the container's command, so that a name or a file is not taken for one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        after = len(args) - args.index("--") - 1 if "--" in args else 0
        rest = super().parse_args(ctx, args)
        words: tuple[str, ...] = ctx.params.get("command", ())
        if len(words) > after and not ctx.resilient_parsing:
            first = words[0]
            flag = "-f" if first.endswith((".yaml", ".yml", ".json")) else "--name"
            raise click.UsageError(
                f'what is "{first}"? Did you mean {flag} {first}? What the container runs stands after --', ctx
            )
        return rest


@click.command(cls=_CommandAfterDashes, context_settings={"ignore_unknown_options": False})
@click.argument("command", metavar="[-- COMMAND [ARG]...]", nargs=-1, type=click.UNPROCESSED)
@filename_option(required=False)
@click.option("-q", "--queue", default="", help="The LocalQueue; in manifests it replaces the one that they name.")
@click.option("--name", default="", help="The Job's name.  [default: after the command, and unique]")
@click.option("--image", default="", help="The container image.")
@click.option("--cpu", default="", help="Cores for each pod, such as 2 or 500m.")
@click.option("--memory", default="", help="Memory for each pod, such as 4Gi.")
@click.option("--gpu", default="", help=f"GPUs for each pod: {GPU}.")
@click.option("--request", "others", multiple=True, metavar="RESOURCE=AMOUNT", help="Whatever else each pod needs.")
@click.option("--pods", type=click.IntRange(min=1), default=1, show_default=True, help="Pods, all at the same time.")
@click.option("--retries", type=click.IntRange(min=0), default=0, show_default=True, help="Pods that may fail.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="An environment variable; repeatable.")
@click.option("--priority-class", default="", help="The WorkloadPriorityClass.")
@click.option("--time-limit", default="", metavar="TIME", help="How long it may run: 90m, 1h30m, 2d, or seconds.")
@click.option("--hold", is_flag=True, help="Keep it out of the queue until `sluice release`.")
@namespace_option
@click.option("--wait", is_flag=True, help="Wait until the Job has ended; exit with 1 if it failed.")
@click.option("--follow", is_flag=True, help="Print its logs until it has ended; exit with 1 if it failed.")
@click.option("--dry-run", is_flag=True, help="Print the manifest and create nothing.")
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]), help="Print what was created.")
@connection_options
def submit(
    *,
    command: tuple[str, ...],
    paths: tuple[str, ...],
    queue: str,
    namespace: str | None,
    wait: bool,
    follow: bool,
    dry_run: bool,
    output: str | None,
    connection: Connection,
    **flags: Any,
) -> None:
    """Create a Job and queue it: from flags, or from manifests of any kind that can be queued.

    COMMAND is what the container runs, always after `--`; the Job's name is given by --name.
    It is created in Kubernetes by your own rights. Memory and devices are limits, too.

    \b
    Examples:
      sluice submit --name train -q batch --image python:3.13 --cpu 2 -- python train.py
      sluice submit -q batch --image trainer --gpu 1 --time-limit 8h --follow -- ./go.sh
      sluice submit -f job.yaml --queue batch -n team-a --wait
    """
    wanted = _Wanted(output, dry_run, wait, follow)

    async def run() -> None:
        where = _namespace(connection, namespace, dry_run=dry_run)
        if paths:
            if command or any(value not in ("", (), 0, 1, False) for value in flags.values()):
                raise click.UsageError("flags about the Job do not go with -f; write them into the manifest")
            manifests = [*_from_files(paths, queue, where, is_given=namespace is not None)]
        else:
            manifests = [job_manifest(_flags(command, **flags), queue=_required(queue), namespace=where)]
        if (wait or follow) and len(manifests) > 1:
            raise click.UsageError("--wait and --follow are for one Job")
        if dry_run:
            click.echo("\n---\n".join(serialized(manifest, output or "yaml") for manifest in manifests))
            return
        async with kubernetes(connection) as client, connect(connection) as sluice:
            for manifest in manifests:
                await _submit(client, sluice, connection, manifest, wanted)

    asyncio.run(until_signal(run()) if wait or follow else run())


def _namespace(connection: Connection, given: str | None, *, dry_run: bool) -> str:
    """Where the Job is to be; empty if nothing says so and nothing is sent. Raises CommandError."""
    try:
        return namespace_of(connection, given)
    except CommandError:
        if dry_run and connection.kubeconfig is None and connection.context is None:
            return ""
        raise


def _flags(
    command: tuple[str, ...],
    *,
    image: str,
    cpu: str,
    memory: str,
    gpu: str,
    others: tuple[str, ...],
    environment: tuple[str, ...],
    time_limit: str,
    **plain: Any,
) -> JobFlags:
    if not image:
        raise click.UsageError("which image? write --image NAME, or name a manifest by -f")
    named = (("cpu", cpu), ("memory", memory), (GPU, gpu))
    return JobFlags(
        image=image,
        command=command,
        requests=(
            *((resource, amount) for resource, amount in named if amount),
            *(key_value(text, flag="--request") for text in others),
        ),
        environment=tuple(key_value(text, flag="--env") for text in environment),
        time_limit=seconds(time_limit, flag="--time-limit") if time_limit else 0,
        **plain,
    )


def _required(queue: str) -> str:
    if not queue:
        raise click.UsageError("which LocalQueue? write --queue NAME; `sluice get localqueues` shows those there are")
    return queue


def _from_files(paths: Sequence[str], queue: str, namespace: str, *, is_given: bool) -> Iterator[dict[str, Any]]:
    """The manifests, with queue and namespace. Raises BadFlag and Unreadable."""
    for document in read_documents(paths):
        manifest = {**document.body}
        if kind_of(manifest) is None:
            what = f"{manifest.get('apiVersion') or '(no apiVersion)'} {manifest.get('kind') or '(no kind)'}"
            raise BadFlag(f"{document.source}: {what} cannot be queued; there are {queued_kinds()}")
        try:
            check_metadata(manifest)
        except Misconfigured as error:
            raise BadFlag(f"{document.source}: {error}") from error
        metadata = {**(manifest.get("metadata") or {})}
        labels = {**(metadata.get("labels") or {})}
        if queue:
            labels.pop(f"{KUEUE}queue-name", None)
            labels[QUEUE_NAME] = queue
        elif not _queue(labels):
            raise BadFlag(f"{document.source}: no label {QUEUE_NAME}; add it, or write --queue NAME")
        if metadata.get("namespace", namespace) != namespace and is_given:
            raise BadFlag(f'{document.source}: is for namespace "{metadata["namespace"]}", not "{namespace}"')
        metadata["labels"] = labels
        if namespace:
            metadata.setdefault("namespace", namespace)
        yield manifest | {"metadata": metadata}


def _queue(labels: dict[str, Any]) -> str:
    return str(labels.get(QUEUE_NAME) or labels.get(f"{KUEUE}queue-name") or "")


async def _submit(
    client: Client, sluice: Sluice, connection: Connection, manifest: dict[str, Any], wanted: _Wanted
) -> None:
    """Create one Job and say what comes of it. Raises CommandError if it fails, where that is waited for."""
    kind = kind_of(manifest)
    assert kind is not None
    metadata = manifest["metadata"]
    namespace, queue = metadata["namespace"], _queue(metadata["labels"])
    await sluice.documents("localqueues").get(queue, namespace)  # or the error names the nearest one
    version = str(manifest["apiVersion"]).rpartition("/")[2]
    created = await client.create(object_path(kind, namespace, version=version), manifest)
    name = created["metadata"]["name"]
    if wanted.output in ("json", "yaml"):
        print_documents([created], wanted.output, singular="", as_list=False)
    else:
        print_line(qualified_name(kind, name) + ("" if wanted.output else " created"))
    if not wanted.output:
        await _say_what_follows(sluice, created, queue)
    if wanted.follow:
        await follow_job(client, await find_job(client, connection, f"{kind.kind}/{name}", namespace), LogOptions())
    if wanted.wait or wanted.follow:
        await _wait(client, sluice, await find_job(client, connection, f"{kind.kind}/{name}", namespace))


async def _say_what_follows(sluice: Sluice, created: Object, queue: str) -> None:
    """On standard error: whether it starts now, or where it stands and how to learn more."""
    from admission.client import NotReady

    metadata = created["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        workload = await sluice.workloads.wait(
            name, _is_decided, uid=metadata["uid"], namespace=namespace, timeout=_PATIENCE
        )
    except NotReady:
        print_line(
            f"Sluice has not taken it in yet; sluice why {name} -n {namespace} says what becomes of it", err=True
        )
        return
    if workload.admitted or workload.finished:
        print_line(f"{name} is admitted by ClusterQueue {workload.cluster_queue}: its pods start now", err=True)
        return
    print_line(await standing(sluice, workload), err=True)
    print_line(f"sluice why {name} -n {namespace} says what keeps it from running", err=True)


def _is_decided(workload: Workload) -> bool:
    return workload.admitted or workload.finished or "QuotaReserved" in workload.conditions


async def _wait(client: Client, sluice: Sluice, job: JobFound) -> None:
    """Return when the Job has succeeded; CommandError if it has failed, or is deleted."""
    workload = await sluice.workloads.wait(job.name, lambda found: found.finished, uid=job.uid, namespace=job.namespace)
    try:
        ended = job.kind.observe(await client.get(job.path)).finished
    except NoSuchObject:
        ended = None
    if ended is None:
        finished = workload.conditions["Finished"]
        raise CommandError(f"{job.name} was ended: {finished.reason}: {finished.message}")
    if not ended.succeeded:
        raise CommandError(f"{job.name} failed: {ended.reason}: {ended.message}")
    print_line(f"{job.name} has succeeded", err=True)
