"""`sluice get`: what is there, as a table or as documents."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import yaml

from admission.cli.connection import Connection, connection_options
from admission.cli.http import connect
from admission.cli.objects import collection_path, namespace_option, object_path, resolve
from admission.cli.tables import table

if TYPE_CHECKING:
    from admission.api.registry import Resource
    from admission.cli.http import Document


@click.command()
@click.argument("what", metavar="TYPE[/NAME]")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Show those of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="Show more, or documents.")
@click.option("--no-headers", is_flag=True, help="Leave out the first line of the table.")
@connection_options
def get(
    *,
    what: str,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    output: str | None,
    no_headers: bool,
    connection: Connection,
) -> None:
    """Show queue objects and workloads.

    TYPE is clusterqueues (cq), cohorts (co), localqueues (lq), resourceflavors (rf),
    workloadpriorityclasses (wpc) or workloads (wl). A workload can be named by its
    Job, too.

    \b
    Examples:
      sluice get clusterqueues
      sluice get workloads -n team-a -o wide
      sluice get cq/team-a -o yaml
    """
    resource, names = resolve(what, names)
    if all_namespaces and names:
        raise click.UsageError("-A shows all objects; a NAME needs the namespace that it is in (-n)")
    single = len(names) == 1
    found = asyncio.run(_read(connection, resource, names, "" if all_namespaces else namespace))
    if output in ("json", "yaml"):
        document = found[0] if single else {"apiVersion": "v1", "kind": "List", "items": found}
        click.echo(_serialized(document, output))
    elif output == "name":
        for item in found:
            click.echo(f"{resource.singular}.sluice.dev/{item['metadata']['name']}")
    elif found:
        with_namespaces = all_namespaces and resource.namespaced
        now = datetime.now(UTC)
        lines = table(
            resource.kind, found, now=now, namespaces=with_namespaces, wide=output == "wide", headers=not no_headers
        )
        click.echo("\n".join(lines))
    else:
        where = f" in namespace {namespace}" if resource.namespaced and not all_namespaces else ""
        click.echo(f"there are no {resource.plural}{where}", err=True)


async def _read(connection: Connection, resource: Resource, names: tuple[str, ...], namespace: str) -> list[Document]:
    async with connect(connection, lambda text: click.echo(text, err=True)) as api:
        if not names:
            return await api.items(collection_path(resource, namespace))
        return [await api.get(object_path(resource, name, namespace)) for name in names]


def _serialized(document: Document, output: str) -> str:
    if output == "json":
        return json.dumps(document, indent=2, ensure_ascii=False)
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip()
