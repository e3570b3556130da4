"""CustomResourceDefinitions: their validation, structural schemas, and the resources that are served for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from admission.sandbox.apiserver.cel import CelError, compile_expression, evaluate
from admission.sandbox.apiserver.errors import Cause, duplicate, invalid, required, unsupported
from admission.sandbox.apiserver.resources import SCALE, STATUS, ServedResource, ServedSubresource
from admission.sandbox.apiserver.schema import ListOf, Struct, struct_of
from admission.sandbox.apiserver.strategy import Strategy

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry


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


GROUP = "apiextensions.k8s.io"
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
# The order in which the API server lists the verbs of custom resources.
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class CustomResources(Strategy):
    """Strategy for the objects of one version of a CustomResourceDefinition."""

    unconditional_update = False
    status_takes_metadata = False

    def __init__(self, schema: StructuralSchema, resource_kind: str, *, has_status: bool, scale: Object | None) -> None:
        self._schema = schema
        self._kind = resource_kind
        self._has_status = has_status
        self._scale = scale

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        if self._has_status:
            obj.pop("status", None)

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        if obj["kind"] != self._kind:
            return [invalid("kind", obj["kind"], f"must be {self._kind}")]
        return self._causes(obj, None)

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self._causes(new, old)

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        return self._causes(new, old)

    def _causes(self, new: Object, old: Object | None) -> list[Cause]:
        causes = self._schema.causes(new, old)
        for key in ("specReplicasPath", "statusReplicasPath") if self._scale else ():
            path: str = self._scale[key] if self._scale else ""
            value: object = new
            for part in path.lstrip(".").split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None and type(value) is not int:
                causes.append(invalid(path, 0, f"{path} accessor error: {value} is of the wrong type"))
            elif type(value) is int and value < 0:
                causes.append(invalid(path, value, "should be a non-negative integer"))
        return causes


class Definitions(Strategy):
    """Strategy for apiextensions.k8s.io/v1 CustomResourceDefinition."""

    def default(self, obj: Object) -> None:
        spec = obj.get("spec", {})
        names = spec.get("names", {})
        kind = names.get("kind", "")
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        stored = [version["name"] for version in obj["spec"].get("versions", ()) if version.get("storage")]
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        spec, name = obj.get("spec", {}), obj["metadata"].get("name", "")
        causes = []
        if name != f"{spec.get('names', {}).get('plural', '')}.{spec.get('group', '')}":
            causes.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        versions = spec.get("versions", [])
        for index, version in enumerate(versions):
            # Errors of a sole version are reported at the field paths of v1beta1, whose schema was at the top level.
            alone = len(versions) == 1
            place = "spec.validation.openAPIV3Schema" if alone else f"spec.versions[{index}].schema.openAPIV3Schema"
            schema = version.get("schema", {}).get("openAPIV3Schema")
            prefix = "spec" if alone else f"spec.versions[{index}]"
            if schema is None:
                causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
                if version.get("selectableFields"):
                    text = "may only be set when validations.schema is included"
                    causes.append(invalid(f"{prefix}.selectableFields", "", text))
                continue
            causes += structure_causes(schema, place)
            causes += _selectable_causes(version, schema, prefix)
        return causes

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        return self.validate_create(registry, new)

    def blocks_removal(self, obj: Object) -> bool:
        """Return True: a definition is removed by `after_write`, after all its objects."""
        return True

    def begin_deletion(self, obj: Object) -> Object:
        # Undo the registry's increment: the generation of a definition counts changes of its spec only.
        metadata = {**obj["metadata"], "finalizers": [_CLEANUP], "generation": obj["metadata"]["generation"] - 1}
        terminating = {
            "type": "Terminating", "status": "True", "lastTransitionTime": metadata["deletionTimestamp"],
            "reason": "InstanceDeletionPending", "message": "CustomResourceDefinition marked for deletion",
        }  # fmt: skip
        status = {**obj["status"], "conditions": [*(obj["status"]["conditions"] or ()), terminating]}
        return {**obj, "metadata": metadata, "status": status}

    def after_write(self, registry: ObjectRegistry, new: Object | None, old: Object | None) -> None:
        if new is None:
            return
        collection = registry.store.collections[GROUP, "customresourcedefinitions"]
        current = collection.get("", new["metadata"]["name"])
        assert current is not None
        if "deletionTimestamp" in new["metadata"]:
            _withdraw(registry, new)
            collection.remove(current)
            return
        _serve(registry, new)
        if old is None:
            collection.put(_established(new, registry.now()), current)


def _selectable_causes(version: Object, schema: Object, prefix: str) -> list[Cause]:
    causes = []
    for index, selectable in enumerate(version.get("selectableFields", ())):
        path, found = selectable["jsonPath"], schema
        for part in path.lstrip(".").split("."):
            found = found.get("properties", {}).get(part, {})
        if not found.get("type"):
            text = "is an invalid path: does not refer to a valid field"
            causes.append(invalid(f"{prefix}.selectableFields[{index}].jsonPath", path, text))
    return causes


def _established(definition: Object, now: str) -> Object:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
         "observedGeneration": definition["metadata"]["generation"]}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]  # fmt: skip
    status = {**definition["status"], "conditions": conditions, "acceptedNames": definition["spec"]["names"]}
    return {**definition, "metadata": dict(definition["metadata"]), "status": status}


def _serve(registry: ObjectRegistry, definition: Object) -> None:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version.get("served"):
            registry.add(_resource(spec, version))


def _resource(spec: Object, version: Object) -> ServedResource:
    names, subresources = spec["names"], version.get("subresources", {})
    schema = StructuralSchema(version["schema"]["openAPIV3Schema"])
    scale = subresources.get("scale")
    offered: list[ServedSubresource] = []
    if "status" in subresources:
        offered.append(STATUS)
    if scale:
        offered.append(SCALE)
    strategy = CustomResources(schema, names["kind"], has_status="status" in subresources, scale=scale)
    return ServedResource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        schema=schema,
        strategy=strategy,
        namespaced=spec["scope"] == "Namespaced",
        short=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        verbs=_VERBS,
        subresources=tuple(offered),
        singular=names["singular"],
        list_kind=names["listKind"],
        custom=True,
        printer_columns=tuple(version.get("additionalPrinterColumns", ())),
        selectable=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields", ())),
        scale_paths=(scale["specReplicasPath"], scale["statusReplicasPath"]) if scale else (".spec", ".status"),
    )


def _withdraw(registry: ObjectRegistry, definition: Object) -> None:
    """Delete all objects of a definition and stop serving its versions."""
    spec = definition["spec"]
    key = (spec["group"], spec["names"]["plural"])
    collection = registry.store.collections.get(key)
    if collection is None:
        return
    for version in list(collection.versions()):
        collection.remove(version)
    for resource in [known for known in registry.resources.values() if known.key == key]:
        registry.drop(resource)
    del registry.store.collections[key]
