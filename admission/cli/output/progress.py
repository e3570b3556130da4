"""How far a long command has got, on standard error: one line that changes on a terminal, one a table elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from types import TracebackType

_SECONDS = 0.2
"""Between two changes of the line."""


class Counter:
    """Told how many rows of which table are done; at the end it says how many there were in all."""

    def __init__(self, done: str) -> None:
        """`done` is the word for it: exported, imported."""
        self._word = done
        self._rows: dict[str, int] = {}
        self._shown = 0.0
        self._terminal = sys.stderr.isatty()

    def __call__(self, table: str, done: int, total: int) -> None:
        """So many of the table's rows are done."""
        self._rows[table] = done
        if self._terminal and (done == total or time.monotonic() >= self._shown + _SECONDS):
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
            click.echo(f"{self._word} {sum(self._rows.values()):,} rows", err=True)
