"""`sluice export`: the whole database as one file, or its queue objects as manifests."""

from __future__ import annotations

import asyncio
import gzip
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.output.output_file import output_file
from admission.cli.output.progress import ProgressLine
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--as",
    "group",
    type=click.Choice(["kueue", "sluice"]),
    help="Export the queue objects of a running Sluice as manifests of this API group.",
)
@database_options
@connection_options
def export(
    *,
    file: Path | None,
    group: Literal["kueue", "sluice"] | None,
    database: DatabaseFlags,
    connection: ApiConnection,
) -> None:
    """Export the database to FILE, as a backup or to move to another database.

    The file is a consistent snapshot; Sluice may be running meanwhile. sluice import
    restores it into an empty SQLite or PostgreSQL database. With --as, the queue objects
    are exported as manifests instead.

    \b
    Examples:
      sluice export --database-url sqlite:///sluice.db backup.jsonl.gz
      sluice export --as kueue queues.yaml
    """
    if file is None and sys.stdout is None:
        raise click.UsageError("standard output is closed; specify a FILE")
    if group is not None:
        if database.is_set:
            raise click.UsageError("--as requires a running Sluice; it cannot be used with --database-url")
        asyncio.run(_manifests(connection, group, file))
        return
    if file is None and sys.stdout.isatty():
        raise click.UsageError("specify a FILE, or redirect the output to one")
    url = database.url()
    with _output(file) as out, gzip.GzipFile(fileobj=out, mode="wb", compresslevel=4) as compressed:
        asyncio.run(_dump(url, compressed))


async def _dump(url: str, out: gzip.GzipFile) -> None:
    async with Store.open(url, writes=False) as store:
        with ProgressLine("exported") as progress:
            await store.dump(out.write, progress)


async def _manifests(connection: ApiConnection, group: Literal["kueue", "sluice"], file: Path | None) -> None:
    """Write the queue objects as YAML; what Kueue cannot represent is printed as a warning."""
    import yaml

    from admission.cli.output.manifests import manifests

    async with connect(connection) as sluice:
        documents = await manifests(sluice, group, lambda text: click.echo(f"warning: {text}", err=True))
    text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
    with _output(file) as out:
        out.write(text.encode())


@contextmanager
def _output(file: Path | None) -> Iterator[BinaryIO]:
    """Context manager: the file to write; None: standard output."""
    if file is not None:
        with output_file(file) as out:
            yield out
        return
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
