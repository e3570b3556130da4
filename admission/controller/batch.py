"""What the next commit writes: collected over one step of the controller, then one transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.store.records import Changes, Closed, Opened, Transition

if TYPE_CHECKING:
    from admission.model.workload import Admission
    from admission.store.records import WorkloadRecord


class Batch:
    """Records (the last version of each wins), the ledger's beginnings and endings, and the story."""

    def __init__(self) -> None:
        self._records: dict[str, WorkloadRecord] = {}
        self._reasons: dict[str, WorkloadRecord] = {}
        self._closed: list[Closed] = []
        self._opened: list[Opened] = []
        self._story: list[Transition] = []

    @property
    def urgent(self) -> bool:
        """Whether it holds more than new reasons for waiting, which may be written some time later."""
        return bool(self._records or self._closed or self._opened or self._story)

    @property
    def empty(self) -> bool:
        return not (self.urgent or self._reasons)

    def write(self, record: WorkloadRecord, *, at: float, reason: str = "", message: str = "") -> None:
        """A workload has come to another state, or has changed; `reason` and `message` become a line of its story."""
        uid = record.workload.uid
        self._reasons.pop(uid, None)
        self._records[uid] = record
        self._story.append(Transition(uid=uid, at=at, state=record.state, reason=reason, message=message))

    def note(self, record: WorkloadRecord) -> None:
        """Only why it waits is new."""
        uid = record.workload.uid
        (self._records if uid in self._records else self._reasons)[uid] = record

    def open(self, record: WorkloadRecord, admission: Admission, *, at: float) -> None:
        self._opened.append(Opened(workload=record.workload, admission=admission, at=at))

    def close(self, uid: str, *, at: float, reason: str) -> None:
        self._closed.append(Closed(uid=uid, at=at, reason=reason))

    def take(self) -> Changes:
        """Everything collected so far; the batch is empty afterwards."""
        changes = Changes(
            workloads=(*self._records.values(), *self._reasons.values()),
            closed=tuple(self._closed),
            opened=tuple(self._opened),
            transitions=tuple(self._story),
        )
        self.__init__()  # type: ignore[misc]
        return changes
