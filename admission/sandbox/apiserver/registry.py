"""Generic registry: create, update and delete of objects, for HTTP requests and for in-process clients alike.

The steps and their order are those of apiserver's pkg/registry/generic/registry/store.go and pkg/registry/rest.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Protocol

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.metadata import validate_metadata_update, validate_new_metadata
from admission.sandbox.apiserver.objects import Object, random_suffix
from admission.sandbox.apiserver.storage import ObjectStorage, ObjectVersion
from admission.sandbox.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.requests import Call, DeleteOptions
    from admission.sandbox.apiserver.resources import ServedResource
    from admission.sandbox.apiserver.storage import StoredCollection
    from admission.sandbox.clock import Clock


class AdmissionChain(Protocol):
    """Mutating and validating admission of one request. `operation` is CREATE or UPDATE; `old` is None on CREATE."""

    def configuration_changed(self, new: Object | None, old: Object | None) -> None:
        """Receive a write of a webhook configuration, an admission policy or a policy binding.

        `new` is None after a deletion, `old` after a creation.
        """

    def mutating_new(
        self, resource: ServedResource, change: Callable[[Object], Object]
    ) -> AbstractContextManager[None]:
        """Pass new objects of a resource through a function before webhooks during the block."""

    def refusing_changes(
        self, resource: ServedResource, field: str, part: Callable[[Object, bool], object]
    ) -> AbstractContextManager[None]:
        """Refuse updates of a resource that change a part of it during the block."""

    async def mutate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> Object:
        """Return the object after all mutating plugins, policies and webhooks. Raises ApiError if one rejects it."""

    async def validate(
        self, resource: ServedResource, subresource: str, operation: str, new: Object, old: Object | None, call: Call
    ) -> None:
        """Run the validating policies and webhooks. Raises ApiError if one rejects the object."""

    async def review_delete(self, resource: ServedResource, old: Object, call: Call, *, named: bool) -> None:
        """Run admission for a deletion. Raises ApiError if it is rejected.

        `named` is False for an object of a deletecollection request, whose review carries no name.
        """

    async def close(self) -> None:
        """Close the connections to webhook servers."""


FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
# Subresources that write a part of the spec.
SPEC_PARTS = ("resize", "ephemeralcontainers")
# Subresources through which a change of the spec increments metadata.generation; "" is the main resource.
GENERATION_SUBRESOURCES = ("", "scale", *SPEC_PARTS)
# Attempts of an update without resourceVersion that conflicts with concurrent writes, before it is answered with 409.
ATTEMPTS = 5


class ObjectRegistry:
    """All served resources and their objects."""

    def __init__(self, clock: Clock, admission: Callable[[ObjectRegistry], AdmissionChain], *, minor: int = 36) -> None:
        self.clock = clock
        self.minor = minor
        """Minor of the simulated Kubernetes version 1.`minor`."""
        self.before_1_36 = minor < 36
        """Older rule: the template of a suspended Job is mutable only while `status.startTime` is unset."""
        self.store = ObjectStorage()
        self.resources: dict[tuple[str, str, str], ServedResource] = {}
        self.admission = admission(self)

    def add(self, resource: ServedResource) -> None:
        """Serve a resource; versions of one resource share their storage."""
        self.resources[resource.group, resource.version, resource.plural] = resource
        if resource.key not in self.store.collections:
            self.store.add(resource.key, resource.strategy.decorate)

    def drop(self, resource: ServedResource) -> None:
        """Stop serving a resource."""
        del self.resources[resource.group, resource.version, resource.plural]

    def collection(self, resource: ServedResource) -> StoredCollection:
        return self.store.collections[resource.key]

    def find(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """Return the current state of an object, None if it does not exist."""
        version = self.store.collections[group, plural].get(namespace, name)
        return version.obj if version else None

    def now(self) -> str:
        """Return the time of the sandbox's clock as Kubernetes writes it in metadata (RFC 3339, whole seconds)."""
        return rfc3339(self.clock.now())

    # ------------------------------------------------------------------ create

    async def create(self, resource: ServedResource, namespace: str, obj: Object, call: Call) -> ObjectVersion:
        """Run admission and validation, and store a new object, which the caller gives up. Raises ApiError."""
        metadata = obj["metadata"]
        if resource.namespaced:
            metadata["namespace"] = namespace
            self.check_namespace(resource, namespace, metadata.get("name", ""))
        resource.strategy.admit(self, obj, None, "")
        obj = await self.admission.mutate(resource, "", "CREATE", obj, None, call)
        self._prepare_create(resource, namespace, obj)
        metadata = obj["metadata"]
        causes = validate_new_metadata(resource, metadata) + resource.strategy.validate_create(self, obj)
        if causes:
            raise errors.unprocessable(resource.group, resource.kind, metadata.get("name", ""), causes)
        call.warnings += resource.strategy.warnings(obj, None)
        await self.admission.validate(resource, "", "CREATE", obj, None, call)
        collection = self.collection(resource)
        existing = collection.get(namespace, metadata["name"])
        if existing is not None:
            deleting = "deletionTimestamp" in existing.obj["metadata"]
            raise errors.already_exists(resource, metadata["name"], deleting=deleting)
        if call.dry_run:
            return _unstored(resource, obj)
        version = collection.put(obj, None)
        resource.strategy.after_write(self, obj, None)
        return version

    def _prepare_create(self, resource: ServedResource, namespace: str, obj: Object) -> None:
        metadata = obj["metadata"] = dict(obj["metadata"])
        if metadata.get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        if resource.namespaced:
            metadata["namespace"] = namespace
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"):
            metadata.pop(key, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(resource, namespace, metadata["generateName"])
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        if resource.strategy.has_generation:
            metadata["generation"] = 1
        resource.strategy.prepare_create(self, obj)

    def _free_name(self, resource: ServedResource, namespace: str, prefix: str) -> str:
        """Return a generated name that no object has: with thousands of pods, random suffixes do collide."""
        collection = self.collection(resource)
        while collection.get(namespace, name := prefix + random_suffix()) is not None:
            continue
        return name

    def seed(self, resource: ServedResource, obj: Object) -> None:
        """Store an object that a new cluster contains, without admission and validation."""
        metadata = obj["metadata"]
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now()}
        if resource.strategy.has_generation:
            metadata["generation"] = 1
        self.collection(resource).put(obj, None)

    def check_namespace(self, resource: ServedResource, namespace: str, name: str) -> None:
        """Check the namespace of a new object (NamespaceLifecycle). Raises ApiError: 404, or 403 if it terminates."""
        found = self.find("", "namespaces", "", namespace)
        if found is None:
            raise errors.not_found(self.resources["", "v1", "namespaces"], namespace)
        if "deletionTimestamp" in found["metadata"]:
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = errors.Cause(
                "NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated"
            )
            text = f'{resource.qualified} "{name}" is forbidden: {message}'
            raise errors.denied(text, resource, name, [cause])

    # ------------------------------------------------------------------ update

    async def update(
        self,
        resource: ServedResource,
        namespace: str,
        name: str,
        change: Callable[[ObjectVersion | None], Object],
        call: Call,
        *,
        subresource: str = "",
        may_create: bool = False,
    ) -> tuple[ObjectVersion, bool]:
        """Store the object that `change` returns for the current version; True: the object was created.

        `change` must not modify its argument. A conflict with a concurrent write is retried, up to ATTEMPTS times,
        unless the new object has a resourceVersion. Raises ApiError.
        """
        collection = self.collection(resource)
        for _ in range(ATTEMPTS):
            current = collection.get(namespace, name)
            if current is None and not may_create:
                raise errors.not_found(resource, name)
            new = change(current)
            if current is None:
                return await self.create(resource, namespace, new, call), True
            version = await self._update_once(resource, current, new, call, subresource)
            if version is not None:
                return version, False
        raise errors.conflict(resource, name)

    async def _update_once(
        self, resource: ServedResource, current: ObjectVersion, new: Object, call: Call, subresource: str
    ) -> ObjectVersion | None:
        """Make one attempt; None: the object was written concurrently, while admission was awaited."""
        strategy, old, collection = resource.strategy, current.obj, self.collection(resource)
        namespace, name = old["metadata"].get("namespace", ""), old["metadata"]["name"]
        requested = new["metadata"].get("resourceVersion")
        metadata = _keep_system_fields(new, old)
        _reset_fields(resource, new, old, subresource)
        if not subresource:
            strategy.admit(self, new, old, subresource)
        new = await self.admission.mutate(resource, subresource, "UPDATE", new, old, call)
        if new["metadata"] is not metadata:
            metadata = _keep_system_fields(new, old)
            _reset_fields(resource, new, old, subresource)
        if requested and requested != str(current.rv):
            raise errors.conflict(resource, name)
        if not requested and not strategy.unconditional_update:
            fault = errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.unprocessable(resource.group, resource.kind, name, [fault])
        self._prepare_update(resource, new, old, subresource)
        causes = validate_metadata_update(metadata, old["metadata"])
        if subresource == "status":
            causes += strategy.validate_status(new, old)
        elif subresource in SPEC_PARTS:
            causes += strategy.validate_spec_part(new, old, subresource)
        elif subresource in ("", "scale"):
            causes += strategy.validate_update(self, new, old)
        if causes:
            raise errors.unprocessable(resource.group, resource.kind, name, causes)
        if not subresource:
            call.warnings += strategy.warnings(new, old)
        await self.admission.validate(resource, subresource, "UPDATE", new, old, call)
        if collection.get(namespace, name) is not current:
            return None
        return self._commit(resource, current, new, call)

    def _prepare_update(self, resource: ServedResource, new: Object, old: Object, subresource: str) -> None:
        metadata = new["metadata"]
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if not subresource:
            resource.strategy.prepare_update(new, old)
        if resource.strategy.has_generation:
            generation = old["metadata"].get("generation", 0)
            moved = (
                resource.strategy.increments_generation
                and subresource in GENERATION_SUBRESOURCES
                and _content_differs(new, old, resource)
            )
            metadata["generation"] = generation + 1 if moved else generation

    def _commit(self, resource: ServedResource, current: ObjectVersion, new: Object, call: Call) -> ObjectVersion:
        metadata = new["metadata"]
        collection = self.collection(resource)
        done = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if done and not metadata.get("deletionGracePeriodSeconds") and not resource.strategy.blocks_removal(new):
            if not call.dry_run:
                self._remove(resource, current)
            return _unstored(resource, new)
        if new == current.stored:
            return current
        if call.dry_run:
            return _unstored(resource, new)
        version = collection.put(new, current)
        resource.strategy.after_write(self, new, current.obj)
        return version

    def _remove(self, resource: ServedResource, current: ObjectVersion) -> ObjectVersion:
        version = self.collection(resource).remove(current)
        resource.strategy.after_write(self, None, current.obj)
        return version

    # ------------------------------------------------------------------ delete

    async def delete(
        self,
        resource: ServedResource,
        namespace: str,
        name: str,
        options: DeleteOptions,
        call: Call,
        *,
        in_bulk: bool = False,
    ) -> tuple[ObjectVersion, bool]:
        """Delete an object or mark it as terminating; True: it was removed from storage. Raises ApiError.

        `in_bulk` is True for an object of a deletecollection request.
        """
        collection = self.collection(resource)
        current = collection.get(namespace, name)
        if current is None:
            raise errors.not_found(resource, name)
        self._check_preconditions(resource, current, options)
        resource.strategy.check_delete(current.obj)
        await self.admission.review_delete(resource, current.obj, call, named=not in_bulk)
        current = collection.get(namespace, name)
        if current is None:
            raise errors.not_found(resource, name)
        return self._delete_now(resource, current, options, call)

    def _check_preconditions(self, resource: ServedResource, current: ObjectVersion, options: DeleteOptions) -> None:
        metadata = current.obj["metadata"]
        for label, expected, found in (
            ("UID", options.uid, metadata["uid"]),
            ("ResourceVersion", options.version, metadata["resourceVersion"]),
        ):
            if expected is not None and expected != found:
                message = f"Precondition failed: {label} in precondition: {expected}, {label} in object meta: {found}"
                raise errors.conflict(resource, metadata["name"], message)

    def _delete_now(
        self, resource: ServedResource, current: ObjectVersion, options: DeleteOptions, call: Call
    ) -> tuple[ObjectVersion, bool]:
        old = current.obj["metadata"]
        metadata = dict(old)
        new = {**current.obj, "metadata": metadata}
        finalizers = _finalizers_for(old.get("finalizers") or [], options, resource.strategy.default_propagation)
        grace = resource.strategy.grace(current.obj, options.grace)
        if "deletionTimestamp" in old:
            if options.grace is not None and grace < old.get("deletionGracePeriodSeconds", 0):
                self._set_deletion(metadata, grace)
            grace = metadata.get("deletionGracePeriodSeconds", 0)
        elif grace or finalizers or resource.strategy.announces_deletion or resource.strategy.blocks_removal(new):
            self._set_deletion(metadata, grace)
            if "generation" in metadata and resource.strategy.increments_generation:
                metadata["generation"] += 1
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if "deletionTimestamp" in metadata and "deletionTimestamp" not in old:
            new = resource.strategy.begin_deletion(new)
        stays = bool(finalizers or grace) or resource.strategy.blocks_removal(new)
        if call.dry_run:
            return _unstored(resource, new), not stays
        version = current
        if metadata != old and (stays or resource.strategy.announces_deletion):
            version = self.collection(resource).put(new, current)
            resource.strategy.after_write(self, new, current.obj)
        if stays:
            return version, False
        return self._remove(resource, version), True

    def _set_deletion(self, metadata: Object, grace: int) -> None:
        metadata["deletionTimestamp"] = rfc3339(self.clock.now() + grace)
        metadata["deletionGracePeriodSeconds"] = grace


def _unstored(resource: ServedResource, obj: Object) -> ObjectVersion:
    return ObjectVersion(resource.strategy.decorate(obj), obj, 0)


def _keep_system_fields(new: Object, old: Object) -> Object:
    """Give the new object its own metadata, in which the fields that clients cannot change are those of `old`."""
    before = old["metadata"]
    metadata: Object = dict(new["metadata"])
    new["metadata"] = metadata
    for key in ("creationTimestamp", "generation"):
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)
    for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if key in before:
            metadata.setdefault(key, before[key])
    metadata.pop("selfLink", None)
    return metadata


def _reset_fields(resource: ServedResource, new: Object, old: Object, subresource: str) -> None:
    """Restore the fields that this endpoint does not write: status in the main resource, all others in /status.

    Upstream strategies do so in PrepareForUpdate and declare it in GetResetFields.
    """
    strategy = resource.strategy
    if subresource == "status":
        for key in new.keys() | old.keys():
            if key not in strategy.status_keys and key not in ("metadata", "apiVersion", "kind"):
                _restore(new, old, key)
        if not strategy.status_takes_metadata:
            _restore_metadata(new, old)
    elif subresource in SPEC_PARTS:
        _restore_metadata(new, old)
        _restore(new, old, "status")
        strategy.prepare_spec_part(new, old, subresource)
    elif subresource == "finalize":
        finalizers = new.get("spec", {}).get("finalizers", [])
        new["spec"] = {**old["spec"], "finalizers": finalizers}
        new["status"] = old["status"]
    elif resource.has_status and not subresource:
        for key in strategy.status_keys:
            _restore(new, old, key)


def _restore_metadata(new: Object, old: Object) -> None:
    kept = {**old["metadata"]}
    if "managedFields" in new["metadata"]:
        kept["managedFields"] = new["metadata"]["managedFields"]
    new["metadata"].clear()
    new["metadata"].update(kept)


def _restore(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _content_differs(new: Object, old: Object, resource: ServedResource) -> bool:
    ignored = {"metadata", "apiVersion", "kind", *(resource.strategy.status_keys if resource.has_status else ())}
    for key in new.keys() | old.keys():
        if key not in ignored and new.get(key) is not old.get(key) and new.get(key) != old.get(key):
            return True
    return False


def _finalizers_for(current: list[str], options: DeleteOptions, default: str) -> list[str]:
    """Return the finalizers after a deletion: of the garbage collector's two, the one of the propagation policy."""
    policy = options.propagation
    if policy is None:
        present = [name for name in current if name in (ORPHAN, FOREGROUND)]
        policy = {ORPHAN: "Orphan", FOREGROUND: "Foreground"}[present[0]] if present else default
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)
    if wanted in current:
        return [name for name in current if name == wanted or name not in (ORPHAN, FOREGROUND)]
    rest = [name for name in current if name not in (ORPHAN, FOREGROUND)]
    return [*rest, wanted] if wanted else rest
