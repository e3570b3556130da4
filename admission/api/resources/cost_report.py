"""The report `reports/cost`: what usage cost by a PriceBook, by month and group."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from admission.api.errors import BadRequest, UnknownObject
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, COST_REPORT
from admission.api.resources.report_times import report_times
from admission.api.resources.usage_reports import FIELDS
from admission.model.queues import PriceBook
from admission.model.resource_words import usage_unit
from admission.store.ledger.quota_history import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.usage_reports import UsageReports
    from admission.model.price_books import Price, PriceBookSpec
    from admission.store.ledger.usage_reports import UsageRow
    from admission.store.store import Store


class CostReports:
    """Handler of the report."""

    def __init__(self, store: Store, reports: UsageReports) -> None:
        self._store = store
        self._reports = reports

    async def get(self, request: web.Request) -> web.Response:
        """Return the report, of a namespace if it is in the path. Raises BadRequest and UnknownObject."""
        book = await self._book(request.query.get("book", ""))
        times = report_times(request, self._store.reports.now())
        by, report, rows = await self._reports.days(request, times, "namespace")
        head: Document = {"kind": COST_REPORT, "apiVersion": API_VERSION, "metadata": {}}
        head |= {"book": "", "currency": "", "provider": ""} if book is None else {
            "book": book.name, "currency": book.spec.currency, "provider": book.spec.provider,
        }  # fmt: skip
        items = [] if book is None else [*statement(rows, book.spec)]
        return reply({**head, "by": by, **times.fields(report.start, report.end), "items": items})

    async def _book(self, name: str) -> PriceBook | None:
        """Return the PriceBook of this name; without one the only one, or the default. None: there is none at all."""
        books = {one.name: one for one in await self._store.queues.list(PriceBook.kind) if isinstance(one, PriceBook)}
        if name:
            if name not in books:
                raise UnknownObject(f'there is no PriceBook "{name}"')
            return books[name]
        if len(books) > 1 and "default" not in books:
            raise BadRequest(f"book: there are several PriceBooks; give one of {', '.join(sorted(books))}")
        return books.get("default") or next(iter(books.values()), None)


class _Line(NamedTuple):
    month: str
    group: tuple[tuple[str, str | int], ...]
    flavor: str
    resource: str
    price: Price | None


def statement(rows: Iterable[UsageRow], book: PriceBookSpec) -> Iterator[Document]:
    """Yield what usage by day, flavor and further columns costs: an item for each month, group, resource and price."""
    hours: defaultdict[_Line, float] = defaultdict(float)
    days: defaultdict[_Line, set[str]] = defaultdict(set)
    for row in rows:
        columns = dict(row.group)
        day, flavor, resource = (str(columns.pop(name)) for name in ("period", "flavor", "resource"))
        price = book.price(flavor, resource, date.fromisoformat(day))
        line = _Line(day[:7], tuple(columns.items()), flavor, resource, price)
        milli = 1000 if resource == "cpu" else 1
        hours[line] += row.amount_seconds / milli / usage_unit(resource).seconds
        days[line].add(day)
    for line in sorted(hours, key=lambda line: (*line[:4], min(days[line]))):
        labels = {name.removeprefix(LABEL): str(value) for name, value in line.group if name.startswith(LABEL)}
        used = round(hours[line], 6)
        yield {
            "month": line.month,
            "from": min(days[line]),
            "to": max(days[line]),
            **{FIELDS.get(name, name): value for name, value in line.group if not name.startswith(LABEL)},
            **({"labels": labels} if labels else {}),
            "flavor": line.flavor,
            "resource": line.resource,
            "unit": usage_unit(line.resource).name,
            "hours": used,
            "perHour": None if line.price is None else line.price.per_hour,
            "priceFrom": None if line.price is None else line.price.from_,
            "cost": None if line.price is None else f"{line.price.amount * Decimal(repr(used)):.6f}",
        }
