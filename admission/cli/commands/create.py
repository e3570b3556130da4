"""`sluice create`: create queue objects from flags instead of manifests, with the flags of kueuectl."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import KUBERNETES_TYPES, namespace_option, qualified_name, resource_named
from admission.cli.arguments.quota_flags import resource_groups
from admission.cli.errors import BadFlag
from admission.cli.output.printing import WritingFlags, output_option, print_documents, print_outcome, writing_options
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, parse_manifest, to_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.client.transport import Document
    from admission.model.queues import QueueObject


_USE_SUBMIT: Final = "workloads are created by Sluice for queued Jobs: create a Job with `sluice submit` or kubectl"
"""Error for the creation of a workload, Job or pod."""


class _Types(click.Group):
    """Click group of the types: the subcommand `clusterqueue` is also found as `cq` and `clusterqueues`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand of a type. Raises UsageError for an unknown type, and one without flags."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        if cmd_name.lower() in KUBERNETES_TYPES:
            raise click.UsageError(_USE_SUBMIT, ctx)
        resource = resource_named(cmd_name)
        by_kind = {"ResourceFlavor": "flavor", "WorkloadPriorityClass": "priorityclass"}
        command = super().get_command(ctx, by_kind.get(resource.kind, resource.kind.lower()))
        if command is None:
            by_file = f"{resource.kind} cannot be created from flags: write a manifest, and use `sluice apply -f FILE`"
            raise click.UsageError(by_file if resource.is_of_queue_objects else _USE_SUBMIT, ctx)
        return command


@click.group(cls=_Types)
def create() -> None:
    """Create a queue object from flags.

    Short names of the types work as well: cq, lq, co, rf, wpc. With --dry-run=client
    -o yaml the manifest is printed, and no request is sent.

    \b
    Example:
      sluice create clusterqueue team-a --nominal-quota "default:cpu=9;memory=36Gi"
    """


_nominal = click.option(
    "--nominal-quota",
    multiple=True,
    metavar="QUOTA",
    help="Nominal quota: FLAVOR:RESOURCE=QUANTITY;...[,FLAVOR:...]; repeatable.",
)
_borrowing = click.option(
    "--borrowing-limit", multiple=True, metavar="QUOTA", help="Limit of quota to borrow, in the same form."
)
_lending = click.option(
    "--lending-limit", multiple=True, metavar="QUOTA", help="Limit of nominal quota to lend, in the same form."
)


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument NAME, and the options for output, dry runs and connection, to a command."""
    for decorate in (connection_options, writing_options, output_option("json", "yaml", "name", default="a message")):
        command = decorate(command)
    return click.argument("name")(command)


@create.command()
@_common
@_nominal
@_borrowing
@_lending
@click.option("--cohort", default="", metavar="NAME", help="Cohort to lend to and borrow from.")
@click.option(
    "--queueing-strategy",
    "--queuing-strategy",
    type=click.Choice(["BestEffortFIFO", "StrictFIFO"], False),
    metavar="BestEffortFIFO|StrictFIFO",
    help="Whether a workload that does not fit blocks later ones (StrictFIFO).  [default: BestEffortFIFO]",
)
@click.option(
    "--namespace-selector",
    default="",
    metavar="KEY=VALUE,...",
    help="Labels of the namespaces that may use it.  [default: all namespaces]",
)
@click.option(
    "--reclaim-within-cohort",
    type=click.Choice(["Never", "LowerPriority", "Any"], False),
    metavar="Never|LowerPriority|Any",
    help="Which workloads to preempt that borrow its quota in the cohort.  [default: Never]",
)
@click.option(
    "--preemption-within-cluster-queue",
    type=click.Choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"], False),
    metavar="Never|LowerPriority|LowerOrNewerEqualPriority",
    help="Which workloads to preempt in the ClusterQueue itself.  [default: Never]",
)
def clusterqueue(
    *,
    nominal_quota: tuple[str, ...],
    borrowing_limit: tuple[str, ...],
    lending_limit: tuple[str, ...],
    cohort: str,
    queueing_strategy: str | None,
    namespace_selector: str,
    reclaim_within_cohort: str | None,
    preemption_within_cluster_queue: str | None,
    **rest: Any,
) -> None:
    """Create a ClusterQueue.

    \b
    Example:
      sluice create clusterqueue team-a --cohort research \\
          --nominal-quota "a100:cpu=96;nvidia.com/gpu=8,spot:cpu=960;nvidia.com/gpu=80" \\
          --borrowing-limit "a100:nvidia.com/gpu=4"
    """
    labels = _pairs("--namespace-selector", namespace_selector)
    preemption = {
        "reclaimWithinCohort": reclaim_within_cohort,
        "withinClusterQueue": preemption_within_cluster_queue,
    }
    spec: Document = {
        "cohortName": cohort,
        "queueingStrategy": queueing_strategy,
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "resourceGroups": resource_groups(nominal_quota, borrowing_limit, lending_limit),
        "preemption": preemption,
    }
    _create("ClusterQueue", {"spec": spec}, **rest)


@create.command()
@_common
@_nominal
@_borrowing
@_lending
@click.option("--parent", default="", metavar="NAME", help="Parent Cohort.")
def cohort(
    *,
    nominal_quota: tuple[str, ...],
    borrowing_limit: tuple[str, ...],
    lending_limit: tuple[str, ...],
    parent: str,
    **rest: Any,
) -> None:
    """Create a Cohort.

    Its quota is shared by its members, in addition to their own.

    \b
    Example:
      sluice create cohort research --parent company --nominal-quota "spot:cpu=100"
    """
    groups = resource_groups(nominal_quota, borrowing_limit, lending_limit)
    _create("Cohort", {"spec": {"parentName": parent, "resourceGroups": groups}}, **rest)


@create.command()
@_common
@click.option("-c", "--clusterqueue", required=True, metavar="NAME", help="ClusterQueue that it points to.")
@namespace_option
def localqueue(*, clusterqueue: str, **rest: Any) -> None:
    """Create a LocalQueue.

    \b
    Example:
      sluice create localqueue main --clusterqueue team-a -n team-a
    """
    _create("LocalQueue", {"spec": {"clusterQueue": clusterqueue}}, **rest)


@create.command()
@_common
@click.option("--node-labels", default="", metavar="KEY=VALUE,...", help="Labels of its nodes.")
@click.option("--node-taints", default="", metavar="KEY=VALUE:EFFECT,...", help="Taints of its nodes.")
@click.option("--tolerations", default="", metavar="KEY[=VALUE]:EFFECT,...", help="Tolerations added to its pods.")
def flavor(*, node_labels: str, node_taints: str, tolerations: str, **rest: Any) -> None:
    """Create a ResourceFlavor.

    \b
    Example:
      sluice create flavor spot --node-labels pool=spot \\
          --node-taints spot=true:NoSchedule --tolerations spot=true:NoSchedule
    """
    spec = {
        "nodeLabels": _pairs("--node-labels", node_labels),
        "nodeTaints": [_taint("--node-taints", text) for text in _parts(node_taints)],
        "tolerations": [_toleration(text) for text in _parts(tolerations)],
    }
    _create("ResourceFlavor", {"spec": spec}, **rest)


@create.command()
@_common
@click.option("--value", required=True, type=int, help="Priority; workloads with a higher one come first.")
@click.option("--description", default="", help="Description of its intended use.")
def priorityclass(*, value: int, description: str, **rest: Any) -> None:
    """Create a WorkloadPriorityClass.

    \b
    Example:
      sluice create priorityclass urgent --value 1000
    """
    _create("WorkloadPriorityClass", {"value": value, "description": description}, **rest)


def _create(
    kind: str,
    content: Document,
    *,
    name: str,
    output: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
    namespace: str | None = None,
) -> None:
    """Create the object, and print it in the format of `-o`, or the outcome. Raises BadFlag for an invalid object."""
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **_without_empty(content)}

    async def run() -> Document | None:
        if writing.dry_run == "client":
            return to_manifest(_parsed(document, namespace or "default"))
        async with connect(connection) as sluice:
            item = _parsed(document, namespace or sluice.namespace)
            return await sluice.documents(item.plural).create(to_manifest(item), options=writing.options)

    written = asyncio.run(run())
    assert written is not None
    if output is None:
        print_outcome(qualified_name(kind.lower(), name), "created", writing, written)
    else:
        print_documents([written], output, singular=kind.lower(), as_list=False)


def _parsed(document: Document, namespace: str) -> QueueObject:
    """Validate the manifest. Raises BadFlag, since its values come from flags."""
    try:
        return parse_manifest(document, namespace=namespace)
    except InvalidObject as error:
        raise BadFlag(str(error)) from error


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(flag: str, text: str) -> dict[str, str]:
    pairs = {}
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f'{flag}: "{part}" is not KEY=VALUE')
        pairs[key] = value
    return pairs


def _taint(flag: str, text: str) -> Document:
    pair, colon, effect = text.rpartition(":")
    if not colon:
        raise click.UsageError(f'{flag}: "{text}" has no effect; use for example KEY=VALUE:NoSchedule')
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _toleration(text: str) -> Document:
    taint = _taint("--tolerations", text)
    if "=" in text:
        return taint | {"operator": "Equal"}
    return {"key": taint["key"], "effect": taint["effect"], "operator": "Exists"}


def _without_empty(content: Document) -> Document:
    """Remove the fields of flags that were not given. An empty namespaceSelector stays: it selects all namespaces."""
    pruned = {key: _without_empty(item) if isinstance(item, dict) else item for key, item in content.items()}
    return {key: item for key, item in pruned.items() if key == "namespaceSelector" or item not in (None, "", [], {})}
