"""`sluice migrate`: the tables of the database, brought to what this version of Sluice works with."""

from __future__ import annotations

import asyncio

import click

from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.store.database import migrations


@click.command()
@database_options
@click.option(
    "--to",
    "revision",
    default="head",
    show_default=True,
    help="The schema to arrive at: head, a number such as 0001, or base. Going back drops tables and what is in them.",
)
def migrate(*, database: DatabaseFlags, revision: str) -> None:
    """Bring the database's tables up to date.

    Run it once before the first `sluice serve` on PostgreSQL, and again after each
    upgrade of Sluice. It may be repeated; what is there already is left alone.

    \b
    Examples:
      sluice migrate --database-url-file /etc/sluice/database-url
      sluice migrate --database-url sqlite:///sluice.db
    """
    url = database.url()
    before, after = asyncio.run(migrations.migrate(url, revision))
    if before == after:
        click.echo(f"schema {after or 'base'}: nothing to do")
    else:
        click.echo(f"schema {before or 'base'} -> {after or 'base'}")
