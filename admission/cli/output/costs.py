"""Statements of cost as rows of a table, and as CSV with the columns of FOCUS."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from admission.cli.errors import CommandError
from admission.cli.output.usage_tables import inert
from admission.model.resource_words import resource_word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from admission.client.transport import Document

_KEYS: Final = {
    "queue": ("namespace", "queue"), "clusterqueue": ("clusterQueue",), "namespace": ("namespace",), "user": ("user",),
}  # fmt: skip
_LABEL: Final = "label:"


def cost_rows(document: Document) -> list[list[str]]:
    """Return a header, and a row for each item of a report of cost."""
    keys = _keys(document)
    rows = [["month", *keys, "flavor", "resource", "unit", "hours", "perHour", "cost", "currency"]]
    for item in document["items"]:
        what = item["flavor"], item["resource"], item["unit"], f"{item['hours']:.3f}"
        costs = "" if item["cost"] is None else f"{float(item['cost']):.2f}"
        names = [inert(name) for name in _group(keys, item)]
        rows.append([item["month"], *names, *what, item["perHour"] or "", costs, document["currency"]])
    return rows


FOCUS_VERSION: Final = "1.2"
"""Version of FOCUS, the FinOps Open Cost and Usage Specification, that `write_focus` follows."""
_EXACT: Final = Context(prec=64)
"""Enough for the product of any price and quantity: unit price times quantity has to be the cost."""


@dataclass(frozen=True, slots=True)
class _Charge:
    """An item of a report of cost that has a price."""

    document: Document
    item: Document

    def cost(self) -> str:
        return f"{_EXACT.multiply(Decimal(self.item['perHour']), _decimal(self.item['hours'])):f}"

    def quantity(self) -> str:
        return f"{_decimal(self.item['hours']):f}"

    def unit(self) -> str:
        return {"core-hours": "Core-Hours", "GiB-hours": "GiB-Hours", "hours": "Hours"}[str(self.item["unit"])]

    def price(self) -> str:
        return f"{Decimal(self.item['perHour']):f}"

    def book(self) -> str:
        return str(self.document["book"])

    def provider(self) -> str:
        return inert(self.document["provider"])

    def sub_account(self) -> str:
        parts = _group(_keys(self.document), self.item)
        return inert("/".join(parts)) if any(parts) else ""

    def sku(self) -> str:
        return f"{self.item['flavor']}/{self.item['resource']}"

    def details(self) -> str:
        """Return what one unit of the price has: a core, a GiB of memory, a GPU."""
        resource = str(self.item["resource"])
        names = {"cpu": "CoreCount", "memory": "MemorySize", "ephemeral-storage": "DiskSpace"}
        name = "GpuCount" if resource_word(resource) == "GPU" else names.get(resource)
        return json.dumps(({name: 1} if name else {}) | {"x_Flavor": self.item["flavor"], "x_Resource": resource})

    def tags(self) -> str:
        found = {name: value for name, value in self.item.get("labels", {}).items() if value}
        return json.dumps(found) if found else ""

    def month(self, number: int) -> str:
        """Return when the month of the charge begins, or that which is `number` months later."""
        first = date.fromisoformat(f"{self.item['month']}-01")
        return self._midnight((first + timedelta(days=31 * number)).replace(day=1))

    def begin(self) -> str:
        return self._midnight(date.fromisoformat(self.item["from"]))

    def end(self) -> str:
        return self._midnight(date.fromisoformat(self.item["to"]) + timedelta(days=1))

    def _midnight(self, day: date) -> str:
        """Return the first instant of a day, in UTC as FOCUS has it."""
        zone = ZoneInfo(self.document["timezone"])
        at = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(ZoneInfo("UTC"))
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")


_FOCUS: Final[Mapping[str, Callable[[_Charge], str]]] = {
    "BilledCost": _Charge.cost,
    "BillingAccountId": _Charge.book,
    "BillingAccountName": _Charge.book,
    "BillingCurrency": lambda charge: str(charge.document["currency"]),
    "BillingPeriodEnd": lambda charge: charge.month(1),
    "BillingPeriodStart": lambda charge: charge.month(0),
    "ChargeCategory": lambda _: "Usage",
    "ChargeClass": lambda _: "",  # null: nothing is corrected after it was billed
    "ChargeDescription": lambda charge: f"{charge.item['resource']} of {charge.item['flavor']}",
    "ChargeFrequency": lambda _: "Usage-Based",
    "ChargePeriodEnd": _Charge.end,
    "ChargePeriodStart": _Charge.begin,
    "ConsumedQuantity": _Charge.quantity,
    "ConsumedUnit": _Charge.unit,
    "ContractedCost": _Charge.cost,
    "ContractedUnitPrice": _Charge.price,
    "EffectiveCost": _Charge.cost,
    "InvoiceIssuerName": _Charge.provider,
    "ListCost": _Charge.cost,
    "ListUnitPrice": _Charge.price,
    "PricingCategory": lambda _: "Standard",
    "PricingQuantity": _Charge.quantity,
    "PricingUnit": _Charge.unit,
    "ProviderName": _Charge.provider,
    "PublisherName": _Charge.provider,
    "ServiceCategory": lambda _: "Compute",
    "ServiceName": lambda _: "Sluice",
    "ServiceSubcategory": lambda _: "Containers",
    "SkuId": _Charge.sku,
    "SkuMeter": lambda charge: str(charge.item["resource"]),
    "SkuPriceDetails": _Charge.details,
    # Without the day from which the price holds: the same id has to name the price of a resource over time.
    "SkuPriceId": lambda charge: f"{charge.book()}/{charge.sku()}",
    "SubAccountId": _Charge.sub_account,
    "SubAccountName": _Charge.sub_account,
    "SubAccountType": lambda charge: ",".join(charge.document["by"]) if charge.sub_account() else "",
    "Tags": _Charge.tags,
}
"""Columns of FOCUS: all mandatory ones, and those others that apply. Nothing is written for null."""


def write_focus(document: Document) -> None:
    """Print a report of cost as CSV with the columns of FOCUS. Usage without a price is left out.

    Raises CommandError.
    """
    from admission.model.price_books import NATIONAL_CURRENCIES

    book, currency = document["book"], document["currency"]
    if currency not in NATIONAL_CURRENCIES:
        raise CommandError(
            f'spec.currency of PriceBook {book} is "{currency}"; FOCUS needs the code of a currency, such as EUR'
        )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_FOCUS)
    for item in document["items"]:
        if item["cost"] is not None:
            charge = _Charge(document, item)
            writer.writerow([column(charge) for column in _FOCUS.values()])


def _keys(document: Document) -> list[str]:
    return [*dict.fromkeys(key for name in document["by"] for key in _KEYS.get(name, (name,)))]


def _group(keys: list[str], item: Document) -> list[str]:
    labels = item.get("labels", {})
    return [labels[key.removeprefix(_LABEL)] if key.startswith(_LABEL) else str(item[key]) for key in keys]


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))
