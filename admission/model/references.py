"""References between queue objects: which fields name objects of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Reference(NamedTuple):
    """A field of a kind's JSON document that names objects of another kind."""

    kind: str
    """The kind that is named."""
    path: str
    """Such as `spec.resourceGroups[].flavors[].name`; `[]` is each item of a list."""
    column: str = ""
    """The column of the table of queue objects that holds the name, if one does."""
    needed: bool = True
    """Whether an object that is named cannot be deleted."""

    def names(self, content: Mapping[str, Any]) -> Iterator[str]:
        """The names in an object's document; fields that are not there name nothing."""
        return _names(content, self.path.split("."))


def _names(value: Any, path: list[str]) -> Iterator[str]:
    if not path:
        if value:
            yield value
        return
    key, rest = path[0], path[1:]
    found = value.get(key.removesuffix("[]")) if value else None
    if key.endswith("[]"):
        for item in found or ():
            yield from _names(item, rest)
    elif found is not None:
        yield from _names(found, rest)
