"""What kinds have in common whose objects are given nothing that would have to be taken out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.kinds.common import CommonKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Object
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission


class UnchangedKind(CommonKind):
    """Pods, which are deleted to stop them; groups of pods; and objects whose pods are queued in groups (see `Kind`).

    By default nothing is asked of the object itself: its pods are started and stopped.
    """

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Nothing: what is beyond that which was admitted stays gated."""
        return [], ""

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Nothing: its pods are started."""
        return [], {}

    def carries(self, obj: Object, original: Object) -> bool:
        """Nothing is taken out again, so it does not matter."""
        return False

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """The API server keeps what was put into pods."""
        return True

    def resume_patch(self, obj: Object) -> list[Object]:
        """Nothing: each pod has its own."""
        return []

    def stop_patch(self, obj: Object) -> list[Object]:
        """None: pods are deleted."""
        return []

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Nothing."""
        return {}

    def restore_patch(self, obj: Object, original: Object) -> None:
        """None: what is gated was never changed, and what is not is deleted."""
        return

    def restored(self, obj: Object, original: Object) -> Object:
        """The object itself."""
        return obj
