"""Role of a replica: all replicas serve webhooks and API; the elected leader also decides. And what it reports."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from admission.api.resources.leader_view import LastAudit
from admission.cluster.errors import LeaseLost, RefusedByCluster
from admission.model import sentences
from admission.model.errors import ClusterError
from admission.store.errors import DatabaseUnavailable, DatabaseUnusable, StaleEpoch
from admission.store.maintenance import run_maintenance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.cluster.claim import Claim
    from admission.cluster.lease import LeaderElector
    from admission.controller.controller import Controller
    from admission.notifications.notifier import Notifier
    from admission.store.leadership.identity import DatabaseIdentity
    from admission.store.retention import Retention
    from admission.store.store import Store

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds between attempts to become leader, after it was lost or while the database does not answer."""


class Role:
    """The role of this replica: takes part in the election, and runs the leader's tasks while elected."""

    def __init__(
        self,
        store: Store,
        controller: Controller,
        *,
        identity: str,
        elector: LeaderElector | None,
        claim: Claim,
        retention: Retention,
        notifier: Notifier,
    ) -> None:
        """`elector` is None if there is only one replica. `claim` has to be permitted; the leader renews it."""
        self._claim = claim
        self._store = store
        self._controller = controller
        self._identity = identity
        self._elector = elector
        self.retention = retention
        """Retention policy; a change takes effect at the next run of the leader's bookkeeping."""
        self._notifier = notifier
        self._epoch: int | None = None
        self._previous: DatabaseIdentity | None = None
        """The database before this replica became the leader."""

    @property
    def epoch(self) -> int | None:
        """The epoch of this replica as leader; None while it is a follower."""
        return self._epoch

    def __str__(self) -> str:
        if self._epoch is not None:
            return f"leading, epoch {self._epoch}"
        holder = self._elector.holder if self._elector is not None else ""
        return f"following {holder}" if holder not in ("", self._identity) else "standing for election"

    async def health(self) -> str | None:
        """Return what is wrong: a leader has to make decisions, a follower needs synced watches to take over."""
        return self._controller.watches.failure() if self._epoch is None else await self._controller.health()

    async def database_health(self) -> str | None:
        """Return what is wrong with the database; for a leader also failed writes, even if a short query succeeds."""
        fault = await self._store.health()
        return fault if self._epoch is None else fault or self._controller.database_fault

    async def begin(self) -> None:
        """Take the lead if there is no election, before anything is written. Raises AlreadyRunning if another leads."""
        if self._elector is None:
            self._previous = await self._store.identity()
            self._epoch = await self._store.lead(self._identity)

    async def run(self) -> None:
        """Lead whenever elected, until cancelled.

        Raises in an ExceptionGroup: StaleEpoch, only without an elector, if another Sluice has unexpectedly begun to
        use the database; RefusedByCluster if another database has claimed the cluster.
        """
        if self._elector is None:
            assert self._epoch is not None, "call begin first"
            await self._lead(self._epoch)
            return
        while True:
            await self._elector.acquire()
            try:
                await asyncio.create_task(self._lead_while_elected(self._elector), name="leadership")
            except* (LeaseLost, StaleEpoch) as lost:
                log.warning("no longer the leader: %s", _first(lost))
            finally:
                self._epoch = None
                await self._elector.release()
            _end_if_cancelled()
            await asyncio.sleep(RETRY)

    async def _lead_while_elected(self, elector: LeaderElector) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(elector.keep(), name="lease")
            group.create_task(self._lead_when_possible(), name="lead")

    async def _lead_when_possible(self) -> None:
        while True:
            try:
                self._previous = await self._store.identity()
                self._epoch = await self._store.lead(self._identity, elected=True)
            except (DatabaseUnavailable, DatabaseUnusable) as error:
                log.error("elected, but cannot lead yet: %s", error)
                await asyncio.sleep(RETRY)
            else:
                break
        await self._lead(self._epoch)

    async def _lead(self, epoch: int) -> None:
        """Claim the cluster, then run the leader's tasks until one fails or the lead is lost."""
        assert self._previous is not None
        previous = self._previous.holder
        log.info("became the leader, epoch %d, %s", epoch, f"after {previous}" if previous else "as the first one")
        await self._claim_cluster(epoch, {self._previous.epoch: previous, epoch: self._identity})
        try:
            await self._decide(epoch)
        finally:
            await self._claim.release()

    async def _claim_cluster(self, epoch: int, leaders: Mapping[int, str]) -> None:
        logged = False
        while True:
            try:
                await self._claim.take(epoch=epoch, leaders=leaders)
            except RefusedByCluster:
                raise
            except (ClusterError, DatabaseUnavailable, DatabaseUnusable) as error:
                if not logged:
                    log.error("cannot claim the cluster for the database yet, retrying: %s", error)
                    logged = True
                await asyncio.sleep(RETRY)
            else:
                return

    async def _decide(self, epoch: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim.keep(), name="claim")
            after = self._claim.renewed_before
            group.create_task(self._controller.decide(epoch=epoch, after=after), name="decide")
            group.create_task(run_maintenance(self._store, lambda: self.retention, epoch=epoch), name="bookkeeping")
            group.create_task(self._notifier.run(epoch=epoch), name="notifications")


def _end_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled; a TaskGroup whose tasks fail at the same time swallows that.

    Must not be called in the task that runs the group, which counts as cancelled after each failure
    (python/cpython#116720).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    (error, *_) = group.exceptions
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


STANDSTILL: Final = "sluice.dev/standstill"
"""Annotation of the Lease: the message that says why no decisions are made; empty if they are."""
LAST_AUDIT: Final = "sluice.dev/last-audit"
"""Annotation of the Lease with the last audit, as JSON: `{"at": 1730000000.0, "differences": {"NotStarted": 1}}`."""


class LeaderReport:
    """The leader's state as a replica reports it: its own if it leads, else the annotations of the leader's Lease.

    While the API server does not answer the Lease cannot be updated; each replica detects that by itself. `elector` is
    None if there is only one replica.
    """

    def __init__(self, store: Store, controller: Controller, elector: LeaderElector | None) -> None:
        self._store = store
        self._controller = controller
        self._elector = elector
        if elector is not None:
            elector.report = self._annotations

    def standstill(self) -> str:
        """Return a message that says why the leader makes no decisions; empty if it does, or if that is unknown."""
        if (own := self._own_standstill()) or self._elector is None:
            return own
        return self._elector.reported.get(STANDSTILL, "")

    def last_audit(self) -> LastAudit | None:
        """Return the result of the leader's last audit; None if there was none since it became leader."""
        auditor = self._controller.auditor
        if self._elector is None or self._elector.leads():
            return None if auditor.last_audit_at is None else LastAudit(auditor.last_audit_at, dict(auditor.last))
        return _read(self._elector.reported.get(LAST_AUDIT, ""))

    def _own_standstill(self) -> str:
        elected = self._elector is not None and self._elector.leads()
        if elected and self._controller.engine() is None and self._store.write_failure is not None:
            return sentences.standstill(silent=False, unwritable=True)  # elected, but it could not begin to lead
        return self._controller.standstill()

    def _annotations(self) -> dict[str, str]:
        found = self._controller.auditor
        text = "" if found.last_audit_at is None else json.dumps({"at": found.last_audit_at, "differences": found.last})
        return {STANDSTILL: self._own_standstill(), LAST_AUDIT: text}


def _read(text: str) -> LastAudit | None:
    """Parse the annotation, which may be from another version or from any user who may write the Lease."""
    try:
        found = json.loads(text)
        return LastAudit(float(found["at"]), {str(name): int(number) for name, number in found["differences"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
