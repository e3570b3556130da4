"""Progress of export and import on standard error: one updated line on a terminal, else a line for each table."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from types import TracebackType

_REFRESH_INTERVAL = 0.2
"""Seconds between two updates of the line."""


class ProgressLine:
    """Progress by table: a callback for row counts, and a context manager that prints the total at the end."""

    def __init__(self, verb: str) -> None:
        """`verb` precedes the total: `exported`, `imported`."""
        self._verb = verb
        self._rows: dict[str, int] = {}
        self._shown = 0.0
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, table: str, done: int, total: int) -> None:
        """Note that `done` of the `total` rows of a table are processed, and print it if it is due."""
        self._rows[table] = done
        if self._terminal and (done == total or time.monotonic() >= self._shown + _REFRESH_INTERVAL):
            self._shown = time.monotonic()
            click.echo(f"\r\x1b[K{table}: {done:,} of {total:,}", err=True, nl=False)
        elif not self._terminal and done == total:
            click.echo(f"{table}: {done:,}", err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
        if error is None:
            click.echo(f"{self._verb} {sum(self._rows.values()):,} rows", err=True)
