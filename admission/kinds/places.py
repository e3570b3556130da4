"""Where the pod sets of an object are: a template, how many pods of it, and where a start puts in what it adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from admission.kinds import paths
from admission.kinds.base import POD_SET
from admission.model.errors import Misconfigured
from admission.model.names import is_label_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.kinds.base import Object
    from admission.kinds.paths import Found, Path


class Place(NamedTuple):
    """One pod set of an object."""

    name: str
    path: str
    """Of the template, for messages."""
    template: Object
    pods: int
    into: tuple[str, ...]
    """The keys that lead to what a start changes: the template, or an object that is merged into it (`flat`).

    Empty: a start changes nothing of this pod set.
    """
    flat: bool = False
    """Whether labels, annotations, nodeSelector and tolerations are fields of that object itself."""
    metadata: str = ""
    """Of a flat object: the field that has labels and annotations; empty: they are beside the others."""
    ended: int = 0
    """How many of the pods have ended well and are gone: their quota can be given back."""
    each: int = 1
    """How many pods a copy has, where there are copies of some pods each."""
    numbers: tuple[tuple[str, ...], ...] = ()
    """The keys of the fields that `pods` is computed from."""
    lowered: tuple[str, ...] = ()
    """The keys of the one of these that a start with fewer pods lowers; empty: it starts with all of them."""
    floor: int = 1
    """The least that this number may be."""
    min_count: int = 0
    """How few pods it may start with, as the object says by a field; 0: it does not say."""

    @property
    def label(self) -> dict[str, str]:
        """By which its pods are counted, where a label can have its name."""
        return {POD_SET: self.name} if is_label_value(self.name) else {}

    @property
    def left(self) -> int:
        """How many pods are still needed."""
        return max(self.pods - self.ended, 0)


@dataclass(frozen=True, slots=True)
class Ended:
    """Where the status says how many copies of a pod set have ended well."""

    items: Path
    name: Path
    count: Path


@dataclass(frozen=True, slots=True)
class PodSetForm:
    """Pod sets at a path, one for each object there. All other paths are from that object on."""

    path: Path
    template: Path
    name: str = ""
    name_from: Path = ()
    """Where the name is; else it is `name`."""
    replicas: Path = ()
    """How many copies, 1 where that is not said; not more than `maximum` and not less than `minimum` say."""
    minimum: Path = ()
    maximum: Path = ()
    times: tuple[Path, ...] = ()
    """What else the number is multiplied with, 1 where it is not said."""
    parallelism: Path = ()
    completions: Path = ()
    """How many pods each copy has, as with a Job: the smaller of the two."""
    unless: Path = ()
    """No pods where this is true."""
    min_count: Path | None = None
    """Whether it may start with fewer copies; and, if not empty, the field that says how few may be enough."""
    ended: Ended | None = None

    def places(self, obj: Object) -> Iterator[Place]:
        """The pod sets of an object. Raises Misconfigured for one without template or name, or a wrong number."""
        for found in paths.find(obj, self.path):
            name = self.name or paths.value(found.value, self.name_from)
            template = paths.value(found.value, self.template)
            if not isinstance(name, str) or not name:
                raise Misconfigured(f"{found.text}.{'.'.join(self.name_from)}: is missing; each pod set needs a name")
            into = (*found.keys, *self.template)
            path = paths.Found(into, None).text
            if not isinstance(template, dict):
                raise Misconfigured(f"{path}: is missing; without a pod template nothing can be counted")
            each = self._each(found)
            yield Place(
                name=name,
                path=path,
                template=template,
                pods=each * self._copies(found),
                into=into,
                each=max(each, 1),
                ended=each * self._ended(obj, name),
                numbers=self._numbers(found),
                # Of copies of several pods each quota might be given for a part of a copy.
                lowered=(*found.keys, *self.replicas) if self.min_count is not None and each == 1 else (),
                floor=max(_count(found, self.minimum, 0) if self.minimum else 0, 1),
                min_count=_count(found, self.min_count, 0) if self.min_count else 0,
            )

    def _copies(self, found: Found) -> int:
        copies = _count(found, self.replicas, 1) if self.replicas else 1
        if self.maximum:
            copies = min(copies, _count(found, self.maximum, copies))
        if self.minimum:
            copies = max(copies, _count(found, self.minimum, 0))
        return 0 if self.unless and paths.value(found.value, self.unless) is True else copies

    def _each(self, found: Found) -> int:
        pods = _count(found, self.parallelism, 1) if self.parallelism else 1
        if self.completions:
            pods = min(pods, _count(found, self.completions, pods))
        for factor in self.times:
            pods *= _count(found, factor, 1)
        return pods

    def _ended(self, obj: Object, name: str) -> int:
        if self.ended is None:
            return 0
        for item in paths.find(obj, self.ended.items):
            if paths.value(item.value, self.ended.name) == name:
                return paths.number(item.value, self.ended.count, 0)
        return 0

    def _numbers(self, found: Found) -> tuple[tuple[str, ...], ...]:
        given = (
            self.replicas,
            self.minimum,
            self.maximum,
            *self.times,
            self.parallelism,
            self.completions,
            self.unless,
        )
        return tuple((*found.keys, *path) for path in given if path)


def _count(found: Found, path: Path, default: int) -> int:
    return paths.count(found.value, path, default, before=found.keys)


def as_template(info: Mapping[str, Any], *, metadata: str = "") -> Object:
    """A flat object, as a template with the same labels, annotations, nodeSelector and tolerations."""
    template: Object = {}
    for part, fields in _PARTS.items():
        source = info.get(metadata) or {} if part == "metadata" and metadata else info
        if here := {field: source[field] for field in fields if source.get(field) is not None}:
            template[part] = here
    return template


def flattened(patch: Mapping[str, Any], *, metadata: str = "") -> Object:
    """A merge patch of a template, as one of a flat object."""
    if metadata:
        return {**patch.get("spec", {}), **({metadata: patch["metadata"]} if "metadata" in patch else {})}
    return {field: value for part in _PARTS for field, value in patch.get(part, {}).items()}


_PARTS = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations")}
