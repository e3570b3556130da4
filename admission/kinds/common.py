"""Values of labels, annotations and metadata, as all kinds read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Object

NOTHING: Final[dict[str, Any]] = {}
_LONGEST_QUOTE: Final = 100
"""Maximum length of a value that a message quotes, in characters."""


def first(values: Mapping[str, str] | None, keys: tuple[str, ...]) -> str:
    """Return the value of the first of these keys that is present and not empty; else ""."""
    if values:
        for key in keys:
            if value := values.get(key):
                return value
    return ""


def quote(text: str) -> str:
    """Return a user's text, cleaned and shortened for a message."""
    return clean(text, longest=_LONGEST_QUOTE)


def lock(obj: Object) -> Object:
    """Return the metadata that makes a merge patch fail (409) on another resourceVersion of the object."""
    return {"resourceVersion": obj["metadata"]["resourceVersion"]}


def is_positive(text: str) -> bool:
    """Whether the text is a positive whole number of at most nine digits."""
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
