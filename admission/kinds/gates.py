"""Gates: what keeps an object from running, and the JSON patches that close and open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from admission.kinds import paths
from admission.kinds.patches import pointer

if TYPE_CHECKING:
    from admission.kinds.base import Object


class Gate(Protocol):
    """What keeps an object from running."""

    def is_closed(self, obj: Object) -> bool:
        """Whether it is kept from running."""

    def close(self, obj: Object) -> list[Object]:
        """The operations that close an open gate."""

    def open(self, obj: Object) -> list[Object]:
        """The operations that open a closed gate."""


@dataclass(frozen=True, slots=True)
class SuspendField:
    """A boolean field of the object, such as `spec.suspend`; its controller ends all pods while it is true."""

    path: tuple[str, ...]
    older: tuple[tuple[str, ...], ...] = ()
    """Where the field was in older versions of the definition, that drop the newer one: they are set with it."""

    def is_closed(self, obj: Object) -> bool:
        """Whether the object is suspended: by the newest of the fields that is there."""
        found = (paths.at(obj, path) for path in (self.path, *self.older))
        return next((value for value in found if value is not None), None) is True

    def close(self, obj: Object) -> list[Object]:
        """The operations that suspend it."""
        return [_set(obj, path, suspend=True) for path in (self.path, *self.older)]

    def open(self, obj: Object) -> list[Object]:
        """The operations that unsuspend it."""
        return [_set(obj, path, suspend=False) for path in (self.path, *self.older)]


@dataclass(frozen=True, slots=True)
class SchedulingGate:
    """A name in a pod's `spec.schedulingGates`: the scheduler passes the pod over. Only a new pod can be given one."""

    name: str

    def is_closed(self, obj: Object) -> bool:
        """Whether the pod has this gate; others may keep it waiting, too."""
        return any(gate["name"] == self.name for gate in obj["spec"].get("schedulingGates") or ())

    def close(self, obj: Object) -> list[Object]:
        """The operation that adds it to those that are there."""
        gate = {"name": self.name}
        if obj["spec"].get("schedulingGates"):
            return [{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]
        return [{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]

    def open(self, obj: Object) -> list[Object]:
        """The operations that remove it, if it is still where it was seen."""
        for number, gate in enumerate(obj["spec"].get("schedulingGates") or ()):
            if gate["name"] == self.name:
                path = f"/spec/schedulingGates/{number}"
                return [{"op": "test", "path": f"{path}/name", "value": self.name}, {"op": "remove", "path": path}]
        return []


def _set(obj: Object, path: tuple[str, ...], *, suspend: bool) -> Object:
    """Parents that are not there are added with it."""
    parent: Any = obj
    for depth, key in enumerate(path[:-1], start=1):
        parent = parent.get(key)
        if not isinstance(parent, dict):
            value: Any = suspend
            for inner in reversed(path[depth:]):
                value = {inner: value}
            return {"op": "add", "path": pointer(*path[:depth]), "value": value}
    return {"op": "add", "path": pointer(*path), "value": suspend}
