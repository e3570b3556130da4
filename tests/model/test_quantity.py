"""Quantities: Go's grammar, exact arithmetic, and amounts that are rounded up and never overflow."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.model.errors import InvalidQuantity
from admission.model.quantity import UNLIMITED, amount, format_amount, parse_quantity, readable_amount

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1000m", 1),
        ("1024M", 1_024_000_000),
        ("0M", 0),
        ("1.5Gi", 1_610_612_736),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+5", 5),
        ("-1", -1),
        ("1E", 10**18),  # exa ...
        ("1E3", 1000),  # ... but an exponent when a number follows
        ("1e-3", Fraction(1, 1000)),
        ("1Ei", 1024**6),
        ("0.1Ki", Fraction(1024, 10)),
        ("100000000000000000000.0000000001", 10**20 + Fraction(1, 10**10)),
        (4, 4),
        (0.5, Fraction(1, 2)),
        (1e22, 10**22),
    ],
)
def test_quantity_is_parsed_exactly(text, number):
    assert parse_quantity(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *"+.",
        "",
        " 1",
        "1 ",
        "1K",
        "1ki",
        "1KI",
        "1mi",
        "1ee3",
        "1e",
        "0x10",
        "1_000",
        "1,5",
        "--1",
        "1e+",
        "inf",
        "nan",
    ],
)
def test_malformed_quantity_is_refused_with_its_field(text):
    with pytest.raises(InvalidQuantity) as caught:
        amount("cpu", text, field="spec.quota")
    ((field, message),) = caught.value.causes
    assert field == "spec.quota"
    assert "is not a quantity" in message


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_quantity_that_is_neither_string_nor_number_is_refused(value):
    with pytest.raises(InvalidQuantity, match="must be a quantity"):
        parse_quantity(value)


def test_upper_case_kilo_suffix_is_refused_with_the_valid_spellings():
    with pytest.raises(InvalidQuantity, match=r"; write 4Ki or 4k$"):
        amount("memory", "4K")


@pytest.mark.parametrize(
    ("value", "meant"),
    [("1GB", "1Gi or 1G"), ("1gb", "1Gi or 1G"), ("1.5g", "1.5Gi or 1.5G"), ("10GiB", "10Gi"), ("1gi", "1Gi"),
     ("512 MB", "512Mi or 512M"), ("4kb", "4Ki or 4k")],
)  # fmt: skip
def test_byte_unit_is_refused_with_the_valid_spelling(value, meant):
    with pytest.raises(InvalidQuantity, match=f"; write {meant}$"):
        amount("memory", value)


def test_negative_amounts_are_refused():
    with pytest.raises(InvalidQuantity, match="must not be negative, but is -1"):
        amount("cpu", "-1")


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "0.5m", 1),  # rounded up, like Quantity.MilliValue
        ("cpu", "100m", 100),
        ("cpu", "2", 2000),
        ("memory", "1n", 1),
        ("memory", "1Gi", 2**30),
        ("nvidia.com/gpu", 8, 8),
        ("cpu", "9223372036854775807", UNLIMITED),
        ("memory", "9223372036854775806", UNLIMITED - 1),
        ("memory", "8Ei", UNLIMITED),
        ("memory", "1e999999999999", UNLIMITED),
        ("memory", "1e-999999999999", 1),
        ("memory", "0e999999999999", 0),
    ],
)
def test_amount_is_rounded_up_and_capped_at_unlimited(resource, text, expected):
    assert amount(resource, text) == expected


@given(st.decimals(min_value=0, max_value=10**12, places=6, allow_nan=False), st.sampled_from(sorted(SUFFIXES)))
def test_every_suffix_scales_exactly(number, suffix):
    text = f"{number:f}{suffix}"
    exact = Fraction(number) * SUFFIXES[suffix]
    assert parse_quantity(text) == exact
    assert amount("memory", text) == min(math.ceil(exact), UNLIMITED)
    assert amount("cpu", text) == min(math.ceil(exact * 1000), UNLIMITED)


def oracle(text: str) -> Fraction | None:
    """Parse a quantity by an independent implementation: a decimal number with suffix, or in exponent form."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        number = text.removesuffix(suffix)
        if text.endswith(suffix) and not (suffix and set(number) & set("eE")):
            try:
                return Fraction(Decimal(number)) * SUFFIXES[suffix]
            except InvalidOperation:
                continue
    return None


@given(st.from_regex(r"[-+]?[0-9.]{0,4}([eE]?[-+]?[0-9]{0,2}|[numkKMGTPEi]{0,2})", fullmatch=True))
def test_parser_agrees_with_an_independent_implementation(text):
    expected = oracle(text)
    if expected is None:
        with pytest.raises(InvalidQuantity):
            parse_quantity(text)
    else:
        assert parse_quantity(text) == expected


@pytest.mark.parametrize("text", ["\u0661", "1\n", "9" * 65, "1\u00a0"])
def test_non_ascii_multiline_or_very_long_quantity_is_refused(text):
    with pytest.raises(InvalidQuantity, match="is not a quantity"):
        parse_quantity(text)


@given(st.sampled_from(["cpu", "memory", "hugepages-2Mi", "pods", "nvidia.com/gpu"]), st.integers(0, UNLIMITED - 1))
def test_formatted_amount_is_parsed_to_the_same_amount(resource, value):
    assert amount(resource, format_amount(resource, value)) == value


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 500, "500m"),
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 10 * 2**30, "10Gi"),
        ("memory", 1023, "1023"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 4, "4"),
        ("cpu", UNLIMITED, f"{UNLIMITED}m"),
    ],
)
def test_amount_is_formatted_canonically(resource, value, text):
    assert format_amount(resource, value) == text


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("memory", 0, "0"),
        ("memory", 8 * 2**30, "8Gi"),
        ("memory", 8 * 2**30 + 1, "8192Mi"),
        ("memory", 1520 * 2**30 + 5, "1520Gi"),
        ("memory", 263_856_123 * 2**10, "252Gi"),
        ("memory", 1023, "1023"),
        ("cpu", 9_500, "9500m"),
        ("cpu", 31_885_501, "31886"),
        ("example.com/gpu", 4001, "4001"),
    ],
)
def test_many_bytes_and_cores_are_rounded_for_people(resource, value, text):
    assert readable_amount(resource, value) == text
