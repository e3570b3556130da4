"""`sluice migrate`: the tables of the database, brought to what this version of Sluice works with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from admission.cli.settings import ENVIRONMENT_PREFIX, load_settings
from admission.store import migrate as migrations


@click.command()
@click.option(
    "--database-url",
    help=f"sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME.  [env: {ENVIRONMENT_PREFIX}DATABASE_URL]",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=f"{ENVIRONMENT_PREFIX}CONFIG",
    help=f"The file that `sluice serve --config` reads.  [env: {ENVIRONMENT_PREFIX}CONFIG]",
)
@click.option(
    "--to",
    "revision",
    default="head",
    show_default=True,
    help="The schema to arrive at: head, a number such as 0001, or base. Going back drops tables and what is in them.",
)
def migrate(*, database_url: str | None, config: Path | None, revision: str) -> None:
    """Bring the database's tables up to date.

    Run it once before the first `sluice serve` on PostgreSQL, and again after each
    upgrade of Sluice. It may be repeated; what is there already is left alone.

    \b
    Examples:
      sluice migrate --database-url postgresql://sluice:secret@db.example.com/sluice
      sluice migrate --database-url sqlite:///sluice.db
    """
    url = load_settings({"database_url": database_url}, config=config).database_url
    before, after = asyncio.run(migrations.migrate(url, revision))
    if before == after:
        click.echo(f"schema {after or 'base'}: nothing to do")
    else:
        click.echo(f"schema {before or 'base'} -> {after or 'base'}")
