"""`sluice import`: a file of `sluice export`, or what another queue manager has."""

from __future__ import annotations

import asyncio
import difflib
import gzip
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from admission.cli.arguments.database import DatabaseFlags, database_options
from admission.cli.configuration.local_file import LocalFile
from admission.cli.errors import CommandError
from admission.cli.output.progress import Progress
from admission.store.database.migrations import ensure_ready
from admission.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

_FILE: Final = "file"
# By name: the module that has a function of that name. They are imported when they are called.
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


class _Sources(click.Group):
    """What is not the name of a source is a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*_SOURCES, *self.commands, *ctx.help_option_names):
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
    """Read a file that `sluice export` has written into an empty database.

    With the name of a SOURCE, read the queues of another system (see below) instead.

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
    """Read FILE (-: standard input) into an empty, migrated database.

    All of it is read or nothing. A SQLite database that is not there is made.
    """
    url = database.url()
    with _lines(file) as lines:
        asyncio.run(_restore(url, lines))


async def _restore(url: str, lines: Iterable[bytes]) -> None:
    await ensure_ready(url)
    async with Store.open(url) as store:
        with Progress("imported") as progress:
            await store.restore(lines, progress)


@contextmanager
def _lines(file: Path) -> Iterator[Iterable[bytes]]:
    if str(file) == "-":
        yield _decompressed(cast("BufferedReader", sys.stdin.buffer))
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise CommandError(
            f"{file} cannot be read ({error.strerror or error}); give a file of `sluice export`"
        ) from error
    with opened:
        yield _decompressed(opened)


def _decompressed(file: BufferedReader) -> Iterable[bytes]:
    return gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else file
