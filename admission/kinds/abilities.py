"""What only some kinds can do, each ability a small protocol. All of them are part of `Kind`.

A kind that has none of an ability inherits what that means from `common` or `unchanged`, so that whoever works with
kinds asks none of them what it can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.kinds.base import Kind, Object
    from admission.kinds.children import Part
    from admission.kinds.limits import NamespaceContext


class Elastic(Protocol):
    """The number of its pods may change while it runs. Without it: what runs keeps the pods that it was started with.

    Which pods have ended well, so that their quota is given back, is in `Observed.counts`.
    """

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """The JSON patch that keeps what runs from having more pods than before, or others, and a sentence about it.

        Both are unsuspended. The patch is empty where `new` may have no pods that `old` may not have.
        """

    def scale_patch(self, obj: Object, held: Mapping[str, int]) -> list[Object]:
        """The JSON patch that gives an object the pods that it waits for, where there is quota for them by now.

        `held`: for how many pods of each pod set.
        """


class Owner(Protocol):
    """Its controller makes objects that may be queued, too. Without it: pods only, of pod sets that are in itself."""

    @property
    def rendered_by(self) -> tuple[str, str] | None:
        """Group and kind of the child of the same name that pod sets are read from: its spec is put at `RENDERED`.

        None: the object itself has its pod sets.
        """

    def makes(self, group: str, kind: str) -> bool:
        """Whether its controller makes objects of another kind, of which there may be queued ones, too."""

    def part(self, obj: Object, child_kind: Kind, child: Object, context: NamespaceContext) -> Part:
        """How `child`, whose controller `obj` is, belongs to it: see `admission.kinds.children`."""


class Composed(Protocol):
    """Its objects are put together of others, as groups are of pods. Without it: the API server has them."""

    @property
    def is_composed(self) -> bool:
        """Whether its objects are put together of others: the API server has none of them."""


class EndsByDeletion(Protocol):
    """A stop of its own: it ends by deleting it, as a pod does. Without it: a field or its controller suspends it."""

    @property
    def ends_by_deletion(self) -> bool:
        """Whether what runs can be stopped only by deleting it; it is gone then, and does not queue again."""

    def stop_patch(self, obj: Object) -> list[Object]:
        """The JSON patch that suspends, or has what is being deleted end its pods: its controller minds no suspension.

        It tests uid and generation, so that a replica that led once cannot stop what its successor has started again.
        Empty for what ends by deletion.
        """


class SelectsPods(Protocol):
    """Its pods are found by a label. Without it: it is a pod itself, or a group."""

    @property
    def pods_label(self) -> str:
        """The label of its pods that has its uid as value, from its start on; empty: it is a pod itself, or a group."""

    @property
    def tells_of_pods(self) -> bool:
        """Whether the object itself says when its last pod has ended; else its pods are looked for by `pods_label`."""


class WatchedByLabel(Protocol):
    """So many of it are none of Sluice's that the API server selects those that are. Without it: all are watched."""

    @property
    def watched_label(self) -> str:
        """The label, with the value "true", of the objects that are watched; empty: all are."""

    def is_watched(self, obj: Object) -> bool:
        """Whether it has that label."""


class NotesStartTime(Protocol):
    """API servers before 1.36 let its template be restored only without a start time. Without it: it has none."""

    def clear_start_time_patch(self, obj: Object) -> Object:
        """The merge patch of the status that API servers before 1.36 need before `restore_patch`."""
