"""`sluice audit`: differences between database, cluster and the leader's memory, and their repair."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.configuration.settings import load_settings
from admission.cli.output.printing import print_line, serialized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.cli.configuration.settings import Settings
    from admission.client.transport import Document

_PATH: Final = "/apis/sluice.dev/v1/audits"
_LEADER: Final = "leader"
"""Field of the cause with which a replica that is not the leader refuses the request."""

ATTEMPTS: Final = 12
"""Connections to try: only the leader can audit, and a Service connects to any of the replicas."""

PAUSE: Final = 0.2
"""Seconds between two attempts."""


@click.command()
@click.option("--repair", is_flag=True, help="Repair the differences, as the report proposes.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@database_options
@connection_options
def audit(*, repair: bool, output: str, database: DatabaseFlags, connection: ApiConnection) -> None:
    """Compare the database with the cluster and the leader's memory.

    Changes in progress are ignored: a difference is reported if it persists for five
    seconds. The exit code is 0 if there are no differences, or none are left after
    --repair, and 1 otherwise. If the server does not start, use --database-url to
    compare database and cluster without it; this changes nothing.

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
            raise click.UsageError("--repair requires a running server; it cannot be used with --database-url")
        if connection.server or connection.token_file:
            raise click.UsageError("--server and --token-file cannot be used with --database-url")
        settings = load_settings({**database.flags, "kubeconfig": connection.kubeconfig}, config=database.config)
        document = asyncio.run(_without_leader(settings, context=connection.context))
    if output == "table":
        for line in _lines(document, repair=repair):
            print_line(line)
    else:
        click.echo(serialized(document, output))
    if any(item["left"] == "true" for item in document["items"]):
        click.get_current_context().exit(1)


async def _ask(connection: ApiConnection, method: str) -> Document:
    """Request an audit of the leader, with a new connection for each attempt: a Service may choose another replica."""
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
    """Compare database and cluster in this process; return a document as the API's."""
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
    """Yield two lines for each difference: what was found and expected, and the repair that is proposed or was done."""
    if not document["items"]:
        yield "no differences"
    for item in document["items"]:
        where = f"cluster {item['cluster']}: " if "cluster" in item else ""
        yield f"{item['problem']}  {where}{item['object']}: {item['found']}; should be: {item['expected']}"
        done = "not repaired" if item["left"] == "true" else "repaired"
        yield f"  {done if repair else 'repair'}: {item['remedy']}"
