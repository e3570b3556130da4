"""JSON patches (RFC 6902), built by hand from what is to be added: a diff of whole objects costs a hundredfold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.kinds.base import Object


def pointer(*keys: str) -> str:
    """The JSON pointer (RFC 6901) to a member by the keys that lead to it."""
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def additions(target: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[Object]:
    """The operations that set all members of `wanted` in `target` at `path`; those it does not name stay."""
    for key, value in wanted.items():
        present, where = target.get(key), f"{path}/{key}" if key.isalnum() else path + pointer(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            yield from additions(present, value, where)
        elif value != present:
            yield {"op": "add", "path": where, "value": value}


def same_generation(obj: Object) -> list[Object]:
    """The operations by which a JSON patch fails on another object, or on another spec of it.

    Pods have no generation before Kubernetes 1.34.
    """
    metadata = obj["metadata"]
    keys = [key for key in ("uid", "generation") if key in metadata]
    return [{"op": "test", "path": f"/metadata/{key}", "value": metadata[key]} for key in keys]


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """`target` after a JSON merge patch (RFC 7396); neither is changed."""
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
