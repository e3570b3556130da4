"""`sluice history` and `sluice rollback`: revisions of queue objects, and the history of workloads."""

from __future__ import annotations

import asyncio
import json
import textwrap
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from admission.apimachinery.patches import differences
from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import (
    complete_type,
    name_argument,
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
    from admission.cli.arguments.objects import ObjectTarget
    from admission.client import Sluice
    from admission.client.documents import Documents
    from admission.client.transport import Document
    from admission.model.answers import Version, WorkloadHistory

_NOT_COMPARED = ("apiVersion", "kind", "metadata", "status")
"""Parts of an object that the changes of a rollback leave out; labels are compared all the same."""
_MAX_VALUE = 60
"""Characters of a value in a list of changes; longer ones are truncated."""


@click.command()
@click.argument("what", metavar="TYPE/NAME|WORKLOAD", shell_complete=complete_type)
@name_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    show_default=True,
    help="Number of revisions to show.",
)
@namespace_option
@output_option("json", "yaml", default="text")
@connection_options
def history(
    *, what: str, name: str | None, limit: int, namespace: str | None, output: str | None, connection: ApiConnection
) -> None:
    """Show the revisions of a queue object, or the history of a Job.

    For a queue object these are its revisions, newest first, with their authors and
    changes. For a Job they are its states, and the quota that it held with start and
    end.

    \b
    Examples:
      sluice history cq/team-a
      sluice history train -n team-a
    """

    async def run() -> None:
        async with connect(connection) as sluice:
            target = _queue_object(what, name)
            if target is None:
                await _show_workload_history(sluice, name or what, namespace, output)
            else:
                await _show_revisions(sluice, target, namespace, limit, output)

    asyncio.run(run())


@click.command()
@what_argument
@name_argument
@click.option(
    "--to-revision",
    "revision",
    metavar="N",
    help="Revision to roll back to; see sluice history.  [default: the previous one]",
)
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
    connection: ApiConnection,
) -> None:
    """Roll back a queue object to an earlier revision.

    A deleted object is created again.

    \b
    Examples:
      sluice rollback cq/team-a
      sluice rollback cq/team-a --to-revision 17 --dry-run
    """
    target = resolve_one(what, name)
    if not target.resource.is_of_queue_objects:
        raise click.UsageError("only queue objects have revisions to roll back to")
    if revision is not None and not (revision.isascii() and revision.isdecimal()):
        raise BadFlag(f'--to-revision: "{revision}" is not a revision; `sluice history {what}` lists them')

    async def run() -> None:
        async with connect(connection) as sluice:
            where = namespace_for(target.resource, namespace, sluice)
            to = revision or await _previous_revision(sluice, target, where)
            if writing.dry_run == "client":
                print_outcome(target.qualified_name, f"rolled back to revision {to}", writing)
                return
            documents = sluice.documents(target.resource.plural)
            before = await _present(documents, target.name, where)
            document = await documents.rollback(target.name, to, where, options=writing.options)
            details = ["it had been deleted"] if before is None else _change_lines(before, document)
            print_outcome(target.qualified_name, f"rolled back to revision {to}", writing, document, details=details)

    asyncio.run(run())


def _queue_object(what: str, name: str | None) -> ObjectTarget | None:
    """Return the queue object that is named; None if it is a workload."""
    kind, slash, _ = what.partition("/")
    if not slash and name is None:
        return None  # the name of a Job alone: train
    if slash and not _is_type(kind):
        return None  # job/train
    target = resolve_one(what, name)
    return target if target.resource.is_of_queue_objects else None


def _is_type(kind: str) -> bool:
    """Return whether this is the name of a resource type, such as `cq`, and not a kind, such as `job`."""
    try:
        resource_named(kind)
    except click.UsageError:
        return False
    return True


async def _present(documents: Documents, name: str, namespace: str | None) -> Document | None:
    """Return the current object; None if it is deleted."""
    from admission.client import NotFound

    try:
        return await documents.get(name, namespace)
    except NotFound:
        return None


def _change_lines(before: Document, after: Document) -> list[str]:
    """Return a line for each change of a rollback: `spec.stopPolicy: Hold -> None`."""
    changes = differences(_comparable(before), _comparable(after))
    lines = [f"{one['path']}: {_value(one.get('before'))} -> {_value(one.get('after'))}" for one in changes]
    return lines or ["no changes: it is already as in that revision"]


def _comparable(document: Document) -> Document:
    """Return the parts of an object that users write: spec, other top-level fields, and labels."""
    labels = {"labels": document["metadata"].get("labels", {})}
    return {"metadata": labels} | {name: value for name, value in document.items() if name not in _NOT_COMPARED}


async def _previous_revision(sluice: Sluice, target: ObjectTarget, namespace: str | None) -> str:
    """Return the revision before the current one. Raises CommandError if there is none."""
    revisions = await _revisions(sluice, target, namespace, 2)
    if len(revisions) < 2:
        raise CommandError(f"{target.qualified_name} has no earlier revision")
    return revisions[1].revision


async def _revisions(sluice: Sluice, target: ObjectTarget, namespace: str | None, limit: int) -> list[Version]:
    """Return the newest revisions of an object, newest first."""
    assert target.resource.model is not None
    found: list[Version] = []
    async with aclosing(sluice.collection(target.resource.model).history(target.name, namespace=namespace)) as history:
        async for revision in history:
            found.append(revision)
            if len(found) == limit:
                break
    return found


async def _show_revisions(
    sluice: Sluice, target: ObjectTarget, namespace: str | None, limit: int, output: str | None
) -> None:
    """Print the newest revisions, or with `output` the API's document. Raises CommandError if there are none."""
    where = namespace_for(target.resource, namespace, sluice)
    if output is not None:
        documents = sluice.documents(target.resource.plural)
        click.echo(serialized(await documents.get(target.name, where, "history", limit=str(limit)), output))
        return
    now = datetime.now(UTC)
    found = await _revisions(sluice, target, where, limit)
    if not found:
        raise CommandError(f"{target.qualified_name} has no history")
    for revision in found:
        why = f": {revision.reason}" if revision.reason else ""
        by = f" by {revision.user}" if revision.user else ""
        print_line(f"revision {revision.revision}  {revision.operation}{by}, {_when(revision.at, now)}{why}")
        for change in revision.diff:
            print_line(f"    {change.path}: {_value(change.before)} -> {_value(change.after)}")


async def _show_workload_history(sluice: Sluice, text: str, namespace: str | None, output: str | None) -> None:
    """Print the history of a workload, or with `output` the API's document."""
    kind, name = parse_workload_name(text)
    workload = await find_workload(sluice, name, namespace, kind)
    if output is not None:
        document = await sluice.workloads.documents.get(workload.name, workload.namespace, "history")
        click.echo(serialized(document, output))
        return
    for line in workload_history_lines(await sluice.workloads.history(workload.name, namespace=workload.namespace)):
        print_line(line)


def workload_history_lines(history: WorkloadHistory) -> list[str]:
    """Return the state transitions of a workload as lines, followed by a table of the quota that it held."""
    lines = []
    folds = {fold.first: fold for fold in history.folds}
    hidden = {index for fold in history.folds for index in range(fold.first, fold.last + 1)}
    for index, transition in enumerate(history.items):
        if (fold := folds.get(index)) is not None:
            until = history.items[fold.last].at
            others = "another workload" if fold.preemptors == 1 else f"{fold.preemptors} different workloads"
            whom = f", preempted for {others}" if fold.preemptors else ""
            lines.append(
                f"{transition.at:%Y-%m-%d %H:%M:%S}  ...        admitted and evicted {fold.rounds} times{whom}, until "
                f"{until:%Y-%m-%d %H:%M:%S} (all events: -o yaml)"
            )
        if index in hidden:
            continue
        why = f"{transition.reason}: {transition.message}" if transition.message else transition.reason
        lines.append(f"{transition.at:%Y-%m-%d %H:%M:%S}  {transition.state:<9}  {why}".rstrip())
    # A pod set holds nothing of a resource that it does not request.
    held = [admission for admission in history.admissions if admission.amount != "0"]
    if held:
        rows = [("HELD", "FLAVOR", "FROM", "TO", "ENDED-BY")]
        rows += [
            (
                f"{admission.amount} {admission.resource}",
                admission.flavor,
                f"{admission.start:%Y-%m-%d %H:%M:%S}",
                f"{admission.end:%Y-%m-%d %H:%M:%S}" if admission.end else "now",
                admission.end_reason or "<none>",
            )
            for admission in held
        ]
        lines += ["", *aligned(rows)]
    return lines


def _when(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} ({age(at.isoformat(), now)} ago)"


def _value(value: Any) -> str:
    if value is None:
        return "<none>"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return textwrap.shorten(text, _MAX_VALUE, placeholder=" ...")
