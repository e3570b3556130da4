"""Kubernetes quantities in exact arithmetic, so that sums and comparisons are never affected by float rounding.

Grammar and canonical forms are those of apimachinery's `resource.Quantity`. Inside Sluice a quantity is an *amount*:
an integer, in milli-units for `cpu` and in base units (bytes, devices, pods) for all other resources, rounded up.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from admission.model.errors import InvalidQuantity

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLIMITED: Final = 2**63 - 1
"""The amount that stands for "no limit". Additions saturate here, as in Kueue."""

_PATTERN: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i)|[eE]([+-]?[0-9]+)|([numkMGTPE]?))", re.ASCII
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MISSPELT_UNIT: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([KMGTP])(i?)B?", re.ASCII | re.IGNORECASE)
"""Common units that are no Kubernetes suffixes, such as `1gb`, for a hint in the error message."""
_MAX_LENGTH: Final = 64
# A mantissa of 64 characters lies between 1e-63 and 1e64: beyond this exponent each value is below a nano-unit or above
# 2**63, so that clamping the exponent changes no result and keeps the integers small.
_MAX_EXPONENT: Final = 200
_BYTES: Final = frozenset({"memory", "storage", "ephemeral-storage"})


def parse_quantity(value: str | float, *, field: str = "") -> Fraction:
    """Return the exact number that a quantity (text, or a JSON number) stands for.

    Raises InvalidQuantity, with `field` as the path of the cause.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidQuantity([(field, f"must be a quantity such as 500m or 10Gi, not {_type_name(value)}")])
    text = value if isinstance(value, str) else repr(value)
    number = _parse(text) if len(text) <= _MAX_LENGTH else None
    if number is None:
        shown = text if len(text) <= _MAX_LENGTH else f"{text[:20]}..."
        message = f'"{shown}" is not a quantity; expected one such as 500m, 2, 1.5 or 10Gi{_unit_hint(text)}'
        raise InvalidQuantity([(field, message)])
    return number


def _unit_hint(text: str) -> str:
    """Return the end of an error message for `1gb`, `4K` or `10GiB`: `; write 1Gi or 1G`. Empty for other texts."""
    match = _MISSPELT_UNIT.fullmatch(text)
    if match is None:
        return ""
    digits, unit, binary = match[1], match[2].upper(), match[3]
    return f"; write {digits}{unit}i" + ("" if binary else f" or {digits}{'k' if unit == 'K' else unit}")


def amount(resource: str, value: str | float, *, field: str = "") -> int:
    """Convert a quantity of `resource` to an amount: milli-units for `cpu`, else base units.

    Rounded up, and at most UNLIMITED. Raises InvalidQuantity for a malformed or negative quantity.
    """
    if type(value) is str and (known := _amount(resource, value)) is not None:
        return known
    number = parse_quantity(value, field=field)
    if number < 0:
        raise InvalidQuantity([(field, f"must not be negative, but is {value}")])
    return to_amount(resource, number)


def times(requests: Mapping[str, int], count: int) -> dict[str, int]:
    """Return the amounts that `count` pods request together, each at most UNLIMITED."""
    return {resource: min(amount * count, UNLIMITED) for resource, amount in requests.items()}


def together(requests: Mapping[str, int], shared: Mapping[str, int], count: int) -> dict[str, int]:
    """Return what `count` pods need together: `requests` each, and all of them once what they share."""
    found = times(requests, count)
    if shared and count:
        add(found, shared)
    return found


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add amounts to `total` in place; each sum is at most UNLIMITED."""
    for resource, amount in more.items():
        total[resource] = min(total.get(resource, 0) + amount, UNLIMITED)


def to_amount(resource: str, number: Fraction) -> int:
    """Convert an exact number of `resource` to an amount."""
    return min(math.ceil(number * 1000 if resource == "cpu" else number), UNLIMITED)


@lru_cache(maxsize=4096)
def format_amount(resource: str, value: int) -> str:
    """Format an amount as a quantity in canonical form: `500m` or `2` for cpu, `10Gi` for memory, `4` for others."""
    if resource == "cpu":
        return _decimal(value, ("m", "", "k", "M", "G", "T", "P"))
    if resource in _BYTES or resource.startswith("hugepages-"):
        return _binary(value)
    return _decimal(value, ("", "k", "M", "G", "T", "P", "E"))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction | None:
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    sign, digits, binary, exponent, decimal = match.groups()
    whole, _, part = digits.partition(".")
    mantissa = Fraction(int((whole + part) or "0"), 10 ** len(part))
    if binary:
        number = mantissa * (1 << 10 * _BINARY[binary])
    else:
        power = int(exponent) if exponent else _DECIMAL[decimal]
        number = mantissa * Fraction(10) ** max(-_MAX_EXPONENT, min(power, _MAX_EXPONENT))
    return -number if sign == "-" else number


@lru_cache(maxsize=4096)
def _amount(resource: str, text: str) -> int | None:
    number = _parse(text) if len(text) <= _MAX_LENGTH else None
    return None if number is None or number < 0 else to_amount(resource, number)


def readable_amount(resource: str, value: int) -> str:
    """Format an amount for people: as `format_amount`, but rounded to cores, or a unit of bytes, if there are ten."""
    if resource == "cpu" and value >= 10_000:
        return str(round(value / 1000))
    if value and (resource in _BYTES or resource.startswith("hugepages-")):
        for unit, power in reversed(_BINARY.items()):
            if value % 1024**power == 0 or value >= 10 * 1024**power:
                return f"{round(value / 1024**power)}{unit}"
    return format_amount(resource, value)


def _decimal(value: int, suffixes: tuple[str, ...]) -> str:
    index = 0
    while value and value % 1000 == 0 and index < len(suffixes) - 1:
        value //= 1000
        index += 1
    return f"{value}{suffixes[index] if value else ''}"


def _binary(value: int) -> str:
    index = 0
    while value and value % 1024 == 0 and index < len(_BINARY):
        value //= 1024
        index += 1
    return f"{value}{('', *_BINARY)[index]}"


def _type_name(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "a list", type(None): "null"}
    return names.get(type(value), type(value).__name__)
