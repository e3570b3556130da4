"""AppWrapper v1beta1 of MCAD: it contains objects that are to be created when it is dispatched.

MCAD is archived. Its definition has no field that keeps an AppWrapper from running, so an annotation says that it may;
`admission.controller.intake.appwrappers` creates the contained objects while the annotation is set, and deletes them
when it is not.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission.kinds import paths
from admission.kinds.children import SpecifiedChild
from admission.kinds.common import NOTHING, quote
from admission.kinds.patches import pointer
from admission.kinds.places import Place
from admission.model import names
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object
    from admission.kinds.gates import SuspendField

DISPATCH: Final = "sluice.dev/dispatch"
"""Annotation: "true" while the objects that an AppWrapper contains are to exist."""
LEGACY: Final = "v1beta1"
"""Version of MCAD's definition."""
APP_WRAPPER: Final = "appwrapper.mcad.ibm.com"
"""Label of all objects created for an AppWrapper and of the pods of its Jobs, with its name as value, as in MCAD."""
_ITEMS: Final = ("spec", "resources", "GenericItems")
_TEMPLATES: Final[dict[tuple[str, str], tuple[str, ...] | None]] = {
    ("v1", "Pod"): (),
    ("batch/v1", "Job"): ("spec", "template"),
    ("v1", "Service"): None,
    ("v1", "ConfigMap"): None,
}
"""By apiVersion and kind of a contained object: keys of its pod template; None: it has no pods."""


class WrappedItem(NamedTuple):
    """One object that an AppWrapper contains."""

    object: Object
    """The object to create, without owner references."""
    template: str
    """Path of its pod template in the AppWrapper; empty: it has no pods."""
    pods: int
    """Number of pods that it runs at a time."""


def is_legacy(obj: Object) -> bool:
    """Whether the object is of v1beta1: it has items, where v1beta2 has components."""
    return paths.at(obj, ("spec", "components")) is None and isinstance(paths.at(obj, _ITEMS), list)


@dataclass(frozen=True, slots=True)
class DispatchGate:
    """Gate of AppWrappers: the annotation for MCAD's, the suspend field for its successor's."""

    field: SuspendField

    def is_closed(self, obj: Object) -> bool:
        """Whether the object is kept from running."""
        return not _is_marked(obj) if is_legacy(obj) else self.field.is_closed(obj)

    def close(self, obj: Object) -> list[Object]:
        """Return the operations that close the gate."""
        if not is_legacy(obj):
            return self.field.close(obj)
        return [{"op": "remove", "path": pointer("metadata", "annotations", DISPATCH)}] if _is_marked(obj) else []

    def open(self, obj: Object) -> list[Object]:
        """Return the operations that open the gate."""
        if not is_legacy(obj):
            return self.field.open(obj)
        had = isinstance(obj["metadata"].get("annotations"), dict)
        parent = [] if had else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        return [*parent, {"op": "add", "path": pointer("metadata", "annotations", DISPATCH), "value": "true"}]


def _is_marked(obj: Object) -> bool:
    return (obj["metadata"].get("annotations") or NOTHING).get(DISPATCH) == "true"


def items(obj: Object) -> list[WrappedItem]:
    """Return all objects to create for it, in its namespace, with the label by which they and their pods are found.

    Raises Misconfigured.
    """
    metadata, found = obj["metadata"], list[WrappedItem]()
    _check_names(obj)
    for keys, item in _generic(obj):
        template = item["generictemplate"]
        where = _TEMPLATES[_kind_of(template, paths.FoundValue(keys, None).text)]
        text = "" if where is None else paths.FoundValue((*keys, *where), None).text
        pods = 0 if where is None else _pods(template, keys)
        for name in _names(item):
            body = {key: deepcopy(value) for key, value in template.items() if key != "status"}
            body["metadata"] |= {"name": name, "namespace": metadata["namespace"]}
            for labelled in (body, paths.at(body, where) if where else None):
                if isinstance(labelled, dict):
                    labelled["metadata"] = _with_label(labelled.get("metadata"), metadata["name"])
            found.append(WrappedItem(body, text, pods))
    return found


def _with_label(metadata: Any, name: str) -> Object:
    """Return the metadata of an object or template with the label of the AppWrapper that has this name."""
    own = metadata if isinstance(metadata, dict) else {}
    labels = own.get("labels")
    return {**own, "labels": {**(labels if isinstance(labels, dict) else {}), APP_WRAPPER: name}}


def _check_names(obj: Object) -> None:
    """Raise Misconfigured if two objects have the same kind and name, or if there are too many objects."""
    taken: set[tuple[tuple[str, str], str]] = set()
    for keys, item in _generic(obj):
        path = paths.FoundValue(keys, None).text
        kind = _kind_of(item["generictemplate"], path)
        for name in _names(item):
            if (kind, name) in taken:
                raise Misconfigured(
                    f"{path}.metadata.name: there are two of {kind[1]} {quote(name)}; name them differently"
                )
            taken.add((kind, name))
        if len(taken) > _MOST:
            raise Misconfigured(
                f"{'.'.join(_ITEMS)}: there are more than {_MOST} objects with all replicas; use several AppWrappers"
            )


def _names(item: Object) -> Iterator[str]:
    """Yield the names of an item's objects: numbered if it has several replicas."""
    name, copies = str(item["generictemplate"]["metadata"]["name"]), paths.number(item, ("replicas",), 1)
    return (f"{name}-{number}" for number in range(copies)) if copies > 1 else iter((name,))


def places(obj: Object) -> list[Place]:
    """Return one pod set for each item with pods. Raises Misconfigured for objects that Sluice does not create."""
    found = []
    _check_names(obj)
    for number, (keys, item) in enumerate(_generic(obj)):
        template, text = item["generictemplate"], paths.FoundValue(keys, None).text
        where = _TEMPLATES[_kind_of(template, text)]
        if where is None:
            continue
        pod = paths.at(template, where)
        if not isinstance(pod, dict):
            raise Misconfigured(f"{text}.spec.template: is missing; without a pod template its pods cannot be counted")
        path = paths.FoundValue((*keys, *where), None).text
        counts = [
            (*keys[:-1], "replicas"),
            *((*keys, "spec", each) for each in ("parallelism", "completions") if where),
        ]
        pods = _pods(template, keys) * paths.number(item, ("replicas",), 1)
        found.append(Place(f"item-{number}", path, pod, pods, (*keys, *where), count_fields=tuple(counts)))
    return found


def wrapped(obj: Object) -> Iterator[SpecifiedChild]:
    """Yield its items with pods, as children."""
    numbers = {place.path: number for number, place in enumerate(places(obj))}
    for keys, item in _generic(obj):
        version, kind = _kind_of(item["generictemplate"], paths.FoundValue(keys, None).text)
        where = _TEMPLATES[version, kind]
        if where is not None:
            number = numbers[paths.FoundValue((*keys, *where), None).text]
            yield from (
                SpecifiedChild(version.rpartition("/")[0], kind, name, "", 0, (number,)) for name in _names(item)
            )


def _generic(obj: Object) -> Iterator[tuple[tuple[str, ...], Object]]:
    """Yield each item, with the keys of its template."""
    for number, item in enumerate(paths.at(obj, _ITEMS) or ()):
        if not isinstance(item, dict) or not isinstance(item.get("generictemplate"), dict):
            where = f"spec.resources.GenericItems[{number}].generictemplate"
            raise Misconfigured(f"{where}: is missing; it is the object to be created")
        if 0 < paths.number(item, ("replicas",), 1) <= _MOST:
            yield (*_ITEMS, str(number), "generictemplate"), item
        else:
            where = f"spec.resources.GenericItems[{number}].replicas"
            raise Misconfigured(f"{where}: must be a number from 1 to {_MOST}")


_MOST: Final = 1000
"""Maximum number of replicas of one item, and of objects of an AppWrapper: each takes time when one of them changes."""


def _kind_of(template: Object, path: str) -> tuple[str, str]:
    kind = str(template.get("apiVersion")), str(template.get("kind"))
    if kind not in _TEMPLATES:
        known = ", ".join(name for _, name in _TEMPLATES)
        raise Misconfigured(f"{path}.kind: Sluice creates no {quote(kind[1])} of {quote(kind[0])} for it, but {known}")
    metadata: Any = template.get("metadata")
    if not isinstance(metadata, dict) or not names.is_dns_subdomain(str(metadata.get("name") or "")):
        raise Misconfigured(f"{path}.metadata.name: is missing, or no valid name for the object to be created")
    return kind


def _pods(template: Object, keys: tuple[str, ...]) -> int:
    """Return the number of pods that one copy runs at a time."""
    if template["kind"] != "Job":
        return 1
    parallelism = paths.count(template, ("spec", "parallelism"), 1, before=keys)
    return min(parallelism, paths.count(template, ("spec", "completions"), parallelism, before=keys))
