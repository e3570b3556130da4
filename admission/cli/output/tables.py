"""Text tables for terminals: the server's Table of a kind, and tables that commands assemble themselves."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from admission.apimachinery.tables import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from admission.client.transport import Document

_NONE = "<none>"
_GAP = "  "


class TextTable:
    """The server's Table of objects of one kind as text. Rows may be added; columns never get narrower."""

    def __init__(
        self,
        *,
        namespaces: bool = False,
        wide: bool = False,
        headers: bool = True,
        prefix: str = "",
        columns: Sequence[str] = (),
        short: Mapping[str, Callable[[str], str]] | None = None,
    ) -> None:
        """Set the layout: `namespaces` adds a NAMESPACE column, `wide` shows all columns, `prefix` precedes each name.

        `columns` are the names of the columns to show, in this order; by default those of the server's priority 0.
        `short`: by name of a column, what is shown of its cells' text.
        """
        self._namespaces = namespaces
        self._wide = wide
        self._headers = headers
        self._prefix = prefix
        self._columns = columns
        self._short = short or {}
        self._widths: list[int] = []

    def lines(self, columns: Sequence[Document], rows: Iterable[Document]) -> list[str]:
        """Return the rows as lines; the first call returns the headers before them, unless they are turned off."""
        shown = self._shown(columns)
        lines = [self._cells(columns, row, shown) for row in rows]
        if self._headers:
            headers = [_header(columns[place]["name"]) for place in shown]
            lines.insert(0, ["NAMESPACE", *headers] if self._namespaces else headers)
            self._headers = False
        self._widths = column_widths(lines, self._widths)
        return aligned(lines, self._widths)

    def _shown(self, columns: Sequence[Document]) -> list[int]:
        if not self._columns:
            return [place for place, column in enumerate(columns) if self._wide or not column.get("priority")]
        places = {column["name"]: place for place, column in enumerate(columns)}
        return [places[name] for name in self._columns if name in places]

    def _cells(self, columns: Sequence[Document], row: Document, shown: Iterable[int]) -> list[str]:
        before = [_text(row["metadata"].get("namespace"))] if self._namespaces else []
        return before + [
            (self._prefix if columns[place].get("format") == "name" else "") + self._text(columns[place], row, place)
            for place in shown
        ]

    def _text(self, column: Document, row: Document, place: int) -> str:
        text = _text(row["cells"][place])
        return self._short[column["name"]](text) if column["name"] in self._short else text


def _header(name: str) -> str:
    """Return the header of a column as one short word: scripts split lines at blanks."""
    return name.removesuffix(" Workloads").upper().replace(" ", "-")


def age(created: str, now: datetime) -> str:
    """Return the age in kubectl's form: `45s`, `5m30s`, `2h`, `3d4h`. `created` is an RFC 3339 time."""
    return duration((now - datetime.fromisoformat(created)).total_seconds())


def _text(value: object) -> str:
    return _NONE if value is None or value == "" else str(value)


def column_widths(rows: Iterable[Sequence[str]], minimum: Iterable[int] = ()) -> list[int]:
    """Return the width of each column in characters, at least that in `minimum`."""
    widths = [[len(cell) for cell in row] for row in rows]
    return [max(column) for column in zip_longest(*widths, minimum, fillvalue=0)]


def aligned(rows: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = column_widths(rows) if widths is None else widths
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
