"""Gates: what keeps an object from running, and the JSON patches that close and open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from admission.kinds.patches import pointer

if TYPE_CHECKING:
    from admission.kinds.base import Object


@dataclass(frozen=True, slots=True)
class SuspendField:
    """A boolean field of the object, such as `spec.suspend`; its controller ends all pods while it is true."""

    path: tuple[str, ...]

    def is_closed(self, obj: Object) -> bool:
        """Whether the object is suspended."""
        found: Any = obj
        for key in self.path:
            found = found.get(key) if isinstance(found, dict) else None
        return found is True

    def close(self, obj: Object) -> list[Object]:
        """The operations that suspend it."""
        return self._set(obj, suspend=True)

    def open(self, obj: Object) -> list[Object]:
        """The operations that unsuspend it."""
        return self._set(obj, suspend=False)

    def _set(self, obj: Object, *, suspend: bool) -> list[Object]:
        """Parents that are not there are added with it."""
        parent: Any = obj
        for depth, key in enumerate(self.path[:-1], start=1):
            parent = parent.get(key)
            if not isinstance(parent, dict):
                value: Any = suspend
                for inner in reversed(self.path[depth:]):
                    value = {inner: value}
                return [{"op": "add", "path": pointer(*self.path[:depth]), "value": value}]
        return [{"op": "add", "path": pointer(*self.path), "value": suspend}]
