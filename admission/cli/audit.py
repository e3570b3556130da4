"""`sluice audit`: whether database, cluster and the leader's memory agree, and what to do where they do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from admission.cli.connection import Connection, connect, connection_options
from admission.cli.printing import serialized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.client.transport import Document

_PATH: Final = "/apis/sluice.dev/v1/audits"


@click.command()
@click.option("--repair", is_flag=True, help="Have the leader do what is said to cure each difference.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
@connection_options
def audit(*, repair: bool, output: str, connection: Connection) -> None:
    """Compare the database with the cluster and the leader's memory.

    What is under way is not told: a difference has to be there for five seconds. Ends
    with 0 if there is none, or none is left after --repair, else with 1.

    \b
    Examples:
      sluice audit
      sluice audit --repair -o json
    """
    document = asyncio.run(_ask(connection, "POST" if repair else "GET"))
    if output == "table":
        for line in _lines(document, repair=repair):
            click.echo(line)
    else:
        click.echo(serialized(document, output))
    if any(item["left"] == "true" for item in document["items"]):
        click.get_current_context().exit(1)


async def _ask(connection: Connection, method: str) -> Document:
    async with connect(connection) as sluice:
        return await sluice.request(method, _PATH)


def _lines(document: Document, *, repair: bool) -> Iterator[str]:
    """A line for each difference, and what is or was done about it under it."""
    if not document["items"]:
        yield "no differences"
    for item in document["items"]:
        yield f"{item['problem']}  {item['object']}: {item['found']}; should be: {item['expected']}"
        done = "not repaired" if item["left"] == "true" else "repaired"
        yield f"  {done if repair else 'repair'}: {item['remedy']}"
