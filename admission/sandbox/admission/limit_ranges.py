"""LimitRanges: default requests and limits of containers, and their bounds, as the LimitRanger plugin applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.model.quantity import parse_quantity
from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanges(Strategy):
    """Strategy for core/v1 LimitRange."""

    has_generation = False

    def default(self, obj: Object) -> None:
        for limit in obj.get("spec", {}).get("limits", ()):
            if limit.get("type") != "Container":
                continue
            most, least = limit.get("max", {}), limit.get("min", {})
            default = {**most, **limit.get("default", {})}
            request = {**default, **least, **limit.get("default", {}), **limit.get("defaultRequest", {})}
            if default:
                limit["default"] = default
            if request:
                limit["defaultRequest"] = request


def apply_limit_ranges(registry: ObjectRegistry, pod: Object) -> None:
    """Default and validate a new pod's resources by the LimitRanges of its namespace. Raises ApiError (403)."""
    ranges = list(registry.store.collections["", "limitranges"].versions(pod["metadata"]["namespace"]))
    if not ranges:
        return
    limits = [
        limit
        for version in ranges
        for limit in version.obj.get("spec", {}).get("limits", ())
        if limit.get("type") == "Container"
    ]
    notes = []
    for key, title in (("initContainers", "init container"), ("containers", "container")):
        for container in pod["spec"].get(key, ()):
            notes += [f"{note} for {title} {container['name']}" for note in _fill(container, limits)]
            _check(registry, pod, container["resources"], limits)
    if notes:
        metadata = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(notes)}"
        metadata["annotations"] = {**metadata.get("annotations", {}), _ANNOTATION: text}


def _fill(container: Object, limits: list[Object]) -> list[str]:
    notes = []
    for kind, source in (("requests", "defaultRequest"), ("limits", "default")):
        have = container["resources"].get(kind, {})
        defaults = {name: amount for limit in limits for name, amount in limit.get(source, {}).items()}
        missing = {name: amount for name, amount in defaults.items() if name not in have}
        if missing:
            container["resources"][kind] = {**have, **missing}
            notes.append(f"{', '.join(sorted(missing))} {kind[:-1]}")
    return notes


def _check(registry: ObjectRegistry, pod: Object, resources: Object, limits: list[Object]) -> None:
    for limit in limits:
        for name, bound in limit.get("max", {}).items():
            amount = resources.get("limits", {}).get(name)
            if amount is None or parse_quantity(amount) > parse_quantity(bound):
                _refuse(registry, pod, f"maximum {name} usage per Container is {bound}, but limit is {amount}")
        for name, bound in limit.get("min", {}).items():
            amount = resources.get("requests", {}).get(name)
            if amount is None or parse_quantity(amount) < parse_quantity(bound):
                _refuse(registry, pod, f"minimum {name} usage per Container is {bound}, but request is {amount}")


def _refuse(registry: ObjectRegistry, pod: Object, text: str) -> None:
    name = pod["metadata"].get("name", "")
    raise errors.denied(f'pods "{name}" is forbidden: {text}', registry.resources["", "v1", "pods"], name)
