"""Objects as they are, or as the server prints them: its columns, and a row for each object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from admission.client.errors import BadAnswer

if TYPE_CHECKING:
    from admission.client.transport import Document


class Form(StrEnum):
    """How objects are asked for: as the header Accept says it."""

    OBJECTS = "application/json"
    ROWS = "application/json;as=Table;v=v1;g=meta.k8s.io"

    def items(self, page: Document) -> list[Document]:
        """What is in a list, each with its `metadata`: objects, or rows with `cells` and `object`."""
        if self is Form.OBJECTS:
            found: list[Document] = page["items"]
            return found
        if page.get("kind") != "Table":
            raise BadAnswer("the server prints no tables; ask for documents, as by -o yaml")
        return [{"metadata": row["object"]["metadata"], **row} for row in page.get("rows") or ()]


@dataclass(frozen=True, slots=True)
class Table:
    """What the server prints of some objects."""

    columns: tuple[Document, ...] = ()
    """Name, type, and priority: one above 0 is for wide tables."""
    rows: tuple[Document, ...] = ()
    """As `Form.ROWS.items` gives them."""

    @classmethod
    def of(cls, page: Document) -> Table:
        """From an answer. Raises BadAnswer."""
        return cls(tuple(page.get("columnDefinitions") or ()), tuple(Form.ROWS.items(page)))

    def __add__(self, other: Table) -> Table:
        """Both, under the columns of either."""
        return Table(self.columns or other.columns, self.rows + other.rows)
