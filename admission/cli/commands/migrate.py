"""`sluice migrate`: migration of the database schema to the one that this version of Sluice uses."""

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
    metavar="REVISION",
    show_default=True,
    help="Schema to migrate to: head, a number such as 0001, or base. A downgrade drops tables with their data.",
)
@click.option("--plan", is_flag=True, help="Print the migrations without running them.")
def migrate(*, database: DatabaseFlags, revision: str, plan: bool) -> None:
    """Migrate the database schema to the one of this version.

    Run it before the first sluice serve on PostgreSQL, and after each upgrade of Sluice.
    If the schema is up to date, nothing is changed.

    \b
    Examples:
      sluice migrate --database-url-file /etc/sluice/database-url
      sluice migrate --database-url sqlite:///sluice.db
      sluice migrate --plan --database-url-file /etc/sluice/database-url
    """
    url = database.url()
    if plan:
        _print_plan(*asyncio.run(migrations.plan(url, revision)), revision)
        return
    before, after = asyncio.run(migrations.migrate(url, revision))
    if before == after:
        click.echo(f"schema {after or 'base'}: nothing to do")
    else:
        click.echo(f"schema {before or 'base'} -> {after or 'base'}")


def _print_plan(before: str | None, steps: tuple[migrations.MigrationStep, ...], revision: str) -> None:
    """Print the migrations from schema `before` (None: no tables) to `revision`, and what they mean for data."""
    if not steps:
        click.echo(f"schema {before or 'base'}: nothing to do")
        return
    is_downgrade = revision != "head" and (revision == "base" or revision < (before or ""))
    verb = "revert" if is_downgrade else "run"
    click.echo(f"schema {before or 'base'}; migrations to {verb}, in one transaction:")
    for step in steps:
        click.echo(f"  {step.revision}  {step.title}")
    if is_downgrade:
        click.echo("Their tables, columns and kinds of objects are dropped with all data: make an export first.")
    elif before is not None:
        click.echo("Servers of the present version keep running meanwhile, and can be rolled back to afterwards.")
