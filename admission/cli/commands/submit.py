"""`sluice submit`: create a Job in a queue from flags or manifests, and show its state, logs or result."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from admission.apimachinery.tables import spoken
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import filename_option, read_documents
from admission.cli.arguments.job_flags import GPU, JobFlags, job_manifest, key_value, seconds
from admission.cli.arguments.job_kinds import kind_of, queued_kinds
from admission.cli.arguments.kubernetes import kubernetes, namespace_of, object_path, qualified_name
from admission.cli.arguments.objects import namespace_option
from admission.cli.arguments.suggestions import existing_queues, similar_name
from admission.cli.commands.logs import JobFound, find_job, follow_job
from admission.cli.commands.why import position_message
from admission.cli.errors import BadFlag, CommandError
from admission.cli.output.pod_logs import LogOptions
from admission.cli.output.printing import print_documents, print_line, serialized
from admission.cli.serve.signals import until_signal
from admission.cluster.errors import NotFound as NoSuchObject
from admission.kinds import check_metadata
from admission.kinds.base import KUEUE, QUEUE_NAME
from admission.kinds.common import first
from admission.kinds.limits import NamespaceContext
from admission.model.errors import Misconfigured
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client import Sluice, Workload
    from admission.client.transport import Document
    from admission.cluster.client import Client, Object

_DECISION_TIMEOUT: Final = 10.0
"""Seconds to wait for Sluice's first decision about a new Job; after that its position is not printed."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Flags that do not describe the Job."""

    output: str | None
    dry_run: bool
    wait: bool
    follow: bool


class _CommandAfterDashes(click.Command):
    """Click command whose arguments must follow `--`: a Job's name or a file before it is no container command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for one before `--`, with the flag that it may belong to."""
        after = len(args) - args.index("--") - 1 if "--" in args else 0
        rest = super().parse_args(ctx, args)
        words: tuple[str, ...] = ctx.params.get("command", ())
        if len(words) > after and not ctx.resilient_parsing:
            first = words[0]
            flag = "-f" if first.endswith((".yaml", ".yml", ".json")) else "--name"
            raise click.UsageError(
                f'unexpected argument "{first}"; did you mean {flag} {first}? The container command must follow --', ctx
            )
        return rest


@click.command(cls=_CommandAfterDashes, context_settings={"ignore_unknown_options": False})
@click.argument("command", metavar="[-- COMMAND [ARG]...]", nargs=-1, type=click.UNPROCESSED)
@filename_option(required=False)
@click.option(
    "-q", "--queue", default="", metavar="NAME", help="LocalQueue of the Job; replaces the queue label of manifests."
)
@click.option(
    "--name", default="", metavar="NAME", help="Name of the Job.  [default: generated, from the container command]"
)
@click.option("--image", default="", metavar="IMAGE", help="Container image.")
@click.option("--cpu", default="", metavar="QUANTITY", help="Cores for each pod, for example 2 or 500m.")
@click.option("--memory", default="", metavar="QUANTITY", help="Memory for each pod, for example 4Gi.")
@click.option("--gpu", default="", metavar="N", help=f"GPUs for each pod ({GPU}).")
@click.option(
    "--request",
    "others",
    multiple=True,
    metavar="RESOURCE=QUANTITY",
    help="Another resource for each pod; repeatable.",
)
@click.option(
    "--pods", type=click.IntRange(min=1), default=1, metavar="N", show_default=True, help="Number of parallel pods."
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    show_default=True,
    help="Number of pods that may fail before the Job fails.",
)
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option("--priority-class", default="", metavar="NAME", help="WorkloadPriorityClass of the Job.")
@click.option(
    "--time-limit", default="", metavar="DURATION", help="Maximum execution time: 90m, 1h30m, 2d, or seconds."
)
@click.option(
    "--topology-required", default="", metavar="LEVEL", help="Node label: run all pods where its value is the same."
)
@click.option(
    "--topology-preferred", default="", metavar="LEVEL", help="The same, if possible; else in as few such places."
)
@click.option("--hold", is_flag=True, help="Put the Job on hold, until `sluice release`.")
@namespace_option
@click.option("--wait", is_flag=True, help="Wait until the Job has finished; exit with 1 if it failed.")
@click.option("--follow", is_flag=True, help="Print logs until the Job has finished; exit with 1 if it failed.")
@click.option("--dry-run", is_flag=True, help="Create nothing; print the manifest, and queue, waits and cost.")
@click.option(
    "-o", "--output", type=click.Choice(["name", "json", "yaml"]), help="Output format.  [default: a message]"
)
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
    connection: ApiConnection,
    **flags: Any,
) -> None:
    """Create a Job in a queue, from flags or from manifests.

    COMMAND is the command of the container, and always follows `--`. Manifests may be of
    any kind that can be queued. This uses your own permissions in Kubernetes. Requests of
    memory and devices are set as limits as well.

    \b
    Examples:
      sluice submit --name train -q batch --image python:3.13 --cpu 2 -- python train.py
      sluice submit -q batch --image trainer --gpu 1 --time-limit 8h --follow -- ./go.sh
      sluice submit -f job.yaml --queue batch -n team-a --wait
    """
    options = _Options(output, dry_run, wait, follow)

    async def run() -> None:
        where = _namespace(connection, namespace, dry_run=dry_run)
        if paths:
            if command or any(value not in ("", (), 0, 1, False) for value in flags.values()):
                raise click.UsageError(
                    "flags that describe the Job cannot be used with -f; change the manifest instead"
                )
            manifests = [*_from_files(paths, queue, where, is_given=namespace is not None)]
        else:
            manifests = [job_manifest(_flags(command, **flags), queue=_required(queue), namespace=where)]
        if (wait or follow) and len(manifests) > 1:
            raise click.UsageError("--wait and --follow support one Job only")
        if dry_run:
            click.echo("\n---\n".join(serialized(manifest, output or "yaml") for manifest in manifests))
            if output is None:
                for manifest in manifests:
                    await _print_quote(connection, manifest)
            return
        async with kubernetes(connection) as client, connect(connection) as sluice:
            for manifest in manifests:
                await _submit(client, sluice, connection, manifest, options)

    if not (wait or follow):
        asyncio.run(run())
    elif asyncio.run(until_signal(run())):
        raise CommandError("interrupted before the Job finished; if created it remains: `sluice cancel` deletes it")


def _namespace(connection: ApiConnection, given: str | None, *, dry_run: bool) -> str:
    """Return the namespace of the Job; empty if a dry run finds no kubeconfig to take it from. Raises CommandError."""
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
    """Parse the values of the flags that describe the Job. Raises UsageError and BadFlag."""
    if not image:
        raise click.UsageError("no image is specified; use --image IMAGE, or a manifest with -f")
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
        raise click.UsageError("no LocalQueue is specified; use --queue NAME (`sluice get localqueues` lists them)")
    return queue


def _from_files(paths: Sequence[str], queue: str, namespace: str, *, is_given: bool) -> Iterator[dict[str, Any]]:
    """Yield the manifests with queue label and namespace. Raises BadFlag and Unreadable.

    With `is_given` the namespace comes from `-n`, and a manifest for another one is an error.
    """
    for document in read_documents(paths):
        manifest = {**document.body}
        if kind_of(manifest) is None:
            what = f"{manifest.get('apiVersion') or '(no apiVersion)'} {manifest.get('kind') or '(no kind)'}"
            raise BadFlag(f"{document.source}: {what} cannot be queued; supported kinds: {queued_kinds()}")
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
            raise BadFlag(f"{document.source}: has no label {QUEUE_NAME}; add it, or use --queue NAME")
        if metadata.get("namespace", namespace) != namespace and is_given:
            raise BadFlag(f'{document.source}: is for namespace "{metadata["namespace"]}", not "{namespace}"')
        metadata["labels"] = labels
        if namespace:
            metadata.setdefault("namespace", namespace)
        yield manifest | {"metadata": metadata}


def _queue(labels: dict[str, Any]) -> str:
    """Return the LocalQueue that the labels of Sluice or Kueue name; empty: none."""
    return str(labels.get(QUEUE_NAME) or labels.get(f"{KUEUE}queue-name") or "")


async def _submit(
    client: Client, sluice: Sluice, connection: ApiConnection, manifest: dict[str, Any], options: _Options
) -> None:
    """Create one Job, and print its state, logs or result. With `wait` or `follow` raises CommandError if it fails."""
    kind = kind_of(manifest)
    assert kind is not None
    metadata = manifest["metadata"]
    namespace, queue = metadata["namespace"], _queue(metadata["labels"])
    await _require_queue(sluice, queue, namespace)
    version = str(manifest["apiVersion"]).rpartition("/")[2]
    created = await client.create(object_path(kind, namespace, version=version), manifest)
    name = created["metadata"]["name"]
    if options.output in ("json", "yaml"):
        print_documents([created], options.output, singular="", as_list=False)
    else:
        print_line(qualified_name(kind, name) + ("" if options.output else " created"))
    if not options.output:
        await _print_decision(sluice, created, queue)
    if options.follow:
        await follow_job(
            client, connection, await find_job(client, connection, f"{kind.kind}/{name}", namespace), LogOptions()
        )
    if options.wait or options.follow:
        await _wait(client, sluice, await find_job(client, connection, f"{kind.kind}/{name}", namespace))


async def _print_quote(connection: ApiConnection, manifest: dict[str, Any]) -> None:
    """Print to standard error what is known of a Job before it is submitted, if Sluice's API can be asked."""
    from admission.client.errors import ClientError
    from admission.client.transport import PREFIX

    kind, metadata = kind_of(manifest), manifest["metadata"]
    assert kind is not None
    namespace, queue = metadata.get("namespace", ""), _queue(metadata["labels"])
    limit = first(metadata["labels"], kind.conventions.time_labels)
    totals: Counter[str] = Counter()
    try:
        for pod_set in kind.pod_sets(manifest, NamespaceContext()):
            totals.update(pod_set.total(pod_set.count))
        params = [("queue", queue), ("seconds", limit)]
        params += [("request", f"{name}={format_amount(name, amount)}") for name, amount in sorted(totals.items())]
        async with connect(connection) as sluice:
            path = f"{PREFIX}/namespaces/{namespace or sluice.namespace}/reports/quote"
            quote = await sluice.request("GET", path, params=[pair for pair in params if pair[1]])
    except (CommandError, ClientError, Misconfigured) as error:
        print_line(f"note: queue, waits and cost are not known: {error}", err=True)
        return
    for line in _quote_lines(quote):
        print_line(line, err=True)


def _quote_lines(quote: Document) -> Iterator[str]:
    waits, run, costs = quote["recentWaits"], quote["runSeconds"], quote["costs"]
    leads_to = f"of ClusterQueue {quote['clusterQueue']}, in which {quote['pending']:,} workloads wait"
    yield f"queue: {quote['queue']}, {leads_to}"
    if waits is None:
        yield "expected start: not known; no workload was submitted there in the last 7 days"
    else:
        soon = f"within {spoken(waits['p50'])} for half, within {spoken(waits['p90'])} for nine of ten workloads"
        yield f"expected start: {soon} of the last 7 days there"
    if not quote["currency"]:
        yield "cost: not known; there is no PriceBook"
    elif run is None:
        yield "cost: not known; give a time limit, as too few workloads of this LocalQueue have succeeded"
    else:
        of = "its time limit" if quote["runTimeOf"] == "TimeLimit" else "the usual run time in this LocalQueue"
        prices = ", ".join(
            f"{float(each['cost']):.2f} {quote['currency']} in {each['flavor']}"
            if each["cost"] is not None
            else f"no price in {each['flavor']}"
            for each in costs
        )
        yield f"cost: {prices or 'not known; the ClusterQueue has no such quota'}, for {spoken(run)}, {of}"


async def _require_queue(sluice: Sluice, queue: str, namespace: str) -> None:
    """Check that the LocalQueue exists, before the Job is created. Raises NotFound, or CommandError with a hint."""
    from admission.client import NotFound

    try:
        await sluice.documents("localqueues").get(queue, namespace)
    except NotFound as error:
        similar = await similar_name(sluice, *error.about, fallback_namespace=namespace)
        if hint := similar or await existing_queues(sluice, namespace):
            raise CommandError(f"{error}; {hint}") from error
        raise


async def _print_decision(sluice: Sluice, created: Object, queue: str) -> None:
    """Print to standard error whether the Job is admitted, or its position in the queue."""
    from admission.client import NotReady

    metadata = created["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        workload = await sluice.workloads.wait(
            name, _is_decided, uid=metadata["uid"], namespace=namespace, timeout=_DECISION_TIMEOUT
        )
    except NotReady:
        print_line(f"Sluice has not processed it yet; sluice why {name} -n {namespace} shows its state", err=True)
        return
    if workload.admitted or workload.finished:
        print_line(f"{name} is admitted by ClusterQueue {workload.cluster_queue}: its pods start now", err=True)
        return
    print_line(await position_message(sluice, workload), err=True)
    print_line(f"sluice why {name} -n {namespace} explains why it is not running", err=True)


def _is_decided(workload: Workload) -> bool:
    return workload.admitted or workload.finished or "QuotaReserved" in workload.conditions


async def _wait(client: Client, sluice: Sluice, job: JobFound) -> None:
    """Wait until the Job has succeeded. Raises CommandError if it fails or is deleted."""
    workload = await sluice.workloads.wait(job.name, lambda found: found.finished, uid=job.uid, namespace=job.namespace)
    try:
        result = job.kind.observe(await client.get(job.path)).finished
    except NoSuchObject:
        result = None
    if result is None:
        finished = workload.conditions["Finished"]
        raise CommandError(f"{job.name} was terminated: {finished.reason}: {finished.message}")
    if not result.succeeded:
        raise CommandError(f"{job.name} failed: {result.reason}: {result.message}")
    print_line(f"{job.name} succeeded", err=True)
