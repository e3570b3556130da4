"""The price that holds, in books of any order and size."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from admission.model.price_books import PriceBookSpec

FLAVORS, RESOURCES = ("", "a", "b"), ("cpu", "memory")
DAYS = st.dates(date(2026, 1, 1), date(2026, 1, 9))
ENTRIES = st.fixed_dictionaries(
    {"flavor": st.sampled_from(FLAVORS), "resource": st.sampled_from(RESOURCES)},
    optional={"from": DAYS.map(date.isoformat)},
)


@given(st.lists(ENTRIES, min_size=1, max_size=12), st.sampled_from(FLAVORS), st.sampled_from(RESOURCES), DAYS)
def test_newest_price_of_the_flavor_holds_or_else_the_newest_of_all_flavors(entries, flavor, resource, day):
    prices = [{**entry, "perHour": number} for number, entry in enumerate(entries)]
    book = PriceBookSpec.model_validate({"currency": "EUR", "prices": prices})
    valid = [
        each
        for each in prices
        if each["resource"] == resource and each["flavor"] in ("", flavor) and each.get("from", "") <= day.isoformat()
    ]
    expected = max(valid, key=lambda each: (each["flavor"] != "", each.get("from", "")), default=None)
    found = book.price(flavor, resource, day)
    assert (found and found.per_hour) == (expected and str(expected["perHour"]))
