"""The workloads whose pods are in one cluster: its own ones that stay in it, and those sent to it from the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.controller.state.inbox import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.controller.state.inbox import Message
    from admission.controller.state.leader_state import WorkloadRegistry
    from admission.controller.state.tracked import Tracked
    from admission.controller.state.triggers import Trigger
    from admission.controller.workloads.reconciler import Reconciler


class Hosted:
    """Finds these workloads by uid. What is learned of them goes to the cluster that their objects are in."""

    def __init__(
        self, reconciler: Reconciler, hub: Callable[[], WorkloadRegistry], tell_hub: Callable[[Message], None]
    ) -> None:
        """`hub`: returns the workloads of the hub, which may be this cluster itself. `tell_hub`: see `Shared`."""
        self.cluster = reconciler.environment.context.cluster
        self.reconciler = reconciler
        self._own = reconciler.state.registry
        self._hub = hub
        self._tell_hub = tell_hub

    def __iter__(self) -> Iterator[Tracked]:
        own, hub = self._own, self._hub()
        for registry in (own,) if own is hub else (own, hub):
            yield from (tracked for tracked in registry if tracked.record.runs_in == self.cluster)

    def get(self, uid: str) -> Tracked | None:
        """Return a workload; None: it is not known, or its pods are not here."""
        tracked = self._own.get(uid) or self._hub().get(uid)
        return tracked if tracked is not None and tracked.record.runs_in == self.cluster else None

    def tell(self, tracked: Tracked, trigger: Trigger) -> None:
        """Have a trigger processed for a workload."""
        if self._own.get(tracked.uid) is tracked:
            self.reconciler.handle(tracked, trigger)
        else:
            self._tell_hub(Told(tracked.uid, trigger))
