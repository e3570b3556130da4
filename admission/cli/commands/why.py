"""`sluice why` and `sluice position`: why a Job is not running, and its position in the queue."""

from __future__ import annotations

import asyncio
import textwrap
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload
from admission.cli.output.printing import output_option, print_line, serialized
from admission.cli.output.tables import aligned
from admission.model.resource_words import resource_word
from admission.model.text import visible

if TYPE_CHECKING:
    from admission.client import Sluice, Workload
    from admission.model.answers import MissingQuota

_HEADERS = ("RESOURCE", "FLAVOR", "NEEDED", "FREE", "OF", "OWN-QUEUE-USES", "OTHERS-USE")
_WIDTH = 80
"""Characters of a line of the explanation at most; on a narrower terminal its width."""


@click.command()
@workload_argument
@namespace_option
@click.option("-v", "--verbose", is_flag=True, help="Print the limits, what preemption could do, and all remedies.")
@output_option("json", "yaml", default="text")
@connection_options
def why(*, name: str, namespace: str | None, verbose: bool, output: str | None, connection: ApiConnection) -> None:
    """Explain why a Job is not running, when it probably starts, and what would help.

    WORKLOAD is the name of a Job (train, job/train, rayjob/train) or of its workload.

    \b
    Examples:
      sluice why train -n team-a
      sluice why train --verbose
      sluice why rayjob/train -o json
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            workload = await _workload(sluice, name, namespace)
            if output is not None:
                document = await sluice.workloads.documents.get(workload.name, workload.namespace, "explain")
                click.echo(serialized(document, output))
                return
            explanation = await sluice.workloads.explain(workload.name, namespace=workload.namespace)
            headline, *beside = explanation.sentences
            _print_paragraph(headline)
            if explanation.lacks:
                rows = [_row(lack) for lack in explanation.lacks]
                for line in aligned([_HEADERS, *rows]):
                    print_line(line)
            for paragraph in [*beside, *(explanation.details if verbose else ())]:
                _print_paragraph(paragraph)

    asyncio.run(run())


@click.command()
@workload_argument
@namespace_option
@connection_options
def position(*, name: str, namespace: str | None, connection: ApiConnection) -> None:
    """Show the position of a Job in its queue.

    \b
    Example:
      sluice position train -n team-a
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            workload = await _workload(sluice, name, namespace)
            print_line(await position_message(sluice, workload))

    asyncio.run(run())


def _row(lack: MissingQuota) -> tuple[str, ...]:
    amounts = (lack.asked, lack.free, lack.most, lack.used, lack.used_by_others)
    return (resource_word(lack.resource), lack.flavor, *(amount or "unlimited" for amount in amounts))


def _print_paragraph(paragraph: str) -> None:
    first, *more = paragraph.split("\n  ")  # only Sluice's own lists have lines that are indented
    for line in [first, *(f"  {item}" for item in more)]:
        indent = "  " if line.startswith(" ") else ""
        width = min(_WIDTH, get_terminal_size().columns)
        click.echo(textwrap.fill(visible(line), width, subsequent_indent=indent))


async def _workload(sluice: Sluice, name: str, namespace: str | None) -> Workload:
    kind, plain = parse_workload_name(name)
    return await find_workload(sluice, plain, namespace, kind)


async def position_message(sluice: Sluice, workload: Workload) -> str:
    """Return a sentence about the position of a workload in its queue, or why it has none."""
    return (await sluice.workloads.explain(workload.name, namespace=workload.namespace)).standing
