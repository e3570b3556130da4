"""`sluice stop` and `sluice resume`: the stopPolicy of ClusterQueues and LocalQueues."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import WAYS_TO_PAUSE
from admission.cli.arguments.objects import (
    ObjectTarget,
    names_argument,
    namespace_for,
    namespace_option,
    resolve,
    what_argument,
)
from admission.cli.output.printing import WritingFlags, print_line, print_outcome, writing_options

_STOPPABLE = ("ClusterQueue", "LocalQueue")
_ALREADY = {"None": "open", "Hold": "stopped", "HoldAndDrain": "stopped and drained"}
"""stopPolicy -> state of a queue that has it."""


@click.command(epilog=WAYS_TO_PAUSE)
@what_argument
@names_argument
@click.option("--drain", is_flag=True, help="Evict admitted workloads as well; they are queued again.")
@namespace_option
@writing_options
@connection_options
def stop(
    *,
    what: str,
    names: tuple[str, ...],
    drain: bool,
    namespace: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Stop admission in a ClusterQueue or LocalQueue.

    Admitted workloads keep running, unless --drain is used.

    \b
    Examples:
      sluice stop cq/team-a --reason "maintenance of the rack"
      sluice stop localqueue main -n team-a --drain --dry-run
    """
    policy = "HoldAndDrain" if drain else "Hold"
    asyncio.run(_set_policy(_queues(what, names), policy, "stopped", namespace, writing, connection))


@click.command(epilog=WAYS_TO_PAUSE)
@what_argument
@names_argument
@namespace_option
@writing_options
@connection_options
def resume(
    *, what: str, names: tuple[str, ...], namespace: str | None, writing: WritingFlags, connection: ApiConnection
) -> None:
    """Resume admission in a stopped ClusterQueue or LocalQueue.

    \b
    Example:
      sluice resume cq/team-a
    """
    asyncio.run(_set_policy(_queues(what, names), "None", "resumed", namespace, writing, connection))


def _queues(what: str, names: tuple[str, ...]) -> list[ObjectTarget]:
    """Return the queues that are named. Raises UsageError for other types, and if there are none."""
    targets = resolve(what, names)
    if not isinstance(targets, list):
        raise click.UsageError(f"no {targets.plural} are named; use {what}/NAME")
    for target in targets:
        if target.resource.kind == "Workload":
            raise click.UsageError(f"a workload cannot be stopped; use `sluice hold {target.name}`")
        if target.resource.kind not in _STOPPABLE:
            raise click.UsageError(f"a {target.resource.kind} cannot be stopped; use a ClusterQueue or LocalQueue")
    return targets


async def _set_policy(
    targets: list[ObjectTarget],
    policy: str,
    outcome: str,
    namespace: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Set `spec.stopPolicy` of each queue that has another, and print the outcome with the effects of a dry run."""
    from admission.client import Forbidden

    async with connect(connection) as sluice:
        for target in targets:
            document = None
            if writing.dry_run != "client":
                where = namespace_for(target.resource, namespace, sluice)
                documents = sluice.documents(target.resource.plural)
                with suppress(Forbidden):  # then the patch says which role is needed
                    if (await documents.get(target.name, where))["spec"].get("stopPolicy", "None") == policy:
                        print_line(f"{target.qualified_name} is {_ALREADY[policy]} already")
                        continue
                patch = {"spec": {"stopPolicy": policy}}
                document = await documents.patch(target.name, patch, where, options=writing.options)
            print_outcome(target.qualified_name, outcome, writing, document)
