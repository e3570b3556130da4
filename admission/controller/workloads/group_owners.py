"""The objects whose pods are queued in groups: how many pods there are to be, who asked, and whether it is over.

And those of other systems that say how many pods a group needs, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson

from admission.controller.state.tracked import StoredObject, is_older, packed
from admission.kinds.base import HOLD, SUBMITTED_BY
from admission.kinds.grouped import GroupedKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.kinds.base import Object
    from admission.kinds.foreign_groups import Declared, GroupSize
    from admission.kinds.group_sizes import GroupSizeKind
    from admission.kinds.registry import Kinds

_Key: TypeAlias = tuple[GroupedKind, str, str]
"""Kind, namespace and name."""


class _Known(NamedTuple):
    uid: str
    version: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """An object as it was last seen, for one of its groups."""

    kind: GroupedKind
    object: Object
    group: str

    @property
    def makes_pods(self) -> bool:
        """Whether its controller makes the pods of the group, again where they are gone."""
        is_alive = "deletionTimestamp" not in self.object["metadata"] and self.over is None
        return is_alive and self.kind.has_group(self.object, self.group)

    @property
    def over(self) -> Object | None:
        """How it has ended."""
        outcome = self.kind.outcome(self.object)
        return None if outcome is None else {"succeeded": outcome.succeeded, "message": outcome.message}

    @property
    def total(self) -> int:
        """How many pods the group is to have."""
        return self.kind.pods_of_a_group(self.object)

    @property
    def wanted(self) -> int | None:
        """How many pods the group is to have by now, which follows the scale; None: it is over, or ends."""
        if "deletionTimestamp" in self.object["metadata"] or self.over is not None:
            return None
        return self.total if self.kind.has_group(self.object, self.group) else 0

    @property
    def created(self) -> str:
        """Since when the group waits, however often its pods are made."""
        return str(self.object["metadata"]["creationTimestamp"])

    @property
    def labels(self) -> dict[str, str]:
        """Those that count for the group: priority, time limit, hold."""
        conventions = self.kind.conventions
        known = (*conventions.priority_labels, *conventions.time_labels, HOLD)
        return _some(self.object, "labels", known)

    @property
    def annotations(self) -> dict[str, str]:
        """Who has submitted it, for its pods are made by its controller; and whether it is on hold."""
        return _some(self.object, "annotations", (SUBMITTED_BY, HOLD, self.kind.conventions.gate_annotation))


class GroupOwners:
    """All of them that are known."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = [kind for kind in kinds if isinstance(kind, GroupedKind)]
        self._sizes = kinds.sizes
        self._known: dict[_Key, _Known] = {}
        self._keys: dict[str, _Key] = {}
        """By uid."""

    def objects(self) -> dict[str, StoredObject]:
        """All that are known, by uid."""
        return {uid: StoredObject(key[0], self._known[key].raw) for uid, key in self._keys.items()}

    def take(self, kind: GroupedKind, obj: Object) -> None:
        """Take in an object as it is now, if its pods are queued in groups."""
        metadata = obj["metadata"]
        if not kind.tells_of_pods_of(obj):
            self.gone(metadata["uid"])
            return
        uid, version = metadata["uid"], metadata["resourceVersion"]
        key = kind, metadata["namespace"], metadata["name"]
        known = self._known.get(key)
        if known is not None and known.uid == uid and is_older(version, known.version):
            return
        if known is not None:
            self._keys.pop(known.uid, None)
        self._known[key], self._keys[uid] = _Known(uid, version, packed(obj)), key

    def gone(self, uid: str) -> tuple[GroupedKind, str, str] | None:
        """An object does not exist any more; its kind, namespace and name, if it was one of these."""
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._known[key]
        return key

    def needed(self, namespace: str, told: Iterable[Declared | None]) -> frozenset[int] | None:
        """How many pods have to start together, as those of a group say; 0: they need not; empty: nobody says.

        None: it is no group of another system.
        """
        declared = {each for each in told if each is not None}
        numbers = (self._number(namespace, each) for each in declared)
        return frozenset(number for number in numbers if number is not None) if declared else None

    def _number(self, namespace: str, told: Declared) -> int | None:
        if told.size is None:
            return told.needed or None
        found = self._size(namespace, told.size)
        return None if found is None else found[0].needed(found[1], told.size.part)

    def priority_class(self, namespace: str, told: Iterable[Declared | None]) -> str:
        """The PriorityClass of a group of another system, where an object of that says it; empty: its pods do."""
        sizes = {each.size for each in told if each is not None and each.size is not None}
        found = (self._size(namespace, size) for size in sizes)
        return max((kind.priority_class(obj) for kind, obj in filter(None, found)), default="")

    def _size(self, namespace: str, size: GroupSize) -> tuple[GroupSizeKind, Object] | None:
        """The object that says how large a group is; None: it is not there."""
        kind = self._sizes.get((size.group, size.kind))
        known = None if kind is None else self._known.get((kind, namespace, size.name))
        return None if kind is None or known is None else (kind, orjson.loads(known.raw))

    def of(self, group: tuple[str, str]) -> GroupOwner | None:
        """The object whose group this is, by namespace and name; None: there is none."""
        namespace, name = group
        for kind in self._kinds:
            owner = kind.owner_of(name)
            if owner and (known := self._known.get((kind, namespace, owner))):
                return GroupOwner(kind, orjson.loads(known.raw), name)
        return None


def _some(obj: Object, field: str, keys: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, Any] = obj["metadata"].get(field) or {}
    return {key: values[key] for key in keys if key in values}
