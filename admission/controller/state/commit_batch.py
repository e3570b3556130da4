"""What the next commit writes: collected over one step of the controller, then one transaction of the store."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from admission.store.records import Changes, Closed, Opened, Resized, Transition

if TYPE_CHECKING:
    from admission.model.workload import Admission
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
        self._reason_changes: list[Transition] = []
        """Lines of the story that may wait as their `_reasons` may."""
        self._resized: list[Resized] = []
        self._checks: dict[tuple[str, str], CheckRecord] = {}
        self._dropped_checks: list[tuple[str, str]] = []
        self._deactivated: list[str] = []

    @property
    def urgent(self) -> bool:
        """Whether it holds more than new reasons for waiting, which may be written some time later."""
        return bool(
            self._records
            or self._closed
            or self._opened
            or self._resized
            or self._story
            or self._checks
            or self._dropped_checks
        )

    @property
    def empty(self) -> bool:
        return not (self.urgent or self._reasons)

    def write(self, record: WorkloadRecord, *, at: float, reason: str = "", message: str = "") -> None:
        """A workload has come to another state, or has changed; `reason` and `message` become a line of its story."""
        uid = record.workload.uid
        self._reasons.pop(uid, None)
        self._records[uid] = record
        self._story.append(Transition(uid=uid, at=at, state=record.state, reason=reason, message=message))

    def note(self, record: WorkloadRecord, change: Transition | None = None) -> None:
        """Only why it waits is new, or whether its pods are ready; `change` is a line of its story that says so."""
        uid = record.workload.uid
        if change is not None:
            self._reason_changes.append(change)
        (self._records if uid in self._records else self._reasons)[uid] = record

    def open(self, record: WorkloadRecord, admission: Admission, *, at: float) -> None:
        self._opened.append(Opened(workload=record.workload, admission=admission, at=at))

    def resize(self, record: WorkloadRecord, admission: Admission, *, at: float) -> None:
        """A workload holds less from now on."""
        self._resized.append(Resized(workload=record.workload, admission=admission, at=at, reason=RECLAIMED))

    def close(self, uid: str, *, at: float, reason: str) -> None:
        # Sizes are written after endings and beginnings: one from before the end is not for what may begin then.
        self._resized = [resized for resized in self._resized if resized.workload.uid != uid]
        self._closed.append(Closed(uid=uid, at=at, reason=reason))

    def ask(self, check: CheckRecord) -> None:
        """An admission check is asked, newly or anew."""
        self._checks[check.uid, check.name] = check

    def drop_check(self, check: CheckRecord) -> None:
        """It is not asked any more."""
        self._checks.pop((check.uid, check.name), None)
        self._dropped_checks.append((check.uid, check.name))

    def deactivate(self, uid: str) -> None:
        """Sluice takes a workload out of the queue for good."""
        self._deactivated.append(uid)

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
        self._reason_changes = [line for line in self._reason_changes if line.uid != uid]
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
            transitions=tuple(sorted((*self._reason_changes, *self._story), key=attrgetter("at"))),
            checks=tuple(self._checks.values()),
            dropped_checks=tuple(self._dropped_checks),
            deactivated=tuple(self._deactivated),
        )
        self.__init__()  # type: ignore[misc]
        return changes
