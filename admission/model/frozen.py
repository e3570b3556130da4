"""Frozen dataclasses of which there are 100,000: frozen by mypy, and not once more at each construction.

With `frozen=True` the `__init__` of a dataclass calls `object.__setattr__` for every field, which takes three to four
times as long; a start makes some millions of fields. `frozen` is `dataclass` for type checkers. At run time it makes
the same class, equal and hashable by value, without that.
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
