"""Representations of objects: whole objects, or tables rendered by the server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from admission.client.errors import BadAnswer

if TYPE_CHECKING:
    from admission.client.transport import Document


class Representation(StrEnum):
    """A representation to request; the value is the header Accept."""

    OBJECTS = "application/json"
    ROWS = "application/json;as=Table;v=v1;g=meta.k8s.io"

    def items(self, page: Document) -> list[Document]:
        """Return the items of a list, each with `metadata`: objects, or rows with `cells` and `object`."""
        if self is Representation.OBJECTS:
            found: list[Document] = page["items"]
            return found
        if page.get("kind") != "Table":
            raise BadAnswer("the server did not answer with a table; request documents, as by -o yaml")
        return [{"metadata": row["object"]["metadata"], **row} for row in page.get("rows") or ()]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of objects, rendered by the server."""

    columns: tuple[Document, ...] = ()
    """Column definitions: name, type, priority (above 0: for wide tables only) ..."""
    rows: tuple[Document, ...] = ()
    """Rows, as returned by `Representation.ROWS.items`."""

    @classmethod
    def of(cls, page: Document) -> Table:
        """Parse a response. Raises BadAnswer."""
        return cls(tuple(page.get("columnDefinitions") or ()), tuple(Representation.ROWS.items(page)))

    def __add__(self, other: Table) -> Table:
        """Return the rows of both tables, such as two pages of a list."""
        return Table(self.columns or other.columns, self.rows + other.rows)
