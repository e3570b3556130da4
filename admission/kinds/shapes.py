"""Whether objects and their pod templates have the form that is read, where their definition lets anything pass.

The API server checks objects of its own kinds. Definitions of custom resources often say only that there is a template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from admission.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.kinds.base import Object

T = TypeVar("T")

_EACH: Final = "*"
"""Of an object: each of its values."""
_WORDS: Final[dict[Any, str]] = {str: "a text", dict: "an object", list: "a list"}
_TEXTS: Final[dict[str, Any]] = {_EACH: str}
_RESOURCES: Final[dict[str, Any]] = {"requests": dict, "limits": dict}
_CONTAINERS: Final[list[Any]] = [{"resources": _RESOURCES, "restartPolicy": str}]
_EXPRESSIONS: Final[list[Any]] = [{"key": str, "operator": str, "values": [str]}]
_AFFINITY: Final[dict[str, Any]] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": _EXPRESSIONS}]}
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
"""What is read of them. Each may be missing or null; of a list the form of each item."""


def check_template(template: Any, path: str) -> None:
    """Raise Misconfigured for what is read of it and has another form."""
    if fault := _fault(template, _TEMPLATE, path):
        raise Misconfigured(fault)


def check_metadata(obj: Object) -> None:
    """Raise Misconfigured for metadata of another form, in what a user has written and no API server has checked."""
    if fault := _fault(obj.get("metadata") or {}, _METADATA, "metadata"):
        raise Misconfigured(fault)


def read_by(function: Callable[[Object], list[T]], obj: Object) -> list[T]:
    """What a function finds in the spec of an object. Raises Misconfigured for one of another form."""
    try:
        return function(obj)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        told = f"has another form than a {obj.get('kind')} has, so that its pods cannot be counted ({error})"
        raise Misconfigured(f"spec: {told}") from error


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
