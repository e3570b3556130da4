"""`sluice report`: quota usage over time from the ledger, as a table or CSV in hours, or as exact JSON and YAML."""

from __future__ import annotations

import asyncio
import csv
import difflib
import re
import sys
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.calendar_periods import calendar_month, calendar_quarter
from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.groups import Group
from admission.cli.errors import CommandError
from admission.cli.output.printing import output_option, print_line, serialized
from admission.cli.output.tables import aligned
from admission.model.usage_units import is_in_bytes, usage_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from admission.client.transport import Document

_GROUPINGS: Final = ("queue", "clusterqueue", "user", "namespace", "flavor", "priority", "kind", "workload", "resource")
_AMOUNTS: Final = ("amountSeconds", "nominalSeconds", "borrowedSeconds")
"""Fields of an item, in amounts times seconds: used, nominal and borrowed."""
_FIELDS: Final = {"clusterqueue": "clusterQueue"}
"""Filter -> field of an item, where the two differ."""
_WIDTH: Final = 80
"""Characters of a line of `-o table` at most."""
_MIN_NAME_WIDTH: Final = 8
"""Characters to which a column of names is truncated at most, even if lines then exceed `_WIDTH`."""


@click.group(cls=Group)
def report() -> None:
    """Report quota usage over time.

    \b
    Example:
      sluice report usage --by user --from 7d
      sluice report node n17 --at 3h
    """


@report.command()
@click.option(
    "--by",
    "groupings",
    default="queue",
    show_default=True,
    metavar="NAME,...",
    help=f"Group usage by one or several of: {', '.join(_GROUPINGS)}.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 999_999),
    metavar="N",
    help="Show the N groups that used most of each resource, and the sum of the others.",
)
@click.option("--period", type=click.Choice(["day", "month"]), help="Group by time as well; periods start at 0:00 UTC.")
@click.option(
    "--from",
    "start",
    default="",
    metavar="TIME",
    show_default="30d",
    help="Start: a time, a date, or a duration before now.",
)
@click.option("--to", "end", default="", metavar="TIME", help="End, in the same form.  [default: now]")
@click.option(
    "--month", default="", metavar="MONTH", help="A calendar month, instead of --from: 2026-10, this or last."
)
@click.option(
    "--quarter", default="", metavar="QUARTER", help="A calendar quarter, instead of --from: 2026-Q4, this or last."
)
@click.option(
    "--timezone",
    default="UTC",
    metavar="ZONE",
    show_default=True,
    help="Time zone of --month and --quarter, such as Europe/Berlin.",
)
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only this namespace; access to it is sufficient.")
@click.option("--mine", is_flag=True, help="Only workloads that you submitted, in all namespaces.")
@click.option(
    "--queue",
    multiple=True,
    metavar="NAME",
    help="Only LocalQueues of this name; repeatable, like the filters below.",
)
@click.option("--clusterqueue", multiple=True, metavar="NAME", help="Only this ClusterQueue.")
@click.option("--user", multiple=True, metavar="NAME", help="Only workloads that this user submitted.")
@click.option("--flavor", multiple=True, metavar="NAME", help="Only this ResourceFlavor.")
@click.option("--kind", multiple=True, metavar="KIND", help="Only workloads of this kind, for example Job.")
@click.option("--resource", multiple=True, metavar="NAME", help="Only this resource, for example cpu.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "csv"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@connection_options
def usage(
    *,
    groupings: str,
    top: int | None,
    period: str | None,
    start: str,
    end: str,
    month: str,
    quarter: str,
    timezone: str,
    namespace: str,
    mine: bool,
    output: str,
    connection: Connection,
    **only: tuple[str, ...],
) -> None:
    """Report how much quota was held, and for how long.

    Usage within the nominal quota that the ClusterQueue had at that time counts as
    nominal, starting with the earliest admissions; the rest is borrowed. Tables and CSV
    are in core-hours, GiB-hours, or hours of one unit of other resources; JSON and YAML
    are exact, in core-seconds, byte-seconds, or seconds of one unit. -o wide does not
    truncate names. Kinds and workloads are known only while finished workloads are kept
    (setting retention), which limits the start of such a report.

    \b
    Examples:
      sluice report usage --by user --from 7d
      sluice report usage --mine --period day
      sluice report usage --by workload --top 20 -n team-a
      sluice report usage -n team-a --by user,flavor --period month --from 2025-01-01
      sluice report usage --by queue --flavor h100 --month last --timezone Europe/Berlin -o csv
    """
    if month or quarter:
        if start or end or (month and quarter):
            raise click.UsageError("use only one of --month, --quarter, and --from with --to")
        start, end = _calendar(month, quarter, timezone)
    params = [
        ("by", groupings),
        ("period", period or ""),
        ("from", start or "30d"),
        ("to", end),
        ("top", str(top or "")),
    ]
    params += [(name, value) for name, values in only.items() for value in values]
    params += [("namespace", namespace)] if mine else []
    asked = [pair for pair in params if pair[1]]
    document = asyncio.run(_ask(connection, namespace, asked, mine=mine))
    if period == "month" and not document["from"].endswith("-01T00:00:00Z"):
        first = f"{document['from'][:7]} is only a part of that month, from {_second(document['from'])} on"
        print_line(f"note: {first}; --from {document['from'][:7]}-01 reports all of it", err=True)
    if not document["items"]:
        for hint in asyncio.run(_unknown_names(connection, namespace, asked, only, mine=mine)):
            print_line(f"note: {hint}", err=True)
    if output == "csv":
        _write_csv(document)
    elif output in ("json", "yaml"):
        click.echo(serialized(document, output))
    else:
        for line in _table(document, width=_WIDTH if output == "table" else None):
            print_line(line)


@report.command()
@click.argument("name", metavar="NODE")
@click.option("--at", default="", metavar="TIME", help="An instant: a time, or a duration before now.")
@click.option("--from", "start", default="", metavar="TIME", show_default="1d", help="Start, in the same form.")
@click.option("--to", "end", default="", metavar="TIME", help="End, in the same form.  [default: now]")
@output_option("json", "yaml")
@connection_options
def node(*, name: str, at: str, start: str, end: str, output: str | None, connection: Connection) -> None:
    """Report which workloads had pods on a node, as after a failure of it.

    The ledger knows this of workloads that were placed by topology. NODE may also be a
    rack or another domain, for workloads that were placed by these levels alone.

    \b
    Examples:
      sluice report node n17 --at 3h
      sluice report node n17 --from 2d
    """
    if at and (start or end):
        raise click.UsageError("use either --at, or --from with --to")
    params = [("node", name), ("from", at or start or "1d"), ("to", at or end)]

    async def ask() -> Document:
        from admission.client.transport import PREFIX

        async with connect(connection) as sluice:
            asked = [pair for pair in params if pair[1]]
            return await sluice.request("GET", f"{PREFIX}/reports/node", params=asked)

    document = asyncio.run(ask())
    if output is not None:
        click.echo(serialized(document, output), nl=not output.startswith("jsonpath="))
        return
    if not document["items"]:
        print_line(f"no workload that was placed by topology had pods on {name} in this time", err=True)
        return
    rows = [("NAMESPACE", "KIND", "NAME", "USER", "PODS", "REQUESTS", "FROM", "TO", "END")]
    rows += [
        (
            item["namespace"],
            item["kind"] or "<none>",
            item["name"] or item["uid"],
            item["user"] or "<none>",
            str(item["pods"]),
            ", ".join(f"{amount} {resource}" for resource, amount in item["requests"].items()),
            _second(item["from"]),
            _second(item.get("to", "")),
            item.get("endReason", "still there"),
        )
        for item in document["items"]
    ]
    for line in aligned(rows):
        print_line(line)


def _calendar(month: str, quarter: str, timezone: str) -> tuple[str, str]:
    """Return start and end of a month or quarter. A period that is not over has a note, one in the future is an error.

    Raises BadParameter.
    """
    from zoneinfo import ZoneInfo

    try:
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)  # UTC needs no database of time zones
    except (KeyError, ValueError, OSError) as error:
        raise click.BadParameter(f'--timezone: "{timezone}" is not a time zone such as Europe/Berlin') from error
    now = datetime.now(UTC)
    found = calendar_month(month, zone, now) if month else calendar_quarter(quarter, zone, now)
    if found.start > now:
        raise click.BadParameter(f"{found.name} is in the future")
    first, last = found.parameters
    if found.end > now:
        print_line(f"note: {found.name} is not over: the report is from {first} to now", err=True)
        return first, ""
    return first, last


async def _ask(connection: Connection, namespace: str, params: Sequence[tuple[str, str]], *, mine: bool) -> Document:
    """Request the report. Raises CommandError with a narrower report to try, if that of all namespaces is forbidden."""
    from admission.client import Forbidden
    from admission.client.sluice import usage_path

    async with connect(connection) as sluice:
        try:
            return await sluice.request("GET", usage_path(namespace=namespace, mine=mine), params=params)
        except Forbidden as error:
            if namespace or mine:
                raise
            hint = "you may have access to a single namespace (-n NAMESPACE), and to your own usage (--mine)"
            raise CommandError(f"{error}; {hint}") from error


async def _unknown_names(
    connection: Connection,
    namespace: str,
    params: Sequence[tuple[str, str]],
    only: Mapping[str, tuple[str, ...]],
    *,
    mine: bool,
) -> list[str]:
    """Return a hint for each value of a filter that has no usage in this time even without the filters."""
    hints = []
    times = [(name, value) for name, value in params if name in ("from", "to", "namespace")]
    for name, values in only.items():
        if not values:
            continue
        without = await _ask(connection, namespace, [("by", name), *times], mine=mine)
        known = sorted({str(item[_FIELDS.get(name, name)]) for item in without["items"]})
        for value in values:
            if value not in known:
                near = difflib.get_close_matches(value, known, n=1)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                hints.append(f'{name} "{value}" has no usage in this time{hint}')
    return hints


def _write_csv(document: Document) -> None:
    """Print the report as CSV, in the units that the column `unit` names: core-hours, GiB-hours, hours."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    keys = _keys(document)
    writer.writerow([*keys, "unit", "used", "nominal", "borrowed"])
    for item in document["items"]:
        unit = usage_unit(item["resource"])
        amounts = [round(item[name] / unit.seconds, 6) for name in _AMOUNTS]
        writer.writerow([*_names(keys, item), unit.name, *amounts])


def _keys(document: Document) -> list[str]:
    """Return the fields by which the items are grouped, in the order of the columns."""
    names = {
        "queue": ("namespace", "queue"),
        "clusterqueue": ("clusterQueue",),
        "workload": ("namespace", "kind", "workload"),
    }
    by = (*(["period"] if "period" in document else []), *document["by"], "resource")
    return list(dict.fromkeys(key for name in by for key in names.get(name, (name,))))


def _names(keys: Sequence[str], item: Document) -> list[str]:
    """Return the values of an item's group, by `keys`; the sum of others (`--top`) shows how many they are."""
    missing = [key for key in keys if key not in item]
    return [f"{item['others']} others" if key in missing[:1] else str(item.get(key, "")) for key in keys]


def _table(document: Document, *, width: int | None) -> Iterator[str]:
    """Yield the report as a table. Names are truncated so that lines fit into `width` characters; None: no limit."""
    yield f"Usage from {_second(document['from'])} to {_second(document['to'])}, in hours"
    keys, items = _keys(document), document["items"]
    if not items:
        yield "no usage"
        return
    rows = [
        [
            *(_cell(key, name) for key, name in zip(keys, _names(keys, item), strict=True)),
            *_hours(item["resource"], item),
        ]
        for item in items
    ]
    totals = [
        [
            "TOTAL" if number == 0 else _cell(key, resource) if key == "resource" else ""
            for number, key in enumerate(keys)
        ]
        + _hours(resource, total)
        for resource, total in _totals(items).items()
    ]
    header = [*(key.upper() for key in keys), "USED", "NOMINAL", "BORROWED"]
    lines = [header, *rows, *(totals if len(totals) < len(rows) else [])]
    widths = _widths(lines, len(keys), width)
    for line in lines:
        names = [_truncated(cell, width).ljust(width) for cell, width in zip(line[: len(keys)], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(line[len(keys) :], widths[len(keys) :], strict=True)]
        yield "  ".join([*names, *numbers])


def _second(instant: str) -> str:
    """Return a time without fractions of a second."""
    return re.sub(r"\.\d+", "", instant)


def _totals(items: Sequence[Document]) -> dict[str, dict[str, float]]:
    """Return the sums of all items by resource."""
    totals: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_AMOUNTS, 0.0))
    for item in items:
        for name in _AMOUNTS:
            totals[item["resource"]][name] += item[name]
    return dict(sorted(totals.items()))


def _cell(key: str, value: object) -> str:
    if key == "resource" and is_in_bytes(str(value)):
        return f"{value} (GiB)"
    return "<none>" if value == "" else str(value)


def _hours(resource: str, amounts: Document) -> list[str]:
    """Return the cells USED, NOMINAL and BORROWED in hours of the resource's unit."""
    return [f"{amounts[name] / usage_unit(resource).seconds:,.2f}" for name in _AMOUNTS]


def _widths(lines: Sequence[Sequence[str]], names: int, limit: int | None) -> list[int]:
    """Return the widths of all columns.

    The first `names` columns are narrowed, the widest one first, until a line has at most `limit` characters.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while (
        limit is not None
        and sum(widths) + 2 * (len(widths) - 1) > limit
        and (widest := max(widths[:names])) > _MIN_NAME_WIDTH
    ):
        widths[widths.index(widest)] -= 1
    return widths


def _truncated(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
