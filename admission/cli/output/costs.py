"""Statements of cost as rows of a table, and as CSV with the columns of FOCUS."""

from __future__ import annotations

import csv
import json
import sys
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from admission.cli.output.usage_tables import inert

if TYPE_CHECKING:
    from admission.client.transport import Document

_KEYS: Final = {
    "queue": ("namespace", "queue"), "clusterqueue": ("clusterQueue",), "namespace": ("namespace",), "user": ("user",),
}  # fmt: skip
_LABEL: Final = "label:"
_FOCUS: Final = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName",
    "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId", "SubAccountId",
    "SubAccountName", "SubAccountType", "Tags",
)  # fmt: skip
"""Columns of FOCUS 1.2: all mandatory ones, and those others that apply."""
_FOCUS_UNITS: Final = {"core-hours": "Core-Hours", "GiB-hours": "GiB-Hours", "hours": "Hours"}
"""Units as FOCUS writes them."""


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


def write_focus(document: Document) -> None:
    """Print a report of cost as CSV with the columns of FOCUS. Usage without a price is left out."""
    writer = csv.DictWriter(sys.stdout, _FOCUS, lineterminator="\n")
    writer.writeheader()
    zone, keys = ZoneInfo(document["timezone"]), _keys(document)
    for item in document["items"]:
        if item["cost"] is None:
            continue
        month = date.fromisoformat(f"{item['month']}-01")
        after = (month + timedelta(days=31)).replace(day=1)
        first, last = (date.fromisoformat(item[name]) for name in ("from", "to"))
        group = "/".join(_group(keys, item))
        unit, sku = _FOCUS_UNITS[item["unit"]], f"{item['flavor']}/{item['resource']}"
        cost, quantity, price = item["cost"], item["hours"], item["perHour"]
        writer.writerow(
            {
                **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
                **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
                **dict.fromkeys(("ConsumedUnit", "PricingUnit"), unit),
                **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), price),
                **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), inert(document["provider"])),
                **dict.fromkeys(("BillingAccountId", "BillingAccountName"), document["book"]),
                **dict.fromkeys(("SubAccountId", "SubAccountName"), inert(group)),
                "SubAccountType": ",".join(document["by"]),
                "BillingCurrency": document["currency"],
                "BillingPeriodStart": _midnight(month, zone),
                "BillingPeriodEnd": _midnight(after, zone),
                "ChargePeriodStart": _midnight(first, zone),
                "ChargePeriodEnd": _midnight(last + timedelta(days=1), zone),
                "ChargeCategory": "Usage",
                "ChargeDescription": f"{item['resource']} of {item['flavor']}",
                "ChargeFrequency": "Usage-Based",
                "PricingCategory": "Standard",
                "ServiceCategory": "Compute",
                "ServiceName": "Sluice",
                "ServiceSubcategory": "Containers",
                "SkuId": sku,
                "SkuMeter": item["resource"],
                "SkuPriceId": f"{sku}@{item['priceFrom']}" if item["priceFrom"] else sku,
                "Tags": json.dumps(item.get("labels", {})),
            }
        )


def _keys(document: Document) -> list[str]:
    return [*dict.fromkeys(key for name in document["by"] for key in _KEYS.get(name, (name,)))]


def _group(keys: list[str], item: Document) -> list[str]:
    labels = item.get("labels", {})
    return [labels[key.removeprefix(_LABEL)] if key.startswith(_LABEL) else str(item[key]) for key in keys]


def _midnight(day: date, zone: ZoneInfo) -> str:
    """Return the first instant of a day, in UTC as FOCUS has it."""
    at = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(ZoneInfo("UTC"))
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
