"""What the next commit writes: collected over one step of the controller, then one transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.store.records import Changes, Closed, Opened, Resized, Transition

if TYPE_CHECKING:
    from admission.controller.state.workload_change import WorkloadChange
    from admission.store.records import CheckRecord, WorkloadRecord

RECLAIMED = "Reclaimed"
"""Why a part of an admission ends: its pods are not needed any more."""


class Batch:
    """Records (the last version of each wins), the ledger's beginnings and endings, and the story."""

    def __init__(self) -> None:
        self._records: dict[str, WorkloadRecord] = {}
        self._reasons: dict[str, WorkloadRecord] = {}
        self._closed: list[Closed] = []
        self._opened: list[Opened] = []
        self._story: list[Transition] = []
        """As it happened, which times do not tell where the clock is set back."""
        self._resized: list[Resized] = []
        self._checks: dict[tuple[str, str], CheckRecord] = {}
        self._dropped_checks: list[tuple[str, str]] = []
        self._deactivated: list[str] = []

    @property
    def urgent(self) -> bool:
        """Whether it holds more than new reasons for waiting, which may be written some time later."""
        return bool(
            self._records or self._closed or self._opened or self._resized or self._checks or self._dropped_checks
        )

    @property
    def empty(self) -> bool:
        return not (self.urgent or self._reasons)

    def add(self, change: WorkloadChange) -> None:
        """Have all that a change says written; of several records of a workload the last one counts."""
        record = change.tracked.record
        uid = record.workload.uid
        if change.is_written:
            self._reasons.pop(uid, None)
            self._records[uid] = record
        elif change.is_noted:
            (self._records if uid in self._records else self._reasons)[uid] = record
        self._story += change.lines
        for entry in change.ledger:
            self._add_entry(entry)
        for check in change.dropped_checks:
            self._checks.pop((uid, check.name), None)
            self._dropped_checks.append((uid, check.name))
        for check in change.asked_checks:
            self._checks[uid, check.name] = check
        if change.deactivates:
            self._deactivated.append(uid)

    def _add_entry(self, entry: Opened | Closed | Resized) -> None:
        match entry:
            case Opened():
                self._opened.append(entry)
            case Resized():
                self._resized.append(entry)
            case Closed(uid):
                # Sizes are written last: one from before the end is not for what may begin after it.
                self._resized = [resized for resized in self._resized if resized.workload.uid != uid]
                self._closed.append(entry)

    def moves_quota(self, uid: str) -> bool:
        """Whether it holds a beginning, an ending or another size of an admission of this workload."""
        return (
            any(one.uid == uid for one in self._closed)
            or any(one.workload.uid == uid for one in self._opened)
            or any(one.workload.uid == uid for one in self._resized)
        )

    def forget(self, uid: str) -> None:
        """Drop all that is not about quota of a workload."""
        self._records.pop(uid, None)
        self._reasons.pop(uid, None)
        self._story = [line for line in self._story if line.uid != uid]
        self._checks = {key: check for key, check in self._checks.items() if check.uid != uid}
        self._dropped_checks = [key for key in self._dropped_checks if key[0] != uid]
        self._deactivated = [other for other in self._deactivated if other != uid]

    def take(self) -> Changes:
        """Everything collected so far; the batch is empty afterwards."""
        changes = Changes(
            workloads=(*self._records.values(), *self._reasons.values()),
            closed=tuple(self._closed),
            opened=tuple(self._opened),
            resized=tuple(self._resized),
            transitions=tuple(self._story),
            checks=tuple(self._checks.values()),
            dropped_checks=tuple(self._dropped_checks),
            deactivated=tuple(self._deactivated),
        )
        self.__init__()  # type: ignore[misc]
        return changes
