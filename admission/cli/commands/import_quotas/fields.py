"""Fields of a foreign document, read with their path, so that each fault and each loss can be told by it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from admission.model.errors import InvalidObject, InvalidQuantity
from admission.model.names import is_qualified_name
from admission.model.quantity import UNLIMITED, parse_quantity
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from fractions import Fraction

_MOST_NOTES: Final = 20
"""Notes about unread fields of one object; a file of a hundred thousand of them helps nobody."""


_PLAIN: Final = re.compile(r"[\w.\[\]-]+")
"""What needs no brackets in a path."""


class Fields:
    """One object of a document: `subject` opens messages, `path` is where the object is in its document."""

    def __init__(self, values: Mapping[str, Any], *, subject: str, path: str = "") -> None:
        self._values = values
        self._path = path
        self.subject = subject
        self._read: set[str] = set()

    def at(self, name: str) -> str:
        """The path of a field."""
        step = name if name.startswith("[") or _PLAIN.fullmatch(name) else f"[{name}]"
        return clean(f"{self._path}.{step}" if self._path and not step.startswith("[") else f"{self._path}{step}")

    def fail(self, name: str, message: str) -> NoReturn:
        """Raises InvalidObject that names the field."""
        raise InvalidObject([(self.at(name), message)], subject=self.subject)

    def given(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def object(self, name: str) -> Fields:
        """An object; an empty one if the field is not there."""
        value = self._take(name, {})
        if not isinstance(value, Mapping):
            self.fail(name, "must be an object")
        return Fields(value, subject=self.subject, path=self.at(name))

    def objects(self, name: str) -> list[Fields]:
        """The objects of a list; none if the field is not there."""
        value = self._take(name, [])
        if not isinstance(value, list):
            self.fail(name, "must be a list")
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                self.fail(f"{name}[{index}]", "must be an object")
        return [
            Fields(item, subject=self.subject, path=self.at(f"{name}[{index}]")) for index, item in enumerate(value)
        ]

    def text(self, name: str) -> str:
        """A string; the empty one if the field is not there."""
        value = self._take(name, "")
        if not isinstance(value, str):
            self.fail(name, "must be a string (put it in quotes)")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            self.fail(name, "must be true or false")
        return value

    def number(self, name: str, *, default: float = 0) -> float:
        """A number, finite."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(name, "must be a number")
        return value

    def amounts(self, name: str, *, called: Mapping[str, str] | None = None, limits: bool = False) -> dict[str, int]:
        """Resources and how much of each, as amounts, rounded down; `called` are other names of resources.

        More than can be counted is a fault, but of `limits`, where it is UNLIMITED.
        """
        found: dict[str, int] = {}
        listed = self.object(name)
        for key in listed:
            value = listed._take(key, 0)
            resource = (called or {}).get(key, key)
            if not is_qualified_name(resource):
                listed.fail(key, 'is no name of a resource such as "cpu" or "example.com/gpu"')
            try:
                number = parse_quantity(value.replace(" ", "") if isinstance(value, str) else value)
            except InvalidQuantity as error:
                raise InvalidObject([(listed.at(key), str(error))], subject=self.subject) from error
            found[resource] = listed.amount(key, resource, number)
            if found[resource] == UNLIMITED and not limits:
                listed.fail(key, "is more than can be counted")
        return found

    def amount(self, name: str, resource: str, number: Fraction) -> int:
        """The number of a field as an amount, rounded down: no limit may grow by it. At most UNLIMITED."""
        if number < 0:
            self.fail(name, f"must not be negative, but is {float(number):g}")
        return min(math.floor(number * 1000 if resource == "cpu" else number), UNLIMITED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def losses(self, known: Mapping[str, str], *, ignored: Iterable[str] = ()) -> list[str]:
        """A sentence about each field that was not read: what `known` says of it, or that it is not known."""
        told = [
            f"{self.at(name)}: {known.get(name, 'not known to this import, and left out')}"
            for name in self._values
            if name not in self._read and name not in ignored and self._values[name] is not None
        ]
        more = len(told) - _MOST_NOTES
        return told[:_MOST_NOTES] + ([f"{self._path or 'it'} has {more} more such fields"] if more > 0 else [])

    def _take(self, name: str, default: Any) -> Any:
        self._read.add(name)
        value = self._values.get(name)
        return default if value is None else value
