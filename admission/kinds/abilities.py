"""Protocols for abilities that only some kinds have, such as scaling while running. `Kind` includes all of them.

A kind without an ability inherits a default from `common` or `unchanged`, so callers need not test for abilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Part
    from admission.kinds.limits import NamespaceContext


class Elastic(Protocol):
    """The number of pods may change while the object runs. Default: a running object keeps the pods it started with.

    `Observed.counts` says how many pods have succeeded, so that their quota can be released.
    """

    @property
    def scales(self) -> bool:
        """Whether its controller follows a changed number of pods, so that more can be asked for while it runs."""

    @property
    def has_scale(self) -> bool:
        """Whether writes of its subresource `scale`, which no webhook can judge, give a running object more pods."""

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Return the JSON patch that limits an update of a running object to its admitted pods, and a warning text.

        Both versions are unsuspended. The patch is empty if `new` has no pods beyond those that `old` may have.
        """

    def confine_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch after which a running child gets no pods beside those that are terminating.

        Empty if none is terminating, if its controller waits for them anyway, and if no field says that it does.
        """

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """Return the JSON patch that writes a requested scale-up into the object where quota is reserved for it.

        `held`: number of pods with reserved quota, by pod set.
        """


class Owner(Protocol):
    """The controller creates objects of other queued kinds. Default: only pods, from the object's own pod sets."""

    @property
    def rendered_by(self) -> tuple[str, str] | None:
        """Group and kind of the child of the object's name whose spec has the pod templates; kept at `RENDERED`.

        Example: `("jobset.x-k8s.io", "JobSet")` for a TrainJob. None: the object itself has its pod templates.
        """

    def makes(self, group: str, kind: str) -> bool:
        """Whether the kind's controller creates objects of the given kind, which may be a queued kind, too."""

    def part(
        self,
        obj: Object,
        child_kind: Kind,
        child: Object,
        context: NamespaceContext,
        held: Mapping[str, int] = ...,
        *,
        was_part: bool = False,
    ) -> Part:
        """Return how `child` belongs to `obj`, which its controller owner reference names (see `children`).

        `held`: number of pods that `obj` holds quota for, by pod set: an edit that asks for fewer takes nothing from a
        child. `was_part`: it was part of it before, and stays so if `obj` names no such child any more.
        """


class Composed(Protocol):
    """Objects are assembled by Sluice, as pod groups are from pods. Default: they are objects of the API server."""

    @property
    def is_composed(self) -> bool:
        """Whether objects of this kind are assembled from others and do not exist in the API server."""


class EndsByDeletion(Protocol):
    """Eviction deletes the object, as with pods. Default: it is suspended by a field, or by its controller."""

    @property
    def ends_by_deletion(self) -> bool:
        """Whether a running object can be stopped only by deletion; it is then not requeued."""

    def stop_patch(self, obj: Object) -> list[Object]:
        """Return the JSON patch that suspends the object, or ends the pods of one that is being deleted.

        The second is needed where the controller ignores a suspension during deletion. The patch tests uid and
        generation, so that a former leader cannot stop an object that its successor has started again. Empty for kinds
        that end by deletion.
        """


class SelectsPods(Protocol):
    """Pods of an object are found by a label. Default: the object is a pod itself, or a pod group."""

    @property
    def pods_label(self) -> str:
        """Label on the object's pods since its start, with its uid as value; empty: it is a pod itself, or a group."""

    @property
    def reports_pods(self) -> bool:
        """Whether the object's status shows when its last pod has terminated; else pods are listed by `pods_label`."""


class WatchedByLabel(Protocol):
    """Watched with a label selector, as most objects of the kind are not Sluice's. Default: all objects are watched."""

    @property
    def watched_label(self) -> str:
        """Label, with the value "true", that selects the objects to watch; empty: all are watched."""

    def is_watched(self, obj: Object) -> bool:
        """Whether the object has that label."""


class NotesStartTime(Protocol):
    """The status has a start time, which must be cleared before the template is restored on API servers before 1.36."""

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Return the merge patch of the status that API servers before 1.36 need before `restore_patch`."""
