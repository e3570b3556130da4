"""Leader or follower: every replica serves webhooks and API; one of them decides, for as long as it is elected."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from admission.cluster.errors import LeaseLost, RefusedByCluster
from admission.model.errors import ClusterError
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, StaleEpoch
from admission.store.maintenance import bookkeeping

if TYPE_CHECKING:
    from admission.cluster.claim import Claim
    from admission.cluster.lease import Elector
    from admission.controller.controller import Controller
    from admission.notifications.notifier import Notifier
    from admission.store.retention import Retention
    from admission.store.store import Store

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds between two attempts to take the lead on a database that does not answer, or after it was lost."""


class Role:
    """What this replica does, and what it says of that."""

    def __init__(
        self,
        store: Store,
        controller: Controller,
        *,
        identity: str,
        elector: Elector | None,
        claim: Claim,
        retention: Retention,
        notifier: Notifier,
    ) -> None:
        """Without an `elector` there is no other replica. `claim`, of the database: permitted, kept by the leader."""
        self._claim = claim
        self._store = store
        self._controller = controller
        self._identity = identity
        self._elector = elector
        self.retention = retention
        """What the leader keeps in the database, from its next look on."""
        self._notifier = notifier
        self._epoch: int | None = None
        self._before = ""
        """Who led last, host and process."""

    @property
    def epoch(self) -> int | None:
        """The leader's; None: this replica follows."""
        return self._epoch

    def __str__(self) -> str:
        if self._epoch is not None:
            return f"leading, epoch {self._epoch}"
        holder = self._elector.holder if self._elector is not None else ""
        return f"following {holder}" if holder not in ("", self._identity) else "standing for election"

    async def health(self) -> str | None:
        """A leader is healthy once it decides, a follower once it knows all that it needs in order to take over."""
        return self._controller.watches.failure() if self._epoch is None else await self._controller.health()

    async def database_health(self) -> str | None:
        """Of a leader, too, what keeps it from its tables, though the database may answer a short question."""
        fault = await self._store.health()
        return fault if self._epoch is None else fault or self._controller.database_fault

    async def begin(self) -> None:
        """Before anything else is touched: raises AlreadyRunning where only one can be, and another is."""
        if self._elector is None:
            self._before = await self._store.holder()
            self._epoch = await self._store.lead(self._identity)

    async def run(self) -> None:
        """Lead whenever it is our turn, until cancelled.

        Raises StaleEpoch, in an ExceptionGroup, only without an elector: another Sluice, which nobody had counted with,
        has begun to use the database. Raises RefusedByCluster, in the same way, when another database decides for the
        cluster.
        """
        if self._elector is None:
            assert self._epoch is not None, "begin comes first"
            await self._lead(self._epoch)
            return
        while True:
            await self._elector.acquire()
            try:
                await asyncio.create_task(self._lead_while_elected(self._elector), name="leadership")
            except* (LeaseLost, StaleEpoch) as lost:
                log.warning("leads no more: %s", _first(lost))
            finally:
                self._epoch = None
                await self._elector.release()
            _end_if_cancelled()
            await asyncio.sleep(RETRY)

    async def _lead_while_elected(self, elector: Elector) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(elector.keep(), name="lease")
            group.create_task(self._lead_when_possible(), name="lead")

    async def _lead_when_possible(self) -> None:
        while True:
            try:
                self._before = await self._store.holder()
                self._epoch = await self._store.lead(self._identity, elected=True)
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                log.error("elected, but cannot lead: %s", error)
                await asyncio.sleep(RETRY)
            else:
                break
        await self._lead(self._epoch)

    async def _lead(self, epoch: int) -> None:
        """What only the leader does."""
        log.info("leads, epoch %d, %s", epoch, f"after {self._before}" if self._before else "as the first one")
        await self._claim_cluster(epoch)
        try:
            await self._decide(epoch)
        finally:
            await self._claim.release()

    async def _claim_cluster(self, epoch: int) -> None:
        told = False
        while True:
            try:
                await self._claim.take(epoch=epoch)
            except RefusedByCluster:
                raise
            except ClusterError as error:
                if not told:
                    log.error("cannot claim the cluster for the database yet, and tries again: %s", error)
                    told = True
                await asyncio.sleep(RETRY)
            else:
                return

    async def _decide(self, epoch: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim.keep(), name="claim")
            group.create_task(self._controller.decide(epoch=epoch), name="decide")
            group.create_task(bookkeeping(self._store, lambda: self.retention, epoch=epoch), name="bookkeeping")
            group.create_task(self._notifier.run(epoch=epoch), name="notifications")


def _end_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled, of which a TaskGroup whose tasks fail meanwhile says nothing.

    Not in the task that has the group, which counts as cancelled after each failure (python/cpython#116720).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    (error, *_) = group.exceptions
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
