"""Structural schemas of custom resources: pruning, defaulting and validation of their objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.cel import CelError, compile_expression, evaluate
from admission.sandbox.apiserver.errors import Cause, duplicate, invalid, required, unsupported
from admission.sandbox.apiserver.schema import ListOf, Struct, struct_of

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_PRESERVE, _INT_OR_STRING, _RULES = (
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-validations",
)  # fmt: skip
_ROOT = ("apiVersion", "kind", "metadata")


class StructuralSchema:
    """Structural schema of one version of a CustomResourceDefinition."""

    def __init__(self, schema: Object) -> None:
        self._schema = schema
        self._has_rules = _has_rules(schema)

    def decode(self, obj: Object, old: Object | None, unknown: list[str]) -> Object:
        """Prune and default in place. Wrong types are left to `causes`, but in metadata they raise DecodeError."""
        before = old["metadata"] if old is not None else None
        return self._clean(obj, before, unknown, fill=True)

    def parse(self, obj: Object, unknown: list[str]) -> Object:
        """Prune an apply configuration in place, without filling in defaults."""
        return self._clean(obj, None, unknown, fill=False)

    def _clean(self, obj: Object, before: Object | None, unknown: list[str], *, fill: bool) -> Object:
        obj["metadata"] = struct_of("V1ObjectMeta").decode(obj.get("metadata", {}), before, ".metadata", unknown)
        rest = {key: value for key, value in obj.items() if key not in _ROOT}
        cleaned = _cleaned(rest, self._schema, "", unknown, fill=fill)
        for key in rest:
            if key not in cleaned:
                del obj[key]
        obj.update(cleaned)
        return obj

    def struct(self) -> Struct:
        """Return the lists that are merged by one key (`x-kubernetes-list-map-keys`)."""
        root = _struct(self._schema)
        root.fields["metadata"] = struct_of("V1ObjectMeta")
        return root

    def causes(self, new: Object, old: Object | None) -> list[Cause]:
        """Return the validation errors of an object; its CEL rules are evaluated only if its types are valid."""
        content = {key: value for key, value in new.items() if key not in _ROOT}
        before = {key: value for key, value in old.items() if key not in _ROOT} if old is not None else None
        causes = _shape_causes(content, self._schema, "")
        if not self._has_rules:
            return causes
        if any(cause.reason != "FieldValueDuplicate" for cause in causes):
            if old is not None and all(cause.reason == "FieldValueInvalid" for cause in causes):
                return causes
            text = "Invalid value: null: some validation rules were not checked because the object was invalid"
            return [*causes, Cause("FieldValueInvalid", "<nil>", text)]
        return causes + _rule_causes(content, before, self._schema, "")


def _struct(schema: Object) -> Struct:
    struct = Struct("custom")
    for key, inner in schema.get("properties", {}).items():
        keys, items = inner.get("x-kubernetes-list-map-keys", []), inner.get("items")
        if len(keys) == 1 and isinstance(items, dict):
            struct.merge_keys[key] = keys[0]
            struct.fields[key] = ListOf(_struct(items))
        elif "properties" in inner:
            struct.fields[key] = _struct(inner)
    return struct


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return _RULES in schema or any(_has_rules(value) for value in schema.values())
    return False


def _cleaned(value: Any, schema: Object, path: str, unknown: list[str], *, fill: bool) -> Any:
    """Return the value without unknown fields and with defaults; scalars and free-form parts are shared with it."""
    if type(value) is list and isinstance(schema.get("items"), dict):
        return [
            _cleaned(item, schema["items"], f"{path}[{index}]", unknown, fill=fill) for index, item in enumerate(value)
        ]
    if type(value) is not dict:
        return value
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    preserve = schema.get(_PRESERVE, False) or schema.get("x-kubernetes-embedded-resource", False)
    result: Object = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        inner = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if inner is None:
            if preserve or extra:
                result[key] = item
            else:
                unknown.append(here)
        elif item is not None or inner.get("nullable"):
            result[key] = _cleaned(item, inner, here, unknown, fill=fill)
        elif preserve:
            result[key] = None
    for key, inner in properties.items() if fill else ():
        if key not in result and "default" in inner:
            result[key] = _cleaned(inner["default"], inner, key, [], fill=True)
    return result


def _shape_causes(value: Any, schema: Object, path: str) -> list[Cause]:
    """Check types, enums, bounds, required fields and the uniqueness of list-map keys."""
    if value is None and schema.get("nullable"):
        return []
    if schema.get(_INT_OR_STRING):
        if type(value) not in (int, str):
            return [_wrong_type(path, value, "integer,string")]
        return []
    kind = schema.get("type")
    if kind is not None and type(value) not in _TYPES[kind]:
        return [_wrong_type(path, value, kind)]
    causes: list[Cause] = []
    if "enum" in schema and value not in schema["enum"]:
        causes.append(unsupported(path, value, tuple(str(choice) for choice in schema["enum"])))
    if type(value) is str:
        causes += _text_causes(value, schema, path)
    elif type(value) in (int, float):
        causes += _number_causes(value, schema, path)
    elif type(value) is list:
        causes += _list_causes(value, schema, path)
    elif type(value) is dict:
        causes += _object_causes(value, schema, path)
    return causes


def _wrong_type(path: str, value: Any, kind: str) -> Cause:
    shown = next((name for name, types in _TYPES.items() if type(value) in types), "null")
    return Cause(
        "FieldValueTypeInvalid", path, f'Invalid value: "{shown}": {path} in body must be of type {kind}: "{shown}"'
    )


def _text_causes(value: str, schema: Object, path: str) -> list[Cause]:
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        return [Cause("FieldValueTooLong", path, f"Too long: may not be more than {longest} bytes")]
    if len(value) < schema.get("minLength", 0):
        return [invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [invalid(path, value, f"{path} in body should match '{schema['pattern']}'")]
    return []


def _number_causes(value: float, schema: Object, path: str) -> list[Cause]:
    if "minimum" in schema and value < schema["minimum"]:
        return [invalid(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")]
    if "maximum" in schema and value > schema["maximum"]:
        return [invalid(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")]
    return []


def _list_causes(value: list[Any], schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    items = schema.get("items", {})
    for index, item in enumerate(value):
        causes += _shape_causes(item, items, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys and not causes:
        seen: list[Object] = []
        for index, item in enumerate(value):
            own = {key: item.get(key) for key in keys}
            if own in seen:
                causes.append(duplicate(f"{path}[{index}]", own))
            seen.append(own)
    return causes


def _object_causes(value: Object, schema: Object, path: str) -> list[Cause]:
    prefix = f"{path}." if path else ""
    causes = [
        required(prefix + key) for key in schema.get("required", ()) if key not in value and (path or key not in _ROOT)
    ]
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if inner is not None:
            causes += _shape_causes(item, inner, prefix + key)
    return causes


def _rule_causes(value: Any, old: Any, schema: Object, path: str) -> list[Cause]:
    causes = []
    for rule in schema.get(_RULES, ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        values = {"self": value} if old is None else {"self": value, "oldSelf": old}
        try:
            holds = evaluate(compile_expression(rule["rule"], ("self", "oldSelf")), values)
        except CelError as error:
            causes.append(Cause("FieldValueInvalid", path, f"Invalid value: {error}"))
            continue
        if not holds:
            text = rule.get("message") or f"failed rule: {rule['rule']}"
            causes.append(Cause("FieldValueInvalid", path, f"Invalid value: {text}"))
    if type(value) is dict:
        for key, inner in schema.get("properties", {}).items():
            if key in value:
                before = old.get(key) if type(old) is dict else None
                causes += _rule_causes(value[key], before, inner, f"{path}.{key}" if path else key)
    elif type(value) is list and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            causes += _rule_causes(item, None, schema["items"], f"{path}[{index}]")
    return causes


def structure_causes(schema: Object, path: str) -> list[Cause]:
    """Return the errors of a schema that is not structural, one for each field without a type."""
    causes: list[Cause] = []
    if not schema.get("type") and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE):
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    for key, inner in schema.get("properties", {}).items():
        causes += structure_causes(inner, f"{path}.properties[{key}]")
    if isinstance(schema.get("items"), dict):
        causes += structure_causes(schema["items"], f"{path}.items")
    return causes
