"""Which admitted workloads have pods that are not ready, and which of them keep others from being admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.store.records import State

if TYPE_CHECKING:
    from admission.controller.state.tracked import Registry, Tracked
    from admission.store.records import WorkloadRecord


class Readiness:
    """For the workloads of one registry. `one_at_a_time`: Kueue's `waitForPodsReady.blockAdmission`."""

    def __init__(self, registry: Registry, *, one_at_a_time: bool) -> None:
        self.one_at_a_time = one_at_a_time
        """Whether those that are not ready keep others out."""
        self._registry = registry
        self._starting: dict[str, None] = {}
        """Uids of those that may run and were last seen with pods that are not ready."""
        self._blocking: set[str] = set()
        """Those that keep others out, if they still hold quota."""

    def restored(self) -> None:
        """All that is on record was put into the registry: who keeps others out until it is seen again?"""
        if self.one_at_a_time:
            self._blocking = {tracked.uid for tracked in self._registry if _is_unready(tracked.record)}

    def follow(self, tracked: Tracked) -> None:
        """A workload was looked at."""
        record, seen, uid = tracked.record, tracked.seen, tracked.uid
        if record.state is State.EVICTING and self.one_at_a_time:
            self._blocking.add(uid)  # its pods are going
        if record.state is not State.ADMITTED or record.cleared_at is None or seen is None:
            return
        if seen.ready and not seen.suspended:
            self._starting.pop(uid, None)
            self._blocking.discard(uid)
            return
        if not seen.suspended:
            self._starting[uid] = None
        if self.one_at_a_time:
            self._blocking.add(uid)

    @property
    def blocked(self) -> bool:
        """Whether nothing may be admitted now, because pods of an admitted workload are not ready."""
        for uid in list(self._blocking):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.holds_quota:
                return True
            self._blocking.discard(uid)
        return False

    def unready(self) -> list[Tracked]:
        """The admitted workloads that may run and whose pods are not all ready."""
        found = []
        for uid in list(self._starting):
            tracked = self._registry.get(uid)
            if tracked is not None and tracked.record.state is State.ADMITTED:
                found.append(tracked)
            else:
                del self._starting[uid]
        return found


def _is_unready(record: WorkloadRecord) -> bool:
    """Whether it holds quota, and was not known to have all its pods ready."""
    if record.state is State.ADMITTED:
        return record.cleared_at is not None and (record.ready_at is None or record.unready_at is not None)
    return record.state is State.EVICTING
