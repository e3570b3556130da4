"""Leader election on a coordination.k8s.io/v1 Lease, with records compatible with client-go's.

Time is measured by the local monotonic clock only: a Lease has expired when its record has not changed for the duration
in it. The holder stops leading at the renew deadline, counted from before the renewal was sent, some seconds before
another candidate may acquire the Lease.
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
    """Timing of the election in seconds, with client-go's names and defaults."""

    lease_duration: float = 15.0
    """Seconds without a renewal after which other candidates may acquire the Lease."""
    renew_deadline: float = 10.0
    """Seconds without a successful renewal after which the holder stops leading."""
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
    """Return seconds of a monotonic clock that also counts the time while the machine is suspended (on Linux)."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeaderElector:
    """One candidate for a Lease: `acquire`, then `keep` while it leads, and `release` at the end."""

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
        """Parameters: `identity`: a different one for each start of each process. `clock`: monotonic clock (s).
        `now`: Unix time (s), only for the times in the record.
        """
        self.holder = ""
        """Identity of the holder when the Lease was last read; empty: none."""
        self.report: Callable[[], dict[str, str]] = dict
        """Returns annotations that the holder publishes to the other candidates; one with an empty value is removed.

        Written with each renewal, so that they cost no further request.
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
        """When the present record was first read, by the monotonic clock."""
        self._leads_until = float("-inf")

    def __str__(self) -> str:
        return self._key

    def leads(self) -> bool:
        """Whether it is certain that this candidate holds the Lease."""
        return self._clock() < self._leads_until

    @property
    def reported(self) -> Mapping[str, str]:
        """Annotations published by the holder when the Lease was last read; empty without another holder."""
        if self._lease is None or self._can_acquire():
            return {}
        return self._lease["metadata"].get("annotations") or {}

    async def acquire(self) -> None:
        """Wait until this candidate holds the Lease. Failures of the API server are retried until cancelled."""
        failed = False
        while True:
            try:
                async with asyncio.timeout(self._timing.renew_deadline / 2):
                    await self._read()
                    if self._can_acquire():
                        await self._write()
                        return
            except (ClusterError, TimeoutError) as error:
                # Conflict and AlreadyExists: another candidate was faster.
                if not failed and not isinstance(error, Conflict | AlreadyExists):
                    log.warning("cannot acquire the Lease %s: %s", self._key, _why(error))
                failed = True
            else:
                failed = False
            await self._sleep(self._retry_delay())

    async def keep(self) -> None:
        """Renew the Lease until cancelled. Raises LeaseLost after the renew deadline, or if another holder took it."""
        failure: Exception | None = None
        while True:
            await self._sleep(min(self._timing.retry_period * random.uniform(0.8, 1.0), self._time_left()))
            if not self.leads():
                why = _why(failure) if failure is not None else "this process was suspended"
                raise LeaseLost(f"the Lease {self._key} was not renewed in time: {why}") from failure
            try:
                async with asyncio.timeout(min(self._timing.renew_deadline / 2, self._time_left())):
                    await self._renew()
                failure = None
            except LeaseLost:
                raise
            except (ClusterError, TimeoutError) as error:
                log.warning("the Lease %s was not renewed, trying again: %s", self._key, _why(error))
                failure = error

    async def release(self) -> None:
        """Clear the holder, so that others can acquire the Lease immediately. To be called after the leader's work."""
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
        except StatusError:  # changed by another client, or by our own renewal whose response was lost
            await self._read()
            if self.holder == self._identity:
                await self._put_free()
            else:
                log.info("the Lease %s is not released: its holder is %s", self._key, self.holder or "none")

    async def _put_free(self) -> None:
        spec = self._lease["spec"] if self._lease is not None else {}
        await self._put(spec | {"holderIdentity": "", "leaseDurationSeconds": 1})

    def _time_left(self) -> float:
        return max(0.0, self._leads_until - self._clock())

    def _retry_delay(self) -> float:
        """Return the seconds until the next read, not later than the Lease expires."""
        expires = self._observed + self._duration() - self._clock()
        regular = self._timing.retry_period / 2 * random.uniform(0.8, 1.0)
        return min(regular, expires) if expires > 0 else regular

    def _duration(self) -> float:
        """Return the seconds for which the record is valid: the holder's duration, which may be longer than ours."""
        spec = self._lease["spec"] if self._lease is not None else {}
        return max(float(spec.get("leaseDurationSeconds") or 0), self._timing.lease_duration if self.holder else 0)

    def _can_acquire(self) -> bool:
        return self.holder in ("", self._identity) or self._clock() >= self._observed + self._duration()

    async def _read(self) -> None:
        try:
            self._observe(await self._client.get(f"{self._collection}/{self._name}"))
        except NotFound:
            self._lease, self.holder = None, ""

    def _observe(self, lease: Object) -> None:
        spec = lease.setdefault("spec", {})
        if self._lease is None or spec != self._lease["spec"]:
            self._observed = self._clock()
        self._lease = lease
        self.holder = str(spec.get("holderIdentity") or "")

    async def _renew(self) -> None:
        try:
            await self._write()
        except StatusError as error:  # changed or deleted: Conflict, NotFound or Invalid, depending on the server
            await self._read()
            if self.holder not in ("", self._identity):
                raise LeaseLost(f"{self.holder} has taken the Lease {self._key}") from error
            await self._write()

    async def _write(self) -> None:
        """Acquire or renew the Lease. Raises Conflict or AlreadyExists after a concurrent write."""
        began = self._clock()
        spec = self._lease["spec"] if self._lease is not None else {}
        renewed = _micro_time(self._now())
        ours: dict[str, Any] = {
            "holderIdentity": self._identity,
            # An integer in the API: rounded up, so that others do not acquire the Lease a fraction too early.
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
        annotations = (metadata.get("annotations") or {}) | self.report()
        metadata = metadata | {"annotations": {name: text for name, text in annotations.items() if text}}
        if self._lease is None:
            body: Object = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
            self._observe(await self._client.create(self._collection, body))
        else:
            body = self._lease | {"metadata": metadata, "spec": spec}
            self._observe(await self._client.replace(f"{self._collection}/{self._name}", body))


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"
