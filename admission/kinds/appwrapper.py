"""Pod sets and children of AppWrapper, beyond what `Form` describes: each component names its own pod templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from admission.kinds import mcad, paths, ray
from admission.kinds.children import SpecifiedChild
from admission.kinds.places import Place
from admission.model import child_sentences
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.kinds.base import Object

_SEGMENT: Final = re.compile(r"([A-Za-z0-9_-]+)((?:\[\d+\])*)")
_INFERRED: Final[dict[tuple[str, str], tuple[str, tuple[str, ...]]]] = {
    ("v1", "Pod"): ("template", ()),
    ("batch/v1", "Job"): ("template.spec.template", ("parallelism",)),
    ("apps/v1", "Deployment"): ("template.spec.template", ("replicas",)),
    ("apps/v1", "StatefulSet"): ("template.spec.template", ("replicas",)),
}
"""By apiVersion and kind: path of the template, and the field of the spec with the number of pods."""
_INFERRED_BY_OPERATOR: Final = frozenset({"JobSet", "PyTorchJob", "RayCluster", "RayJob"})
"""Further kinds of which the operator (1.2) knows the pod sets, also if `podSets` is missing."""
_SUBMITTER: Final = "spec.submitterPodTemplate"
"""Template of a RayJob whose pod is in no pod set of the operator."""

PlacesOf: TypeAlias = "Callable[[Object], list[Place] | None]"
"""Returns the pod sets of a wrapped object; None: its kind is not known."""


class _PodSet(NamedTuple):
    """One pod set of a component."""

    path: str
    """Path of the template in the component."""
    pods: int
    template: Object | None = None
    """What its pods are computed from; None: what is at the path."""
    is_watched: bool = True
    """Whether the wrapped object is watched, so that it cannot be edited to have more pods."""
    optional: tuple[str, ...] = ()
    """See `PodSet`."""
    is_known_to_operator: bool = True
    """Whether the operator has it, in the same place of its list, and injects what a start writes for it."""


def places(places_of: PlacesOf, obj: Object) -> list[Place]:
    """Return the pod sets of all components. Raises Misconfigured for a path without a pod template."""
    if mcad.is_legacy(obj):
        return mcad.places(obj)
    found: list[Place] = []
    for number, component in enumerate(obj["spec"].get("components") or ()):
        for index, each in enumerate(_pod_sets(places_of, component, number)):
            template = each.template or paths.at(component, _keys(each.path, number))
            where = f"spec.components[{number}]"
            if not isinstance(template, dict):
                raise Misconfigured(f"{where}.podSets[{index}].path: {each.path} leads to no pod template")
            before = ("spec", "components", str(number))
            info = (*before, "podSetInfos", str(index)) if each.is_known_to_operator else ()
            declared = [(*before, "podSets", str(index), "replicas")] if component.get("podSets") else []
            count_fields = (*declared, *_numbers_of(component, before))
            name = f"component-{number}-{index}"
            path = f"{where}.{each.path}"
            place = Place(name, path, template, each.pods, info, flat=True, count_fields=count_fields)
            found.append(place._replace(unwatched=not each.is_watched, optional=each.optional))
    return found


def cautions(obj: Object) -> list[str]:
    """Warn of autoscalers in components: the numbers of pods in an AppWrapper cannot be changed."""
    components = [] if mcad.is_legacy(obj) else obj["spec"].get("components") or ()
    templates = [each.get("template") or {} for each in components]
    return [
        child_sentences.no_scale_up(f"spec.components[{number}]", str(template.get("kind")))
        for number, template in enumerate(templates)
        if ray.autoscaler(template)
    ]


def wrapped(places_of: PlacesOf, obj: Object) -> Iterator[SpecifiedChild]:
    """Yield the objects that its components are, as children."""
    if mcad.is_legacy(obj):
        yield from mcad.wrapped(obj)
        return
    first = 0
    for number, component in enumerate(obj["spec"].get("components") or ()):
        pod_sets = tuple(range(first, first := first + len(list(_pod_sets(places_of, component, number)))))
        template = component.get("template") or {}
        name = (template.get("metadata") or {}).get("name")
        if isinstance(name, str):
            group = str(template.get("apiVersion", "")).rpartition("/")[0]
            yield SpecifiedChild(group, str(template.get("kind", "")), name, "", 0, pod_sets)


def _pod_sets(places_of: PlacesOf, component: Any, number: int) -> Iterator[_PodSet]:
    """Yield the pod sets of a component: as declared, and never fewer pods than an object of a known kind has.

    The operator writes an empty list of `podSets` as none, so that both mean the same: those that it knows itself.
    """
    wrapped, at = component.get("template") or {}, f"spec.components[{number}].podSets"
    keys = ("spec", "components", str(number))
    declared = [
        (str(each.get("path", "")), paths.count(each, ("replicas",), 1, before=(*keys, "podSets", str(index))))
        for index, each in enumerate(component.get("podSets") or ())
    ]
    kind = wrapped.get("kind")
    known = _INFERRED.get((str(wrapped.get("apiVersion")), str(kind)))
    if known is not None:
        has = _pods(wrapped, known[1], before=(*keys, "template"))
        if any(path != known[0] for path, _ in declared):
            raise Misconfigured(f"{at}: a {kind} has its pods at {known[0]}; correct the path")
        if declared and (pods := sum(replicas for _, replicas in declared)) < has:
            fault = f"ask for quota of {pods} pods, but the {kind} has {has}"
            raise Misconfigured(f"{at}: {fault}; correct them, or leave them out")
        is_watched = wrapped["apiVersion"] != "apps/v1"
        for path, pods in declared or [(known[0], has)]:
            yield _PodSet(path, pods, is_watched=is_watched)
        return
    try:
        inside = places_of(wrapped)
    except (AttributeError, IndexError, KeyError, TypeError, Misconfigured) as error:
        raise Misconfigured(f"spec.components[{number}].template: {error}") from error
    if inside is None:
        yield from (_PodSet(path, pods, is_watched=False) for path, pods in declared)
        return
    templates = {f"template.{each.path}": each for each in inside if each.pods}
    missing = [path for path in templates if path not in dict(declared)]
    if not declared and kind in _INFERRED_BY_OPERATOR:
        for path in missing:
            place = templates[path]
            is_known = place.path != _SUBMITTER
            optional = place.optional
            yield _PodSet(path, place.pods, place.template, optional=optional, is_known_to_operator=is_known)
        return
    if missing := [path for path in missing if path != f"template.{_SUBMITTER}"]:
        fault = f"the {kind} has pods at {missing[0]}: name it, with their number as replicas"
        raise Misconfigured(f"{at}: {fault}")
    is_watched = kind != "LeaderWorkerSet"
    for path, pods in declared:
        if path in templates:
            inner = templates[path]
            yield _PodSet(path, max(pods, inner.pods), inner.template, is_watched, inner.optional)
        else:
            yield _PodSet(path, pods, is_watched=is_watched)
    for path, place in templates.items():
        if place.path == _SUBMITTER and path not in dict(declared):
            optional = place.optional
            yield _PodSet(path, place.pods, place.template, optional=optional, is_known_to_operator=False)


def _numbers_of(component: Object, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of the count fields of the wrapped object itself, where its kind is known."""
    wrapped = component.get("template") or {}
    _, field = _INFERRED.get((str(wrapped.get("apiVersion")), str(wrapped.get("kind"))), ("", ()))
    for key in (*field, "completions") if field else ():
        yield (*before, "template", "spec", key)


def _pods(wrapped: Object, field: tuple[str, ...], *, before: tuple[str, ...]) -> int:
    """Return the pods of the wrapped object at a time; of a Job no more than its completions."""
    count = paths.count(wrapped, ("spec", *field), 1, before=before) if field else 1
    return min(count, paths.count(wrapped, ("spec", "completions"), count, before=before))


def _keys(path: str, number: int) -> tuple[str, ...]:
    keys: list[str] = []
    for part in path.split("."):
        match = _SEGMENT.fullmatch(part)
        if match is None:
            raise Misconfigured(f"spec.components[{number}].podSets: {path} is no path such as template.spec.template")
        keys += [match[1], *re.findall(r"\d+", match[2])]
    return tuple(keys)
