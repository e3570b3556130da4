"""Base class of kinds whose objects get no injection that would have to be restored."""

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
    """Pods, which are deleted to stop them; pod groups; and objects whose pods are queued in groups (see `Kind`).

    By default the object itself is not patched: its pods are started and stopped.
    """

    def limit(self, new: Object, old: Object) -> tuple[list[Object], str]:
        """Return an empty patch: pods beyond the admitted ones stay gated."""
        return [], ""

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return an empty patch: the object's pods are started instead."""
        return [], {}

    def carries(self, obj: Object, original: Object) -> bool:
        """Always False: nothing has to be restored, so callers need not know."""
        return False

    def is_as_started(self, obj: Object, original: Object) -> bool:
        """Always True: the API server does not let users change what was injected into pods."""
        return True

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return an empty patch: each pod has a resume patch of its own."""
        return []

    def stop_patch(self, obj: Object) -> list[Object]:
        """Return an empty patch: pods are deleted."""
        return []

    def clear_start_time_patch(self, obj: Object) -> Object:
        """Return an empty patch."""
        return {}

    def restore_patch(self, obj: Object, original: Object) -> None:
        """Return None: a gated object was never changed, and a started one is deleted."""
        return

    def restored(self, obj: Object, original: Object) -> Object:
        """Return the object itself."""
        return obj
