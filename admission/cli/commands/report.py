"""`sluice report`: who used how much, as a table or csv for people, or exact for programs."""

from __future__ import annotations

import asyncio
import csv
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.groups import Group
from admission.cli.errors import CommandError
from admission.cli.output.printing import print_line, serialized
from admission.model.usage_units import is_in_bytes, usage_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client.transport import Document

_GROUPINGS: Final = ("queue", "clusterqueue", "user", "namespace", "flavor", "priority", "kind", "workload", "resource")
_AMOUNTS: Final = ("amountSeconds", "nominalSeconds", "borrowedSeconds")
_WIDTH: Final = 80
_LEAST: Final = 8
"""Characters that are left of a name at least, however many there are."""


@click.group(cls=Group)
def report() -> None:
    """Show who used how much.

    \b
    Example:
      sluice report usage --by user --from 7d
    """


@report.command()
@click.option(
    "--by",
    "groupings",
    default="queue",
    show_default=True,
    help=f"What to divide usage by, several separated by commas: {', '.join(_GROUPINGS)}.",
)
@click.option(
    "--top", type=click.IntRange(1, 999_999), help="Only so many, by their use of each resource; others are added up."
)
@click.option("--period", type=click.Choice(["day", "month"]), help="Divide it by time, too; they begin at 0:00 UTC.")
@click.option("--from", "start", default="30d", show_default=True, help="Since when: a time, a date, or how long ago.")
@click.option("--to", "end", default="", help="Until when; by default until now.")
@click.option("-n", "--namespace", default="", help="Only of this namespace; a right to read it is enough.")
@click.option("--mine", is_flag=True, help="Only what you have submitted, in whatever namespace.")
@click.option("--queue", multiple=True, help="Only of LocalQueues of this name; repeatable, as all that follow.")
@click.option("--clusterqueue", multiple=True, help="Only of this ClusterQueue.")
@click.option("--user", multiple=True, help="Only what this user has submitted.")
@click.option("--flavor", multiple=True, help="Only of this ResourceFlavor.")
@click.option("--kind", multiple=True, help="Only of workloads of this kind, such as Job.")
@click.option("--resource", multiple=True, help="Only of this resource.")
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "csv"]), default="table")
@connection_options
def usage(
    *,
    groupings: str,
    top: int | None,
    period: str | None,
    start: str,
    end: str,
    namespace: str,
    mine: bool,
    output: str,
    connection: Connection,
    **only: tuple[str, ...],
) -> None:
    """Show what was held for how long.

    What was held within the nominal quota of its ClusterQueue at that time is
    nominal, the rest is borrowed; who came first held nominal quota. Table and csv
    are in hours of one core, of one GiB, or of one of whatever else there is; json
    and yaml are exact, in seconds of one core, one byte, one of anything. -o wide
    cuts no names. Kinds and workloads are known for as long as finished workloads
    are kept (setting retention): the report begins there.

    \b
    Examples:
      sluice report usage --by user --from 7d
      sluice report usage --mine --period day
      sluice report usage --by workload --top 20 -n team-a
      sluice report usage -n team-a --by user,flavor --period month --from 2025-01-01
      sluice report usage --by queue --flavor h100 --from 2025-06-01 --to 2025-07-01 -o csv
    """
    params = [("by", groupings), ("period", period or ""), ("from", start), ("to", end), ("top", str(top or ""))]
    params += [(name, value) for name, values in only.items() for value in values]
    params += [("namespace", namespace)] if mine else []
    document = asyncio.run(_ask(connection, namespace, [pair for pair in params if pair[1]], mine=mine))
    if output == "csv":
        _write_csv(document)
    elif output in ("json", "yaml"):
        click.echo(serialized(document, output))
    else:
        for line in _table(document, width=_WIDTH if output == "table" else None):
            print_line(line)


async def _ask(connection: Connection, namespace: str, params: Sequence[tuple[str, str]], *, mine: bool) -> Document:
    from admission.client import Forbidden
    from admission.client.sluice import usage_path

    async with connect(connection) as sluice:
        try:
            return await sluice.request("GET", usage_path(namespace=namespace, mine=mine), params=params)
        except Forbidden as error:
            if namespace or mine:
                raise
            hint = "that of one namespace (-n NAMESPACE), or what you have submitted (--mine), may be yours to see"
            raise CommandError(f"{error}; {hint}") from error


def _write_csv(document: Document) -> None:
    """In the units that the column `unit` names: core-hours, GiB-hours, hours."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    keys = _keys(document)
    writer.writerow([*keys, "unit", "used", "nominal", "borrowed"])
    for item in document["items"]:
        unit = usage_unit(item["resource"])
        amounts = [round(item[name] / unit.seconds, 6) for name in _AMOUNTS]
        writer.writerow([*_names(keys, item), unit.name, *amounts])


def _keys(document: Document) -> list[str]:
    """What the items are divided by, in the order in which that was asked for."""
    names = {
        "queue": ("namespace", "queue"),
        "clusterqueue": ("clusterQueue",),
        "workload": ("namespace", "kind", "workload"),
    }
    by = (*(["period"] if "period" in document else []), *document["by"], "resource")
    return list(dict.fromkeys(key for name in by for key in names.get(name, (name,))))


def _names(keys: Sequence[str], item: Document) -> list[str]:
    """Whose usage an item is, by `keys`; of those that are added up how many they are, in the first that they lack."""
    missing = [key for key in keys if key not in item]
    return [f"{item['others']} others" if key in missing[:1] else str(item.get(key, "")) for key in keys]


def _table(document: Document, *, width: int | None) -> Iterator[str]:
    """The report for people; long names are cut to fit into `width` columns, if that is given."""
    yield f"Usage from {_second(document['from'])} to {_second(document['to'])}, in hours"
    keys, items = _keys(document), document["items"]
    if not items:
        yield "nothing was used"
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
        names = [_cut(cell, width).ljust(width) for cell, width in zip(line[: len(keys)], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(line[len(keys) :], widths[len(keys) :], strict=True)]
        yield "  ".join([*names, *numbers])


def _second(instant: str) -> str:
    """An instant without what is shorter than a second."""
    return re.sub(r"\.\d+", "", instant)


def _totals(items: Sequence[Document]) -> dict[str, dict[str, float]]:
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
    return [f"{amounts[name] / usage_unit(resource).seconds:,.2f}" for name in _AMOUNTS]


def _widths(lines: Sequence[Sequence[str]], names: int, most: int | None) -> list[int]:
    """Of all columns; the widest of the first ones, which are names, give way until there are at most `most`."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while most is not None and sum(widths) + 2 * (len(widths) - 1) > most and (widest := max(widths[:names])) > _LEAST:
        widths[widths.index(widest)] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
