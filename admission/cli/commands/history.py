"""`sluice history` and `sluice rollback`: what has become of an object, by whom, and back again."""

from __future__ import annotations

import asyncio
import json
import textwrap
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from admission.apimachinery.differences import differences
from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.objects import (
    complete_name,
    complete_type,
    namespace_for,
    namespace_option,
    parse_workload_name,
    resolve_one,
    resource_named,
    what_argument,
)
from admission.cli.arguments.workload_names import find_workload
from admission.cli.errors import BadFlag, CommandError
from admission.cli.output.printing import (
    WritingFlags,
    output_option,
    print_line,
    print_outcome,
    serialized,
    writing_options,
)
from admission.cli.output.tables import age, aligned

if TYPE_CHECKING:
    from admission.cli.arguments.objects import Target
    from admission.client import Revision, Sluice, Story
    from admission.client.documents import Documents
    from admission.client.transport import Document

_NOT_WRITTEN = ("apiVersion", "kind", "metadata", "status")
_LONGEST = 60  # characters of a value in a difference


@click.command()
@click.argument("what", metavar="TYPE/NAME|WORKLOAD", shell_complete=complete_type)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_name)
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many versions.")
@namespace_option
@output_option("json", "yaml")
@connection_options
def history(
    *, what: str, name: str | None, limit: int, namespace: str | None, output: str | None, connection: Connection
) -> None:
    """Show what has become of a queue object or a Job.

    Of a queue object: its versions, newest first, who made them and what they changed.
    Of a Job: its story, and what quota it held from when to when.

    \b
    Examples:
      sluice history cq/team-a
      sluice history train -n team-a
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            target = _queue_object(what, name)
            if target is None:
                await _show_story(sluice, name or what, namespace, output)
            else:
                await _show_versions(sluice, target, namespace, limit, output)

    asyncio.run(run())


@click.command()
@what_argument
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_name)
@click.option("--to-revision", "revision", help="One of `sluice history`; without it, the version before the newest.")
@namespace_option
@writing_options
@connection_options
def rollback(
    *,
    what: str,
    name: str | None,
    revision: str | None,
    namespace: str | None,
    writing: WritingFlags,
    connection: Connection,
) -> None:
    """Make a queue object what it was; a deleted one comes back.

    \b
    Examples:
      sluice rollback cq/team-a
      sluice rollback cq/team-a --to-revision 17 --dry-run
    """
    target = resolve_one(what, name)
    if target.resource.model is None:
        raise click.UsageError("only queue objects have versions to go back to")
    if revision is not None and not (revision.isascii() and revision.isdecimal()):
        raise BadFlag(f'--to-revision: "{revision}" is no revision; `sluice history {what}` shows those there are')

    async def run() -> None:
        async with connect(connection) as sluice:
            where = namespace_for(target.resource, namespace, sluice)
            to = revision or await _one_before(sluice, target, where)
            if writing.dry_run == "client":
                print_outcome(target.qualified_name, f"rolled back to revision {to}", writing)
                return
            documents = sluice.documents(target.resource.plural)
            before = await _present(documents, target.name, where)
            document = await documents.rollback(target.name, to, where, options=writing.options)
            details = ["it was deleted before"] if before is None else _changed(before, document)
            print_outcome(target.qualified_name, f"rolled back to revision {to}", writing, document, details=details)

    asyncio.run(run())


def _queue_object(what: str, name: str | None) -> Target | None:
    """The queue object that is meant; None for a workload."""
    kind, slash, _ = what.partition("/")
    if not slash and name is None:
        return None
    if slash and not _is_type(kind):
        return None  # job/train
    target = resolve_one(what, name)
    return None if target.resource.model is None else target


def _is_type(kind: str) -> bool:
    try:
        resource_named(kind)
    except click.UsageError:
        return False
    return True


async def _present(documents: Documents, name: str, namespace: str | None) -> Document | None:
    """The object as it is now; None if it is deleted."""
    from admission.client import NotFound

    try:
        return await documents.get(name, namespace)
    except NotFound:
        return None


def _changed(before: Document, after: Document) -> list[str]:
    """What a rollback has changed, or would change."""
    changes = differences(_written(before), _written(after))
    lines = [f"{one['path']}: {_value(one.get('before'))} -> {_value(one.get('after'))}" for one in changes]
    return lines or ["nothing has changed: it is so already"]


def _written(document: Document) -> Document:
    """What users write."""
    labels = {"labels": document["metadata"].get("labels", {})}
    return {"metadata": labels} | {name: value for name, value in document.items() if name not in _NOT_WRITTEN}


async def _one_before(sluice: Sluice, target: Target, namespace: str | None) -> str:
    versions = await _versions(sluice, target, namespace, 2)
    if len(versions) < 2:
        raise CommandError(f"{target.qualified_name} has no version before its newest")
    return versions[1].revision


async def _versions(sluice: Sluice, target: Target, namespace: str | None, limit: int) -> list[Revision]:
    assert target.resource.model is not None
    found: list[Revision] = []
    async with aclosing(sluice.collection(target.resource.model).history(target.name, namespace=namespace)) as versions:
        async for version in versions:
            found.append(version)
            if len(found) == limit:
                break
    return found


async def _show_versions(sluice: Sluice, target: Target, namespace: str | None, limit: int, output: str | None) -> None:
    where = namespace_for(target.resource, namespace, sluice)
    if output is not None:
        documents = sluice.documents(target.resource.plural)
        click.echo(serialized(await documents.get(target.name, where, "history", limit=str(limit)), output))
        return
    now = datetime.now(UTC)
    found = await _versions(sluice, target, where, limit)
    if not found:
        raise CommandError(f"{target.qualified_name} has no history")
    for version in found:
        why = f": {version.reason}" if version.reason else ""
        by = f" by {version.user}" if version.user else ""
        print_line(f"revision {version.revision}  {version.operation}{by}, {_when(version.at, now)}{why}")
        for change in version.changes:
            print_line(f"    {change.path}: {_value(change.before)} -> {_value(change.after)}")


async def _show_story(sluice: Sluice, text: str, namespace: str | None, output: str | None) -> None:
    kind, name = parse_workload_name(text)
    workload = await find_workload(sluice, name, namespace, kind)
    if output is not None:
        document = await sluice.workloads.documents.get(workload.name, workload.namespace, "history")
        click.echo(serialized(document, output))
        return
    for line in story_lines(await sluice.workloads.history(workload.name, namespace=workload.namespace)):
        print_line(line)


def story_lines(story: Story) -> list[str]:
    """What happened, and what was held."""
    lines = []
    for moment in story.transitions:
        why = f"{moment.reason}: {moment.message}" if moment.message else moment.reason
        lines.append(f"{moment.at:%Y-%m-%d %H:%M:%S}  {moment.state:<9}  {why}".rstrip())
    if story.admissions:
        rows = [("HELD", "FLAVOR", "FROM", "TO", "ENDED-BY")]
        rows += [
            (
                f"{held.amount} {held.resource}",
                held.flavor,
                f"{held.start:%Y-%m-%d %H:%M:%S}",
                f"{held.end:%Y-%m-%d %H:%M:%S}" if held.end else "now",
                held.end_reason or "<none>",
            )
            for held in story.admissions
        ]
        lines += ["", *aligned(rows)]
    return lines


def _when(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} ({age(at.isoformat(), now)} ago)"


def _value(value: Any) -> str:
    if value is None:
        return "<none>"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return textwrap.shorten(text, _LONGEST, placeholder=" ...")
