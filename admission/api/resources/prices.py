"""Prices in reports: the PriceBook that they count with, and what idle hours cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from admission.api.errors import BadRequest, UnknownObject
from admission.model.queues import PriceBook

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import tzinfo

    from admission.model.price_books import PriceBookSpec
    from admission.store.ledger.measured_usage import Key
    from admission.store.store import Store

_HOUR = 3600.0


async def price_books(store: Store, name: str) -> list[PriceBook]:
    """Return the PriceBook of this name; without one the only one, or the default; else all, of which one is needed.

    Raises UnknownObject.
    """
    books = {one.name: one for one in await store.queues.list(PriceBook.kind) if isinstance(one, PriceBook)}
    if name and name not in books:
        raise UnknownObject(f'there is no PriceBook "{name}"')
    chosen = books.get(name or "default")
    return list(books.values()) if chosen is None else [chosen]


async def price_book(store: Store, name: str) -> PriceBook | None:
    """Return the one of `price_books`; None: there is none at all. Raises UnknownObject, and BadRequest for several."""
    books = await price_books(store, name)
    if len(books) > 1:
        raise BadRequest(f"book: there are several PriceBooks; give one of {', '.join(one.name for one in books)}")
    return books[0] if books else None


@dataclass(slots=True)
class MeasuredSum:
    """What was measured of a group."""

    measured: float = 0.0
    """Amount times seconds, in the ledger's unit, of which it is known how much was used."""
    used: float = 0.0
    idle_cost: float | None = None
    """What the rest of it cost; None: nothing of it has a price."""
    unpriced: set[tuple[str, str]] = field(default_factory=set)
    """Flavor and resource of what was idle and has no price."""


async def measured_sums(
    store: Store,
    columns: Sequence[str],
    where: Mapping[str, Collection[str]],
    book: PriceBookSpec | None,
    times: tuple[float, float, tzinfo],
) -> dict[Key, MeasuredSum]:
    """Return what was measured between two Unix times (s), by the values of `columns`, and what idle hours cost.

    `times`: with the zone of the days from which prices hold.
    """
    by = [*dict.fromkeys((*columns, "flavor", "resource"))]
    found: dict[Key, MeasuredSum] = {}
    for start, end in pairwise(_steps(book, *times)):
        day = datetime.fromtimestamp(start, times[2]).date()
        for key, (measured, used) in (await store.measured_usage.sums(by, start=start, end=end, where=where)).items():
            one = found.setdefault(key[: len(columns)], MeasuredSum())
            one.measured += measured
            one.used += used
            flavor, resource = key[by.index("flavor")], key[by.index("resource")]
            if book is None or measured <= used:
                continue
            if book.price(flavor, resource, day) is None:
                one.unpriced.add((flavor, resource))
            else:
                price = float(book.per_amount(flavor, resource, day)) / _HOUR
                one.idle_cost = (one.idle_cost or 0.0) + (measured - used) * price
    return found


def _steps(book: PriceBookSpec | None, start: float, end: float, zone: tzinfo) -> Iterator[float]:
    """Yield a start, the times after it at which prices change, and an end."""
    yield start
    for text in sorted({each.from_ for each in book.prices if each.from_} if book is not None else ()):
        day = date.fromisoformat(text)
        at = datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()
        if start < at < end:
            yield at
    yield end
