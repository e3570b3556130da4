"""`sluice gate`: emergency switch for the webhooks and admission policies that gate Jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.cluster import ClusterFlags, cluster_options
from admission.cli.arguments.groups import WAYS_TO_PAUSE, CommandGroup
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line
from webhooks.switch import gate_objects, switch

if TYPE_CHECKING:
    from admission.cluster.client import Client


@click.group(cls=CommandGroup, epilog=WAYS_TO_PAUSE)
def gate() -> None:
    """Turn the gating of Jobs off in an emergency, and on again.

    The commands use the Kubernetes API only: Sluice may be down. They require permission
    to update mutatingwebhookconfigurations.

    \b
    Examples:
      sluice gate off --context prod
      sluice gate on --context prod
    """


@gate.command()
@cluster_options
def off(cluster: ClusterFlags) -> None:
    """Turn the gate off: Jobs with a queue label are created and started without Sluice.

    Its configuration is kept in an annotation. Sluice leaves the gate off, also after a
    restart. While Sluice is running, it still stops Jobs that run without quota.

    \b
    Example:
      sluice gate off
    """
    asyncio.run(_switch(cluster, on=False))


@gate.command()
@cluster_options
def on(cluster: ClusterFlags) -> None:
    """Turn the gate on again, as it was before `sluice gate off`.

    Jobs that were started in the meantime are stopped by Sluice and queued.

    \b
    Example:
      sluice gate on
    """
    asyncio.run(_switch(cluster, on=True))


@gate.command()
@cluster_options
def status(cluster: ClusterFlags) -> None:
    """Show whether the gate is on.

    The exit code is 1 if the gate or a part of it is off, or if none is registered.

    \b
    Example:
      sluice gate status
    """

    async def read_states() -> list[bool]:
        async with cluster.client() as client:
            found = [part async for part in gate_objects(client)]
        for part in found:
            print_line(f"{part}: {'off' if part.is_off else 'on'}")
        return [not part.is_off for part in found]

    states = asyncio.run(read_states())
    if not states:
        print_line("no gate found: Sluice has not registered one in this cluster")
    if not states or not all(states):
        click.get_current_context().exit(1)


async def _switch(cluster: ClusterFlags, *, on: bool) -> None:
    async with cluster.client() as client:
        changed = await switch(client, on=on)
        for name in changed:
            print_line(f"{name}: {'on' if on else 'off'}")
        if not changed:
            await _explain_no_change(client, on=on)


async def _explain_no_change(client: Client, *, on: bool) -> None:
    """Print that the gate has this state already. Raises CommandError if there is none."""
    found = [part async for part in gate_objects(client)]
    if not found:
        raise CommandError("no gate found: Sluice has not registered one in this cluster")
    print_line(f"nothing to do: the gate is {'on' if on else 'off'} already")
