"""Predicates on the status of an object: tests of conditions, phases and numbers at paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from admission.kinds import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.base import Object
    from admission.kinds.paths import Path


@dataclass(frozen=True, slots=True)
class HasCondition:
    """True if the condition of this type in `status.conditions` has this status."""

    type: str
    status: str = "True"

    def holds(self, obj: Object) -> bool:
        return self.found(obj) is not None

    def found(self, obj: Object) -> Object | None:
        """Return the condition, if it has the wanted status; else None."""
        for condition in (obj.get("status") or {}).get("conditions") or ():
            if condition.get("type") == self.type and condition.get("status") == self.status:
                found: Object = condition
                return found
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """True if the value at a path is one of these; an absent value counts as ""."""

    path: Path
    values: tuple[Any, ...]

    def holds(self, obj: Object) -> bool:
        found = paths.value(obj, self.path)
        return ("" if found is None else found) in self.values


@dataclass(frozen=True, slots=True)
class NoneOf:
    """True if the value at a path is none of these; an absent value counts as ""."""

    path: Path
    values: tuple[Any, ...]

    def holds(self, obj: Object) -> bool:
        found = paths.value(obj, self.path)
        return ("" if found is None else found) not in self.values


@dataclass(frozen=True, slots=True)
class Above:
    """True if a number at a path is greater than this; with `[*]` one of the numbers is enough."""

    path: Path
    number: int

    def holds(self, obj: Object) -> bool:
        return any(isinstance(found.value, int) and found.value > self.number for found in paths.find(obj, self.path))


@dataclass(frozen=True, slots=True)
class Reaches:
    """True if the sum of the numbers at some paths is at least the sum at others, and that is not zero."""

    sum: tuple[Path, ...]
    reaches: tuple[Path, ...]

    def holds(self, obj: Object) -> bool:
        wanted = _sum(obj, self.reaches)
        return _sum(obj, self.sum) >= wanted > 0


@dataclass(frozen=True, slots=True)
class All:
    """True if all of these predicates are."""

    of: tuple[Predicate, ...]

    def holds(self, obj: Object) -> bool:
        return all(predicate.holds(obj) for predicate in self.of)


Predicate: TypeAlias = "HasCondition | OneOf | NoneOf | Above | Reaches | All"


def _sum(obj: Object, found_at: Iterable[Path]) -> int:
    found = (each.value for path in found_at for each in paths.find(obj, path))
    return sum(number for number in found if isinstance(number, int))


def first(obj: Object, predicates: Iterable[Predicate]) -> Predicate | None:
    """Return the first predicate that is true for the object; None if there is none."""
    return next((predicate for predicate in predicates if predicate.holds(obj)), None)
