"""`sluice create`: queue objects from flags, for those who do not want to write a manifest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
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


_SUBMIT: Final = "workloads are made by Sluice of what is queued: create a Job with `sluice submit`, or with kubectl"


class _Types(click.Group):
    """Subcommands by type, under each of its names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        if cmd_name.lower() in KUBERNETES_TYPES:
            raise click.UsageError(_SUBMIT, ctx)
        resource = resource_named(cmd_name)
        by_kind = {"ResourceFlavor": "flavor", "WorkloadPriorityClass": "priorityclass"}
        command = super().get_command(ctx, by_kind.get(resource.kind, resource.kind.lower()))
        if command is None:
            by_file = f"{resource.kind} has no flags here: write its manifest, and `sluice apply -f FILE`"
            raise click.UsageError(_SUBMIT if resource.model is None else by_file, ctx)
        return command


@click.group(cls=_Types)
def create() -> None:
    """Create a queue object from flags.

    Short names work as well: cq, lq, co, rf, wpc. With --dry-run=client -o yaml the
    manifest is printed and nothing is sent.

    \b
    Example:
      sluice create clusterqueue team-a --nominal-quota "default:cpu=9;memory=36Gi"
    """


_nominal = click.option(
    "--nominal-quota", multiple=True, help="Quota by flavor: FLAVOR:RESOURCE=QUANTITY;...[,FLAVOR:...]"
)
_borrowing = click.option("--borrowing-limit", multiple=True, help="How much more may be borrowed; same form.")
_lending = click.option("--lending-limit", multiple=True, help="How much of it may be lent; same form.")


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (connection_options, writing_options, output_option("json", "yaml", "name")):
        command = decorate(command)
    return click.argument("name")(command)


@create.command()
@_common
@_nominal
@_borrowing
@_lending
@click.option("--cohort", default="", help="The Cohort to lend to and borrow from.")
@click.option("--queueing-strategy", "--queuing-strategy", type=click.Choice(["BestEffortFIFO", "StrictFIFO"], False))
@click.option("--namespace-selector", default="", help="Labels of the namespaces that may submit; without it, all may.")
@click.option("--reclaim-within-cohort", type=click.Choice(["Never", "LowerPriority", "Any"], False))
@click.option(
    "--preemption-within-cluster-queue",
    type=click.Choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"], False),
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
@click.option("--parent", default="", help="The Cohort that it is a part of.")
def cohort(
    *,
    nominal_quota: tuple[str, ...],
    borrowing_limit: tuple[str, ...],
    lending_limit: tuple[str, ...],
    parent: str,
    **rest: Any,
) -> None:
    """Create a Cohort; its quota is on top of that of its members.

    \b
    Example:
      sluice create cohort research --parent company --nominal-quota "spot:cpu=100"
    """
    groups = resource_groups(nominal_quota, borrowing_limit, lending_limit)
    _create("Cohort", {"spec": {"parentName": parent, "resourceGroups": groups}}, **rest)


@create.command()
@_common
@click.option("-c", "--clusterqueue", required=True, help="The ClusterQueue that it leads to.")
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
@click.option("--node-labels", default="", help="Labels of its nodes: KEY=VALUE,...")
@click.option("--node-taints", default="", help="Taints of its nodes: KEY=VALUE:EFFECT,...")
@click.option("--tolerations", default="", help="What its pods tolerate: KEY[=VALUE]:EFFECT,...")
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
@click.option("--value", required=True, type=int, help="The priority; higher ones come first.")
@click.option("--description", default="", help="For whom it is meant.")
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
    connection: Connection,
    namespace: str | None = None,
) -> None:
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
    """The object. Raises BadFlag."""
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
        raise click.UsageError(f'{flag}: "{text}" has no effect; write KEY=VALUE:NoSchedule')
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _toleration(text: str) -> Document:
    taint = _taint("--tolerations", text)
    if "=" in text:
        return taint | {"operator": "Equal"}
    return {"key": taint["key"], "effect": taint["effect"], "operator": "Exists"}


def _without_empty(content: Document) -> Document:
    """Flags that were not given leave no trace; an empty namespaceSelector means something."""
    pruned = {key: _without_empty(item) if isinstance(item, dict) else item for key, item in content.items()}
    return {key: item for key, item in pruned.items() if key == "namespaceSelector" or item not in (None, "", [], {})}
