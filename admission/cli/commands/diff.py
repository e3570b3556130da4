"""`sluice diff`: the changes that `sluice apply` of the same files would make, as a unified diff."""

from __future__ import annotations

import asyncio
import difflib
import sys
from typing import TYPE_CHECKING

import click
import yaml

from admission.cli.arguments.connection import ApiConnection, connect, connection_options
from admission.cli.arguments.files import FilesCommand, filename_option
from admission.cli.arguments.objects import namespace_option, qualified_name
from admission.cli.arguments.translation import TranslationFlags, translation_options
from admission.cli.commands.import_quotas.manifests import Manifests
from admission.cli.errors import DiffFailed
from admission.cli.output.manifests import comparable, present, written
from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.client.transport import Document


@click.command(cls=FilesCommand)
@filename_option()
@namespace_option
@translation_options
@connection_options
def diff(
    *, paths: tuple[str, ...], namespace: str | None, translation: TranslationFlags, connection: ApiConnection
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


async def _print_differences(connection: ApiConnection, paths: Sequence[str], manifests: Manifests) -> bool:
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


def as_lines(document: Document) -> list[str]:
    """Return an object as lines of YAML with sorted keys."""
    return str(yaml.safe_dump(document, allow_unicode=True)).splitlines(keepends=True)
