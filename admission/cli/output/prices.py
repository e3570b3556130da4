"""Price books: prices of hours by flavor and resource, from dates; and what usage costs by them."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, NamedTuple

import yaml
from pydantic import Field, ValidationError

from admission.cli.errors import CommandError
from admission.model.base import Model, Name, QualifiedName
from admission.model.local_times import Day

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from admission.client.answers import UsageRow


class Price(Model):
    """The price of an hour of a resource."""

    flavor: Name | None = None
    """The ResourceFlavor; not given: all that have no price of their own."""
    resource: QualifiedName
    """The resource: cpu by the core, memory by the GiB, others by the unit."""
    per_hour: Annotated[Decimal, Field(ge=0)]
    """The price of an hour of one unit."""
    from_: Day | None = Field(default=None, alias="from")
    """The day from which it holds; not given: always."""


class PriceBook(Model):
    """Prices, of which the newest one that holds at a day counts."""

    currency: Annotated[str, Field(min_length=1, max_length=16)]
    """The currency of all prices, such as EUR."""
    prices: Annotated[tuple[Price, ...], Field(min_length=1, max_length=10_000)]
    """The prices."""

    def price(self, flavor: str, resource: str, day: date) -> Decimal | None:
        """Return the price of an hour on a day; None: it has none."""
        found = [
            each
            for each in self.prices
            if each.resource == resource and each.flavor in (None, flavor)
            if each.from_ is None or each.from_ <= day.isoformat()
        ]
        newest = max(found, key=lambda each: (each.flavor is not None, each.from_ or ""), default=None)
        return None if newest is None else newest.per_hour


def read_prices(file: Path) -> PriceBook:
    """Read a price book in YAML. Raises CommandError with the path of each fault."""
    try:
        return PriceBook.model_validate(yaml.safe_load(file.read_bytes()), by_alias=True, by_name=False)
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise CommandError(f"{file} is no price book: {'; '.join(faults)}") from error


class PriceItem(NamedTuple):
    """A line of a statement. `cost`: None if a part has no price."""

    month: str
    group: tuple[str, ...]
    flavor: str
    resource: str
    unit: str
    hours: float
    cost: Decimal | None


def statement(rows: Iterable[UsageRow], book: PriceBook) -> list[PriceItem]:
    """Return what usage by day, flavor and further keys costs by month, in the order of its keys."""
    hours: defaultdict[tuple[str, tuple[str, ...], str, str, str], float] = defaultdict(float)
    costs: defaultdict[tuple[str, tuple[str, ...], str, str, str], Decimal | None] = defaultdict(Decimal)
    for row in rows:
        keys = dict(row.keys)
        day, flavor = date.fromisoformat(keys.pop("period")), keys.pop("flavor")
        key = f"{day:%Y-%m}", tuple(keys.values()), flavor, row.resource, row.unit
        hours[key] += row.used
        price, before = book.price(flavor, row.resource, day), costs[key]
        costs[key] = None if price is None or before is None else before + price * Decimal(repr(row.used))
    return [PriceItem(*key, hours[key], costs[key]) for key in sorted(hours)]
