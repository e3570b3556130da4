"""What may differ from kind to kind in the life of an object; the defaults are those of a kind without rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from admission.sandbox.apiserver.metadata import label_fault, subdomain_fault

if TYPE_CHECKING:
    from admission.sandbox.apiserver.errors import Cause
    from admission.sandbox.apiserver.objects import Object
    from admission.sandbox.apiserver.registry import Registry


class Strategy:
    """The rules of a kind. `new` objects may be changed in place where they are owned, `old` ones never.

    A method that gets an object made by a patch may only add missing keys or replace whole top-level parts:
    what the patch did not touch is shared with the stored version.
    """

    default_propagation: ClassVar[str] = "Background"
    # Whether a PUT without resourceVersion overwrites, and whether one for a missing object creates it.
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    # The parts that a main update may change beside metadata, and those that /status may; None: all, nothing.
    status_keys: ClassVar[tuple[str, ...]] = ("status",)
    # Objects have a generation that counts changes of their parts other than metadata and status.
    has_generation: ClassVar[bool] = True
    generation_moves: ClassVar[bool] = True
    # /status also takes labels and annotations.
    status_takes_metadata: ClassVar[bool] = True
    # Names must be DNS labels instead of subdomains.
    label_names: ClassVar[bool] = False
    # A deletion is answered with the object even when it is gone.
    returns_deleted: ClassVar[bool] = False
    # Watchers are shown the deletionTimestamp even of objects that go at once.
    announces_deletion: ClassVar[bool] = False

    def name_fault(self, name: str) -> str:
        """Why a name cannot be; empty if it can."""
        return label_fault(name) if self.label_names else subdomain_fault(name)

    def default(self, obj: Object) -> None:
        """Fill what the client left out; called on every decoded object."""

    def show(self, obj: Object) -> Object:
        """The object as readers see it."""
        return obj

    def admit(self, registry: Registry, new: Object, old: Object | None, subresource: str) -> None:
        """What the built-in admission plugins change or refuse, before webhooks are asked."""

    def prepare_create(self, registry: Registry, obj: Object) -> None:
        """Make an object ready to be stored, after mutation; it has its final name and uid."""

    def validate_create(self, registry: Registry, obj: Object) -> list[Cause]:
        """The faults of a new object, beyond its metadata."""
        return []

    def prepare_update(self, new: Object, old: Object) -> None:
        """Take back what an update may not touch without saying so."""

    def validate_update(self, registry: Registry, new: Object, old: Object) -> list[Cause]:
        """The faults of a changed object, beyond its metadata."""
        return []

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        """The faults of an update through /status."""
        return []

    def warnings(self, new: Object, old: Object | None) -> list[str]:
        """What the client is told beside a success."""
        return []

    def check_delete(self, obj: Object) -> None:
        """Refuse a deletion that is never allowed. Raises ApiError."""

    def deleting(self, obj: Object) -> Object:
        """An object at the moment when its deletion begins."""
        return obj

    def is_held(self, obj: Object) -> bool:
        """Whether something other than finalizers and grace keeps a deleted object."""
        return False

    def grace(self, obj: Object, asked: int | None) -> int:
        """Seconds that a deleted object stays for a graceful end."""
        return 0

    def stored(self, registry: Registry, new: Object | None, old: Object | None) -> None:
        """Called after every change of an object of the kind."""
