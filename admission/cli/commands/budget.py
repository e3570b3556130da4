"""`sluice budget`: the table of Budgets; more hours for one, or fewer (`grant`); and requests for more (`request`)."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.arguments.objects import namespace_option
from admission.cli.output.printing import WritingFlags, print_outcome, writing_options
from admission.client.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters of generated names."""


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
@click.option("--request", default="", metavar="NAMESPACE/NAME", help="BudgetRequest that is answered; 0 declines it.")
@writing_options
@connection_options
def grant(
    name: str, hours: str, *, resource: str, day: str, request: str, writing: WritingFlags, connection: ApiConnection
) -> None:
    """Add hours, or money, to one period of a Budget, or take some away (a negative number).

    The reason (--reason) is required; it is kept in the Budget, and in its history with
    the author. With --request, resource and day are those that were asked for.

    \b
    Examples:
      sluice budget grant ml 200 --reason "conference deadline"
      sluice budget grant ml -50 --resource nvidia.com/gpu --day 2026-12-01 --reason "paid twice"
    """
    if not writing.reason:
        raise click.UsageError('a grant needs a reason; add --reason "..."')
    given = {"hours": hours, "reason": writing.reason, **({"request": request} if request else {})}
    asyncio.run(_grant(name, given, {"resource": resource, "day": day}, writing, connection))


@budget.command(name="request")
@click.argument("name")
@click.argument("hours")
@click.option("--resource", default="", help="Resource that is needed.  [default: the only one of the Budget]")
@click.option("--day", default="", metavar="DATE", help="A day of the period that needs them.  [default: today, UTC]")
@namespace_option
@writing_options
@connection_options
def ask(
    name: str,
    hours: str,
    *,
    resource: str,
    day: str,
    namespace: str | None,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Ask for more hours of a Budget: create a BudgetRequest in the namespace (-n).

    The reason (--reason) is required. An admin answers it by `sluice budget grant`;
    `sluice get budgetrequests` shows whether it was granted.

    \b
    Example:
      sluice budget request ml 96 --reason "paper deadline" -n team-a
    """
    if not writing.reason:
        raise click.UsageError('a request needs a reason; add --reason "..."')
    given = {"budget": name, "hours": hours, "reason": writing.reason, "day": day or _today()}
    asyncio.run(_ask(given, resource, namespace, writing, connection))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _about(number: str, resource: str, day: str, budget: Mapping[str, Any] | None = None) -> str:
    """Return what a grant or a request is about; without the Budget, which users may not read, as hours."""
    entries = () if budget is None else budget["spec"]["resources"]
    is_money = any(each["name"] == resource and each.get("priceBook") for each in entries)
    return f"{number} {resource if is_money else f'hours of {resource}'} for the period of {day}"


def _only(budget: Mapping[str, Any]) -> str:
    """Return the resource of a Budget that has one only."""
    resources = list(dict.fromkeys(each["name"] for each in budget["spec"]["resources"]))
    if len(resources) > 1:
        name = budget["metadata"]["name"]
        raise click.UsageError(f"Budget {name} has {', '.join(resources)}; name one by --resource")
    return str(resources[0])


async def _ask(
    given: dict[str, str], resource: str, namespace: str | None, writing: WritingFlags, connection: ApiConnection
) -> None:
    async with connect(connection) as sluice:
        budget = None
        if not resource:
            try:
                budget = await sluice.documents("budgets").get(given["budget"])
                resource = _only(budget)
            except Forbidden as error:
                raise click.UsageError("name the resource by --resource: you may not read Budgets") from error
        requests = sluice.documents("budgetrequests")
        name = f"{given['budget']}-{''.join(secrets.choice(_SUFFIX) for _ in range(5))}"
        metadata = {"name": name, "namespace": namespace or sluice.namespace}
        document = {
            "apiVersion": "sluice.dev/v1", "kind": "BudgetRequest", "metadata": metadata,
            "spec": {**given, "resource": resource},
        }  # fmt: skip
        created = None
        if writing.dry_run != "client":
            created = await requests.create(document, options=writing.options)
        details = [_about(given["hours"], resource, given["day"], budget)]
        print_outcome(f"budgetrequest.sluice.dev/{name}", "created", writing, created, details=details)


async def _grant(
    name: str, given: dict[str, str], chosen: dict[str, str], writing: WritingFlags, connection: ApiConnection
) -> None:
    async with connect(connection) as sluice:
        budgets = sluice.documents("budgets")
        found: dict[str, Any] = await budgets.get(name)
        asked: dict[str, str] = {}
        if "request" in given:
            namespace, _, request = given["request"].rpartition("/")
            asked = (await sluice.documents("budgetrequests").get(request, namespace=namespace))["spec"]
            if asked["budget"] != name:
                raise click.UsageError(f"BudgetRequest {given['request']} asks for hours of Budget {asked['budget']}")
        resource = chosen["resource"] or asked.get("resource") or _only(found)
        given = {**given, "day": chosen["day"] or asked.get("day") or _today(), "resource": resource}
        found["spec"].setdefault("grants", []).append(given)
        document = None
        if writing.dry_run != "client":
            document = await budgets.replace(found, options=writing.options)
        details = [_about(given["hours"], resource, given["day"], found)]
        print_outcome(f"budget.sluice.dev/{name}", "granted", writing, document, details=details)
