"""Group commit: changes that are submitted while a transaction runs share the next one.

What the database rejects is isolated: data errors, such as a value that a column cannot store or a violated constraint.
The changes are bisected by workload, each part within a savepoint, until the failing workloads are alone, so that the
changes of all others are written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import IntegrityError

from admission.model.errors import StoreError
from admission.store.database.driver_errors import is_database_failure
from admission.store.errors import ContradictsLedger, Unwritable
from admission.store.records import Changes
from admission.store.workloads.commit import apply, begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from admission.store.database.connection import Database
    from admission.store.workloads.commit import Begun


@dataclass(frozen=True, slots=True)
class _Submission:
    """The changes of one call of `commit`, with the leader's epoch and the future of its result."""

    changes: Changes
    epoch: int
    revision: asyncio.Future[int]


class GroupCommit:
    """Commits changes of any number of concurrent callers, in the order of their calls.

    A task of its own runs the transactions while submissions are queued, so that the cancellation of one caller does
    not cancel the commit of others.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], on_commit: Callable[[int], None]) -> None:
        """`on_commit` is called with the revision of each commit."""
        self.commits = 0
        """Number of submissions committed since this object was created."""
        self._database = database
        self._clock = clock
        self._on_commit = on_commit
        self._queue: list[_Submission] = []
        self._task: asyncio.Task[None] | None = None

    async def commit(self, changes: Changes, *, epoch: int) -> int:
        """Write all of `changes` or nothing, in one transaction with concurrent calls; return its revision.

        Raises StaleEpoch, Unwritable (the changes of some workloads are rejected; if it has a revision, those of the
        others were committed), ContradictsLedger (a workload would hold quota twice), DatabaseUnavailable (it is
        unknown whether the changes were committed: load the state again) and DatabaseUnusable (read-only, disk full:
        retry later). If the caller is cancelled, the changes may or may not be committed.
        """
        submission = _Submission(changes, epoch, asyncio.get_running_loop().create_future())
        self._queue.append(submission)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="store writer")
        try:
            revision = await submission.revision
        except Unwritable as error:
            if error.revision is not None:
                self._on_commit(error.revision)
            raise
        self._on_commit(revision)
        return revision

    async def close(self) -> None:
        """Wait until all submissions have been committed or have failed."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._queue:
            batch = self._next_batch()
            try:
                revision = await self._database.write_sync(partial(_write, batch, self._clock()))
            except StoreError as error:
                self._fail(batch, error)
            except Exception:  # noqa: BLE001  the error belongs to one submission: find it by separate commits
                await self._commit_separately(batch)
            else:
                self._succeed(batch, revision)

    async def _commit_separately(self, batch: list[_Submission]) -> None:
        """Commit each submission in a transaction of its own, after the common transaction has failed."""
        for submission in batch:
            try:
                revision, unwritable = await self._database.write_sync(
                    partial(_write_separately, submission, self._clock())
                )
            except Exception as error:  # noqa: BLE001  raised to the caller of `commit`
                self._fail([submission], error)
            else:
                if unwritable is None:
                    self._succeed([submission], revision)
                else:
                    self.commits += 1
                    self._fail([submission], unwritable)

    def _next_batch(self) -> list[_Submission]:
        """Remove and return the queued submissions up to the first one of another epoch."""
        end = next((i for i, s in enumerate(self._queue) if s.epoch != self._queue[0].epoch), len(self._queue))
        batch, self._queue = self._queue[:end], self._queue[end:]
        return batch

    def _succeed(self, batch: list[_Submission], revision: int) -> None:
        self.commits += len(batch)
        for submission in batch:
            if not submission.revision.done():
                submission.revision.set_result(revision)

    def _fail(self, batch: list[_Submission], error: Exception) -> None:
        for submission in batch:
            if not submission.revision.done():
                submission.revision.set_exception(error)


def _write_separately(submission: _Submission, at: float, connection: Connection) -> tuple[int, Unwritable | None]:
    begun = begin(connection, epoch=submission.epoch, at=at, uids=_uids([submission]))
    return begun.revision, write_separately(connection, submission.changes, begun)


def _write(batch: list[_Submission], at: float, connection: Connection) -> int:
    begun = begin(connection, epoch=batch[0].epoch, at=at, uids=_uids(batch))
    for submission in batch:
        apply(connection, submission.changes, begun)
    return begun.revision


def _uids(batch: list[_Submission]) -> Iterator[str]:
    """Yield the uids of the workloads that are written."""
    return (record.workload.uid for submission in batch for record in submission.changes.workloads)


def write_separately(connection: Connection, changes: Changes, begun: Begun) -> Unwritable | None:
    """Write the changes of all workloads that the database accepts; return the error of the others, or None.

    Raises Unwritable or ContradictsLedger, which rolls the transaction back, if a rejected change starts, ends or
    resizes an admission: other changes may depend on the quota that it moves.
    """
    faults: dict[str, Exception] = {}
    _write_part(connection, changes, begun, sorted(_uids_of(changes)), faults)
    if not faults:
        return None
    first = next(iter(faults.values()))
    message = f"{len(faults)} workloads cannot be written, the first one because of: {_first_line(first)}"
    moving_quota = {one.uid for one in changes.closed}
    moving_quota |= {one.workload.uid for one in changes.opened} | {one.workload.uid for one in changes.resized}
    if not moving_quota.isdisjoint(faults):
        if all(isinstance(fault, IntegrityError) for fault in faults.values()):
            message = f"the changes contradict what is in the database: {_first_line(first)}"
            raise ContradictsLedger(message, faults) from first
        raise Unwritable(message, faults) from first
    return Unwritable(message, faults, revision=begun.revision)


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "orig", error)).splitlines()
    return lines[0] if lines else type(error).__name__


def _write_part(
    connection: Connection, changes: Changes, begun: Begun, uids: list[str], faults: dict[str, Exception]
) -> None:
    part = _only(changes, set(uids))
    try:
        with connection.begin_nested():
            apply(connection, part, begun)
    except Exception as error:
        if is_database_failure(error):
            raise
        if len(uids) <= 1:
            faults.update(dict.fromkeys(uids, error))
            return
        middle = len(uids) // 2
        for half in (uids[:middle], uids[middle:]):
            _write_part(connection, changes, begun, half, faults)


def _uids_of(changes: Changes) -> set[str]:
    return {
        *(record.workload.uid for record in changes.workloads),
        *(one.workload.uid for one in changes.opened),
        *(one.workload.uid for one in changes.resized),
        *(one.uid for one in changes.closed),
        *(one.uid for one in changes.transitions),
        *(one.uid for one in changes.checks),
        *(uid for uid, _ in changes.dropped_checks),
        *changes.deactivated,
    }


def _only(changes: Changes, uids: set[str]) -> Changes:
    """Return the part of the changes that concerns these workloads."""
    return Changes(
        workloads=tuple(one for one in changes.workloads if one.workload.uid in uids),
        closed=tuple(one for one in changes.closed if one.uid in uids),
        opened=tuple(one for one in changes.opened if one.workload.uid in uids),
        transitions=tuple(one for one in changes.transitions if one.uid in uids),
        checks=tuple(one for one in changes.checks if one.uid in uids),
        dropped_checks=tuple(one for one in changes.dropped_checks if one[0] in uids),
        deactivated=tuple(uid for uid in changes.deactivated if uid in uids),
        resized=tuple(one for one in changes.resized if one.workload.uid in uids),
        known=changes.known,
    )
