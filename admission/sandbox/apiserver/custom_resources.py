"""CustomResourceDefinitions: their validation, and the resources that the server serves for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.sandbox.apiserver.errors import Cause, invalid, required
from admission.sandbox.apiserver.resources import SCALE, STATUS, ServedResource, ServedSubresource
from admission.sandbox.apiserver.strategy import Strategy
from admission.sandbox.apiserver.structural_schema import StructuralSchema, structure_causes

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry

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
