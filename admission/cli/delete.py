"""`sluice delete`: away with queue objects that nothing needs any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.connection import Connection, connection_options
from admission.cli.http import connect
from admission.cli.objects import namespace_option, object_path, resolve

if TYPE_CHECKING:
    from admission.api.registry import Resource


@click.command()
@click.argument("what", metavar="TYPE[/NAME]")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@namespace_option
@connection_options
def delete(*, what: str, names: tuple[str, ...], namespace: str, connection: Connection) -> None:
    """Delete queue objects.

    What others depend on is not deleted: a ClusterQueue that LocalQueues or
    workloads name, a ResourceFlavor that holds quota.

    \b
    Examples:
      sluice delete localqueue main -n team-a
      sluice delete cq/team-a
    """
    resource, names = resolve(what, names)
    if "delete" not in resource.verbs:
        raise click.UsageError(f"{resource.plural} cannot be deleted here; delete the Job")
    if not names:
        raise click.UsageError(f"which of the {resource.plural}? write {what} NAME")
    asyncio.run(_delete(connection, resource, names, namespace))


async def _delete(connection: Connection, resource: Resource, names: tuple[str, ...], namespace: str) -> None:
    async with connect(connection, lambda text: click.echo(text, err=True)) as api:
        for name in names:
            await api.delete(object_path(resource, name, namespace))
            click.echo(f"{resource.singular}.sluice.dev/{name} deleted")
