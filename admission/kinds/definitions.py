"""Comparison of a kind's form with the schema of its CustomResourceDefinition."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from admission.kinds.paths import EACH
from admission.kinds.predicates import Above, All, NoneOf, OneOf, Reaches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission.kinds.base import Object
    from admission.kinds.form import Form
    from admission.kinds.paths import Path
    from admission.kinds.predicates import Predicate

_KEPT = "x-kubernetes-preserve-unknown-fields"


def differences(form: Form, definition: Object) -> Iterator[tuple[str, str]]:
    """Yield (field of the form, message) of each difference from a CustomResourceDefinition.

    All versions that the form names and the definition serves are compared. Fields that the schema leaves open are not
    reported. The definition must have `spec.names`, `spec.group` and `spec.versions`.
    """
    spec = definition["spec"]
    names = spec["names"]
    for field, value, actual in (
        ("group", form.group, spec["group"]),
        ("kind", form.kind, names["kind"]),
        ("plural", form.plural, names["plural"]),
    ):
        if value != actual:
            yield field, f"is {value}, but the definition says {actual}"
    served = {version["name"]: version for version in spec["versions"] if version.get("served", True)}
    known = [name for name in form.versions if name in served]
    if not known:
        yield "versions", f"has none of the versions that are served: {', '.join(served)}"
    for name in known:
        schema = served[name].get("schema", {}).get("openAPIV3Schema", {})
        yield from _missing(form, schema, name)


def _missing(form: Form, schema: Object, version: str) -> Iterator[tuple[str, str]]:
    places = [form.suspend, *form.suspend_older]
    if not any(_find(schema, path)[0] is not None for path in places):
        yield "suspend", _message(schema, form.suspend, version)
    for field, path in _paths(form):
        if _find(schema, path)[0] is None:
            yield field, _message(schema, path, version)
    for path in places:
        found = _find(schema, path)[0]
        if found and found.get("type", "boolean") != "boolean":
            yield "suspend", f"{'.'.join(path)} is of type {found['type']} in version {version}, and must be boolean"


def _paths(form: Form) -> Iterator[tuple[str, Path]]:
    """Yield (field of the form, path from the object's root) of all paths but the suspend field."""
    if form.managed_by:
        yield "managedBy.path", form.managed_by
    for number, pod_set in enumerate(form.pod_sets):
        at = f"podSets[{number}]"
        yield f"{at}.path", pod_set.path
        inner = {
            "template": pod_set.template,
            "nameFrom": pod_set.name_from,
            "replicas": pod_set.replicas,
            "minimum": pod_set.minimum,
            "maximum": pod_set.maximum,
            "parallelism": pod_set.parallelism,
            "completions": pod_set.completions,
            "unless": pod_set.unless,
            "minCount": pod_set.min_count,
            **{f"times[{index}]": path for index, path in enumerate(pod_set.times)},
        }
        yield from ((f"{at}.{field}", (*pod_set.path, *path)) for field, path in inner.items() if path)
        if pod_set.ended is not None:
            yield f"{at}.ended.items", pod_set.ended.items
            yield f"{at}.ended.name", (*pod_set.ended.items, *pod_set.ended.name)
            yield f"{at}.ended.count", (*pod_set.ended.items, *pod_set.ended.count)
    for field in ("active", "ready", "succeeded", "failed"):
        for number, predicate in enumerate(getattr(form, field)):
            yield from ((f"{field}[{number}]", path) for path in _paths_of(predicate))
    for number, child in enumerate(form.children):
        if child.name_from:
            yield f"children[{number}].nameFrom", child.name_from


def _paths_of(predicate: Predicate) -> Iterable[Path]:
    match predicate:
        case OneOf() | NoneOf() | Above():
            return [predicate.path]
        case Reaches():
            return [*predicate.sum, *predicate.reaches]
        case All():
            return [path for each in predicate.of for path in _paths_of(each)]
        case _:
            return [("status", "conditions")]


def _find(schema: Any, path: Path) -> tuple[Mapping[str, Any] | None, tuple[Path, list[str]]]:
    """Return the schema at a path, and where the search ended.

    The schema is empty where any value is allowed, and None where the path does not exist: then the second item has the
    path that was reached, and the names of the fields there.
    """
    for depth, key in enumerate(path):
        if not schema or schema.get(_KEPT) is True:
            return {}, ((), [])
        properties = schema.get("properties") or {}
        if key == EACH:
            inner = schema.get("items") or schema.get("additionalProperties") or next(iter(properties.values()), None)
        else:
            inner = properties.get(key, schema.get("additionalProperties"))
        if inner is True:
            return {}, ((), [])
        if not isinstance(inner, dict):
            return None, (path[:depth], sorted(properties))
        schema = inner
    return schema, ((), [])


def _message(schema: Object, path: Path, version: str) -> str:
    _, (reached, fields) = _find(schema, path)
    near = difflib.get_close_matches(path[len(reached)], fields, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there {'are' if len(fields) > 1 else 'is'} {', '.join(fields[:8])}"
    where = _text(reached) or "the object"
    return f"{_text(path)} is not in version {version} of the definition: {where} has no {path[len(reached)]}" + (
        f"; {hint}" if fields else ""
    )


def _text(path: Path) -> str:
    return ".".join(path).replace(f".{EACH}", f"[{EACH}]")
