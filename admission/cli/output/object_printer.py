"""Printer of `sluice get`: objects as tables or as documents, by `-o`, `--sort-by` and `--no-headers`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from admission.api.registry import WORKLOADS
from admission.cli.errors import CommandError
from admission.cli.output.jsonpath import find
from admission.cli.output.printing import print_documents, print_line
from admission.cli.output.tables import TextTable
from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from fractions import Fraction

    from admission.api.registry import Resource
    from admission.client.transport import Document


_WORKLOAD_COLUMNS = ("Name", "Queue", "State", "Waits for", "Elapsed", "Starts", "Pods", "Age")
"""Columns that fit 120 characters with `-A`."""
_SHORT_CELLS: Final[Mapping[str, Callable[[str], str]]] = {
    "Waits for": lambda reason: "Deactivated" if reason.startswith("Deactivated") else reason,
    "Starts": lambda estimate: estimate.partition(",")[0],
}
"""Their column -> what is shown of its cell: no cause of a deactivation, no bound of an estimate."""
_WIDE_WORKLOAD_COLUMNS = (
    *("Name", "Queue", "Reserved in", "State", "Exit", "Flavor", "Cluster", "Pods", "Requests"),
    *("Priority", "User", "Waited", "Waits for", "Elapsed", "Starts", "Age"),
)
"""Columns of `-o wide`. Those that `kubectl get` shows as Admitted and Finished are left out: State implies them."""

_STATES = ("admitted", "evicting", "pending")
"""States in the order in which workloads are listed; outcomes of finished ones come behind them."""


@dataclass(frozen=True, slots=True)
class ObjectPrinter:
    """Prints objects in the format of the command's flags."""

    output: str | None
    """Value of `-o`; None: a table."""
    headers: bool
    """Whether a table starts with its headers."""
    namespaces: bool
    """Whether a table has a NAMESPACE column."""
    sort_by: str
    """JSONPath of the field to sort by; empty: the server's order."""

    @property
    def documents(self) -> str | None:
        """Format of documents; None: print tables."""
        return None if self.output == "wide" else self.output

    def table(self, resource: Resource, *, among_others: bool = False) -> TextTable:
        """Return the empty table of a type; with `among_others` (several types) names have its short name as prefix."""
        wide = self.output == "wide"
        of_workloads = _WIDE_WORKLOAD_COLUMNS if wide else _WORKLOAD_COLUMNS
        return TextTable(
            namespaces=self.namespaces and resource.namespaced,
            wide=wide,
            columns=of_workloads if resource == WORKLOADS else (),
            short={} if wide or resource != WORKLOADS else _SHORT_CELLS,
            headers=self.headers,
            prefix=f"{resource.short_names[0]}/" if among_others else "",
        )

    def show_documents(self, found: Sequence[tuple[Resource, Document]], *, as_list: bool) -> None:
        """Print (type, object) pairs in the format `documents`, with `as_list` in a Kubernetes List."""
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
    ) -> TextTable:
        """Print the table of one type, and return it so that `--watch` can add rows.

        `after` is the number of rows or tables printed before: if not 0, an empty line comes first. `nothing` is the
        message on standard error if there are no rows.
        """
        table = self.table(kind, among_others=among_others)
        if rows:
            if after:
                click.echo()
            for line in table.lines(columns, self._sorted(kind, columns, rows)):
                print_line(line)
        else:
            print_line(nothing, err=True)
        return table

    def _sorted(self, kind: Resource, columns: Sequence[Document], rows: Sequence[Document]) -> Sequence[Document]:
        """Return the rows by `--sort-by`; workloads without it: those that run first, then those that wait."""
        if self.sort_by:
            return sorted_by(self.sort_by, rows, itemgetter("object"))
        place = next((place for place, column in enumerate(columns) if column["name"] == "State"), None)
        if kind != WORKLOADS or place is None:
            return rows
        last = len(_STATES)
        return sorted(
            rows, key=lambda row: _STATES.index(row["cells"][place]) if row["cells"][place] in _STATES else last
        )


T = TypeVar("T")
_Key: TypeAlias = "tuple[int, Fraction | int | float, list[tuple[int, int, str]]]"


def sorted_by(path: str, items: Iterable[T], document_of: Callable[[T], Document]) -> list[T]:
    """Return the items sorted by the value of `path` in their documents: missing first, then numbers, then text.

    Quantities such as `500m` are numbers. Raises CommandError if no object has the field.
    """
    pairs = [(next(iter(find(path, document_of(item))), None), item) for item in items]
    if pairs and all(value is None for value, _ in pairs):
        raise CommandError(f"--sort-by: none of the objects has a field {path}; -o yaml shows the fields")
    return [item for _, item in sorted(pairs, key=lambda pair: _key(pair[0]))]


def _key(value: Any) -> _Key:
    """Return the sort key of a value: (0 missing, 1 number, 2 text), the number, the parts of the text."""
    if value is None:
        return 0, 0, []
    if isinstance(value, bool | int | float):
        return 1, value, []
    text = str(value)
    try:
        return 1, parse_quantity(text), []
    except InvalidQuantity:
        # Digits compare as numbers, so that job-9 comes before job-10.
        parts = re.findall(r"(\d+)|(\D+)", text, re.ASCII)
        return 2, 0, [(0, int(number), "") if number else (1, 0, word) for number, word in parts]
