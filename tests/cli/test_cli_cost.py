"""`sluice report cost`: what usage costs by a PriceBook, with prices that change from a day on."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from command_runner import Sluice

from admission.api.resources.cost_report import statement
from admission.model.manifests import parse_manifest
from admission.model.price_books import PriceBookSpec
from admission.model.queues import PriceBook
from admission.model.workload import Admission, PodSet, PodSetAssignment, Workload
from admission.store.audit_log import Author
from admission.store.ledger.usage_reports import UsageRow
from admission.store.records import Changes, Closed, Opened, State, WorkloadRecord
from admission.store.store import Store
from tests.conftest import Clock
from tests.queue_objects import cluster_queue, create_objects, local_queue

GPU = "nvidia.com/gpu"
HOUR = 3600.0
NOON = 1_781_524_800.0
"""2026-06-15T12:00:00Z."""
PRICES = [
    {"flavor": "h100", "resource": GPU, "perHour": 3},
    {"flavor": "h100", "resource": GPU, "perHour": "4.50", "from": "2026-06-16"},
    {"resource": GPU, "perHour": 1, "from": "2026-06-20"},
]


def book(*prices: dict[str, Any]) -> PriceBookSpec:
    return PriceBookSpec.model_validate({"currency": "EUR", "prices": [*prices]}, by_alias=True)


def test_newest_price_of_the_flavor_holds_from_its_day_on():
    found = book(*PRICES)

    def price(flavor: str, day: int) -> str | None:
        held = found.price(flavor, GPU, date(2026, 6, day))
        return None if held is None else held.per_hour

    assert [price("h100", day) for day in (15, 16, 21)] == ["3", "4.50", "4.50"]
    assert [price("spot", day) for day in (19, 20)] == [None, "1"]


def test_statement_has_a_line_for_each_month_group_resource_and_price():
    def row(day: str, hours: float, flavor: str = "h100", namespace: str = "a") -> UsageRow:
        group = {"period": day, "namespace": namespace, "flavor": flavor, "resource": GPU}
        return UsageRow(group, hours * HOUR, 0.0)

    rows = [row("2026-06-15", 2), row("2026-06-16", 2), row("2026-06-18", 1), row("2026-07-01", 1, namespace="b")]
    lines = [
        [line[name] for name in ("month", "from", "to", "namespace", "flavor", "hours", "perHour", "cost")]
        for line in statement([*rows, row("2026-06-01", 1, flavor="spot")], book(*PRICES))
    ]
    assert lines == [
        ["2026-06", "2026-06-15", "2026-06-15", "a", "h100", 2.0, "3", "6.000000"],
        ["2026-06", "2026-06-16", "2026-06-18", "a", "h100", 3.0, "4.50", "13.500000"],
        ["2026-06", "2026-06-01", "2026-06-01", "a", "spot", 1.0, None, None],
        ["2026-07", "2026-07-01", "2026-07-01", "b", "h100", 1.0, "4.50", "4.500000"],
    ]


@pytest.fixture
async def used(store: Store, clock: Clock) -> None:
    clock.now = NOON
    epoch = await store.lead("test")
    pods = (PodSet("main", 1, {GPU: 2, "cpu": 4000}),)
    workload = Workload("1", "team-a", "train", "main", 0, NOON, pods, user="ada")
    flavors = {GPU: "h100", "cpu": "h100"}
    holds = Admission("cq", (PodSetAssignment("main", flavors, {GPU: 2, "cpu": 4000}, 1),))
    record = WorkloadRecord(workload, State.FINISHED, NOON, finished_at=NOON + 24 * HOUR)
    await store.commit(Changes(workloads=(record,), opened=(Opened(workload, holds, NOON),)), epoch=epoch)
    await store.commit(Changes(closed=(Closed("1", NOON + 24 * HOUR, "Finished"),)), epoch=epoch)
    clock.now = NOON + 30 * 24 * HOUR


async def add_book(store: Store, name: str, *prices: dict[str, Any], currency: str = "EUR") -> None:
    spec = {"currency": currency, "provider": "IT", "prices": [*prices]}
    manifest = {"apiVersion": "sluice.dev/v1", "kind": "PriceBook", "metadata": {"name": name}, "spec": spec}
    await store.queues.create(parse_manifest(manifest), author=Author("ada"))


@pytest.mark.usefixtures("used")
async def test_month_of_a_team_is_priced_by_the_only_book(sluice: Sluice, store: Store):
    none = await sluice("report", "cost", "--month", "2026-06")
    assert (none.exit_code, "there is no PriceBook" in none.stderr) == (1, True)
    await add_book(store, "prices", *PRICES)
    done = await sluice("report", "cost", "--month", "2026-06")
    assert done.exit_code == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["MONTH", "NAMESPACE", "FLAVOR", "RESOURCE", "UNIT", "HOURS", "PERHOUR", "COST", "CURRENCY"],
        ["2026-06", "team-a", "h100", "cpu", "core-hours", "96.000", "EUR"],
        ["2026-06", "team-a", "h100", GPU, "hours", "24.000", "3", "72.00", "EUR"],
        ["2026-06", "team-a", "h100", GPU, "hours", "24.000", "4.50", "108.00", "EUR"],
        ["TOTAL", "180.00", "EUR"],
    ]
    assert "there is no price for cpu of h100" in done.stderr
    report = json.loads((await sluice("report", "cost", "--month", "2026-06", "-n", "team-b", "-o", "json")).stdout)
    assert (report["items"], report["currency"]) == ([], "EUR")


NUMBER = r"-?\d+(\.\d+)?(E-?\d+)?"
POSITIVE = r"\d+(\.\d+)?"
INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
TEXT = r"\S(.*\S)?"
UNIT = r"(Core-|GiB-)?Hours"
OBJECT = r"\{.*\}"
FOCUS = {
    "BilledCost": NUMBER, "BillingAccountId": TEXT, "BillingAccountName": TEXT, "BillingCurrency": r"[A-Z]{3}",
    "BillingPeriodEnd": INSTANT, "BillingPeriodStart": INSTANT, "ChargeCategory": "Usage", "ChargeClass": "",
    "ChargeDescription": TEXT, "ChargeFrequency": "Usage-Based", "ChargePeriodEnd": INSTANT,
    "ChargePeriodStart": INSTANT, "ConsumedQuantity": NUMBER, "ConsumedUnit": UNIT, "ContractedCost": NUMBER,
    "ContractedUnitPrice": POSITIVE, "EffectiveCost": NUMBER, "InvoiceIssuerName": TEXT, "ListCost": NUMBER,
    "ListUnitPrice": POSITIVE, "PricingCategory": "Standard", "PricingQuantity": NUMBER, "PricingUnit": UNIT,
    "ProviderName": TEXT, "PublisherName": TEXT, "ServiceCategory": "Compute", "ServiceName": TEXT,
    "ServiceSubcategory": "Containers", "SkuId": TEXT, "SkuMeter": TEXT, "SkuPriceDetails": OBJECT, "SkuPriceId": TEXT,
    "SubAccountId": f"({TEXT})?", "SubAccountName": f"({TEXT})?", "SubAccountType": f"({TEXT})?",
    "Tags": f"({OBJECT})?",
}  # fmt: skip
"""What FOCUS allows in each column of a charge for usage that corrects nothing. Nothing is null."""


def check_focus(rows: list[dict[str, str]]) -> None:
    """Check that each row follows the rules of FOCUS, of its columns and among them."""
    for row in rows:
        assert row.keys() == FOCUS.keys()
        wrong = {name: row[name] for name, allowed in FOCUS.items() if not re.fullmatch(allowed, row[name])}
        assert wrong == {}
        quantity = Decimal(row["PricingQuantity"])
        assert quantity * Decimal(row["ListUnitPrice"]) == Decimal(row["ListCost"])
        assert quantity * Decimal(row["ContractedUnitPrice"]) == Decimal(row["ContractedCost"])
        # There are no discounts, and nothing is amortized.
        assert row["BilledCost"] == row["EffectiveCost"] == row["ContractedCost"] == row["ListCost"]
        assert (row["ConsumedQuantity"], row["ConsumedUnit"]) == (row["PricingQuantity"], row["PricingUnit"])
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        # A sub-account has an id, a name and a type, or none of them.
        assert len({bool(row[name]) for name in ("SubAccountId", "SubAccountName", "SubAccountType")}) == 1
        details = json.loads(row["SkuPriceDetails"])
        assert all(re.fullmatch(r"x_\w+|CoreCount|MemorySize|GpuCount|DiskSpace", name) for name in details)
        values = *details.values(), *json.loads(row["Tags"] or "{}").values()
        assert not any(isinstance(value, dict | list) for value in values)
    for price in {row["SkuPriceId"] for row in rows}:  # has one parent, and the same properties at all times
        assert len({(row["SkuId"], row["SkuPriceDetails"]) for row in rows if row["SkuPriceId"] == price}) == 1


@pytest.mark.usefixtures("used")
async def test_focus_follows_the_rules_of_its_columns_and_leaves_out_what_has_no_price(
    sluice: Sluice, store: Store, clock: Clock
):
    async def focus(by: str) -> list[dict[str, str]]:
        words = ("report", "cost", "--month", "2026-06", "--timezone", "Europe/Berlin", "-o", "focus", "--by", by)
        done = await sluice(*words, "--book", "prices")
        assert done.exit_code == 0, done.stderr
        rows = [*csv.DictReader(io.StringIO(done.stdout))]
        check_focus(rows)
        return rows

    await add_book(store, "prices", *PRICES)
    first, second = await focus("namespace,user")  # cpu has no price yet
    assert (first["BilledCost"], second["BilledCost"]) == ("60.0", "126.000")  # 10 and 14 of 24 hours
    expected = {
        "BillingAccountId": "prices", "BillingCurrency": "EUR", "BillingPeriodStart": "2026-05-31T22:00:00Z",
        "BillingPeriodEnd": "2026-06-30T22:00:00Z", "ChargePeriodStart": "2026-06-14T22:00:00Z",
        "ChargePeriodEnd": "2026-06-15T22:00:00Z", "PricingQuantity": "20.0", "PricingUnit": "Hours",
        "ListUnitPrice": "3", "ProviderName": "IT", "SkuId": f"h100/{GPU}", "SkuMeter": GPU,
        "SkuPriceDetails": json.dumps({"GpuCount": 1, "x_Flavor": "h100", "x_Resource": GPU}),
        "SkuPriceId": f"prices/h100/{GPU}", "SubAccountId": "team-a/ada", "SubAccountType": "namespace,user",
        "Tags": "",
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert (second["SkuPriceId"], second["ListUnitPrice"]) == (f"prices/h100/{GPU}", "4.50")  # at its time

    await store.queues.delete(PriceBook.kind, "prices", author=Author("ada"))
    await add_book(store, "prices", *PRICES, {"resource": "cpu", "perHour": "+1.5e-11"})
    cpu, *_ = await focus("label:team")
    assert (cpu["SubAccountId"], cpu["Tags"]) == ("", "")  # nobody has the label
    assert (cpu["ListUnitPrice"], cpu["ListCost"]) == ("0.000000000015", "0.0000000014400")
    labels = {"name": "main", "namespace": "team-a", "labels": {"cost-center": "42"}}
    queue = {"apiVersion": "sluice.dev/v1", "kind": "LocalQueue", "metadata": labels, "spec": {"clusterQueue": "cq"}}
    clock.now = NOON
    await store.queues.create(parse_manifest(queue), author=Author("ada"))
    clock.now = NOON + 30 * 24 * HOUR
    cpu, *_ = await focus("label:cost-center")
    account = cpu["SubAccountId"], cpu["SubAccountType"], cpu["Tags"]
    assert account == ("42", "label:cost-center", '{"cost-center": "42"}')

    await add_book(store, "tokens", *PRICES, currency="credits")
    done = await sluice("report", "cost", "--book", "tokens", "-o", "focus")
    assert 'spec.currency of PriceBook tokens is "credits"; FOCUS needs' in done.stderr


@pytest.mark.usefixtures("used")
async def test_several_books_need_a_name_or_a_default(sluice: Sluice, store: Store):
    await add_book(store, "a", *PRICES)
    await add_book(store, "b", {"resource": GPU, "perHour": 100})
    done = await sluice("report", "cost", "--month", "2026-06")
    assert (done.exit_code, "give one of a, b" in done.stderr) == (1, True)
    done = await sluice("report", "cost", "--month", "2026-06", "--book", "b", "-o", "csv")
    assert done.stdout.splitlines()[-1] == f"2026-06,team-a,h100,{GPU},hours,48.000,100,4800.00,EUR"
    await add_book(store, "default", {"resource": GPU, "perHour": 2})
    assert "96.00" in (await sluice("report", "cost", "--month", "2026-06")).stdout
    done = await sluice("report", "cost", "--book", "none")
    assert (done.exit_code, 'there is no PriceBook "none"' in done.stderr) == (1, True)
    done = await sluice("report", "cost", "--by", "kind")
    assert "cost cannot be grouped by kind" in done.stderr


@pytest.mark.parametrize("price", [-1, "NaN", "x", True, 10**13, "0.0000000000001"])
async def test_wrong_prices_are_refused_with_their_path(sluice: Sluice, tmp_path: Any, price: object):
    file = tmp_path / "prices.json"
    spec = {"currency": "EUR", "prices": [{"resource": "cpu", "perHour": price}]}
    manifest = {"apiVersion": "sluice.dev/v1", "kind": "PriceBook", "metadata": {"name": "p"}, "spec": spec}
    file.write_text(json.dumps(manifest))
    done = await sluice("apply", "-f", str(file))
    assert done.exit_code == 2
    assert "spec.prices[0].perHour" in done.stderr


@pytest.mark.usefixtures("used")
async def test_dry_run_of_submit_tells_queue_waits_and_cost(sluice: Sluice, store: Store):
    quotas = {name: {GPU: 8, "cpu": 64} for name in ("h100", "spot")}
    await create_objects(store, cluster_queue("cq", quotas=quotas), local_queue("main", "team-a"))
    words = ("submit", "--dry-run", "-q", "main", "-n", "team-a", "--image", "x", "--gpu", "2", "--pods", "3")
    done = await sluice(*words)
    assert (done.exit_code, done.stdout.startswith("apiVersion: batch/v1")) == (0, True), done.stderr
    assert "queue: main, of ClusterQueue cq, in which 0 workloads wait" in done.stderr
    assert "cost: not known; there is no PriceBook" in done.stderr
    await add_book(store, "prices", *PRICES)
    done = await sluice(*words)
    assert "cost: not known; give a time limit" in done.stderr
    done = await sluice(*words, "--time-limit", "2h")
    assert "cost: 54.00 EUR in h100, 12.00 EUR in spot, for 2 h, its time limit" in done.stderr
    epoch = await store.lead("again")
    for number in range(8):
        workload = Workload(f"w{number}", "team-a", f"w{number}", "main", 0, NOON, (PodSet("main", 1, {}),))
        record = WorkloadRecord(workload, State.FINISHED, NOON, outcome="Succeeded", admitted_at=NOON + 60,
                                finished_at=NOON + 60 + HOUR)  # fmt: skip
        await store.commit(Changes(workloads=(record,)), epoch=epoch)
    done = await sluice(*words)
    assert "cost: 27.00 EUR in h100, 6.00 EUR in spot, for 1 h, the usual run time in this LocalQueue" in done.stderr
    done = await sluice(*words, "-o", "json")
    assert done.stderr == ""
    done = await sluice(*words, "-q", "none")
    assert done.exit_code == 0
    assert 'localqueues.sluice.dev "none" not found' in done.stderr
