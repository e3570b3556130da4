"""Manifests from files, directories and standard input, which may be closed (`<&-`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from admission.cli.configuration.local_file import EMPTY_NAME, url_fault
from admission.cli.errors import Unreadable
from admission.model.errors import InvalidObject
from admission.model.reading import parse_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TextIO

    from admission.model.reading import Document

_SUFFIXES = (".yaml", ".yml", ".json")
"""Files of a directory with other suffixes are ignored."""


def filename_option(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `-f`; the command receives its values as `paths`."""
    text = "File or directory with manifests, or - for standard input; repeatable."
    return click.option("-f", "--filename", "paths", metavar="FILE", multiple=True, required=required, help=text)


class FilesCommand(click.Command):
    """Click command with the option `-f` and no arguments: the error for an argument says where the file belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError, for an argument without `-f` with the corrected command."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _, files, _ = self.make_parser(ctx).parse_args(given)
            if not files:
                raise
            text = (
                f'unexpected argument "{files[0]}"; use {ctx.command_path} {" ".join(f"-f {each}" for each in files)}'
            )
            raise click.UsageError(text, ctx) from error


def read_documents(paths: Iterable[str]) -> list[Document]:
    """Return all documents of the files, not validated. Raises Unreadable if there is none."""
    documents = list(_documents(paths))
    if not documents:
        raise Unreadable(f"no objects found in {', '.join(paths)}")
    return documents


def _documents(paths: Iterable[str]) -> Iterator[Document]:
    for path in paths:
        for source, text in _texts(path):
            try:
                yield from parse_documents(text, source=source)
            except InvalidObject as error:
                raise Unreadable(str(error)) from error


def _texts(path: str) -> Iterator[tuple[str, str]]:
    """Yield (source, text) of a file, of all files in a directory, or of standard input. Raises Unreadable."""
    try:
        if path == "-":
            yield "standard input", standard_input().read()
            return
        if not path:
            raise Unreadable(EMPTY_NAME)
        if fault := url_fault(path, "-f -"):
            raise Unreadable(fault)
        for file in _files(Path(path)):
            yield str(file), file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error


def _files(path: Path) -> list[Path]:
    """Return the file, or the manifest files in the directory, by name. Raises Unreadable."""
    if not path.exists():
        raise Unreadable(f"the file or directory {path} does not exist; check -f")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise Unreadable(f"the directory {path} contains no {', '.join(_SUFFIXES)} file")
    return files


def standard_input() -> TextIO:
    """Return standard input. Raises Unreadable if it is closed: Python then has no object for it."""
    if sys.stdin is None:
        raise Unreadable("standard input is closed; name a file instead of -, or redirect the input")
    return sys.stdin


def can_answer() -> bool:
    """Return whether a question can be answered: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
