"""`sluice cancel`: delete Jobs in Kubernetes by the caller's permissions, and show the quota that this releases."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import can_answer
from admission.cli.arguments.groups import WAYS_TO_PAUSE
from admission.cli.arguments.kubernetes import (
    current_user,
    kind_of_workload,
    kubernetes,
    namespace_of,
    object_path,
    qualified_name,
)
from admission.cli.arguments.objects import (
    complete_workload,
    field_value,
    namespace_option,
    parse_workload_name,
    refuse_empty,
)
from admission.cli.arguments.workload_names import find_workload, kubectl_hint
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from admission.cluster.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.client import Sluice, Workload
    from admission.cluster.client import Client
    from admission.kinds import Kind

_DELETED: Final = "Deleted"
"""Reason of the condition Finished of a workload whose object was deleted."""
_MAX_LISTED: Final = 10
"""Jobs that are listed by name in the request for confirmation."""


@click.command(epilog=WAYS_TO_PAUSE)
@click.argument("names", metavar="[JOB]...", nargs=-1, shell_complete=complete_workload)
@click.option("--mine", is_flag=True, help="Cancel all unfinished Jobs in the namespace that you submitted.")
@click.option(
    "-q",
    "--queue",
    default="",
    metavar="NAME",
    callback=refuse_empty,
    help="With --mine: only Jobs in this LocalQueue.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print what would be cancelled, without cancelling it.")
@namespace_option
@connection_options
def cancel(
    *,
    names: tuple[str, ...],
    mine: bool,
    queue: str,
    yes: bool,
    dry_run: bool,
    namespace: str | None,
    connection: ApiConnection,
) -> None:
    """Cancel Jobs: delete them and their pods in Kubernetes.

    This uses your own permissions in Kubernetes. You are asked for confirmation before
    several Jobs, or a Job of another user, are cancelled. To stop a Job without deleting
    it, use sluice hold.

    \b
    Examples:
      sluice cancel train
      sluice cancel job/train job/test -n team-a --yes
      sluice cancel --mine --queue batch
    """
    if bool(names) == mine:
        raise click.UsageError("specify either the Jobs to cancel, or --mine")
    if queue and not mine:
        raise click.UsageError("--queue can only be used with --mine")

    async def run() -> None:
        where = namespace_of(connection, namespace)
        async with kubernetes(connection) as client, connect(connection) as sluice:
            caller = await current_user(client)
            found = await (_mine(sluice, caller, queue, where) if mine else _named(sluice, names, where))
            if not found:
                if mine:
                    print_line(f"you have no unfinished Jobs in namespace {where}", err=True)
                return
            reached, refused = [], []
            for workload in found:
                try:
                    reached.append((kind_of_workload(workload), workload))
                except CommandError as error:
                    refused.append(str(error))
            if reached and not yes and not dry_run:
                _confirm([workload for _, workload in reached], caller)
            for kind, workload in reached:
                await _cancel(client, kind, workload, dry_run=dry_run)
            if refused:
                raise CommandError("\n".join(refused))

    asyncio.run(run())


async def _mine(sluice: Sluice, caller: str, queue: str, namespace: str) -> list[Workload]:
    """Return the unfinished workloads that the caller submitted; empty `queue`: in all LocalQueues."""
    fields = [f"spec.user={field_value(caller)}", "status.state!=finished"]
    if queue:
        fields.append(f"spec.queueName={field_value(queue)}")
    found = sluice.workloads.list(namespace=namespace, field_selector=",".join(fields))
    return [workload async for workload in found]


async def _named(sluice: Sluice, names: Sequence[str], namespace: str) -> list[Workload]:
    """Return the workloads of these names that are not deleted yet, without duplicates.

    Raises CommandError for one that is missing, or has ended by itself.
    """
    found = {}
    for text in names:
        kind, name = parse_workload_name(text)
        with kubectl_hint("delete", kind, name, namespace):
            workload = await find_workload(sluice, name, namespace, kind, to_change=True)
        ended = workload.conditions.get("Finished")
        if ended is not None and ended.reason == _DELETED:
            print_line(f"{workload.object_name} is already deleted")
            continue
        if workload.finished:
            outcome = f" ({ended.reason})" if ended is not None and ended.reason else ""
            raise CommandError(
                f"{workload.object_name} has already finished{outcome}; to delete it, use kubectl delete"
            )
        found[workload.uid] = workload
    return [*found.values()]


def _confirm(found: Sequence[Workload], caller: str) -> None:
    """Ask for confirmation, unless it is a single Job of the caller. Raises CommandError if it is not given."""
    foreign = [workload for workload in found if workload.user != caller]
    if len(found) == 1 and not foreign:
        return
    for workload in found[:_MAX_LISTED]:
        whose = "" if workload.user == caller else f", submitted by {workload.user or 'an unknown user'}"
        state = "admitted" if workload.admitted else "pending"
        print_line(f"  {workload.namespace}/{workload.object_name} ({state}{whose})", err=True)
    if len(found) > _MAX_LISTED:
        print_line(f"  and {len(found) - _MAX_LISTED} more", err=True)
    question = f"cancel {'it' if len(found) == 1 else f'these {len(found)} Jobs'}?"
    if not can_answer():
        raise CommandError(f"{question} standard input is not a terminal: confirm with --yes")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was cancelled")


async def _cancel(client: Client, kind: Kind, workload: Workload, *, dry_run: bool) -> None:
    """Delete the object of a workload, unless it was recreated with another uid, and print the outcome."""
    name = qualified_name(kind, workload.object_name)
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": workload.uid},
        **({"dryRun": ["All"]} if dry_run else {}),
    }
    try:
        await client.delete(object_path(kind, workload.namespace, workload.object_name), options)
    except NotFound:
        print_line(f"{name} is already deleted")
        return
    print_line(f"{name} cancelled{' (dry run)' if dry_run else ''}; {_released_quota(workload)}")


def _released_quota(workload: Workload) -> str:
    """Return a message: which quota of which ClusterQueue is released when the pods have terminated."""
    admission = workload.document.get("status", {}).get("admission")
    if not admission:
        return "it was pending and held no quota"
    amounts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod_set in admission["podSetAssignments"]:
        for resource, amount in pod_set["resourceUsage"].items():
            amounts[resource, pod_set["flavors"][resource]].append(str(amount))
    parts = [f"{' + '.join(each)} {resource} ({flavor})" for (resource, flavor), each in amounts.items()]
    return f"releases {', '.join(parts)} in ClusterQueue {admission['clusterQueue']} when its pods have terminated"
