"""Namespace and cluster defaults for pods: LimitRanges and RuntimeClasses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from weakref import WeakValueDictionary

import orjson

from admission.model.errors import InvalidQuantity, Misconfigured
from admission.model.quantity import format_amount, parse_quantity, to_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Amounts: TypeAlias = dict[str, Fraction]
"""By resource: an exact number of base units, for example `{"cpu": Fraction(1, 2)}`."""


def parse_amounts(quantities: Mapping[str, Any] | None, path: str) -> Amounts:
    """Return the amounts of a ResourceList.

    Raises Misconfigured, with the path of the entry, for a value that is no quantity, or negative.
    """
    amounts: Amounts = {}
    for resource, value in (quantities or {}).items():
        field = f"{path}[{resource}]" if "/" in resource else f"{path}.{resource}"
        try:
            amounts[resource] = parse_quantity(value, field=field)
        except InvalidQuantity as error:
            raise Misconfigured(f"{error}; correct it and submit the job again") from error
        if amounts[resource] < 0:
            raise Misconfigured(f"{field}: must not be negative, but is {value}")
    return amounts


def show(resource: str, number: Fraction) -> str:
    """Return an amount of a resource as text for messages."""
    return format_amount(resource, to_amount(resource, number))


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One entry of a LimitRange's `limits`, of type Container or Pod."""

    source: str
    type: str
    default: Amounts
    default_request: Amounts
    min: Amounts
    max: Amounts
    ratio: Amounts

    @classmethod
    def parse(cls, source: str, entry: Mapping[str, Any]) -> LimitRule:
        """Return the rule of an entry, with the API server's own defaulting (`SetDefaults_LimitRangeItem`)."""
        fields = {
            name: parse_amounts(entry.get(name), f"LimitRange {source}: {name}")
            for name in ("default", "defaultRequest", "min", "max", "maxLimitRequestRatio")
        }
        default, request = fields["default"], fields["defaultRequest"]
        if entry["type"] == "Container":
            default = {**fields["max"], **default}
            request = {**fields["min"], **default, **request}
        return cls(
            source, entry["type"], default, request, fields["min"], fields["max"], fields["maxLimitRequestRatio"]
        )

    def check(self, what: str, requests: Mapping[str, Fraction], limits: Mapping[str, Fraction]) -> None:
        """Raise Misconfigured if the LimitRanger plugin would reject a container or pod with these resources."""
        for resource, least in self.min.items():
            request = requests.get(resource)
            if request is None or request < least or limits.get(resource, least) < least:
                self._refuse(what, resource, "at least", least, requests, limits)
        for resource, most in self.max.items():
            limit = limits.get(resource)
            if limit is None or limit > most or requests.get(resource, most) > most:
                self._refuse(what, resource, "a limit of at most", most, requests, limits)
        for resource, most in self.ratio.items():
            request, limit = requests.get(resource), limits.get(resource)
            if not request or not limit or limit / request > most:
                raise Misconfigured(
                    f"{what} would be refused: LimitRange {self.source} wants a {resource} limit of at most "
                    f"{float(most):g} times the request"
                )

    def _refuse(
        self,
        what: str,
        resource: str,
        bound: str,
        value: Fraction,
        requests: Mapping[str, Fraction],
        limits: Mapping[str, Fraction],
    ) -> None:
        actual = ", ".join(
            f"{name} {show(resource, amounts[resource])}" if resource in amounts else f"no {name}"
            for name, amounts in (("request", requests), ("limit", limits))
        )
        raise Misconfigured(
            f"{what} would be refused: LimitRange {self.source} wants {bound} {show(resource, value)} of {resource}, "
            f"but it has {actual}"
        )


class NamespaceContext:
    """LimitRanges of a namespace and RuntimeClasses of the cluster; equal contexts are the same object.

    So it can be a cheap key of caches.
    """

    _content: bytes
    _known: ClassVar[WeakValueDictionary[bytes, NamespaceContext]] = WeakValueDictionary()

    def __new__(
        cls, limit_ranges: Iterable[Mapping[str, Any]] = (), runtime_classes: Iterable[Mapping[str, Any]] = ()
    ) -> Self:
        """Return the context of this content; it is created if there is none."""
        limits = sorted((item["metadata"]["name"], item["spec"].get("limits", [])) for item in limit_ranges)
        classes = {
            item["metadata"]["name"]: {key: item[key] for key in ("overhead", "scheduling") if item.get(key)}
            for item in runtime_classes
        }
        content = orjson.dumps([limits, classes], option=orjson.OPT_SORT_KEYS)
        known = cls._known.get(content)
        if known is None:
            known = cls._known[content] = super().__new__(cls)
            known._content = content
        return known  # type: ignore[return-value]  # there are no subclasses

    @cached_property
    def limit_rules(self) -> tuple[LimitRule, ...]:
        """Rules for containers and pods, in the order of the LimitRanges' names."""
        return tuple(
            LimitRule.parse(name, entry)
            for name, entries in orjson.loads(self._content)[0]
            for entry in entries
            if entry["type"] in {"Container", "Pod"}
        )

    @cached_property
    def runtime_classes(self) -> Mapping[str, Mapping[str, Any]]:
        """By name of the RuntimeClass: its `overhead` and `scheduling`."""
        classes: dict[str, Mapping[str, Any]] = orjson.loads(self._content)[1]
        return classes
