"""The price that holds, in books of any order and size."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

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


@pytest.mark.parametrize("currency", ["EUR", "credits", "GPU hours", "¤¤¤"])
def test_currency_is_a_code_or_the_name_of_ones_own(currency: str):
    assert book_in(currency).currency == currency


@pytest.mark.parametrize("currency", ["EUO", "eur", "DEM", "XAU"])
def test_three_letters_that_are_no_code_of_a_currency_are_a_mistake(currency: str):
    with pytest.raises(ValidationError, match=f'"{currency}" is no code of a currency in ISO 4217, such as EUR'):
        book_in(currency)


def book_in(currency: str) -> PriceBookSpec:
    return PriceBookSpec.model_validate({"currency": currency, "prices": [{"resource": "cpu", "perHour": 1}]})
