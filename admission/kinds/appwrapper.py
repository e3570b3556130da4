"""Pod sets and children of AppWrapper, beyond what `Form` describes: each component names its own pod templates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from admission.kinds import mcad, paths
from admission.kinds.children import Child
from admission.kinds.places import Place
from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object

_SEGMENT: Final = re.compile(r"([A-Za-z0-9_-]+)((?:\[\d+\])*)")
_INFERRED: Final[dict[tuple[str, str], tuple[str, tuple[str, ...]]]] = {
    ("v1", "Pod"): ("template", ()),
    ("batch/v1", "Job"): ("template.spec.template", ("parallelism",)),
    ("apps/v1", "Deployment"): ("template.spec.template", ("replicas",)),
    ("apps/v1", "StatefulSet"): ("template.spec.template", ("replicas",)),
}
"""By apiVersion and kind: path of the template, and the field of the spec with the number of pods."""


def places(obj: Object) -> list[Place]:
    """Return the pod sets of all components. Raises Misconfigured for a path without a pod template."""
    if mcad.is_legacy(obj):
        return mcad.places(obj)
    found: list[Place] = []
    for number, component in enumerate(obj["spec"].get("components") or ()):
        for index, (path, replicas) in enumerate(_pod_sets(component, number)):
            keys = _keys(path, number)
            template = paths.at(component, keys)
            where = f"spec.components[{number}]"
            if not isinstance(template, dict):
                raise Misconfigured(f"{where}.podSets[{index}].path: {path} leads to no pod template")
            info = ("spec", "components", str(number), "podSetInfos", str(index))
            before = ("spec", "components", str(number))
            declared = [(*before, "podSets", str(index), "replicas")] if component.get("podSets") is not None else []
            count_fields = (*declared, *_numbers_of(component, before))
            name = f"component-{number}-{index}"
            found.append(Place(name, f"{where}.{path}", template, replicas, info, flat=True, count_fields=count_fields))
    return found


def wrapped(obj: Object) -> Iterator[Child]:
    """Yield the objects that its components are, as children."""
    if mcad.is_legacy(obj):
        yield from mcad.wrapped(obj)
        return
    first = 0
    for number, component in enumerate(obj["spec"].get("components") or ()):
        pod_sets = tuple(range(first, first := first + len(list(_pod_sets(component, number)))))
        template = component.get("template") or {}
        name = (template.get("metadata") or {}).get("name")
        if isinstance(name, str):
            group = str(template.get("apiVersion", "")).rpartition("/")[0]
            yield Child(group, str(template.get("kind", "")), name, "", 0, pod_sets)


def _pod_sets(component: Any, number: int) -> Iterator[tuple[str, int]]:
    """Yield (path of the template, number of pods), as declared, or as known for the wrapped object's kind."""
    wrapped, at = component.get("template") or {}, f"spec.components[{number}].podSets"
    keys = ("spec", "components", str(number))
    known = _INFERRED.get((str(wrapped.get("apiVersion")), str(wrapped.get("kind"))))
    has = 0 if known is None else _pods(wrapped, known[1], before=(*keys, "template"))
    if component.get("podSets") is not None:
        found = [
            (str(each.get("path", "")), paths.count(each, ("replicas",), 1, before=(*keys, "podSets", str(index))))
            for index, each in enumerate(component["podSets"])
        ]
        if known is not None and any(path != known[0] for path, _ in found):
            raise Misconfigured(f"{at}: a {wrapped.get('kind')} has its pods at {known[0]}; correct the path")
        if (declared_pods := sum(replicas for _, replicas in found)) < has:
            fault = f"ask for quota of {declared_pods} pods, but the {wrapped.get('kind')} has {has}"
            raise Misconfigured(f"{at}: {fault}; correct them, or leave them out")
        yield from found
    elif known is not None:
        yield known[0], has
    else:
        raise Misconfigured(
            f"{at}: is missing, and it is not known where a {wrapped.get('kind')} has its pods; give replicas and path "
            "of each pod template, or an empty list"
        )


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
