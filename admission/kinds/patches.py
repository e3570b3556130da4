"""JSON patches (RFC 6902) built from known additions: a diff of whole objects costs a hundred times as much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object


def pointer(*keys: str) -> str:
    """Return the JSON pointer (RFC 6901) of the member that the keys lead to."""
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def annotated(obj: Object, annotations: Mapping[str, str]) -> list[Object]:
    """Return the operations that add annotations."""
    has_any = bool(obj["metadata"].get("annotations"))
    parent = [] if has_any else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    return [
        *parent,
        *(
            {"op": "add", "path": pointer("metadata", "annotations", name), "value": value}
            for name, value in annotations.items()
        ),
    ]


def additions(target: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[Object]:
    """Yield the operations that set all members of `wanted` in `target` at `path`; other members stay."""
    for key, value in wanted.items():
        present, where = target.get(key), f"{path}/{key}" if key.isalnum() else path + pointer(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            yield from additions(present, value, where)
        elif value != present:
            yield {"op": "add", "path": where, "value": value}


def same_generation(obj: Object) -> list[Object]:
    """Return test operations that make a JSON patch fail on another object, or after a change of its spec.

    Pods have no generation before Kubernetes 1.34: only the uid is tested.
    """
    metadata = obj["metadata"]
    keys = [key for key in ("uid", "generation") if key in metadata]
    return [{"op": "test", "path": f"/metadata/{key}", "value": metadata[key]} for key in keys]


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """Return `target` after a JSON merge patch (RFC 7396); neither argument is changed."""
    result = dict(target)
    for key, value in patch.items():
        present = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merged(present if isinstance(present, Mapping) else {}, value)
        else:
            result[key] = value
    return result
