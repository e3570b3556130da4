"""`sluice hold`, `release`, `activate`, `deactivate`, `move` and `prioritize`: an admin's hand on workloads."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from admission.api.registry import WORKLOADS
from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.objects import complete_workload, namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload, kubectl_hint
from admission.cli.errors import CommandError
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options
from admission.kinds.base import HOLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.client import Forbidden, Sluice, Workload

_several = click.argument("names", metavar="WORKLOAD...", nargs=-1, required=True, shell_complete=complete_workload)


@click.command()
@_several
@namespace_option
@writing_options
@connection_options
def hold(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: Connection) -> None:
    """Keep workloads out of the queue, or stop them, until they are released.

    Who may not order workloads holds his own Jobs by their label sluice.dev/hold,
    which takes the right to change them in Kubernetes, and a kubeconfig.

    \b
    Example:
      sluice hold train -n team-a --reason "wrong data set"
    """
    asyncio.run(_change(names, {"hold": True}, "held", namespace, writing, connection))


@click.command()
@_several
@namespace_option
@writing_options
@connection_options
def release(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: Connection) -> None:
    """Let workloads that are held queue again.

    Who may not order workloads takes the label sluice.dev/hold from his own Jobs; what
    an admin holds stays held.

    \b
    Example:
      sluice release train -n team-a
    """
    asyncio.run(_change(names, {"hold": False}, "released", namespace, writing, connection))


@click.command()
@_several
@namespace_option
@writing_options
@connection_options
def activate(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: Connection) -> None:
    """Let workloads queue again that were deactivated.

    Sluice itself deactivates those that were evicted too often because their pods did not
    get ready, that ran too long, or that an admission check rejected.

    \b
    Example:
      sluice activate train -n team-a
    """
    asyncio.run(_change(names, {"active": True}, "activated", namespace, writing, connection))


@click.command()
@_several
@namespace_option
@writing_options
@connection_options
def deactivate(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: Connection) -> None:
    """Take workloads out of the queue for good; those that run are stopped.

    \b
    Example:
      sluice deactivate train -n team-a --reason "superseded"
    """
    asyncio.run(_change(names, {"active": False}, "deactivated", namespace, writing, connection))


@click.command()
@_several
@click.option("--to", "queue", required=True, help="The LocalQueue, of the same namespace.")
@namespace_option
@writing_options
@connection_options
def move(
    *, names: tuple[str, ...], queue: str, namespace: str | None, writing: WritingFlags, connection: Connection
) -> None:
    """Queue workloads in another LocalQueue; one that runs is evicted first.

    \b
    Example:
      sluice move train --to express -n team-a
    """
    asyncio.run(_change(names, {"queueName": queue}, f"moved to {queue}", namespace, writing, connection))


@click.command()
@workload_argument
@click.option("--priority", type=int, help="Its priority from now on.")
@click.option("--top", is_flag=True, help="Put it first in its ClusterQueue.")
@click.option("--before", default="", metavar="OTHER", help="Put it directly before another workload.")
@click.option("--reset", is_flag=True, help="Take back what was ordered: its own priority and place again.")
@namespace_option
@writing_options
@connection_options
def prioritize(
    *,
    name: str,
    priority: int | None,
    top: bool,
    before: str,
    reset: bool,
    namespace: str | None,
    writing: WritingFlags,
    connection: Connection,
) -> None:
    """Change the priority of a workload, or its place in the line.

    \b
    Examples:
      sluice prioritize train --top -n team-a
      sluice prioritize train --before other-job -n team-a
      sluice prioritize train --priority 1000 -n team-a --reason "paper deadline"
    """
    if (priority is not None) + top + bool(before) + reset != 1:
        raise click.UsageError("say how: one of --priority N, --top, --before OTHER, --reset")
    spec: dict[str, Any]
    if priority is not None:
        spec, outcome = {"priority": priority}, f"has priority {priority}"
    elif top:
        spec, outcome = {"order": {"top": True}}, "is first in its ClusterQueue"
    elif before:
        spec, outcome = {"order": {"before": before}}, f"stands before {before}"
    else:
        spec, outcome = {"order": None, "priority": None}, "has its own priority and place again"
    asyncio.run(_change([name], spec, outcome, namespace, writing, connection))


def _named(names: Sequence[str]) -> list[tuple[str, str]]:
    """`train`, `job/train`, or `workload train` as for other types."""
    if len(names) > 1 and names[0] in WORKLOADS.names:
        names = names[1:]
    return [parse_workload_name(name) for name in names]


async def _change(
    names: Sequence[str],
    spec: Mapping[str, object],
    outcome: str,
    namespace: str | None,
    writing: WritingFlags,
    connection: Connection,
) -> None:
    async with connect(connection) as sluice:
        for kind, name in _named(names):
            label = f"{HOLD}=true" if spec.get("hold") else f"{HOLD}-"
            with kubectl_hint("label", kind, name, namespace, label) if "hold" in spec else nullcontext():
                workload = await find_workload(sluice, name, namespace, kind)
                await _order(sluice, workload, spec, outcome, writing, connection)


async def _order(
    sluice: Sluice,
    workload: Workload,
    spec: Mapping[str, object],
    outcome: str,
    writing: WritingFlags,
    connection: Connection,
) -> None:
    from admission.client import Forbidden

    if workload.finished:
        raise CommandError(f"{workload.object_name} has ended; nothing can be ordered about it any more")
    is_released = spec.get("hold") is False
    if is_released and workload.document["spec"].get("active") is False:
        raise CommandError(
            f"{workload.object_name} is deactivated, not held: an admin or team lead lets it queue again with "
            "`sluice activate`; or delete it and submit it again"
        )
    document = None
    if writing.dry_run != "client":
        try:
            document = await sluice.workloads.documents.patch(
                workload.name, {"spec": spec}, workload.namespace, options=writing.options
            )
        except Forbidden as error:
            if "hold" not in spec:
                raise
            await _label(connection, workload, error, hold=spec["hold"] is True, writing=writing)
        else:
            if is_released and _is_held_by_label(workload):
                await _label(connection, workload, None, hold=False, writing=writing)
    print_outcome(f"workload.sluice.dev/{workload.name}", outcome, writing, document)


def _is_held_by_label(workload: Workload) -> bool:
    reserved = workload.conditions.get("QuotaReserved")
    return reserved is not None and reserved.reason == "OnHold" and not workload.document["spec"].get("hold")


async def _label(
    connection: Connection, workload: Workload, refused: Forbidden | None, *, hold: bool, writing: WritingFlags
) -> None:
    """Hold or release by the label of the Job, as who has submitted it may. Raises CommandError."""
    from admission.cli.arguments.kubernetes import kind_of_workload, kubernetes, object_path

    if not hold and workload.document["spec"].get("hold"):
        raise CommandError(f"{workload.object_name} is held by an admin, who alone can release it") from refused
    path = object_path(kind_of_workload(workload), workload.namespace, workload.object_name)
    metadata = {"labels": {HOLD: "true"}} if hold else {"labels": {HOLD: None}, "annotations": {HOLD: None}}
    params = {"dryRun": "All"} if writing.dry_run == "server" else {}
    async with kubernetes(connection) as client:
        await client.patch(path, {"metadata": metadata}, params=params)
