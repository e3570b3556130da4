"""Fast frozen dataclasses: type checkers enforce immutability, and construction costs as much as of an ordinary one.

With `frozen=True` the `__init__` of a dataclass calls `object.__setattr__` for every field, which takes three to four
times as long; a start with 100,000 workloads sets some millions of fields. `frozen` is `dataclass` for type checkers.
At run time it creates the same class, equal and hashable by value, without that check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as frozen
else:
    from dataclasses import dataclass

    def frozen(*, frozen: bool, slots: bool) -> object:
        assert frozen, "what may change is an ordinary dataclass"
        return dataclass(slots=slots, unsafe_hash=True)


__all__ = ["frozen"]
