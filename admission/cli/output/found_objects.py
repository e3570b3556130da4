"""What `sluice get` has found, as tables or as documents."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from admission.api.registry import WORKLOADS
from admission.cli.output.printing import print_documents, print_line
from admission.cli.output.sorting import sorted_by
from admission.cli.output.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.api.registry import Resource
    from admission.client.transport import Document


_WORKLOAD_COLUMNS = ("Name", "Queue", "State", "Flavor", "Pods", "Waited", "Age")
_WIDE_WORKLOAD_COLUMNS = (
    *("Name", "Queue", "Reserved in", "State", "Flavor", "Pods", "Requests"),
    *("Priority", "User", "Waited", "Waits for", "Starts", "Age"),
)
"""The state says what kubectl's columns Admitted and Finished say."""


@dataclass(frozen=True, slots=True)
class Form:
    """How to show what was found."""

    output: str | None
    """The value of -o."""
    headers: bool
    namespaces: bool
    """Whether a table has a column of them."""
    sort_by: str
    """A JSONPath; empty: as the server has them."""

    @property
    def documents(self) -> str | None:
        """How to print documents; None: tables are wanted."""
        return None if self.output == "wide" else self.output

    def table(self, resource: Resource, *, among_others: bool = False) -> Table:
        """`among_others`: there are tables of other types, too."""
        wide = self.output == "wide"
        of_workloads = _WIDE_WORKLOAD_COLUMNS if wide else _WORKLOAD_COLUMNS
        return Table(
            namespaces=self.namespaces and resource.namespaced,
            wide=wide,
            columns=of_workloads if resource == WORKLOADS else (),
            headers=self.headers,
            prefix=f"{resource.short_names[0]}/" if among_others else "",
        )

    def show_documents(self, found: Sequence[tuple[Resource, Document]], *, as_list: bool) -> None:
        """Print objects with their types, in a List if it was a list that was asked for."""
        assert self.documents is not None
        pairs = sorted_by(self.sort_by, found, lambda pair: pair[1]) if self.sort_by else found
        if self.documents == "name":
            for kind, item in pairs:
                print_documents([item], "name", singular=kind.singular, as_list=False)
        else:
            print_documents([item for _, item in pairs], self.documents, singular="", as_list=as_list)

    def show_rows(
        self,
        kind: Resource,
        columns: Sequence[Document],
        rows: Sequence[Document],
        *,
        after: int = 0,
        among_others: bool = False,
        nothing: str = "",
    ) -> Table:
        """Print the table of a type, with an empty line before it if it comes `after` others; it may grow.

        `nothing` is said if there are no rows.
        """
        table = self.table(kind, among_others=among_others)
        if rows:
            if after:
                click.echo()
            for line in table.lines(
                columns, sorted_by(self.sort_by, rows, itemgetter("object")) if self.sort_by else rows
            ):
                print_line(line)
        else:
            print_line(nothing, err=True)
        return table
