"""Subresources `resize` and `ephemeralcontainers` of pods: the fields that they write, and the validation of a resize.

As upstream (`pkg/registry/core/pod/strategy.go`), changes of other fields are dropped, not rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, forbidden

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_LISTS = ("containers", "initContainers")
_RESIZED = ("resources", "resizePolicy")
_MUTABLE = ("cpu", "memory")


def resized_spec(spec: Object, before: Object) -> Object:
    """Return `before` with the resources and resizePolicy of the containers in `spec`.

    Containers with other names, or in another order, are returned as they are, so that `resize_causes` rejects them.
    """
    kept = dict(before)
    for key in _LISTS:
        new, old = spec.get(key, []), before.get(key, [])
        if _names(new) != _names(old):
            kept[key] = new
        elif key in before:
            kept[key] = [_resized(*pair) for pair in zip(new, old, strict=True)]
    return kept


def with_ephemeral_containers(spec: Object, before: Object) -> Object:
    """Return `before` with the ephemeral containers of `spec`."""
    kept = {name: value for name, value in before.items() if name != "ephemeralContainers"}
    return kept | {name: value for name, value in spec.items() if name == "ephemeralContainers"}


def resize_causes(spec: Object, before: Object) -> list[Cause]:
    """Check a spec of `resized_spec`: only cpu and memory of the same containers may change, and none be removed."""
    causes = [cause for key in _LISTS for cause in _order_causes(key, spec.get(key, []), before.get(key, []))]
    if causes:
        return causes
    pairs = [
        (f"spec.{key}[{index}].resources", new.get("resources", {}), old.get("resources", {}))
        for key in _LISTS
        for index, (new, old) in enumerate(zip(spec.get(key, ()), before.get(key, ()), strict=True))
    ]
    causes = [
        forbidden(f"{field}.{part}", f"resource {part} cannot be removed")
        for field, new, old in pairs
        for part in ("requests", "limits")
        if old.get(part, {}).keys() & {*_MUTABLE} - new.get(part, {}).keys()
    ]
    if any(_immutable_resources(new) != _immutable_resources(old) for _, new, old in pairs):
        causes.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return causes


def _names(containers: list[Object]) -> list[str]:
    return [container.get("name", "") for container in containers]


def _resized(new: Object, old: Object) -> Object:
    kept = {name: value for name, value in old.items() if name not in _RESIZED}
    return kept | {name: new[name] for name in _RESIZED if name in new}


def _order_causes(key: str, new: list[Object], old: list[Object]) -> list[Cause]:
    if len(new) != len(old):
        return [forbidden(f"spec.{key}", f"{key} may not be added or removed on resize")]
    return [
        forbidden(f"spec.{key}[{index}].name", f"{key} may not be renamed or reordered on resize")
        for index, (name, before) in enumerate(zip(_names(new), _names(old), strict=True))
        if name != before
    ]


def _immutable_resources(resources: Object) -> Object:
    amounts = {
        part: {name: amount for name, amount in resources.get(part, {}).items() if name not in _MUTABLE}
        for part in ("requests", "limits")
    }
    return {**resources, **amounts}
