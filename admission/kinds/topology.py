"""Annotations of pod templates that request a placement by topology: their values, and the faults in them.

Names, rules and texts are Kueue's (`apis/kueue/v1beta2/topology_types.go` at ff69552). Each annotation is read with the
prefix `sluice.dev/`, too, which comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from admission.kinds.base import KUEUE
from admission.model.names import is_qualified_name
from admission.model.topology import SliceLayer, TopologyRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_OURS: Final = "sluice.dev/"
REQUIRED: Final = "podset-required-topology"
PREFERRED: Final = "podset-preferred-topology"
UNCONSTRAINED: Final = "podset-unconstrained-topology"
_SLICE_LEVEL: Final = "podset-slice-required-topology"
_SLICE_SIZE: Final = "podset-slice-size"
_LAYERS: Final = "podset-slice-required-topology-constraints"
_GROUP: Final = "podset-group-name"
_PLACED: Final = (REQUIRED, PREFERRED, UNCONSTRAINED, _SLICE_LEVEL, _LAYERS)
PLACED_ANNOTATIONS: Final = frozenset(prefix + name for prefix in (_OURS, KUEUE) for name in _PLACED)
"""Annotations of pods that are placed by topology: their room is counted with the domains of their workload."""
ANNOTATIONS: Final = PLACED_ANNOTATIONS | {prefix + name for prefix in (_OURS, KUEUE) for name in (_SLICE_SIZE, _GROUP)}
"""All annotations that this module reads."""
REQUIRED_KEY: Final = _OURS + REQUIRED
PREFERRED_KEY: Final = _OURS + PREFERRED
OWN_UNCONSTRAINED: Final = _OURS + UNCONSTRAINED
"""Annotation that a start adds to pods that are placed without having requested it."""
GATE: Final = "sluice.dev/topology"
"""Scheduling gate of pods of a started workload that wait for the node selector of their domain."""
POD_SET: Final = "sluice.dev/topology-pod-set"
"""Annotation with the name of the pod set, on pods with that gate."""
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_MOST_LAYERS: Final = 3


class Asked(NamedTuple):
    """The annotations of one pod template that this module reads."""

    path: str
    """Path of the template's annotations, for messages."""
    values: Mapping[str, tuple[str, str]]
    """Name without prefix -> (annotation, value)."""
    pods: int | None
    """Number of pods of the pod set; None: not known."""

    def text(self, name: str) -> str:
        """Return the value of an annotation; empty: it is absent."""
        return self.values[name][1] if name in self.values else ""

    def at(self, name: str) -> str:
        """Return the path of an annotation for messages."""
        return f"{self.path}[{self.key(name)}]"

    def key(self, name: str) -> str:
        """Return the whole name of an annotation; of an absent one with Kueue's prefix."""
        return self.values[name][0] if name in self.values else KUEUE + name


def asked(template: Mapping[str, Any], path: str = "", pods: int | None = None) -> Asked | None:
    """Return the annotations of a template; None: it has none of them. `path`: the template's; empty for a pod."""
    annotations = (template.get("metadata") or {}).get("annotations")
    if not annotations or ANNOTATIONS.isdisjoint(annotations):
        return None
    values = {}
    for prefix in (KUEUE, _OURS):
        for name in (*_PLACED, _SLICE_SIZE, _GROUP):
            if (key := prefix + name) in annotations:
                values[name] = key, annotations[key]
    return Asked(f"{path}.metadata.annotations" if path else "metadata.annotations", values, pods)


def request(found: Asked | None) -> tuple[TopologyRequest | None, str]:
    """Return what valid annotations request of the topology (None: nothing), and the group of the pod set."""
    if found is None:
        return None, ""
    layers: tuple[SliceLayer, ...] = ()
    if level := found.text(_SLICE_LEVEL):
        layers = (SliceLayer(level, int(found.text(_SLICE_SIZE) or 0)),)
    elif text := found.text(_LAYERS):
        layers = tuple(SliceLayer(layer["topology"], layer["size"]) for layer in orjson.loads(text))
    unconstrained = _BOOLEANS.get(found.text(UNCONSTRAINED), False)
    wanted = TopologyRequest(found.text(REQUIRED), found.text(PREFERRED), unconstrained, layers)
    return (wanted if wanted.explicit else None), found.text(_GROUP)


def faults(templates: Iterable[tuple[Mapping[str, Any], str, int | None]]) -> list[tuple[str, str]]:
    """Return (field path, message) of the faults in the annotations of an object's (template, its path, pods)."""
    every = [asked(*template) for template in templates]
    if not any(every):
        return []
    found = [one for one in every if one is not None]
    by_set = [fault for one in found for fault in (*_level_faults(one), *_slice_faults(one), *_layer_faults(one))]
    return [*by_set, *(fault for one in found for fault in _member_faults(one)), *_group_faults(found)]


def _level_faults(found: Asked) -> Iterator[tuple[str, str]]:
    named = [name for name in (REQUIRED, PREFERRED, UNCONSTRAINED) if name in found.values]
    if len(named) > 1:
        listed = ", ".join(f'"{found.key(name)}"' for name in (REQUIRED, PREFERRED, UNCONSTRAINED))
        yield found.path, f"must not contain more than one topology annotation: [{listed}]"
    for name in (REQUIRED, PREFERRED, _SLICE_LEVEL):
        if name in found.values and not is_qualified_name(found.text(name)):
            yield found.at(name), f'"{_shown(found.text(name))}" is no name of a node label'
    if UNCONSTRAINED in found.values and found.text(UNCONSTRAINED) not in _BOOLEANS:
        yield found.at(UNCONSTRAINED), "must be a boolean value"


def _slice_faults(found: Asked) -> Iterator[tuple[str, str]]:
    level, size = _SLICE_LEVEL in found.values, _SLICE_SIZE in found.values
    if level and not size and _LAYERS not in found.values:
        yield found.at(_SLICE_SIZE), f"must be set when '{found.key(_SLICE_LEVEL)}' is specified"
    if size and not level:
        yield found.at(_SLICE_SIZE), f"may not be set when '{KUEUE}{_SLICE_LEVEL}' is not specified"
    if size:
        text = found.text(_SLICE_SIZE)
        if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 11):
            yield found.at(_SLICE_SIZE), "must be a numeric value"
        elif message := _size_fault(int(text), found.pods):
            yield found.at(_SLICE_SIZE), message


def _layer_faults(found: Asked) -> Iterator[tuple[str, str]]:
    if _LAYERS not in found.values:
        return
    where = found.at(_LAYERS)
    for name in (_SLICE_LEVEL, _SLICE_SIZE, _GROUP):
        if name in found.values:
            yield where, f"may not be set when '{found.key(name)}' is specified"
    try:
        layers = orjson.loads(found.text(_LAYERS))
    except ValueError as error:
        yield where, f"must be a valid JSON array: {_shown(str(error))}"
        return
    if not isinstance(layers, list):
        yield where, "must be a valid JSON array: it is another value"
        return
    if not 1 <= len(layers) <= _MOST_LAYERS:
        yield where, "topology constraints must contain between 1 and 3 entries"
        return
    seen: set[str] = set()
    parent = 0
    for at, layer in enumerate(layers):
        level = layer.get("topology") if isinstance(layer, dict) else None
        size = layer.get("size") if isinstance(layer, dict) else None
        if not isinstance(level, str) or not is_qualified_name(level):
            yield f"{where}[{at}].topology", "must be the name of a node label"
        elif level in seen:
            yield f"{where}[{at}].topology", "must be unique"
        seen.add(str(level))
        if not isinstance(size, int) or isinstance(size, bool):
            yield f"{where}[{at}].size", "must be a numeric value"
            parent = 0
            continue
        if message := _size_fault(size, None if at else found.pods):
            yield f"{where}[{at}].size", message
        elif parent and parent % size:
            yield f"{where}[{at}].size", f"must evenly divide the parent layer size {parent}"
        parent = max(size, 0)


def _size_fault(size: int, pods: int | None) -> str:
    if size < 1:
        return "must be greater than or equal to 1"
    return f"must not be greater than pod set count {pods}" if pods is not None and size > pods else ""


def _member_faults(found: Asked) -> Iterator[tuple[str, str]]:
    if _GROUP not in found.values:
        return
    where = found.at(_GROUP)
    if found.text(_GROUP).lstrip("-").isdecimal():
        yield where, "must not be a number"
    for name in (_SLICE_LEVEL, _SLICE_SIZE):
        if name in found.values:
            yield where, f"may not be set when '{found.key(name)}' is specified"
    if REQUIRED not in found.values and PREFERRED not in found.values:
        yield where, f"may not be set when neither '{KUEUE}{REQUIRED}' nor '{KUEUE}{PREFERRED}' is specified"


def _group_faults(found: Sequence[Asked]) -> Iterator[tuple[str, str]]:
    groups: dict[str, list[Asked]] = {}
    for one in found:
        if one.text(_GROUP) and one.pods is not None:  # pods do not show what else is in their group
            groups.setdefault(one.text(_GROUP), []).append(one)
    for members in groups.values():
        where = members[0].at(_GROUP)
        if len(members) != 2:
            yield where, f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            continue
        if all(one.pods != 1 for one in members):
            yield where, "at least one pod set of a group must have only 1 replica"
        levels = {(one.text(REQUIRED), one.text(PREFERRED)) for one in members}
        if len(levels) > 1:
            yield where, f"must have the same '{KUEUE}{REQUIRED}' or '{KUEUE}{PREFERRED}' in both pod sets"


def _shown(text: str) -> str:
    return text[:100]
