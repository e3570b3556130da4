"""Reading of queue objects without validation, for test cases that no API server has validated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel

from admission.model.queues import QUEUE_OBJECTS, QueueObject

M = TypeVar("M", bound=BaseModel)

_CLASSES = {cls.kind: cls for cls in QUEUE_OBJECTS}


def read_unchecked(manifest: Mapping[str, Any]) -> QueueObject:
    """Return the object of a manifest with any names and values; missing required fields are empty."""
    return _construct(_CLASSES[manifest["kind"]], manifest)


def _construct(cls: type[M], data: Mapping[str, Any]) -> M:
    values = {}
    for name, field in cls.model_fields.items():
        given = data.get(field.alias or name)
        if given is not None:
            values[name] = _convert(field.annotation, given)
        elif field.is_required():
            values[name] = ()
    return cls.model_construct(**values)


def _convert(annotation: Any, value: Any) -> Any:
    arguments = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _construct(annotation, value)
    if get_origin(annotation) is tuple:
        return tuple(_convert(arguments[0], item) for item in value)
    if isinstance(value, dict | list) and arguments:
        # An optional model, or a type with constraints: the first argument is the type of the value.
        return _convert(arguments[0], value)
    return value
