"""Typed access to the fields of another scheduler's document, with paths for errors and a record of unread fields."""

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

_MAX_NOTES: Final = 20
"""Notes on unread fields of one object at most: a malformed file may have a hundred thousand of them."""


_PLAIN: Final = re.compile(r"[\w.\[\]-]+")
"""Field names that are written without brackets in a path."""


class Fields:
    """One object of a document: `subject` is the prefix of messages, `path` the object's path in the document."""

    def __init__(self, values: Mapping[str, Any], *, subject: str, path: str = "") -> None:
        self._values = values
        self._path = path
        self.subject = subject
        self._read: set[str] = set()

    def at(self, name: str) -> str:
        """Return the path of a field: `spec.resources[nvidia.com/gpu]`."""
        step = name if name.startswith("[") or _PLAIN.fullmatch(name) else f"[{name}]"
        return clean(f"{self._path}.{step}" if self._path and not step.startswith("[") else f"{self._path}{step}")

    def fail(self, name: str, message: str) -> NoReturn:
        """Raise InvalidObject for a field."""
        raise InvalidObject([(self.at(name), message)], subject=self.subject)

    def is_set(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        return self._values.get(name) is not None

    def object(self, name: str) -> Fields:
        """Return an object; an empty one if the field is not set. Raises InvalidObject for another type."""
        value = self._take(name, {})
        if not isinstance(value, Mapping):
            self.fail(name, "must be an object")
        return Fields(value, subject=self.subject, path=self.at(name))

    def objects(self, name: str) -> list[Fields]:
        """Return the objects of a list; none if the field is not set. Raises InvalidObject for another type."""
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
        """Return a string; the empty one if the field is not set. Raises InvalidObject for another type."""
        value = self._take(name, "")
        if not isinstance(value, str):
            self.fail(name, "must be a string (put it in quotes)")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean. Raises InvalidObject for another type."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            self.fail(name, "must be true or false")
        return value

    def number(self, name: str, *, default: float = 0) -> float:
        """Return a finite number. Raises InvalidObject for anything else."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(name, "must be a number")
        return value

    def quantity(self, name: str) -> Fraction | None:
        """Return a quantity with a unit, such as "800Gi"; None for anything else, which may be a number."""
        value = self._values.get(name)
        if not isinstance(value, str) or value.strip().removeprefix("-").replace(".", "").isdigit():
            return None
        try:
            return parse_quantity(value.strip())
        except InvalidQuantity as error:
            raise InvalidObject([(self.at(name), str(error))], subject=self.subject) from error
        finally:
            self._read.add(name)

    def amounts(self, name: str, *, aliases: Mapping[str, str] | None = None, limits: bool = False) -> dict[str, int]:
        """Return an object of quantities as resource -> amount, rounded down.

        `aliases` maps the scheduler's names of resources to those of Kubernetes. A quantity of UNLIMITED or more is an
        error, except for `limits`, where it means no limit. Raises InvalidObject.
        """
        found: dict[str, int] = {}
        quantities = self.object(name)
        for key in quantities:
            value = quantities._take(key, 0)
            resource = (aliases or {}).get(key, key)
            if not is_qualified_name(resource):
                quantities.fail(key, 'is not a resource name such as "cpu" or "example.com/gpu"')
            try:
                number = parse_quantity(value.replace(" ", "") if isinstance(value, str) else value)
            except InvalidQuantity as error:
                raise InvalidObject([(quantities.at(key), str(error))], subject=self.subject) from error
            found[resource] = quantities.amount(key, resource, number)
            if found[resource] == UNLIMITED and not limits:
                quantities.fail(key, "is more than can be counted")
        return found

    def amount(self, name: str, resource: str, number: Fraction) -> int:
        """Return the number of a field as an amount, at most UNLIMITED; rounded down, so that no limit grows."""
        if number < 0:
            self.fail(name, f"must not be negative, but is {float(number):g}")
        return min(math.floor(number * 1000 if resource == "cpu" else number), UNLIMITED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def unread(self, known: Mapping[str, str], *, ignored: Iterable[str] = ()) -> list[str]:
        """Return a note on each field that was not read: that of `known`, or that the field is unknown.

        Fields in `ignored` have no note.
        """
        notes = [
            f"{self.at(name)}: {known.get(name, 'unknown to this import, and left out')}"
            for name in self._values
            if name not in self._read and name not in ignored and self._values[name] is not None
        ]
        more = len(notes) - _MAX_NOTES
        return notes[:_MAX_NOTES] + ([f"{self._path or 'it'} has {more} more such fields"] if more > 0 else [])

    def _take(self, name: str, default: Any) -> Any:
        """Return the value of a field, and note that it was read."""
        self._read.add(name)
        value = self._values.get(name)
        return default if value is None else value
