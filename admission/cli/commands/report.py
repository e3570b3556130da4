"""`sluice report`: who used how much, as a table for people or exact for programs."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.output.printing import print_line, serialized

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client.transport import Document

_PATH: Final = "/apis/sluice.dev/v1/reports/usage"
_GROUPINGS: Final = ("queue", "clusterqueue", "user", "namespace", "flavor", "priority", "resource")
_AMOUNTS: Final = ("amountSeconds", "nominalSeconds", "borrowedSeconds")
_WIDTH: Final = 80
_LEAST: Final = 8
"""Characters that are left of a name at least, however many there are."""
_GIBI: Final = 2**30


@click.group()
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
@click.option("--from", "start", default="30d", show_default=True, help="Since when: a time, a date, or how long ago.")
@click.option("--to", "end", default="", help="Until when; by default until now.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "csv"]), default="table")
@connection_options
def usage(*, groupings: str, start: str, end: str, output: str, connection: Connection) -> None:
    """Show what was held for how long.

    What was held within the nominal quota of its ClusterQueue at that time is
    nominal, the rest is borrowed; who came first held nominal quota. The table is
    in hours of one core, of one GiB, or of one of whatever else there is; json,
    yaml and csv are exact, in seconds of one core, one byte, one of anything.

    \b
    Examples:
      sluice report usage --by user --from 7d
      sluice report usage --by queue,flavor --from 2025-06-01 --to 2025-07-01 -o csv
    """
    params = {"by": groupings, "from": start, "to": end}
    document = asyncio.run(_ask(connection, {name: value for name, value in params.items() if value}))
    if output == "csv":
        writer = csv.DictWriter(sys.stdout, [*_keys(document), *_AMOUNTS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(document["items"])
    elif output != "table":
        click.echo(serialized(document, output))
    else:
        for line in _table(document):
            print_line(line)


async def _ask(connection: Connection, params: dict[str, str]) -> Document:
    async with connect(connection) as sluice:
        return await sluice.request("GET", _PATH, params=params)


def _keys(document: Document) -> list[str]:
    """What the items are divided by, in the order in which that was asked for."""
    names = {"queue": ("namespace", "queue"), "clusterqueue": ("clusterQueue",)}
    return list(dict.fromkeys(key for name in (*document["by"], "resource") for key in names.get(name, (name,))))


def _table(document: Document) -> Iterator[str]:
    """For a terminal of 80 columns; long names are cut."""
    yield f"Usage from {document['from']} to {document['to']}, in hours"
    keys, items = _keys(document), document["items"]
    if not items:
        yield "nothing was used"
        return
    rows = [[*(_cell(key, item[key]) for key in keys), *_hours(item["resource"], item)] for item in items]
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
    widths = _widths(lines, len(keys))
    for line in lines:
        names = [_cut(cell, width).ljust(width) for cell, width in zip(line[: len(keys)], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(line[len(keys) :], widths[len(keys) :], strict=True)]
        yield "  ".join([*names, *numbers])


def _totals(items: Sequence[Document]) -> dict[str, dict[str, float]]:
    totals: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_AMOUNTS, 0.0))
    for item in items:
        for name in _AMOUNTS:
            totals[item["resource"]][name] += item[name]
    return dict(sorted(totals.items()))


def _cell(key: str, value: object) -> str:
    if key == "resource" and _in_bytes(str(value)):
        return f"{value} (GiB)"
    return "<none>" if value == "" else str(value)


def _hours(resource: str, amounts: Document) -> list[str]:
    unit = 3600 * (_GIBI if _in_bytes(resource) else 1)
    return [f"{amounts[name] / unit:,.2f}" for name in _AMOUNTS]


def _in_bytes(resource: str) -> bool:
    return resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-")


def _widths(lines: Sequence[Sequence[str]], names: int) -> list[int]:
    """Of all columns; the widest of the first ones, which are names, give way until it is narrow enough."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > _WIDTH and (most := max(widths[:names])) > _LEAST:
        widths[widths.index(most)] -= 1
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
