"""`sluice why` and `sluice position`: what keeps a Job from running, and how far it has come."""

from __future__ import annotations

import asyncio
import textwrap
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.objects import namespace_option, parse_workload_name, workload_argument
from admission.cli.arguments.workload_names import find_workload
from admission.cli.output.printing import output_option, print_line, serialized
from admission.model.text import visible

if TYPE_CHECKING:
    from admission.client import Sluice, Workload

_WIDTH = 80


@click.command()
@workload_argument
@namespace_option
@output_option("json", "yaml")
@connection_options
def why(*, name: str, namespace: str | None, output: str | None, connection: Connection) -> None:
    """Say why a Job does not run, and what would help.

    It may be named as a Job (train, job/train, rayjob/train) or as a workload.

    \b
    Examples:
      sluice why train -n team-a
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
            for paragraph in explanation.sentences:
                first, *more = paragraph.split("\n  ")  # only Sluice's own lists have lines that are indented
                for line in [first, *(f"  {item}" for item in more)]:
                    indent = "  " if line.startswith(" ") else ""
                    width = min(_WIDTH, get_terminal_size().columns)
                    click.echo(textwrap.fill(visible(line), width, subsequent_indent=indent))

    asyncio.run(run())


@click.command()
@workload_argument
@namespace_option
@connection_options
def position(*, name: str, namespace: str | None, connection: Connection) -> None:
    """Say where in the line a Job stands.

    \b
    Example:
      sluice position train -n team-a
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            workload = await _workload(sluice, name, namespace)
            print_line(await standing(sluice, workload))

    asyncio.run(run())


async def _workload(sluice: Sluice, name: str, namespace: str | None) -> Workload:
    kind, plain = parse_workload_name(name)
    return await find_workload(sluice, plain, namespace, kind)


async def standing(sluice: Sluice, workload: Workload) -> str:
    """Where in the line the workload stands, or why in none, in one sentence."""
    return (await sluice.workloads.explain(workload.name, namespace=workload.namespace)).standing
