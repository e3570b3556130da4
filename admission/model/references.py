"""References between queue objects: the fields of a kind that name objects of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ReferenceField(NamedTuple):
    """A field of a kind's JSON document that names objects of another kind."""

    kind: str
    """The kind of the objects that the field names."""
    path: str
    """Path of the field: `spec.resourceGroups[].flavors[].name`; `[]` stands for each item of a list."""
    column: str = ""
    """Column of the table of queue objects that stores the name; empty: none."""
    needed: bool = True
    """Whether an object must not be deleted while the field names it."""

    def names(self, content: Mapping[str, Any]) -> Iterator[str]:
        """Yield the names in an object's JSON document; missing fields yield nothing."""
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
