"""`sluice import kueue`: first the plan, then, with --yes, what it says."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import Connection
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.arguments.files import read_documents
from admission.cli.commands.import_kueue import plan as plans
from admission.cli.commands.import_kueue.destination import opened
from admission.cli.commands.import_kueue.plan import Action
from admission.cli.commands.import_kueue.source import in_cluster, in_manifests
from admission.cli.commands.import_kueue.takeover import running
from admission.cli.output.printing import print_line
from admission.cluster.client import Client
from admission.kinds import all_kinds
from admission.model.queues import ClusterQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.cli.commands.import_kueue.destination import Door
    from admission.cli.commands.import_kueue.plan import Line
    from admission.cli.commands.import_kueue.source import Found
    from admission.kinds import Kinds

_NOT_TAKEN_OVER = "a Sluice that runs takes over nothing: stop it, and give --database-url"


@click.command()
@click.option("-f", "--filename", "paths", multiple=True, help="Manifests, instead of a cluster; repeatable.")
@click.option("-n", "--namespace", default="default", show_default=True, help="For LocalQueues that name none.")
@click.option("--kubeconfig", help="The kubeconfig of the cluster that runs Kueue.  [env: KUBECONFIG]")
@click.option("--context", help="The context of the cluster that runs Kueue.")
@database_options
@click.option("--server", help="URL of a Sluice that runs.  [env: SLUICE_SERVER]")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token for --server.")
@click.option("--ca", type=click.Path(path_type=Path), help="PEM file with the authority of --server's certificate.")
@click.option("--yes", is_flag=True, help="Do what the plan says.")
def kueue(
    *,
    paths: tuple[str, ...],
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    database: DatabaseFlags,
    server: str | None,
    token_file: Path | None,
    ca: Path | None,
    yes: bool,
) -> None:
    """Import Kueue's queues, and take over the Jobs that it lets run.

    Without --yes you see the plan, and nothing is written. ResourceFlavors,
    ClusterQueues, Cohorts, LocalQueues, WorkloadPriorityClasses and AdmissionChecks come
    from manifests (-f), or from the cluster that runs Kueue. Out of a cluster, and into
    the database of a Sluice that is stopped, running Jobs are taken over as well: they
    run on, and hold the quota that Kueue gave them. It may be repeated.

    \b
    Examples:
      sluice import kueue -f queues/
      sluice import kueue --context prod --database-url sqlite:///sluice.db
      sluice import kueue --context prod --database-url sqlite:///sluice.db --yes
    """
    if paths and (kubeconfig or context) and (server or database.is_set):
        raise click.UsageError("-f is instead of the cluster of --kubeconfig or --context")
    if database.is_set and (server or token_file):
        raise click.UsageError("--database-url is instead of --server and --token-file")
    if server or token_file or os.environ.get("SLUICE_SERVER"):
        connection = Connection(server, token_file, ca)
    else:  # Sluice's own API is one of that cluster
        connection = Connection(kubeconfig=kubeconfig, context=context)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            kinds = all_kinds()
            if paths:
                found = in_manifests(read_documents(paths))
            else:
                found = await in_cluster(
                    await stack.enter_async_context(Client.from_kubeconfig(kubeconfig, context)), kinds
                )
            door = await stack.enter_async_context(
                opened(connection, database.url() if database.is_set else None, reason="imported from Kueue")
            )
            plan = await _plan(found, kinds, door, namespace=namespace)
            for line in plans.lines(plan):
                print_line(line)
            if yes:
                await _carry_out(plan, door)
            click.echo(plans.summary(plan, done=yes))

    asyncio.run(run())


async def _plan(found: Found, kinds: Kinds, door: Door, *, namespace: str) -> list[Line]:
    present = {item.key: item for item in await door.present()}
    plan = plans.objects(found.documents, present, namespace=namespace)
    items = present | {line.item.key: line.item for line in plan if line.item is not None}
    for item in items.values():
        found.context.see_queue_object(item)
    lines = running(
        found,
        kinds,
        queues={item.name for item in items.values() if isinstance(item, ClusterQueue)},
        held=await door.held() if found.workloads else (),
        now=time.time(),
    )
    if not door.takes_over:
        lines = [
            plans.Line(Action.SKIP, line.what, (_NOT_TAKEN_OVER,)) if line.takeover is not None else line
            for line in lines
        ]
    return plan + lines


async def _carry_out(plan: Sequence[Line], door: Door) -> None:
    """The Jobs first: if a Sluice turns out to run, nothing has been written."""
    takeovers = [line.takeover for line in plan if line.takeover is not None]
    if takeovers:
        await door.take_over(takeovers)
    for line in plan:
        if line.item is not None and line.writes:
            await door.write(line.item)
