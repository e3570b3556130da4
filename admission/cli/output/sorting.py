"""`--sort-by`: sorting of objects by a field, as in kubectl."""

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


def sorted_by(path: str, items: Iterable[T], document_of: Callable[[T], Document]) -> list[T]:
    """Return the items sorted by the value of `path` in their documents: missing first, then numbers, then text.

    Quantities such as `500m` are numbers. Raises CommandError if no object has the field.
    """
    pairs = [(next(iter(find(path, document_of(item))), None), item) for item in items]
    if pairs and all(value is None for value, _ in pairs):
        raise CommandError(f"--sort-by: none of the objects has a field {path}; -o yaml shows the fields")
    return [item for _, item in sorted(pairs, key=lambda pair: _key(pair[0]))]


def _key(value: Any) -> _Key:
    """Return the sort key of a value: (0 missing, 1 number, 2 text), the number, the parts of the text."""
    if value is None:
        return 0, 0, []
    if isinstance(value, bool | int | float):
        return 1, value, []
    text = str(value)
    try:
        return 1, parse_quantity(text), []
    except InvalidQuantity:
        # Digits compare as numbers, so that job-9 comes before job-10.
        parts = re.findall(r"(\d+)|(\D+)", text, re.ASCII)
        return 2, 0, [(0, int(number), "") if number else (1, 0, word) for number, word in parts]
