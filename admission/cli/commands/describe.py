"""`sluice describe`: all about one object, for reading."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.objects import names_argument, namespace_for, namespace_option, resolve, what_argument
from admission.cli.commands.history import story_lines
from admission.cli.commands.top import queue_rows
from admission.cli.output.printing import print_line
from admission.cli.output.tables import aligned
from admission.model.names import LAST_APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from admission.client import Sluice
    from admission.client.transport import Document

_FIRST = 5  # of those that wait
_HIDDEN = ("annotations", "managedFields", "name", "namespace")
_IN_TABLES = ("resourceGroups", "flavorsUsage", "flavorsReservation", "conditions", "podSets")


@click.command()
@what_argument
@names_argument
@namespace_option
@connection_options
def describe(*, what: str, names: tuple[str, ...], namespace: str | None, connection: Connection) -> None:
    """Show all about objects: fields, conditions, use of quota, who waits, what happened.

    \b
    Examples:
      sluice describe cq/team-a
      sluice describe workload train -n team-a
    """
    wanted = resolve(what, names)

    async def run() -> None:
        async with connect(connection) as sluice:
            resource = wanted[0].resource if isinstance(wanted, list) else wanted
            if isinstance(wanted, list):
                targets = [(target.resource, target.name) for target in wanted]
            else:
                found = sluice.documents(resource.plural).list(namespace=namespace_for(resource, namespace, sluice))
                targets = [(resource, item["metadata"]["name"]) async for item in found]
            for number, (kind, name) in enumerate(targets):
                if number:
                    click.echo("\n")
                where = namespace_for(kind, namespace, sluice)
                document = await sluice.documents(kind.plural).get(name, where)
                for line in [*described(document), *await _around(sluice, document)]:
                    print_line(line)

    asyncio.run(run())


def described(document: Document) -> Iterator[str]:
    """The object itself."""
    metadata = document["metadata"]
    yield f"Name:       {metadata['name']}"
    if metadata.get("namespace"):
        yield f"Namespace:  {metadata['namespace']}"
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != LAST_APPLIED}
    shown = {key: value for key, value in metadata.items() if key not in _HIDDEN}
    yield from _section("Metadata", shown | ({"annotations": annotations} if annotations else {}))
    for part in ("spec", "status"):
        content = document.get(part) or {}
        yield from _section(part.capitalize(), {key: value for key, value in content.items() if key not in _IN_TABLES})
    rest: Document = {key: document[key] for key in ("value", "description") if key in document}
    yield from _section("Priority", rest)
    yield from _tables(document)


def _tables(document: Document) -> Iterator[str]:
    if document["kind"] == "ClusterQueue":
        rows = [row[1:] for row in queue_rows([document])]
        yield from _table("Quota", ("FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "USE"), rows)
    pod_sets = [
        (
            item["name"],
            str(item["count"]),
            ", ".join(f"{key} {value}" for key, value in item.get("requests", {}).items()),
        )
        for item in document.get("spec", {}).get("podSets", ())
    ]
    yield from _table("Pod sets", ("NAME", "COUNT", "EACH-REQUESTS"), pod_sets)
    conditions = [
        (item["type"], item["status"], item.get("reason") or "<none>", item.get("message", ""))
        for item in document.get("status", {}).get("conditions", ())
    ]
    yield from _table("Conditions", ("TYPE", "STATUS", "REASON", "MESSAGE"), conditions)


async def _around(sluice: Sluice, document: Document) -> list[str]:
    """What other parts of the API say about it."""
    name, namespace = document["metadata"]["name"], document["metadata"].get("namespace")
    match document["kind"]:
        case "ClusterQueue":
            return await _line(sluice, cluster_queue=name)
        case "LocalQueue":
            return await _line(sluice, local_queue=name, namespace=namespace)
        case "Workload":
            explanation = await sluice.workloads.explain(name, namespace=namespace)
            story = await sluice.workloads.history(name, namespace=namespace)
            why = [f"  {line}" for text in explanation.sentences for line in text.splitlines()]
            return ["Standing:", *why, "History:", *(f"  {line}".rstrip() for line in story_lines(story))]
        case _:
            return []


async def _line(sluice: Sluice, **queue: Any) -> list[str]:
    rows: list[tuple[str, ...]] = []
    async with aclosing(sluice.pending(**queue)) as pending:
        async for one in pending:
            rows.append((str(len(rows) + 1), f"{one.namespace}/{one.name}", str(one.priority), one.reason or "<none>"))
            if len(rows) == _FIRST:
                break
    return list(_table("First in line", ("POSITION", "WORKLOAD", "PRIORITY", "WAITS-FOR"), rows))


def _section(title: str, content: Document) -> Iterator[str]:
    lines = list(_fields(content, "  "))
    if lines:
        yield f"{title}:"
        yield from lines


def _fields(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                yield f"{indent}{key}:"
                yield from _fields(item, f"{indent}  ")
            elif key == "namespaceSelector":
                yield f"{indent}{key}: {'of all namespaces' if item == {} else item}"
            elif item not in ({}, [], ""):
                yield f"{indent}{key}: {item}"
    elif isinstance(value, list):
        for item in value:
            lines = list(_fields(item, f"{indent}  "))
            yield f"{indent}- {lines[0].lstrip()}" if lines else f"{indent}-"
            yield from lines[1:]
    else:
        yield f"{indent}{value}"


def _table(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"{title}:"
        for line in aligned([headers, *rows]):
            yield f"  {line}".rstrip()
