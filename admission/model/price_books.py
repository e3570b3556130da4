"""Spec of a PriceBook: prices of resources by flavor, from dates. An extension: Kueue has no such object."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from admission.model.base import Model, OptionalName, QualifiedName
from admission.model.local_times import Day
from admission.model.resource_words import usage_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

_DIGITS: Final = 12
"""Digits of a price, before and after its point."""
_CODES: Final = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC
CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR
ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK
MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE
SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF
XPF YER ZAR ZMW ZWG
"""
NATIONAL_CURRENCIES: Final = frozenset(_CODES.split())
"""The codes of ISO 4217, without those of metals, of units of account, and for tests; as of 2026."""


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a number such as 2.40")  # noqa: TRY004  pydantic reports ValueErrors only
    return str(value)


def _price(text: str) -> str:
    try:
        price = Decimal(text)
    except ArithmeticError:
        raise ValueError(f'"{text}" is no price; write a number such as 2.40') from None
    if not price.is_finite() or price < 0:
        raise ValueError(f'"{text}" is no price; write a number of at least 0')
    exponent = price.as_tuple().exponent
    if price >= 10**_DIGITS or not isinstance(exponent, int) or exponent < -_DIGITS:
        raise ValueError(f'"{text}" has more than {_DIGITS} digits before or after its point')
    return text


def _currency(text: str) -> str:
    if len(text) == 3 and text.isascii() and text.isalpha() and text not in NATIONAL_CURRENCIES:
        raise ValueError(
            f'"{text}" is no code of a currency in ISO 4217, such as EUR; '
            "a currency of your own, such as credits, has a name that is not three letters long"
        )
    return text


class Price(Model):
    """The price of an hour of a resource."""

    flavor: OptionalName = ""
    """The ResourceFlavor; not given: all that have no price of their own."""
    resource: QualifiedName
    """The resource: cpu by the core, memory by the GiB, others by the unit."""
    per_hour: Annotated[
        str,
        BeforeValidator(_number),
        AfterValidator(_price),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
    ]
    """The price of an hour of one unit."""
    from_: Day | None = Field(default=None, alias="from")
    """The day from which it holds; not given: always."""

    @property
    def amount(self) -> Decimal:
        """The price of an hour of one unit."""
        return Decimal(self.per_hour)


class PriceBookSpec(Model):
    """Prices, of which the newest one that holds at a day counts; that of a flavor precedes that of all flavors."""

    currency: Annotated[str, Field(min_length=1, max_length=16), AfterValidator(_currency)]
    """The currency of all prices: a code of ISO 4217, such as EUR, or the name of a currency of your own."""
    provider: Annotated[str, Field(min_length=1, max_length=200)] = "Sluice"
    """Who charges, as statements in the form of FOCUS name it."""
    prices: Annotated[tuple[Price, ...], Field(min_length=1, max_length=10_000)]
    """The prices."""

    def price(self, flavor: str, resource: str, day: date) -> Price | None:
        """Return the price that holds at a day; None: there is none."""
        for key in (flavor, resource), ("", resource):
            known = self._by_day.get(key, ())
            if position := bisect_right(known, day.isoformat(), key=_first_day):
                return known[position - 1]
        return None

    def per_amount(self, flavor: str, resource: str, day: date) -> Fraction:
        """Return the price of an hour of one amount: a thousandth of a core, a byte, a device; 0: it has none."""
        found = self.price(flavor, resource, day)
        unit = usage_unit(resource).seconds // 3600 * (1000 if resource == "cpu" else 1)
        return Fraction(0 if found is None else found.amount) / unit

    @cached_property
    def _by_day(self) -> Mapping[tuple[str, str], list[Price]]:
        """The prices by flavor and resource, in order of time; of two from one day the one that is listed first."""
        found: defaultdict[tuple[str, str], list[Price]] = defaultdict(list)
        for each in sorted(self.prices, key=_first_day):
            known = found[each.flavor, each.resource]
            if not known or known[-1].from_ != each.from_:
                known.append(each)
        return dict(found)


def _first_day(price: Price) -> str:
    return price.from_ or ""
