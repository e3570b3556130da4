"""The report `reports/cost`: what usage cost by a PriceBook, by month and group."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.api.auth.identity import IDENTITY
from admission.api.errors import BadRequest
from admission.api.http.responses import reply
from admission.api.registry import COST_REPORT, QUOTE
from admission.api.resources.prices import price_book
from admission.api.resources.report_times import report_times
from admission.api.resources.usage_reports import FIELDS
from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity
from admission.model.queues import ClusterQueue, LocalQueue, Objective
from admission.model.resource_words import usage_unit
from admission.store.ledger.quota_history import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.api.resources.usage_reports import UsageReports
    from admission.model.price_books import Price, PriceBookSpec
    from admission.store.ledger.usage_reports import UsageRow
    from admission.store.store import Store

_SAMPLES: Final = 8
"""Run times from which one is learned, at least."""
_RECENT_SECONDS: Final = 7 * 86400.0
"""Time of which recent waits are told."""


class CostReports:
    """Handler of the report."""

    def __init__(self, store: Store, reports: UsageReports) -> None:
        self._store = store
        self._reports = reports

    async def get(self, request: web.Request) -> web.Response:
        """Return the report, of a namespace if it is in the path. Raises BadRequest and UnknownObject."""
        book = await price_book(self._store, request.query.get("book", ""))
        times = report_times(request.query, self._store.reports.now())
        by, report, rows = await self._reports.days(request, times, "namespace")
        head = {"book": "", "currency": "", "provider": ""} if book is None else {
            "book": book.name, "currency": book.spec.currency, "provider": book.spec.provider,
        }  # fmt: skip
        items = [] if book is None else [*statement(rows, book.spec)]
        return reply(COST_REPORT.document(**head, by=by, **times.fields(report.start, report.end), items=items))

    async def quote(self, request: web.Request) -> web.Response:
        """Return what is known of a workload before it is submitted. Raises BadRequest, UnknownObject and NotFound."""
        namespace, name = request.match_info["namespace"], request.query.get("queue", "")
        if not name:
            raise BadRequest("queue: give the name of a LocalQueue")
        queue = await self._store.queues.get(LocalQueue.kind, name, namespace=namespace)
        assert isinstance(queue, LocalQueue)
        requests, limit = _requests(request.query.getall("request", [])), _seconds(request.query.get("seconds", ""))
        leads_to = queue.spec.cluster_queue
        run, source = limit, "TimeLimit"
        if run is None:
            run = await self._learned(namespace, name, request[IDENTITY].name)
            source = "Unknown" if run is None else "Learned"
        book = await price_book(self._store, request.query.get("book", ""))
        found = await self._store.queues.get(ClusterQueue.kind, leads_to)
        costs = []
        if book is not None and run is not None and isinstance(found, ClusterQueue):
            day = datetime.fromtimestamp(self._store.reports.now(), UTC).date()
            costs = [*_costs(found, requests, run / 3600, book.spec, day)]
        pending = sum(row.count for row in await self._store.workloads.waiting() if row.cluster_queue == leads_to)
        return reply(
            QUOTE.document(
                queue=name,
                clusterQueue=leads_to,
                pending=pending,
                recentWaits=await self._recent_waits(leads_to),
                runSeconds=run,
                runTimeOf=source,
                currency="" if book is None else book.spec.currency,
                costs=costs,
            )
        )

    async def _learned(self, namespace: str, queue: str, user: str) -> float | None:
        """Return the median run time (s) of a user's last workloads in a LocalQueue, else of all; None: too few."""
        for whose in (user, ""):
            times = await self._store.workloads.run_times(namespace, queue, whose)
            if len(times) >= _SAMPLES:
                return times[len(times) // 2]
        return None

    async def _recent_waits(self, cluster_queue: str) -> Document | None:
        now = self._store.reports.now()
        waits: Document = {}
        for percentile in (50, 90):
            asked = {(cluster_queue, 0): Objective(percentile=percentile, wait="1s")}
            outcomes = await self._store.outcomes(asked, (now - _RECENT_SECONDS, now))
            for outcome in outcomes.found.values():
                waits[f"p{percentile}"] = round(outcome.wait, 3)
        return waits or None


def _requests(texts: Iterable[str]) -> dict[str, Decimal]:
    """Return what is requested, in the units of prices: cores, GiB, units. Raises BadRequest."""
    found = {}
    for text in texts:
        resource, _, quantity = text.partition("=")
        try:
            amount = parse_quantity(quantity)
        except InvalidQuantity as error:
            raise BadRequest(f"request: {text} is not RESOURCE=QUANTITY; give one such as cpu=4") from error
        unit = usage_unit(resource).seconds // 3600
        found[resource] = Decimal(amount.numerator) / Decimal(amount.denominator) / unit
    return found


def _seconds(text: str) -> float | None:
    if text and not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= 10**9):
        raise BadRequest(f'seconds: "{text}" is not a number of seconds')
    return float(text) if text else None


def _costs(
    queue: ClusterQueue, requests: Mapping[str, Decimal], hours: float, book: PriceBookSpec, day: date
) -> Iterator[Document]:
    """Yield the cost in each flavor; resources of other groups are in the first flavor of their group."""
    groups = {name: group for group in queue.spec.resource_groups for name in group.covered_resources}
    asked = {name: amount for name, amount in requests.items() if name in groups}
    flavors = dict.fromkeys(flavor.name for name in asked for flavor in groups[name].flavors)
    for flavor in flavors:
        total: Decimal | None = Decimal()
        for name, amount in asked.items():
            names = [one.name for one in groups[name].flavors]
            price = book.price(flavor if flavor in names else names[0], name, day)
            total = None if price is None or total is None else total + price.amount * amount * Decimal(repr(hours))
        yield {"flavor": flavor, "cost": None if total is None else f"{total:.6f}"}


class _CostLine(NamedTuple):
    month: str
    group: tuple[tuple[str, str | int], ...]
    flavor: str
    resource: str
    price: Price | None


def statement(rows: Iterable[UsageRow], book: PriceBookSpec) -> Iterator[Document]:
    """Yield what usage by day, flavor and further columns costs: an item for each month, group, resource and price."""
    hours: defaultdict[_CostLine, float] = defaultdict(float)
    days: defaultdict[_CostLine, set[str]] = defaultdict(set)
    for row in rows:
        columns = dict(row.group)
        day, flavor, resource = (str(columns.pop(name)) for name in ("period", "flavor", "resource"))
        price = book.price(flavor, resource, date.fromisoformat(day))
        line = _CostLine(day[:7], tuple(columns.items()), flavor, resource, price)
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
