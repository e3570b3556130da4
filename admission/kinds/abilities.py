"""Abilities that only some kinds have: to be suspended, to scale while running, to own objects of other kinds.

A kind with an ability is based on its class, before `Kind`, and has itself as the ability; `Kind` has None. The two
other abilities have a module each: pods that are queued in groups (`grouped`), and one by one (`deployment`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Belonging
    from admission.kinds.limits import NamespaceContext


class Suspension(ABC):
    """Objects are stopped by a field and can start again, so what a start injects into them is restored."""

    __slots__ = ()

    @property
    def suspension(self) -> Self:
        """Itself."""
        return self

    @property
    @abstractmethod
    def suspend_fields(self) -> tuple[tuple[str, ...], ...]:
        """Keys of the field that suspends an object, the newest first if versions differ."""

    @property
    def roots(self) -> set[str]:
        """Top-level fields, beside `metadata`, that decide about its pods."""
        return {"spec"}

    @abstractmethod
    def stop_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch that suspends the object, or ends the pods of one that is being deleted.

        The second is needed where the controller ignores a suspension during deletion. The patch tests uid and
        generation, so that a former leader cannot stop an object that its successor has started again.
        """

    @abstractmethod
    def restore_patch(self, obj: Object, original: Object) -> Object | list[Object] | None:
        """Return the merge or JSON patch that removes what the start patch injected; None if nothing of it is left.

        Changes that a user made since then stay. Only for an object that is not active.
        """

    @abstractmethod
    def restored(self, obj: Object, original: Object) -> Object:
        """Return the object as `restore_patch` leaves it: `obj` itself if that changes nothing."""

    @abstractmethod
    def carries_start(self, obj: Object, original: Object) -> bool:
        """Whether the object has all that the start patch with this original injected; False if that is nothing."""

    @abstractmethod
    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Whether all that the start patch with this original injected is unchanged, pod counts excepted."""

    @abstractmethod
    def clear_start_time_patch(self, obj: Object) -> Object:
        """Return the merge patch of the status that API servers before 1.36 need before `restore_patch`."""

    def may_resume(self, obj: Object) -> bool:
        """Whether an object that carries its injection has the pods to be resumed with; if not, try again later."""
        return True


def suspend_fields(kind: Kind) -> tuple[tuple[str, ...], ...]:
    """Return the keys of the field that suspends objects of a kind; empty: its pods are gated."""
    return () if kind.suspension is None else kind.suspension.suspend_fields


def restored(kind: Kind, obj: Object, original: Object) -> Object:
    """Return an object without what its start injected: `obj` itself if its kind is not restored."""
    return obj if kind.suspension is None else kind.suspension.restored(obj, original)


class Scaling(ABC):
    """The number of pods may change while the object runs, but not beyond those that it holds quota for.

    `Observed.counts` says how many pods have succeeded, so that their quota can be released.
    """

    __slots__ = ()

    @property
    def scaling(self) -> Self:
        """Itself."""
        return self

    @property
    def grows(self) -> bool:
        """Whether its controller follows a raised number of pods, so that more can be asked for while it runs."""
        return False

    @property
    def has_scale(self) -> bool:
        """Whether writes of its subresource `scale`, which no webhook can judge, give a running object more pods."""
        return False

    @property
    def most_pods(self) -> tuple[str, ...]:
        """Path of the number of pods at a time, where it must not rise while the object runs; or `()`."""
        return ()

    @abstractmethod
    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Return the JSON patch that limits an update of a running object to its admitted pods, and a warning text.

        Both versions are unsuspended. The patch is empty if `new` has no pods beyond those that `old` may have.
        """

    @property
    def copies_grow(self) -> bool:
        """Whether the copy of a dispatched object may get more pods while it runs."""
        return self.grows

    @abstractmethod
    def follow_patch(self, copy: Object, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Return the JSON patch that gives the running copy of an object the pods that this asks for now.

        `held`: number of pods with reserved quota, by pod set that may get more. Empty if nothing is to change.
        """

    def confine_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch after which a running child gets no pods beside those that are terminating.

        Empty if none is terminating, if its controller waits for them anyway, and if no field says that it does.
        """
        return []

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Return the JSON patch that writes a requested scale-up into the object where quota is reserved for it.

        `held`: number of pods with reserved quota, by pod set.
        """
        return []


def has_scale(kind: Kind) -> bool:
    """Whether writes of the subresource `scale` give running objects of a kind more pods."""
    return kind.scaling is not None and kind.scaling.has_scale


class Ownership(ABC):
    """The controller creates objects that are part of the object, not workloads of their own."""

    __slots__ = ()

    @property
    def ownership(self) -> Self:
        """Itself."""
        return self

    @abstractmethod
    def makes(self, group: str, kind: str) -> bool:
        """Whether the kind's controller creates objects of the given kind, which may be a queued kind, too."""

    @abstractmethod
    def part(
        self,
        obj: Object,
        child_kind: Kind,
        child: Object,
        context: NamespaceContext,
        held: Mapping[str, int] = ...,
        *,
        was_part: bool = False,
    ) -> Belonging:
        """Return how `child` belongs to `obj`, which its controller owner reference names (see `children`).

        `held`: number of pods that `obj` holds quota for, by pod set: an edit that asks for fewer takes nothing from a
        child. `was_part`: it was part of it before, and stays so if `obj` names no such child any more.
        """
