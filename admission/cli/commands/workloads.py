"""`sluice hold`, `release`, `move` and `prioritize`: changes of a workload's spec."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from admission.api.registry import WORKLOADS
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import WAYS_TO_PAUSE
from admission.cli.arguments.objects import (
    complete_workload,
    namespace_option,
    parse_workload_name,
    refuse_empty,
    workload_argument,
)
from admission.cli.arguments.workload_names import find_workload, kubectl_hint
from admission.cli.errors import CommandError
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options
from admission.kinds.base import HOLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.client import Forbidden, Sluice, Workload

_workloads_argument = click.argument(
    "names", metavar="WORKLOAD...", nargs=-1, required=True, shell_complete=complete_workload
)


@click.command(epilog=WAYS_TO_PAUSE)
@_workloads_argument
@namespace_option
@writing_options
@connection_options
def hold(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: ApiConnection) -> None:
    """Put workloads on hold until they are released; running ones are stopped.

    If you have no permission to update workloads, the label sluice.dev/hold is set on the
    Job instead. This requires permission to update the Job, and a kubeconfig.

    \b
    Example:
      sluice hold train -n team-a --reason "wrong data set"
    """
    asyncio.run(_change(names, {"hold": True}, "put on hold", namespace, writing, connection))


@click.command(epilog=WAYS_TO_PAUSE)
@_workloads_argument
@namespace_option
@writing_options
@connection_options
def release(*, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: ApiConnection) -> None:
    """Release workloads that are on hold or deactivated: queue them again.

    Sluice itself deactivates workloads that were evicted too often because their pods
    were not ready, that exceeded their maximum execution time, or that an admission check
    rejected.

    If you have no permission to update workloads, the label sluice.dev/hold is removed
    from the Job instead. Workloads that an admin put on hold stay on hold.

    \b
    Example:
      sluice release train -n team-a
    """
    asyncio.run(_change(names, {"hold": False}, "released", namespace, writing, connection))


@click.command()
@_workloads_argument
@click.option(
    "--to", "queue", required=True, metavar="NAME", callback=refuse_empty, help="LocalQueue in the same namespace."
)
@namespace_option
@writing_options
@connection_options
def move(
    *, names: tuple[str, ...], queue: str, namespace: str | None, writing: WritingFlags, connection: ApiConnection
) -> None:
    """Move workloads to another LocalQueue; running ones are evicted first.

    \b
    Example:
      sluice move train --to express -n team-a
    """
    asyncio.run(_change(names, {"queueName": queue}, f"moved to {queue}", namespace, writing, connection))


@click.command()
@workload_argument
@click.option("--priority", type=int, metavar="N", help="Set its priority.")
@click.option("--top", is_flag=True, help="Move it to the first position in its ClusterQueue.")
@click.option(
    "--before", default="", metavar="OTHER", callback=refuse_empty, help="Move it directly before another workload."
)
@click.option("--reset", is_flag=True, help="Restore its original priority and position.")
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
    connection: ApiConnection,
) -> None:
    """Change the priority of a workload, or its position in the queue.

    \b
    Examples:
      sluice prioritize train --top -n team-a
      sluice prioritize train --before other-job -n team-a
      sluice prioritize train --priority 1000 -n team-a --reason "paper deadline"
    """
    if (priority is not None) + top + bool(before) + reset != 1:
        raise click.UsageError("specify one of --priority N, --top, --before OTHER and --reset")
    spec: dict[str, Any]
    if priority is not None:
        spec, outcome = {"priority": priority}, f"has priority {priority}"
    elif top:
        spec, outcome = {"order": {"top": True}}, "is first in its ClusterQueue"
    elif before:
        spec, outcome = {"order": {"before": before}}, f"is directly before {before}"
    else:
        spec, outcome = {"order": None, "priority": None}, "has its original priority and position again"
    asyncio.run(_change([name], spec, outcome, namespace, writing, connection))


def _named(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return (kind, name) of each argument; `workload train` is accepted as well, as for other types."""
    if len(names) > 1 and names[0] in WORKLOADS.names:
        names = names[1:]
    return [parse_workload_name(name) for name in names]


async def _change(
    names: Sequence[str],
    spec: Mapping[str, object],
    outcome: str,
    namespace: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Patch the spec of each workload, and print the outcome."""
    async with connect(connection) as sluice:
        for kind, name in _named(names):
            label = f"{HOLD}=true" if spec.get("hold") else f"{HOLD}-"
            with kubectl_hint("label", kind, name, namespace, label) if "hold" in spec else nullcontext():
                workload = await find_workload(sluice, name, namespace, kind, to_change=True)
                await _change_one(sluice, workload, spec, outcome, writing, connection)


async def _change_one(
    sluice: Sluice,
    workload: Workload,
    spec: Mapping[str, object],
    outcome: str,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Patch the spec of a workload; a hold or release that is forbidden is done by the label of its Job instead.

    Raises CommandError for a workload that is finished, and for one that only an admin can release.
    """
    from admission.client import Forbidden

    if workload.finished:
        raise CommandError(f"{workload.object_name} has finished and cannot be changed any more")
    is_released = spec.get("hold") is False
    if is_released and workload.document["spec"].get("active") is False:
        spec = {**spec, "active": True}
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
            if is_released and _is_on_hold_by_label(workload):
                await _label(connection, workload, None, hold=False, writing=writing)
    print_outcome(f"workload.sluice.dev/{workload.name}", outcome, writing, document)


def _is_on_hold_by_label(workload: Workload) -> bool:
    """Return whether the label of its Job puts it on hold, rather than its spec."""
    reserved = workload.conditions.get("QuotaReserved")
    return reserved is not None and reserved.reason == "OnHold" and not workload.document["spec"].get("hold")


async def _label(
    connection: ApiConnection, workload: Workload, refused: Forbidden | None, *, hold: bool, writing: WritingFlags
) -> None:
    """Hold or release by the label of the Job, with the caller's permissions in Kubernetes.

    `refused` is the error of the patch of the workload. Raises CommandError if an admin put the workload on hold.
    """
    from admission.cli.arguments.kubernetes import kind_of_workload, kubernetes, object_path

    if not hold and workload.document["spec"].get("hold"):
        raise CommandError(
            f"{workload.object_name} was put on hold by an admin, and only an admin can release it"
        ) from refused
    if not hold and workload.document["spec"].get("active") is False:
        raise CommandError(
            f"{workload.object_name} is deactivated, and only an admin can release it; or delete it and submit it again"
        ) from refused
    path = object_path(kind_of_workload(workload), workload.namespace, workload.object_name)
    metadata = {"labels": {HOLD: "true"}} if hold else {"labels": {HOLD: None}, "annotations": {HOLD: None}}
    params = {"dryRun": "All"} if writing.dry_run == "server" else {}
    async with kubernetes(connection) as client:
        await client.patch(path, {"metadata": metadata}, params=params)
