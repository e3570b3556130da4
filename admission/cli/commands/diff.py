"""`sluice diff`: the changes that `sluice apply` of the same files would make, as a unified diff."""

from __future__ import annotations

import asyncio
import difflib
import sys
from typing import TYPE_CHECKING

import click
import yaml

from admission.cli.arguments.connection import Connection, connect, connection_options
from admission.cli.arguments.files import FilesCommand, filename_option
from admission.cli.arguments.objects import namespace_option, qualified_name
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_quotas.manifests import Manifests
from admission.cli.errors import DiffFailed
from admission.cli.output.manifests import without_current_quota
from admission.model.errors import SluiceError
from admission.model.manifests import to_manifest
from admission.model.names import NOTED_BY_OTHERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.client import Sluice
    from admission.client.transport import Document
    from admission.model.queues import QueueObject

_USER_METADATA = ("name", "namespace", "labels", "annotations")
"""Metadata that users write; the rest is set by the server."""


@click.command(cls=FilesCommand)
@filename_option()
@namespace_option
@translation_options
@connection_options
def diff(
    *, paths: tuple[str, ...], namespace: str | None, translation: TranslationFlags, connection: Connection
) -> None:
    """Show the changes that `sluice apply` of the same files would make.

    The exit code is 0 if there are no differences, 1 if there are some, and 2 on errors.

    \b
    Example:
      sluice diff -f queues.yaml
    """
    try:
        differs = asyncio.run(_print_differences(connection, paths, Manifests(namespace, translation)))
    except SluiceError as error:
        raise DiffFailed(str(error)) from error
    sys.exit(1 if differs else 0)


async def _print_differences(connection: Connection, paths: Sequence[str], manifests: Manifests) -> bool:
    """Print the differences; return whether there are any."""
    differs = False
    async with connect(connection) as sluice:
        for item in manifests.read(paths, namespace=manifests.namespace or sluice.namespace):
            if await manifests.existing_flavor(sluice, item) is not None:
                continue
            what = qualified_name(item.kind.lower(), item.name)
            found = await present(sluice, item)
            before = [] if found is None else as_lines(comparable(found))
            after = as_lines(comparable(written(item, found)))
            lines = list(difflib.unified_diff(before, after, f"live/{what}", f"files/{what}"))
            differs = differs or bool(lines)
            click.echo("".join(lines), nl=False)
    return differs


async def present(sluice: Sluice, item: QueueObject) -> Document | None:
    """Return the server's object of that name; None if there is none."""
    from admission.client import NotFound

    try:
        return await sluice.documents(item.plural).get(item.name, item.metadata.namespace or None)
    except NotFound:
        return None


def written(item: QueueObject, found: Document | None) -> Document:
    """Return what `sluice apply` writes in place of `found`: grants of a Budget stay if the manifest has none."""
    manifest = to_manifest(item)
    if item.kind == "Budget" and found is not None and (grants := found["spec"].get("grants")):
        manifest["spec"].setdefault("grants", grants)
    return manifest


def comparable(document: Document) -> Document:
    """Return the parts of an object that users write.

    Annotations in which kubectl keeps its own data are left out: `sluice apply` does not change them.
    """
    metadata = {key: document["metadata"][key] for key in _USER_METADATA if document["metadata"].get(key)}
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in NOTED_BY_OTHERS}
    metadata |= {"annotations": annotations} if annotations else {}
    written_by_users = {key: value for key, value in document.items() if key != "status"}
    return without_current_quota(written_by_users) | {"metadata": metadata}


def as_lines(document: Document) -> list[str]:
    """Return an object as lines of YAML with sorted keys."""
    return str(yaml.safe_dump(document, allow_unicode=True)).splitlines(keepends=True)
