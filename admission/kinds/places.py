"""Location of pod sets in an object: the template, the number of pods, and where a start injects."""

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
    from admission.kinds.paths import FoundValue, Path


class Place(NamedTuple):
    """One pod set of an object."""

    name: str
    path: str
    """Path of the template, for messages."""
    template: Object
    pods: int
    target: tuple[str, ...]
    """Keys that lead to what a start patches: the template, or an object that is merged into it (`flat`).

    Empty: a start injects nothing into this pod set.
    """
    flat: bool = False
    """Whether labels, annotations, nodeSelector and tolerations are fields of the target itself."""
    takes_gates: bool = True
    """Whether the target may have scheduling gates."""
    metadata: str = ""
    """Of a flat target: the field with labels and annotations; empty: they are fields of the target itself."""
    succeeded: int = 0
    """Number of pods that have succeeded: their quota can be released."""
    pods_per_copy: int = 1
    """Pods of one copy, where the pod set consists of copies of several pods each."""
    count_fields: tuple[tuple[str, ...], ...] = ()
    """Keys of each field that `pods` is computed from."""
    reducible: tuple[str, ...] = ()
    """Keys of the count field that a start with fewer pods lowers; empty: it starts with all of them."""
    lowest: int = 1
    """Minimum value of that field."""
    min_count: int = 0
    """Minimum number of pods to start with, if a field of the object says so; 0: none says so."""
    stays: bool = False
    """Whether a changed number of pods takes effect with the next start only (see `PodCount`)."""
    unwatched: bool = False
    """Whether only the pods show how many there are (see `PodCount`)."""
    optional: tuple[str, ...] = ()
    """Resources that only containers added by the object's operator request (see `PodSet`)."""

    def with_container(self, container: Object, *, before: bool = False) -> Place:
        """Return it with a container that the operator adds: counted, but not in the object's template.

        `before`: it is an init container.
        """
        pod = self.template.get("spec") or {}
        field = "initContainers" if before else "containers"
        own = [pod, *(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
        asked = {name for each in own for amounts in (each.get("resources") or {}).values() for name in amounts or ()}
        added = {name for amounts in container["resources"].values() for name in amounts} - asked
        template = {**self.template, "spec": {**pod, field: [*(pod.get(field) or ()), container]}}
        return self._replace(template=template, optional=tuple(sorted({*self.optional, *added})))

    @property
    def label(self) -> dict[str, str]:
        """Label by which its pods are counted; empty if its name is no valid label value."""
        return {POD_SET: self.name} if is_label_value(self.name) else {}

    @property
    def left(self) -> int:
        """Number of pods that are still needed."""
        return max(self.pods - self.succeeded, 0)


@dataclass(frozen=True, slots=True)
class Ended:
    """Where the status has the number of succeeded copies of each pod set."""

    items: Path
    name: Path
    count: Path


@dataclass(frozen=True, slots=True)
class PodSetForm:
    """Pod sets at a path of an object, one for each element there. All other paths start at that element."""

    path: Path
    template: Path
    name: str = ""
    name_from: Path = ()
    """Path of the name; empty: `name` is the name."""
    replicas: Path = ()
    """Path of the number of copies (default 1), bounded by `minimum` and `maximum`."""
    minimum: Path = ()
    maximum: Path = ()
    times: tuple[Path, ...] = ()
    """Paths of further factors of the number of pods (default 1), such as `numOfHosts` of a RayCluster."""
    parallelism: Path = ()
    completions: Path = ()
    """Pods of each copy, as of a Job: the smaller of `parallelism` and `completions`."""
    unless: Path = ()
    """Path of a flag; the pod set has no pods while it is true."""
    min_count: Path | None = None
    """Path of the minimum number of copies to start with; `()`: no such field. None: no partial admission."""
    ended: Ended | None = None

    def places(self, obj: Object) -> Iterator[Place]:
        """Yield the pod sets of an object. Raises Misconfigured for a missing template or name, or an invalid count."""
        for found in paths.find(obj, self.path):
            name = self.name or paths.value(found.value, self.name_from)
            template = paths.value(found.value, self.template)
            if not isinstance(name, str) or not name:
                raise Misconfigured(f"{found.text}.{'.'.join(self.name_from)}: is missing; each pod set needs a name")
            target = (*found.keys, *self.template)
            path = paths.FoundValue(target, None).text
            if not isinstance(template, dict):
                raise Misconfigured(f"{path}: is missing; without a pod template its pods cannot be counted")
            each = self._pods_per_copy(found)
            yield Place(
                name=name,
                path=path,
                template=template,
                pods=each * self._copies(found),
                target=target,
                pods_per_copy=max(each, 1),
                succeeded=each * self._ended(obj, name),
                count_fields=self._count_fields(found),
                # With several pods per copy, quota could be reserved for a part of a copy.
                reducible=(*found.keys, *self.replicas) if self.min_count is not None and each == 1 else (),
                lowest=max(_count(found, self.minimum, 0) if self.minimum else 0, 1),
                min_count=_count(found, self.min_count, 0) if self.min_count else 0,
            )

    def _copies(self, found: FoundValue) -> int:
        copies = _count(found, self.replicas, 1) if self.replicas else 1
        if self.maximum:
            copies = min(copies, _count(found, self.maximum, copies))
        if self.minimum:
            copies = max(copies, _count(found, self.minimum, 0))
        return 0 if self.unless and paths.value(found.value, self.unless) is True else copies

    def _pods_per_copy(self, found: FoundValue) -> int:
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

    def _count_fields(self, found: FoundValue) -> tuple[tuple[str, ...], ...]:
        fields = (
            self.replicas,
            self.minimum,
            self.maximum,
            *self.times,
            self.parallelism,
            self.completions,
            self.unless,
        )
        return tuple((*found.keys, *path) for path in fields if path)


def _count(found: FoundValue, path: Path, default: int) -> int:
    return paths.count(found.value, path, default, before=found.keys)


def as_template(info: Mapping[str, Any], *, metadata: str = "") -> Object:
    """Return what a start may inject into a flat object, in the form of a template."""
    template: Object = {}
    for part, fields in _PARTS.items():
        source = info.get(metadata) or {} if part == "metadata" and metadata else info
        if here := {field: source[field] for field in fields if source.get(field) is not None}:
            template[part] = here
    return template


def flattened(patch: Mapping[str, Any], *, metadata: str = "") -> Object:
    """Return a merge patch of a template as a merge patch of a flat object."""
    if metadata:
        return {**patch.get("spec", {}), **({metadata: patch["metadata"]} if "metadata" in patch else {})}
    return {field: value for part in _PARTS for field, value in patch.get(part, {}).items()}


_PARTS = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations", "schedulingGates")}
