"""Type checks of objects and pod templates, where the resource definition accepts anything.

The API server validates objects of its own kinds. CustomResourceDefinitions often leave the pod template open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.kinds.base import Object

T = TypeVar("T")

_EACH: Final = "*"
"""Key in a form: applies to all values of the object."""
_WORDS: Final[dict[Any, str]] = {str: "a text", dict: "an object", list: "a list"}
_TEXTS: Final[dict[str, Any]] = {_EACH: str}
_RESOURCES: Final[dict[str, Any]] = {"requests": dict, "limits": dict}
_CONTAINERS: Final[list[Any]] = [{"resources": _RESOURCES, "restartPolicy": str}]
_EXPRESSIONS: Final[list[Any]] = [{"key": str, "operator": str, "values": [str]}]
_AFFINITY: Final[dict[str, Any]] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": _EXPRESSIONS}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": int, "preference": {"matchExpressions": _EXPRESSIONS}}
        ],
    }
}
_TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": _TEXTS, "annotations": _TEXTS},
    "spec": {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "resources": _RESOURCES,
        "nodeSelector": _TEXTS,
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "affinity": _AFFINITY,
        "overhead": dict,
        "runtimeClassName": str,
        "priorityClassName": str,
    },
}
_METADATA: Final[dict[str, Any]] = {"name": str, "namespace": str, "labels": _TEXTS, "annotations": _TEXTS}
"""Fields that are read, with their types. Each may be absent or null; a list's only item is the form of all items."""


def check_template(template: Any, path: str) -> None:
    """Raise Misconfigured if a field of a pod template that is read has another type."""
    if fault := _fault(template, _TEMPLATE, path):
        raise Misconfigured(fault)


def check_metadata(obj: Object) -> None:
    """Raise Misconfigured if metadata that no API server has validated has fields of another type."""
    if fault := _fault(obj.get("metadata") or {}, _METADATA, "metadata"):
        raise Misconfigured(fault)


def read_by(function: Callable[[Object], list[T]], obj: Object) -> list[T]:
    """Return `function(obj)`, for a function that reads the spec. Raises Misconfigured if the spec has another form."""
    try:
        return function(obj)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        fault = f"has another form than a {obj.get('kind')} has, so that its pods cannot be counted ({error})"
        raise Misconfigured(f"spec: {fault}") from error


def _fault(value: Any, form: Any, path: str) -> str:
    wanted: Any = form if callable(form) else type(form)
    if not isinstance(value, wanted):
        return f"{path}: must be {_WORDS[wanted]}"
    if isinstance(form, list):
        return _first((item, form[0], f"{path}[{number}]") for number, item in enumerate(value))
    if isinstance(form, dict):
        return _first(
            (value[key], each, f"{path}[{key}]" if _EACH in form else f"{path}.{key}")
            for key in value
            if (each := form.get(_EACH, form.get(key))) is not None and value[key] is not None
        )
    return ""


def _first(parts: Iterable[tuple[Any, Any, str]]) -> str:
    return next(filter(None, (_fault(*part) for part in parts)), "")
