"""CEL expressions that select devices, as Kubernetes evaluates them (`dynamic-resource-allocation/cel`).

Quantities and versions are texts here: `80Gi` is `q:85899345920`, version 1.2.0 is `v:1.2.0`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from admission.model.errors import InvalidQuantity, SluiceError
from admission.model.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import cel

LONGEST: Final = 10 * 1024
"""Characters of an expression, the API server's own limit."""
_DOMAIN: Final = re.compile(r"""\.(attributes|capacity)\s*\[\s*(?:"([^"]*)"|'([^']*)')\s*\]""")
_MACRO: Final = re.compile(r"\.(?:all|exists|exists_one|map|filter|sortBy|transformList|transformMap)\s*\(")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class SelectorError(SluiceError):
    """An expression that does not compile, or not evaluate for a device."""


class Device:
    """A device of a ResourceSlice, as an expression sees it."""

    __slots__ = ("_attributes", "_capacity", "_context", "capacity", "counters", "driver", "name", "node", "shared")

    def __init__(self, driver: str, node: str, device: Mapping[str, Any]) -> None:
        """`node`: that of its slice; empty: several nodes, or each device its own."""
        self.driver = driver
        self.name: str = device["name"]
        self.node: str = node or device.get("nodeName") or ""
        self.shared = bool(device.get("allowMultipleAllocations"))
        self.counters: list[Mapping[str, Any]] = [
            each.get("counters") or {} for each in device.get("consumesCounters") or ()
        ]
        """Counter to its value, of each counter set that it consumes."""
        self.capacity: Mapping[str, Mapping[str, Any]] = {
            qualified(name, driver): value for name, value in (device.get("capacity") or {}).items()
        }
        """By qualified name: `value` and `requestPolicy`."""
        self._attributes = _by_domain(device.get("attributes") or {}, driver, _attribute)
        self._capacity = _by_domain(device.get("capacity") or {}, driver, lambda each: _quantity(each["value"]))
        self._context: cel.Context | None = None

    def context(self, domains: Iterable[tuple[str, str]]) -> cel.Context:
        """Return the variables and functions of an expression that reads these fields and domains."""
        import cel

        known = {"attributes": self._attributes, "capacity": self._capacity}
        added = [(field, domain) for field, domain in domains if domain not in known[field]]
        for field, domain in added:
            known[field][domain] = {}  # a domain in which the device has nothing is empty, as in Kubernetes
        if self._context is None or added:
            device = {"driver": self.driver, **known, "allowMultipleAllocations": self.shared}
            self._context = cel.Context({"device": device}, _FUNCTIONS)
        return self._context


class DeviceSelector:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        """Raises SelectorError."""
        import cel  # a feature that is off costs nothing

        if len(text) > LONGEST:
            raise SelectorError(f"the expression has {len(text)} characters, and {LONGEST} are the most")
        if len(_MACRO.findall(text)) > 1:  # one in the other takes a time without bounds
            raise SelectorError("more than one of all, exists, exists_one, map and filter is not evaluated")
        try:
            self._program: cel.Program = cel.compile(text)
        except ValueError as error:
            raise SelectorError(f"compilation failed: {error}") from error
        self._domains = {(field, one or other) for field, one, other in _DOMAIN.findall(text)}

    def matches(self, device: Device) -> bool:
        """Return whether it selects a device. Raises SelectorError."""
        try:
            found = self._program.execute(device.context(self._domains))
        except KeyError as error:
            raise SelectorError(f"device {device.name}: no such key: {error}") from error
        except (ValueError, TypeError, RuntimeError) as error:
            raise SelectorError(f"device {device.name}: {error}") from error
        if not isinstance(found, bool):
            raise SelectorError("must evaluate to bool")
        return found


@lru_cache(maxsize=1024)
def selector(text: str) -> DeviceSelector:
    """Return the compiled expression. Raises SelectorError."""
    return DeviceSelector(text)


def qualified(name: str, driver: str) -> str:
    """Return the full name of an attribute or capacity: without a domain it is the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def _by_domain(
    values: Mapping[str, Any], driver: str, convert: Callable[[Any], object]
) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        domain, _, identifier = qualified(name, driver).partition("/")
        found.setdefault(domain, {})[identifier] = convert(value)
    return found


def _attribute(value: Mapping[str, Any]) -> object:
    (kind, content), *_ = value.items()
    return _version(content) if kind == "version" else content


def _quantity(text: object) -> str:
    try:
        return f"q:{parse_quantity(text)}"  # type: ignore[arg-type]
    except InvalidQuantity as error:
        raise ValueError(str(error)) from error


def _version(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f'"{text}" is no semantic version')
    return f"v:{text}"


def _compare(one: str, other: str) -> int:
    """Implement `compareTo` of quantities and versions."""
    if one[:2] != other[:2] or one[:2] not in ("q:", "v:"):
        raise ValueError("compareTo: both must be quantities, or versions")
    if one.startswith("q:"):
        left, right = Fraction(one[2:]), Fraction(other[2:])
        return (left > right) - (left < right)
    a, b = _precedence(one[2:]), _precedence(other[2:])
    return (a > b) - (a < b)


def _precedence(version: str) -> tuple[object, ...]:
    found = _VERSION.fullmatch(version)
    assert found is not None, version
    major, minor, patch, pre = found.groups()
    # A pre-release comes before its release, and of its parts numbers before words.
    parts = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")) if pre else ()
    return int(major), int(minor), int(patch), not pre, parts


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "semver": _version,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "asInteger": lambda one: int(Fraction(one[2:])),
    "asApproximateFloat": lambda one: float(Fraction(one[2:])),
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
}
"""Functions of Kubernetes' CEL libraries that the evaluator lacks."""
