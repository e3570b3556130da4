"""`--sort-by`: objects in the order of one of their fields, as kubectl sorts them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from admission.cli.errors import CommandError
from admission.cli.output.jsonpath import find
from admission.model.errors import InvalidQuantity
from admission.model.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from fractions import Fraction

    from admission.client.transport import Document

T = TypeVar("T")
_Key: TypeAlias = "tuple[int, Fraction | int | float, list[tuple[int, int, str]]]"


def sorted_by(path: str, found: Iterable[T], of: Callable[[T], Document]) -> list[T]:
    """`found` by what `path` finds in each object (`of` gives it): none, numbers and quantities, text.

    Raises CommandError if no object has the field.
    """
    pairs = [(next(iter(find(path, of(one))), None), one) for one in found]
    if pairs and all(value is None for value, _ in pairs):
        raise CommandError(f"--sort-by: none of the objects has a field {path}; look at one of them by -o yaml")
    return [one for _, one in sorted(pairs, key=lambda pair: _key(pair[0]))]


def _key(value: Any) -> _Key:
    if value is None:
        return 0, 0, []
    if isinstance(value, bool | int | float):
        return 1, value, []
    text = str(value)
    try:
        return 1, parse_quantity(text), []
    except InvalidQuantity:
        # job-9 comes before job-10
        parts = re.findall(r"(\d+)|(\D+)", text, re.ASCII)
        return 2, 0, [(0, int(number), "") if number else (1, 0, word) for number, word in parts]
