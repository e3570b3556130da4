"""`sluice gate`: the emergency switch of what gates Jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.cluster import ClusterFlags, cluster_options
from admission.cli.arguments.groups import Group
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from webhooks.switch import parts, switch

if TYPE_CHECKING:
    from admission.cluster.client import Client


@click.group(cls=Group)
def gate() -> None:
    """Take away what gates Jobs, in an emergency, and bring it back.

    It asks the API server alone: Sluice may be down. For whoever may write
    mutatingwebhookconfigurations.

    \b
    Examples:
      sluice gate off --context prod
      sluice gate on --context prod
    """


@gate.command()
@cluster_options
def off(cluster: ClusterFlags) -> None:
    """Let Jobs with a queue label be created and started without asking Sluice.

    What the gate was is kept in an annotation, and Sluice leaves it off, also when it is
    started again. A Sluice that decides still stops what runs without quota.

    \b
    Example:
      sluice gate off
    """
    asyncio.run(_switch(cluster, on=False))


@gate.command()
@cluster_options
def on(cluster: ClusterFlags) -> None:
    """Gate Jobs again, as before `sluice gate off`.

    Jobs that were started meanwhile are stopped by Sluice, and queue.

    \b
    Example:
      sluice gate on
    """
    asyncio.run(_switch(cluster, on=True))


@gate.command()
@cluster_options
def status(cluster: ClusterFlags) -> None:
    """Say what gates Jobs, and whether it is off. The exit code is 1 if anything is, or nothing is there.

    \b
    Example:
      sluice gate status
    """

    async def ask() -> list[bool]:
        async with cluster.client() as client:
            found = [part async for part in parts(client)]
        for part in found:
            print_line(f"{part}: {'off' if part.is_off else 'on'}")
        return [not part.is_off for part in found]

    states = asyncio.run(ask())
    if not states:
        print_line("nothing gates Jobs: Sluice has not registered anything here")
    if not states or not all(states):
        click.get_current_context().exit(1)


async def _switch(cluster: ClusterFlags, *, on: bool) -> None:
    async with cluster.client() as client:
        changed = await switch(client, on=on)
        for name in changed:
            print_line(f"{name}: {'on' if on else 'off'}")
        if not changed:
            await _say_why_nothing(client, on=on)


async def _say_why_nothing(client: Client, *, on: bool) -> None:
    found = [part async for part in parts(client)]
    if not found:
        raise CommandError("nothing gates Jobs here: Sluice has not registered anything in this cluster")
    print_line(f"nothing to do: the gate is {'on' if on else 'off'} already")
