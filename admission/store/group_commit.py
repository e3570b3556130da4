"""Group commit: what is submitted while a transaction runs shares the next one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from admission.model.errors import StoreError
from admission.store.errors import Unwritable
from admission.store.workloads.commit import apply, begin
from admission.store.workloads.separation import write_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from admission.store.database.connection import Database
    from admission.store.records import Changes


@dataclass(frozen=True, slots=True)
class _Submission:
    changes: Changes
    epoch: int
    revision: asyncio.Future[int]


class Writer:
    """Commits changes for any number of concurrent callers, in the order in which they asked.

    A task of its own does it while there is something to do, so that a caller who is cancelled takes no one down.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], told: Callable[[int], None]) -> None:
        """`told` is called with each revision that is committed."""
        self.commits = 0
        """Submissions that were committed, since this object was made."""
        self._database = database
        self._clock = clock
        self._told = told
        self._waiting: list[_Submission] = []
        self._task: asyncio.Task[None] | None = None

    async def commit(self, changes: Changes, *, epoch: int) -> int:
        """Write all of `changes` or nothing, together with what others commit at the same time; the new revision.

        Raises StaleEpoch, Unwritable (what is to be written of some workloads; the others are written if it says so),
        ContradictsLedger (a workload would hold quota twice), DatabaseUnavailable (it is not known whether the changes
        were written: load again) and DatabaseUnusable (read-only, disk full: try again later). If the caller is
        cancelled meanwhile, they may be written or not.
        """
        submission = _Submission(changes, epoch, asyncio.get_running_loop().create_future())
        self._waiting.append(submission)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="store writer")
        try:
            revision = await submission.revision
        except Unwritable as error:
            if error.revision is not None:
                self._told(error.revision)
            raise
        self._told(revision)
        return revision

    async def close(self) -> None:
        """Wait until all submissions are committed or have failed."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                revision = await self._database.write_sync(partial(_write, batch, self._clock()))
            except StoreError as error:
                self._fail(batch, error)
            except Exception:  # noqa: BLE001  whatever it is, it belongs to the one caller who caused it
                await self._commit_apart(batch)
            else:
                self._succeed(batch, revision)

    async def _commit_apart(self, batch: list[_Submission]) -> None:
        """Commit each submission in a transaction of its own, after the common one was refused."""
        for submission in batch:
            try:
                revision, unwritable = await self._database.write_sync(partial(_write_apart, submission, self._clock()))
            except Exception as error:  # noqa: BLE001  the caller gets it
                self._fail([submission], error)
            else:
                if unwritable is None:
                    self._succeed([submission], revision)
                else:
                    self.commits += 1
                    self._fail([submission], unwritable)

    def _take(self) -> list[_Submission]:
        """The waiting submissions up to the first one of another epoch."""
        end = next((i for i, s in enumerate(self._waiting) if s.epoch != self._waiting[0].epoch), len(self._waiting))
        batch, self._waiting = self._waiting[:end], self._waiting[end:]
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


def _write_apart(submission: _Submission, at: float, connection: Connection) -> tuple[int, Unwritable | None]:
    begun = begin(connection, epoch=submission.epoch, at=at)
    return begun.revision, write_apart(connection, submission.changes, begun)


def _write(batch: list[_Submission], at: float, connection: Connection) -> int:
    begun = begin(connection, epoch=batch[0].epoch, at=at)
    for submission in batch:
        apply(connection, submission.changes, begun)
    return begun.revision
