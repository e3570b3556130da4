"""`sluice audit`: whether database, cluster and the leader's memory agree, and what to do where they do not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.configuration.settings import load_settings
from admission.cli.output.printing import print_line, serialized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.configuration.settings import Settings
    from admission.client.transport import Document

_PATH: Final = "/apis/sluice.dev/v1/audits"
_LEADER: Final = "leader"
"""The field of the cause by which a replica says who leads instead."""

ATTEMPTS: Final = 12
"""Connections that are made before it is given up to meet the leader behind a Service."""

PAUSE: Final = 0.2
"""Seconds between two of them."""


@click.command()
@click.option("--repair", is_flag=True, help="Have the leader do what is said to cure each difference.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
@database_options
@connection_options
def audit(*, repair: bool, output: str, database: DatabaseFlags, connection: Connection) -> None:
    """Compare the database with the cluster and the leader's memory.

    What is under way is not told: a difference has to be there for five seconds. Ends
    with 0 if there is none, or none is left after --repair, else with 1. If Sluice does
    not start, --database-url compares without it, and changes nothing.

    \b
    Examples:
      sluice audit
      sluice audit --repair -o json
      sluice audit --database-url sqlite:///sluice.db --kubeconfig ~/.kube/config
    """
    if not database.is_set:
        document = asyncio.run(_ask(connection, "POST" if repair else "GET"))
    else:
        if repair:
            raise click.UsageError("--repair is for a Sluice that leads; with --database-url nobody is asked")
        if connection.server or connection.token_file:
            raise click.UsageError("--server and --token-file name a Sluice, and --database-url asks none")
        settings = load_settings({**database.flags, "kubeconfig": connection.kubeconfig}, config=database.config)
        document = asyncio.run(_without_leader(settings, context=connection.context))
    if output == "table":
        for line in _lines(document, repair=repair):
            print_line(line)
    else:
        click.echo(serialized(document, output))
    if any(item["left"] == "true" for item in document["items"]):
        click.get_current_context().exit(1)


async def _ask(connection: Connection, method: str) -> Document:
    """Of several replicas behind a Service one leads: each attempt is a connection of its own."""
    from admission.client.errors import Unavailable

    for attempt in range(1, ATTEMPTS + 1):
        try:
            async with connect(connection) as sluice:
                return await sluice.request(method, _PATH)
        except Unavailable as refusal:
            if attempt == ATTEMPTS or all(field != _LEADER for field, _ in refusal.causes):
                raise
        await asyncio.sleep(PAUSE)
    raise AssertionError("the last attempt returns or raises")


async def _without_leader(settings: Settings, *, context: str | None) -> Document:
    from admission.cluster.client import Client
    from admission.controller.auditing.audit_sources import without_leader
    from admission.store.store import Store

    kinds = settings.integrations.registry(kueue_labels=settings.accept_kueue_labels)
    kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
    async with (
        Store.open(settings.database_url) as store,
        Client.from_kubeconfig(kubeconfig, context or settings.context) as client,
    ):
        items = await without_leader(store, client, kinds, clock=time.time)
    return {"kind": "Audit", "apiVersion": "sluice.dev/v1", "metadata": {}, "items": items}


def _lines(document: Document, *, repair: bool) -> Iterator[str]:
    """A line for each difference, and what is or was done about it under it."""
    if not document["items"]:
        yield "no differences"
    for item in document["items"]:
        yield f"{item['problem']}  {item['object']}: {item['found']}; should be: {item['expected']}"
        done = "not repaired" if item["left"] == "true" else "repaired"
        yield f"  {done if repair else 'repair'}: {item['remedy']}"
