"""`sluice report cost`: what usage costs by a price book, with prices that change from a day on."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from admission.cli.output.prices import PriceBook, PriceItem, statement
from admission.client.answers import UsageRow

GPU = "nvidia.com/gpu"
BOOK = """
currency: EUR
prices:
- {flavor: h100, resource: nvidia.com/gpu, perHour: 3}
- {flavor: h100, resource: nvidia.com/gpu, perHour: 4, from: "2026-11-15"}
- {resource: nvidia.com/gpu, perHour: 1}
- {resource: cpu, perHour: 0.05}
"""


def book(*prices) -> PriceBook:
    return PriceBook.model_validate({"currency": "EUR", "prices": list(prices)})


def row(day: str, hours: float, *, flavor: str = "h100", resource: str = GPU, namespace: str = "a") -> UsageRow:
    keys = {"namespace": namespace, "flavor": flavor, "period": day}
    return UsageRow(keys, resource, hours * 3600, hours * 3600, 0.0)


def test_newest_price_of_the_flavor_holds_from_its_day_on():
    found = book(
        {"flavor": "h100", "resource": GPU, "perHour": 3},
        {"flavor": "h100", "resource": GPU, "perHour": "4", "from": "2026-11-15"},
        {"resource": GPU, "perHour": 1, "from": "2026-11-20"},
        {"resource": "cpu", "perHour": 0.05},
    )
    assert found.price("h100", GPU, date(2026, 11, 14)) == 3
    assert found.price("h100", GPU, date(2026, 11, 21)) == 4
    assert found.price("spot", GPU, date(2026, 11, 21)) == 1
    assert found.price("spot", GPU, date(2026, 11, 19)) is None
    rows = [row("2026-11-14", 2), row("2026-11-15", 2), row("2026-12-01", 1), row("2026-11-01", 1, flavor="spot")]
    assert statement([*rows, row("2026-11-30", 100, resource="cpu", namespace="b")], found) == [
        PriceItem("2026-11", ("a",), "h100", GPU, rows[0].unit, 4.0, Decimal("14.0")),
        PriceItem("2026-11", ("a",), "spot", GPU, rows[0].unit, 1.0, None),
        PriceItem("2026-11", ("b",), "h100", "cpu", "core-hours", 100.0, Decimal("5.000")),
        PriceItem("2026-12", ("a",), "h100", GPU, rows[0].unit, 1.0, Decimal("4.0")),
    ]


async def test_statement_of_a_month_without_usage_is_empty_and_faults_are_named(sluice, tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text(BOOK)
    done = await sluice("report", "cost", "--prices", str(file), "--month", "2024-02", "-o", "csv")
    assert (done.exit_code, done.stdout) == (0, "month,flavor,resource,unit,hours,cost,currency\n"), done.stderr
    file.write_text("currency: EUR\nprices: [{resource: cpu, perHour: -1}]")
    done = await sluice("report", "cost", "--prices", str(file))
    assert done.exit_code == 1
    assert "prices.0.perHour" in done.stderr


@pytest.mark.parametrize("text", ["", "[", "currency: EUR", "prices: []"])
async def test_file_that_is_no_price_book_is_refused(sluice, tmp_path, text):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    done = await sluice("report", "cost", "--prices", str(file))
    assert done.exit_code == 1
    assert "prices.yaml" in done.stderr
