"""`sluice calendar`: quotas that change by time; what changes next, and what that does."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.groups import CommandGroup
from admission.cli.arguments.objects import ObjectTarget, resolve, what_argument
from admission.cli.arguments.quota_flags import parse_quotas
from admission.cli.output.printing import (
    WritingFlags,
    impact_lines,
    output_option,
    print_line,
    print_outcome,
    serialized,
    writing_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.client.transport import Document

_KINDS = ("ClusterQueue", "Cohort")


@click.group(cls=CommandGroup)
def calendar() -> None:
    """Give a ClusterQueue or Cohort other quotas for a time, once or again and again.

    \b
    Example:
      sluice calendar show clusterqueue/team-a
    """


@calendar.command()
@what_argument
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Most changes to show.")
@output_option("json", "yaml")
@connection_options
def show(what: str, *, limit: int, output: str, connection: ApiConnection) -> None:
    """Show the coming changes of quota, and what the next one would do to workloads.

    \b
    Example:
      sluice calendar show clusterqueue/team-a
    """
    asyncio.run(_show(_target(what), limit, output, connection))


async def _show(target: ObjectTarget, limit: int, output: str, connection: ApiConnection) -> None:
    from admission.client.reading import impact, read

    async with connect(connection) as sluice:
        found = await sluice.documents(target.resource.plural).get(target.name, None, "calendar", limit=str(limit))
    if output:
        click.echo(serialized(found, output), nl=not output.startswith("jsonpath="))
        return
    zone = ZoneInfo(found["timeZone"])
    for each in found["applied"]:
        until = _local(each["until"], zone)
        print_line(f"now: {each['resource']} of {each['flavor']} {each['quota']}, {each['entry']} until {until}")
    if not found["changes"]:
        print_line("no change is coming")
        return
    for number, change in enumerate(found["changes"]):
        for each in change["quotas"]:
            why = each["entry"] or "as usual"
            text = f"{each['resource']} of {each['flavor']} from {each['from']} to {each['to']}, {why}"
            print_line(f"{_local(change['at'], zone)}: {text}")
        if number == 0 and (effects := read(impact, {"status": found})) is not None:
            for line in impact_lines(effects):
                print_line(f"  {line}")


@calendar.command()
@what_argument
@click.argument("name")
@click.option("--start", required=True, metavar="TIME", help="Local time at which it first applies: 2026-11-30T20:00.")
@click.option("--end", required=True, metavar="TIME", help="Local time at which it (or its first occurrence) ends.")
@click.option("--every", default="", metavar="RULE", help="Recurrence rule of iCalendar: FREQ=WEEKLY;BYDAY=SA.")
@click.option("--except", "excepted", multiple=True, metavar="DATE", help="Day on which it does not start; repeatable.")
@click.option("--time-zone", default="", help="Time zone of the calendar, if it has none.  [default: UTC]")
@click.option(
    "--nominal-quota",
    "quota",
    required=True,
    multiple=True,
    metavar="QUOTA",
    help='Quotas, such as "h100:nvidia.com/gpu=16".',
)
@writing_options
@connection_options
def add(
    what: str,
    name: str,
    *,
    start: str,
    end: str,
    every: str,
    excepted: tuple[str, ...],
    time_zone: str,
    quota: tuple[str, ...],
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    """Add an entry before all others, or replace the one of that name.

    Times are those of the wall clock in the time zone of the calendar. Of two entries that
    give the same quota at the same time, the one added last counts.

    \b
    Examples:
      sluice calendar add cq/team-a nights --start 2026-12-01T20:00 --end 2026-12-02T06:00 \\
          --every "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR" --time-zone Europe/Berlin \\
          --nominal-quota "default:cpu=16"
      sluice calendar add cq/team-a deadline --start 2026-12-10T00:00 --end 2026-12-13T00:00 \\
          --nominal-quota "default:cpu=24" --reason "deadline of the conference"
    """
    quotas = [
        {"flavor": flavor, "resource": resource, "nominalQuota": amount}
        for flavor, amounts in parse_quotas("--nominal-quota", quota).items()
        for resource, amount in amounts.items()
    ]
    given: dict[str, Any] = {
        "name": name, "start": start, "end": end, "recurrence": every, "exceptDays": [*excepted],
        "quotas": quotas, "reason": writing.reason,
    }  # fmt: skip
    entry = {key: value for key, value in given.items() if value}

    def change(spec: Document) -> None:
        found = spec.setdefault("calendar", {"entries": []})
        zone = found.setdefault("timeZone", time_zone or "UTC")
        if time_zone and zone != time_zone:
            raise click.UsageError(f"the calendar's time zone is {zone}, not {time_zone}: give times in that")
        found["entries"] = [entry, *(each for each in found["entries"] if each["name"] != name)]

    asyncio.run(_change(_target(what), change, f"has the entry {name}", writing, connection))


@calendar.command()
@what_argument
@click.argument("name")
@writing_options
@connection_options
def remove(what: str, name: str, *, writing: WritingFlags, connection: ApiConnection) -> None:
    """Remove an entry; quotas that it gives now are at once as without it.

    \b
    Example:
      sluice calendar remove clusterqueue/team-a nights --reason "no more batch at night"
    """

    def change(spec: Document) -> None:
        entries = spec.get("calendar", {}).get("entries", [])
        left = [each for each in entries if each["name"] != name]
        if len(left) == len(entries):
            known = ", ".join(each["name"] for each in entries) or "none"
            raise click.UsageError(f'there is no entry "{name}" in the calendar; it has {known}')
        if left:
            spec["calendar"]["entries"] = left
        else:
            del spec["calendar"]

    asyncio.run(_change(_target(what), change, f"has no entry {name} any more", writing, connection))


async def _change(
    target: ObjectTarget,
    change: Callable[[Document], None],
    outcome: str,
    writing: WritingFlags,
    connection: ApiConnection,
) -> None:
    async with connect(connection) as sluice:
        documents = sluice.documents(target.resource.plural)
        found: dict[str, Any] = await documents.get(target.name)
        change(found["spec"])
        answer = None
        if writing.dry_run != "client":
            answer = await documents.replace(found, options=writing.options)
        print_outcome(target.qualified_name, outcome, writing, answer)


def _target(what: str) -> ObjectTarget:
    """Return the ClusterQueue or Cohort that is named. Raises UsageError."""
    found = resolve(what, ())
    if not isinstance(found, list) or len(found) != 1 or found[0].resource.kind not in _KINDS:
        raise click.UsageError(f'"{what}" names no ClusterQueue or Cohort; write clusterqueue/NAME or cohort/NAME')
    return found[0]


def _local(text: str, zone: ZoneInfo) -> str:
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S}".removesuffix(":00") + f" {local.tzname()}"
