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
@click.option("--plan", is_flag=True, help="Say what would be done, and change nothing.")
def migrate(*, database: DatabaseFlags, revision: str, plan: bool) -> None:
    """Bring the database's tables up to date.

    Run it once before the first `sluice serve` on PostgreSQL, and again after each
    upgrade of Sluice. It may be repeated; what is there already is left alone.

    \b
    Examples:
      sluice migrate --database-url-file /etc/sluice/database-url
      sluice migrate --database-url sqlite:///sluice.db
      sluice migrate --plan --database-url-file /etc/sluice/database-url
    """
    url = database.url()
    if plan:
        _tell(*asyncio.run(migrations.plan(url, revision)), revision)
        return
    before, after = asyncio.run(migrations.migrate(url, revision))
    if before == after:
        click.echo(f"schema {after or 'base'}: nothing to do")
    else:
        click.echo(f"schema {before or 'base'} -> {after or 'base'}")


def _tell(before: str | None, steps: tuple[migrations.Step, ...], revision: str) -> None:
    if not steps:
        click.echo(f"schema {before or 'base'}: nothing to do")
        return
    back = revision != "head" and (revision == "base" or revision < (before or ""))
    click.echo(f"schema {before or 'base'}; {'to be taken back' if back else 'to be done'}, in one transaction:")
    for step in steps:
        click.echo(f"  {step.revision}  {step.title}")
    if back:
        click.echo("Tables, columns and kinds of objects of these go, with what is in them: make an export first.")
    elif before is not None:
        click.echo("A Sluice that runs on the present schema goes on meanwhile, and may be brought back afterwards.")
