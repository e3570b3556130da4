"""Leader election on a coordination.k8s.io/v1 Lease, with records that are compatible with client-go's.

Time is measured by the local monotonic clock alone: a Lease has expired when its record did not change for the duration
that it names. The holder stops leading at the renew deadline, counted from before the renewing request was sent, some
seconds before another candidate may take the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from admission.cluster.errors import AlreadyExists, Conflict, LeaseLost, NotFound, StatusError
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, with client-go's names and defaults."""

    lease_duration: float = 15.0
    """Seconds without a renewal after which other candidates may take the Lease."""
    renew_deadline: float = 10.0
    """Seconds without a renewal after which the holder stops leading."""
    retry_period: float = 2.0
    """Seconds between two renewals; other candidates read the Lease twice as often."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry_period <= self.renew_deadline < self.lease_duration or self.lease_duration < 1:
            raise ValueError(
                "the lease duration must be longer than the renew deadline, that at least twice the retry period, "
                f"and all of them positive, not {self.lease_duration:g}, {self.renew_deadline:g} and "
                f"{self.retry_period:g} seconds"
            )


def monotonic() -> float:
    """A monotonic clock (s) that counts the time for which the machine was suspended, too (on Linux)."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Elector:
    """One candidate for one Lease: `acquire`, then `keep` as long as it leads, at the end `release`."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing = Timing(),
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`identity` must be another one for each start of each process. `now` only fills in what people read."""
        self.holder = ""
        """The holder's identity when the Lease was last read; empty: none."""
        self.report: Callable[[], dict[str, str]] = dict
        """What the holder lets the other candidates know, by annotation; an empty one is taken off.

        Written with each renewal, so that it costs no request.
        """
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._key = f"{namespace}/{name}"
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._lease: Object | None = None
        self._observed = float("-inf")
        """When the current record was first read, by the monotonic clock."""
        self._leads_until = float("-inf")

    def leads(self) -> bool:
        """Whether this candidate certainly holds the Lease now."""
        return self._clock() < self._leads_until

    @property
    def reported(self) -> Mapping[str, str]:
        """What the holder reports, as of the last look; nothing while there is none, or this candidate is it."""
        if self._lease is None or self._may_take():
            return {}
        return self._lease["metadata"].get("annotations") or {}

    async def acquire(self) -> None:
        """Wait until this candidate holds the Lease. Failures of the API server are retried without end."""
        failed = False
        while True:
            try:
                async with asyncio.timeout(self._timing.renew_deadline / 2):
                    await self._look()
                    if self._may_take():
                        await self._write()
                        return
            except (ClusterError, TimeoutError) as error:
                # Conflict and AlreadyExists: another candidate was faster.
                if not failed and not isinstance(error, Conflict | AlreadyExists):
                    log.warning("cannot stand for the Lease %s: %s", self._key, _why(error))
                failed = True
            else:
                failed = False
            await self._sleep(self._pause())

    async def keep(self) -> None:
        """Renew for ever. Raises LeaseLost when it could not be done in time, or if another has taken the Lease."""
        failure: Exception | None = None
        while True:
            await self._sleep(min(self._timing.retry_period * random.uniform(0.8, 1.0), self._left()))
            if not self.leads():
                why = _why(failure) if failure is not None else "this process stood still"
                raise LeaseLost(f"the Lease {self._key} was not renewed in time: {why}") from failure
            try:
                async with asyncio.timeout(min(self._timing.renew_deadline / 2, self._left())):
                    await self._renew()
                failure = None
            except LeaseLost:
                raise
            except (ClusterError, TimeoutError) as error:
                log.warning("the Lease %s was not renewed, trying again: %s", self._key, _why(error))
                failure = error

    async def release(self) -> None:
        """Give the Lease up, so that others can take it at once. Call it after all work of the leader has ended."""
        if not self.leads() or self._lease is None:
            return
        self._leads_until = float("-inf")
        try:
            async with asyncio.timeout(self._timing.retry_period):
                await self._give_up()
        except (ClusterError, TimeoutError) as error:
            log.warning("the Lease %s was not released, others have to wait for it: %s", self._key, _why(error))

    async def _give_up(self) -> None:
        try:
            await self._put_free()
        except StatusError:  # somebody else's edit, or a renewal of ours whose answer was lost
            await self._look()
            if self.holder == self._identity:
                await self._put_free()
            else:
                log.info("the Lease %s is not released: %s holds it", self._key, self.holder or "nobody")

    async def _put_free(self) -> None:
        spec = self._lease["spec"] if self._lease is not None else {}
        await self._put(spec | {"holderIdentity": "", "leaseDurationSeconds": 1})

    def _left(self) -> float:
        return max(0.0, self._leads_until - self._clock())

    def _pause(self) -> float:
        """Seconds until the next read: not later than the expiry of the Lease."""
        expires = self._observed + self._duration() - self._clock()
        regular = self._timing.retry_period / 2 * random.uniform(0.8, 1.0)
        return min(regular, expires) if expires > 0 else regular

    def _duration(self) -> float:
        """Seconds for which the record is valid: the holder's duration, which may be longer than ours."""
        spec = self._lease["spec"] if self._lease is not None else {}
        return max(float(spec.get("leaseDurationSeconds") or 0), self._timing.lease_duration if self.holder else 0)

    def _may_take(self) -> bool:
        return self.holder in ("", self._identity) or self._clock() >= self._observed + self._duration()

    async def _look(self) -> None:
        try:
            self._see(await self._client.get(f"{self._collection}/{self._name}"))
        except NotFound:
            self._lease, self.holder = None, ""

    def _see(self, lease: Object) -> None:
        spec = lease.setdefault("spec", {})
        if self._lease is None or spec != self._lease["spec"]:
            self._observed = self._clock()
        self._lease = lease
        self.holder = str(spec.get("holderIdentity") or "")

    async def _renew(self) -> None:
        try:
            await self._write()
        except StatusError as error:  # changed by somebody, or deleted: how that is answered differs
            await self._look()
            if self.holder not in ("", self._identity):
                raise LeaseLost(f"{self.holder} has taken the Lease {self._key}") from error
            await self._write()

    async def _write(self) -> None:
        """Make the Lease ours, or renew it. Raises Conflict or AlreadyExists if others have written it meanwhile."""
        began = self._clock()
        spec = self._lease["spec"] if self._lease is not None else {}
        renewed = _micro_time(self._now())
        ours: dict[str, Any] = {
            "holderIdentity": self._identity,
            # Others count whole seconds: rounded up, so that no fraction is taken from us.
            "leaseDurationSeconds": -int(-self._timing.lease_duration // 1),
            "renewTime": renewed,
        }
        if spec.get("holderIdentity") != self._identity:
            ours["acquireTime"] = renewed
            ours["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + (1 if spec else 0)
        await self._put(spec | ours)
        self._leads_until = began + self._timing.renew_deadline

    async def _put(self, spec: Object) -> None:
        metadata: Object = {"name": self._name} if self._lease is None else self._lease["metadata"]
        told = (metadata.get("annotations") or {}) | self.report()
        metadata = metadata | {"annotations": {name: text for name, text in told.items() if text}}
        if self._lease is None:
            body: Object = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
            self._see(await self._client.create(self._collection, body))
        else:
            body = self._lease | {"metadata": metadata, "spec": spec}
            self._see(await self._client.replace(f"{self._collection}/{self._name}", body))


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"
