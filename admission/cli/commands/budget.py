"""`sluice budget`: the table of Budgets; `sluice budget grant`: more hours for one, or fewer."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options


@click.group(cls=CommandGroup, invoke_without_command=True)
@connection_options
@click.pass_context
def budget(context: click.Context, *, connection: ApiConnection) -> None:
    """List Budgets with what they have left, as `sluice get budgets` does; or correct them.

    \b
    Example:
      sluice budget grant ml 200 --reason "conference deadline"
    """
    if context.invoked_subcommand is None:
        from admission.cli.commands.get import get

        context.invoke(get, what="budgets", names=(), **asdict(connection))
    elif connection != ApiConnection():
        raise click.UsageError(f"write the options that locate Sluice behind {context.invoked_subcommand}")


class _WithNegativeHours(click.Command):
    """A command whose last argument may be a negative number, which would be taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass a negative number behind `--`."""
        hours = [each for each in args if re.fullmatch(r"-[0-9.]+", each)]
        return super().parse_args(ctx, [each for each in args if each not in hours] + (["--", *hours] if hours else []))


@budget.command(cls=_WithNegativeHours)
@click.argument("name")
@click.argument("hours")
@click.option("--resource", default="", help="Resource that gets the hours.  [default: the only one of the Budget]")
@click.option("--day", default="", metavar="DATE", help="A day of the period that gets them.  [default: today, UTC]")
@writing_options
@connection_options
def grant(name: str, hours: str, *, resource: str, day: str, writing: WritingFlags, connection: ApiConnection) -> None:
    """Add hours to one period of a Budget, or take some away (a negative number).

    The reason (--reason) is required; it is kept in the Budget, and in its history with
    the author.

    \b
    Examples:
      sluice budget grant ml 200 --reason "conference deadline"
      sluice budget grant ml -50 --resource nvidia.com/gpu --day 2026-12-01 --reason "paid twice"
    """
    if not writing.reason:
        raise click.UsageError('a grant needs a reason; add --reason "..."')
    given = {"day": day or datetime.now(UTC).date().isoformat(), "hours": hours, "reason": writing.reason}
    asyncio.run(_grant(name, given, resource, writing, connection))


async def _grant(
    name: str, given: dict[str, str], resource: str, writing: WritingFlags, connection: ApiConnection
) -> None:
    async with connect(connection) as sluice:
        budgets = sluice.documents("budgets")
        found: dict[str, Any] = await budgets.get(name)
        resources = list(dict.fromkeys(each["name"] for each in found["spec"]["resources"]))
        if not resource and len(resources) > 1:
            raise click.UsageError(f"Budget {name} has hours of {', '.join(resources)}; name one by --resource")
        found["spec"].setdefault("grants", []).append({**given, "resource": resource or resources[0]})
        document = None
        if writing.dry_run != "client":
            document = await budgets.replace(found, options=writing.options)
        details = [f"{given['hours']} hours of {resource or resources[0]} for the period of {given['day']}"]
        print_outcome(f"budget.sluice.dev/{name}", "granted", writing, document, details=details)
