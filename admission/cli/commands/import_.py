"""`sluice import`: restore an exported database, or import the queues of another system."""

from __future__ import annotations

import asyncio
import difflib
import gzip
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.arguments.files import standard_input
from admission.cli.configuration.local_file import LocalFile
from admission.cli.errors import CommandError
from admission.cli.output.progress import ProgressLine
from admission.store.database.migrations import ensure_ready
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

_FILE: Final = "file"
"""Name of the hidden subcommand that restores a file."""
_QUOTAS: Final = "admission.cli.commands.import_quotas.command"
_SOURCES: Final = {
    "kueue": "admission.cli.commands.import_kueue.command",
    "volcano": _QUOTAS,
    "yunikorn": _QUOTAS,
    "koordinator": _QUOTAS,
    "scheduler-plugins": _QUOTAS,
    "kai": _QUOTAS,
    "mcad": _QUOTAS,
}
"""Subcommand -> module with a function of that name, which is imported when it is called."""
_WITHOUT_IMPORT: Final = {"slurm": "Slurm", "pbs": "PBS", "lsf": "LSF"}
"""Systems from which users come, and whose queues are no objects that could be imported."""


class _Sources(click.Group):
    """Click group in which an argument that is not the name of a source is a file to restore."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*_SOURCES, *self.commands, *ctx.help_option_names):
            system = _WITHOUT_IMPORT.get(args[0].lower())
            if system and not Path(args[0]).exists():
                page = "docs/migrating-from-schedulers.md"
                raise click.UsageError(f"there is no import from {system}; {page} says how to set up its queues", ctx)
            near = difflib.get_close_matches(args[0].lower(), _SOURCES, n=1)
            if near and not Path(args[0]).exists():
                raise click.UsageError(f'"{args[0]}" is neither a file nor a source; did you mean "{near[0]}"?', ctx)
            args = [_FILE, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_SOURCES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _SOURCES:
            return cast("click.Command", getattr(import_module(_SOURCES[cmd_name]), cmd_name.replace("-", "_")))
        return super().get_command(ctx, cmd_name)


@click.group(name="import", cls=_Sources, subcommand_metavar="FILE | SOURCE [ARGS]...")
def import_() -> None:
    """Import an exported database, or the queues of another system.

    FILE was written by sluice export, and is restored into an empty database. SOURCE is
    one of the commands below: the system whose queues are imported.

    \b
    Examples:
      sluice migrate --database-url postgresql://sluice@db/sluice
      sluice import backup.jsonl.gz --database-url postgresql://sluice@db/sluice
      sluice import kueue --help
    """


@import_.command(_FILE, hidden=True)
@click.argument("file", type=LocalFile())
@database_options
def file(*, file: Path, database: DatabaseFlags) -> None:
    """Restore FILE (-: standard input) into an empty database with the current schema.

    The import is atomic. A SQLite database that does not exist is created.

    \b
    Example:
      sluice import backup.jsonl.gz --database-url sqlite:///new.db
    """
    url = database.url()
    with _lines(file) as lines:
        asyncio.run(_restore(url, lines))


async def _restore(url: str, lines: Iterable[bytes]) -> None:
    await ensure_ready(url)
    async with Store.open(url) as store:
        with ProgressLine("imported") as progress:
            await store.restore(lines, progress)


@contextmanager
def _lines(file: Path) -> Iterator[Iterable[bytes]]:
    """Context manager: the lines of a file, decompressed. Raises CommandError if it cannot be opened."""
    if str(file) == "-":
        yield _decompressed(cast("BufferedReader", standard_input().buffer))
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise CommandError(
            f"{file} cannot be read ({error.strerror or error}); specify a file written by `sluice export`"
        ) from error
    with opened:
        yield _decompressed(opened)


def _decompressed(file: BufferedReader) -> Iterable[bytes]:
    """Return the lines of a file, which may be compressed by gzip: then it starts with 1f 8b."""
    return gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else file
