"""Gates: what keeps an object from running, and the JSON patch operations that close and open a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from admission.kinds import paths
from admission.kinds.patches import pointer

if TYPE_CHECKING:
    from admission.kinds.base import Object


class Gate(Protocol):
    """Mechanism that keeps an object from running, such as a suspend field."""

    def is_closed(self, obj: Object) -> bool:
        """Whether the object is kept from running."""

    def close(self, obj: Object) -> list[Object]:
        """Return the operations that close an open gate."""

    def open(self, obj: Object) -> list[Object]:
        """Return the operations that open a closed gate."""


@dataclass(frozen=True, slots=True)
class SuspendField:
    """A boolean field such as `spec.suspend`; the object's controller terminates all pods while it is true."""

    path: tuple[str, ...]
    older: tuple[tuple[str, ...], ...] = ()
    """Paths of the field in older versions of the definition, which drop the newer one: all are set together."""

    def is_closed(self, obj: Object) -> bool:
        """Whether the object is suspended, by the newest of the fields that is present."""
        found = (paths.at(obj, path) for path in (self.path, *self.older))
        return next((value for value in found if value is not None), None) is True

    def close(self, obj: Object) -> list[Object]:
        """Return the operations that suspend it."""
        return [_set(obj, path, suspend=True) for path in (self.path, *self.older)]

    def open(self, obj: Object) -> list[Object]:
        """Return the operations that unsuspend it."""
        return [_set(obj, path, suspend=False) for path in (self.path, *self.older)]


@dataclass(frozen=True, slots=True)
class SchedulingGate:
    """An entry of a pod's `spec.schedulingGates`: the scheduler skips the pod. Can be added only at creation."""

    name: str

    def is_closed(self, obj: Object) -> bool:
        """Whether the pod has this gate; other gates may keep it waiting, too."""
        return any(gate["name"] == self.name for gate in obj["spec"].get("schedulingGates") or ())

    def close(self, obj: Object) -> list[Object]:
        """Return the operation that adds the gate to the pod's gates."""
        gate = {"name": self.name}
        if obj["spec"].get("schedulingGates"):
            return [{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]
        return [{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]

    def open(self, obj: Object) -> list[Object]:
        """Return the operations that remove the gate, with a test that it is still at the index where it was seen."""
        for number, gate in enumerate(obj["spec"].get("schedulingGates") or ()):
            if gate["name"] == self.name:
                path = f"/spec/schedulingGates/{number}"
                return [{"op": "test", "path": f"{path}/name", "value": self.name}, {"op": "remove", "path": path}]
        return []


def _set(obj: Object, path: tuple[str, ...], *, suspend: bool) -> Object:
    """Return the operation that sets the field; missing parents are added with it."""
    parent: Any = obj
    for depth, key in enumerate(path[:-1], start=1):
        parent = parent.get(key)
        if not isinstance(parent, dict):
            value: Any = suspend
            for inner in reversed(path[depth:]):
                value = {inner: value}
            return {"op": "add", "path": pointer(*path[:depth]), "value": value}
    return {"op": "add", "path": pointer(*path), "value": suspend}
