"""Strategy: the hooks of the generic registry that differ between kinds (rest.RESTCreateStrategy and its siblings)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from admission.sandbox.apiserver.metadata import label_fault, subdomain_fault

if TYPE_CHECKING:
    from admission.sandbox.apiserver.errors import Cause
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import ObjectRegistry


class Strategy:
    """Hooks and settings of one kind; the defaults are those of a kind without special rules.

    `new` objects may be modified in place where they are owned, `old` ones never. A hook that receives the result of a
    patch may only add missing keys or replace whole top-level parts: the rest is shared with the stored version.
    """

    default_propagation: ClassVar[str] = "Background"
    # Whether a PUT without resourceVersion overwrites the object, and whether a PUT of a missing object creates it
    # (AllowUnconditionalUpdate, AllowCreateOnUpdate).
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    # Top-level fields of /status: an update of the main resource keeps them, one of /status keeps all others.
    status_keys: ClassVar[tuple[str, ...]] = ("status",)
    # Whether objects have metadata.generation, and whether it counts changes outside of metadata and status.
    has_generation: ClassVar[bool] = True
    increments_generation: ClassVar[bool] = True
    # Whether an update of /status also changes metadata, such as labels and annotations.
    status_takes_metadata: ClassVar[bool] = True
    # Whether names must be DNS labels instead of DNS subdomains.
    label_names: ClassVar[bool] = False
    # Whether a deletion is answered with the object, instead of a Status, when it was removed (ReturnDeletedObject).
    returns_deleted: ClassVar[bool] = False
    # Whether objects that are removed without delay are first stored with a deletionTimestamp, which watchers receive.
    announces_deletion: ClassVar[bool] = False

    def name_fault(self, name: str) -> str:
        """Return the validation message for an invalid name, empty for a valid one."""
        return label_fault(name) if self.label_names else subdomain_fault(name)

    def default(self, obj: Object) -> None:
        """Fill in defaults; called on every decoded object."""

    def decorate(self, obj: Object) -> Object:
        """Return the object as clients read it."""
        return obj

    def admit(self, registry: ObjectRegistry, new: Object, old: Object | None, subresource: str) -> None:
        """Run the built-in admission plugins, which change or reject an object, before webhooks are called."""

    def prepare_create(self, registry: ObjectRegistry, obj: Object) -> None:
        """Set or clear fields of a new object (PrepareForCreate), after mutation; it has its final name and uid."""

    def validate_create(self, registry: ObjectRegistry, obj: Object) -> list[Cause]:
        """Return the validation errors of a new object, except for its metadata."""
        return []

    def prepare_update(self, new: Object, old: Object) -> None:
        """Restore fields that an update cannot change and that are ignored instead of rejected (PrepareForUpdate)."""

    def validate_update(self, registry: ObjectRegistry, new: Object, old: Object) -> list[Cause]:
        """Return the validation errors of a changed object, except for its metadata."""
        return []

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        """Return the validation errors of an update through /status."""
        return []

    def prepare_spec_part(self, new: Object, old: Object, subresource: str) -> None:
        """Restore the spec except for what a subresource of a part of it (`resize`, `ephemeralcontainers`) writes."""

    def validate_spec_part(self, new: Object, old: Object, subresource: str) -> list[Cause]:
        """Return the validation errors of an update through such a subresource."""
        return []

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """Return texts for the Warning headers of a successful create (`old` is None) or update."""
        return []

    def check_delete(self, obj: Object) -> None:
        """Reject the deletion of an object that must not be deleted. Raises ApiError."""

    def begin_deletion(self, obj: Object) -> Object:
        """Return the object as it is stored when its deletion begins."""
        return obj

    def blocks_removal(self, obj: Object) -> bool:
        """Return whether a terminating object is kept for another reason than finalizers and its grace period."""
        return False

    def grace(self, obj: Object, requested: int | None) -> int:
        """Return the grace period of a deletion in seconds; `requested` is the client's, None for the default."""
        return 0

    def after_write(self, registry: ObjectRegistry, new: Object | None, old: Object | None) -> None:
        """Receive each write of an object of the kind (AfterCreate, AfterUpdate, AfterDelete).

        `new` is None after a deletion, `old` after a creation.
        """
