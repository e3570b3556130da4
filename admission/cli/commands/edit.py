"""`sluice edit`: edit an object in the user's editor, which opens again with the error until the server accepts it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.objects import name_argument, namespace_for, namespace_option, resolve_one, what_argument
from admission.cli.errors import CommandError
from admission.cli.output.printing import WritingFlags, print_outcome, serialized, writing_options
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents, parse_manifest, to_manifest

if TYPE_CHECKING:
    from admission.api.registry import Resource
    from admission.client import Sluice
    from admission.client.transport import Document

_HEADER = "# Save the file and close the editor to update the object; without a change nothing is written.\n"


@click.command()
@what_argument
@name_argument
@namespace_option
@writing_options
@connection_options
def edit(
    *, what: str, name: str | None, namespace: str | None, writing: WritingFlags, connection: ApiConnection
) -> None:
    """Edit a queue object in your editor ($VISUAL or $EDITOR).

    If the change is rejected, the editor opens again with the error.

    \b
    Example:
      sluice edit cq/team-a --reason "more GPUs for the deadline"
    """
    target = resolve_one(what, name)
    if "update" not in target.resource.verbs:
        raise click.UsageError("workloads cannot be edited; use `sluice hold`, `release`, `move` or `prioritize`")

    async def run() -> None:
        async with connect(connection) as sluice:
            where = namespace_for(target.resource, namespace, sluice)
            found = await sluice.documents(target.resource.plural).get(target.name, where)
            text = serialized(_editable(found), "yaml") + "\n"
            outcome, written = await _until_accepted(sluice, target.resource, found, text, writing)
            print_outcome(target.qualified_name, outcome, writing, written)

    asyncio.run(run())


async def _until_accepted(
    sluice: Sluice, resource: Resource, found: Document, text: str, writing: WritingFlags
) -> tuple[str, Document | None]:
    """Open the editor until the object is accepted, or the text is not changed further.

    Return the outcome and the response. Raises CommandError if the user leaves a rejected text as it is.
    """
    from admission.client import Refused

    last, fault = text, ""
    while True:
        header = _HEADER + "".join(f"# error: {line}\n" for line in fault.splitlines())
        edited = click.edit(header + last, extension=".yaml")
        edited = None if edited is None else _without_header(edited)
        if edited is None or edited == last:
            if fault:
                raise CommandError(f"edit cancelled, nothing was written: {fault}")
            return "unchanged", None
        if edited == text or not edited.strip():
            return "unchanged", None
        last = edited
        try:
            document = _read(edited, found)
            if writing.dry_run == "client":
                return "edited", None
            return "edited", await sluice.documents(resource.plural).replace(document, options=writing.options)
        except (InvalidObject, Refused) as error:
            fault = str(error)


def _read(text: str, found: Document) -> Document:
    """Parse the edited text. Raises InvalidObject if it is invalid, or names another object."""
    documents = parse_documents(text, source="edited text")
    if len(documents) != 1:
        raise InvalidObject([("", "must be exactly one object")], subject="edited text")
    body = documents[0].body
    namespace = found["metadata"].get("namespace", "")
    item = parse_manifest(body, namespace=namespace)
    if item.key != (found["kind"], namespace, found["metadata"]["name"]):
        raise InvalidObject([("", "kind, name and namespace cannot be changed")], subject="edited text")
    return to_manifest(item)


def _editable(found: Document) -> Document:
    """Return the object without status and managedFields. The resourceVersion stays, to detect concurrent changes."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {key: value for key, value in found.items() if key != "status"} | {"metadata": metadata}


def _without_header(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return "".join(lines)
