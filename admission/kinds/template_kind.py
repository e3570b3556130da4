"""Base class of kinds whose pods are queued, not their objects: in groups (`grouped`), or one by one (`deployment`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from admission.kinds.base import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.kinds.base import Object, Observed, Outcome
    from admission.kinds.limits import NamespaceContext
    from admission.model.checks import PodSetUpdate
    from admission.model.queues import ResourceFlavor
    from admission.model.workload import Admission, PodSet


class TemplateKind(Kind):
    """The object is not patched after its creation: its pods are gated, started and stopped."""

    __slots__ = ()

    reports_pods: ClassVar[bool] = True
    ends_by_deletion: ClassVar[bool] = False
    pods_label: ClassVar[str] = ""

    def outcome(self, obj: Object) -> Outcome | None:
        """Return its outcome; None: it is not finished, and may still create pods. By default it never finishes."""
        return None

    def observe(self, obj: Object) -> Observed:
        """Return a state with the outcome only: the object has no gate."""
        return self._observed(
            obj,
            suspended=False,
            active=False,
            counts=(),
            finished=self.outcome(obj),
            ready=False,
            ending="deletionTimestamp" in obj["metadata"],
            pod_priority_class="",
        )

    def pod_sets(self, obj: Object, context: NamespaceContext) -> tuple[PodSet, ...]:
        """Return no pod sets: its pods, or their groups, have them."""
        return ()

    def start_patch(
        self,
        obj: Object,
        admission: Admission,
        flavors: Mapping[str, ResourceFlavor],
        updates: Sequence[PodSetUpdate] = (),
    ) -> tuple[list[Object], Object]:
        """Return an empty patch: the object's pods are started instead."""
        return [], {}

    def resume_patch(self, obj: Object) -> list[Object]:
        """Return an empty patch: each pod has a resume patch of its own."""
        return []
