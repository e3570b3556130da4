"""Which database decides for a cluster: a Lease in the cluster that names it, renewed by the process that decides.

The Lease by which replicas elect a leader lets one of several processes on one database decide. This one keeps a
process on another database from deciding at the same time, and outlives both: it still names the last database when
nothing runs. It is in kube-system, so that all Sluices of a cluster meet there, in whatever namespace they run.

That another process is alive is judged by its record, which changes while it renews; clocks are never compared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.cluster.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    LeaseLost,
    NotFound,
    RefusedByCluster,
    StatusError,
)
from admission.cluster.lease import monotonic
from admission.model.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "sluice-database"
DATABASE: Final = "sluice.dev/database-id"
LOCATION: Final = "sluice.dev/database"
EPOCH: Final = "sluice.dev/epoch"
REVISION: Final = "sluice.dev/revision"

_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_RIGHTS: Final = f"the right to get, create and update the Lease {NAMESPACE}/{NAME}: apply deploy/rbac/sluice.yaml"

PERIOD: Final = 2.0
"""Seconds between two renewals."""
HOLDS: Final = 10.0
"""Seconds after a renewal in which no other process can have taken the claim."""
DURATION: Final = 15.0
"""Seconds without a renewal after which the process that renewed it is taken for dead."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The database that decides for the cluster, or was the last to do so."""

    database: str
    """The database's identity."""
    location: str
    """Where that database is, as shown in messages."""
    epoch: int
    """The epoch of its leader."""
    revision: int
    """How far that leader had got when it renewed the claim: a copy of the database that is behind was made before."""
    holder: str
    """The process that decides; empty: it was shut down in order."""
    version: str
    """The Lease's resourceVersion, which changes with each renewal."""

    def __str__(self) -> str:
        return f"{self.location} ({self.database[:8]})"


async def cluster_identities(client: Client) -> tuple[str, ...]:
    """Identities of a cluster, the best one first: the uid of kube-system, then that of the claim's own Lease.

    The second one serves where Sluice may not read namespaces. It is made if there is nothing else.
    """
    found = []
    try:
        found.append(str((await client.get(f"/api/v1/namespaces/{NAMESPACE}"))["metadata"]["uid"]))
    except (Forbidden, NotFound) as error:
        log.warning("the cluster is known by the Lease %s/%s alone: %s", NAMESPACE, NAME, error)
    lease = await _read(client)
    if lease is None:
        if found:
            return tuple(found)
        with _rights_named():
            lease = await client.create(_PATH, _body({}, {}))
    return (*found, str(lease["metadata"]["uid"]))


async def _read(client: Client) -> Object | None:
    with _rights_named():
        try:
            return await client.get(f"{_PATH}/{NAME}")
        except NotFound:
            return None


@contextmanager
def _rights_named() -> Iterator[None]:
    """Context manager: a Forbidden error gets the missing right and the file that grants it added to its message."""
    try:
        yield
    except Forbidden as error:
        raise RefusedByCluster(f"Sluice lacks {_RIGHTS} ({error})") from error


class Claim:
    """The claim of one database, as one process: `look`, `is_alive`, then `take` and `keep` for as long as it decides.

    All methods raise ClusterError, and RefusedByCluster where Sluice lacks the right.
    """

    def __init__(
        self,
        client: Client,
        *,
        database: str,
        location: str,
        holder: str,
        revision: Callable[[], int],
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`database` is its identity, `holder` another one for each process, `revision` gives what is committed for
        certain. `now` only fills in what people read.
        """
        self.database = database
        self.location = location
        self._client = client
        self._holder = holder
        self._revision = revision
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._lease: Object | None = None
        self._epoch = 0
        self._cluster = ""
        self._instead_of: Claimant | None = None
        self._holds_until = float("-inf")

    def __str__(self) -> str:
        return f"{self.location} ({self.database[:8]})"

    def holds(self) -> bool:
        """Whether it is certain that no process on another database decides."""
        return self._clock() < self._holds_until

    async def look(self) -> Claimant | None:
        """The current claimant of the cluster; None: no database has claimed it yet."""
        self._lease = await _read(self._client)
        return None if self._lease is None else _claimant(self._lease)

    async def is_alive(self, claimant: Claimant) -> bool:
        """Whether its process still renews the claim. Takes until the next renewal, DURATION seconds at most."""
        until = self._clock() + DURATION
        while claimant.holder:
            now = await self.look()
            if now is None or not now.holder:
                return False
            if now.version != claimant.version:
                return True
            if self._clock() >= until:
                return False
            await self._sleep(PERIOD / 4)
        return False

    def permit(self, *, cluster: str, instead_of: Claimant | None) -> None:
        """Permit `take` to claim the cluster of that identity, also from the database `instead_of`."""
        self._cluster, self._instead_of = cluster, instead_of

    async def take(self, *, epoch: int) -> None:
        """Claim the cluster. Raises RefusedByCluster if another database has claimed it, unless that is permitted."""
        self._epoch = epoch
        while True:
            found = await self.look()
            if found is not None and found.database != self.database and found != self._instead_of:
                raise self._refusal(found)
            try:
                with _rights_named():
                    await self._write()
            except (Conflict, AlreadyExists, NotFound):
                await self._sleep(PERIOD / 20)  # somebody else changes it just now
            else:
                return

    async def keep(self) -> None:
        """Renew until cancelled.

        Raises RefusedByCluster when another database has taken the cluster, or when it is not the same cluster any
        more, and LeaseLost when another process decides on the same database.
        """
        failed = False
        while True:
            await self._sleep(PERIOD)
            try:
                async with asyncio.timeout(HOLDS / 2):
                    await self._renew()
            except (LeaseLost, RefusedByCluster):
                raise
            except (ClusterError, TimeoutError) as error:
                if not failed:
                    log.warning("the Lease %s/%s was not renewed, trying again: %s", NAMESPACE, NAME, _why(error))
                failed = True
            else:
                failed = False

    async def release(self) -> None:
        """Note that no process decides any more; the database remains that of the cluster."""
        if self._lease is None or not self.holds():
            return
        self._holds_until = float("-inf")
        try:
            async with asyncio.timeout(PERIOD):
                await self._put(holder="")
        except (ClusterError, TimeoutError) as error:
            log.warning("the Lease %s/%s was not released: %s", NAMESPACE, NAME, _why(error))

    async def _renew(self) -> None:
        try:
            await self._write()
        except Forbidden:
            raise  # it may pass, and says nothing of who has the claim
        except StatusError as error:  # changed by somebody, or deleted: how that is answered differs
            await self._judge(error)
            await self._write()

    async def _judge(self, error: ClusterError) -> None:
        """After the Lease was found changed: raise if that takes the claim away."""
        found = await self.look()
        if found is None:
            if self._cluster in await cluster_identities(self._client):
                return
            self._holds_until = float("-inf")
            raise RefusedByCluster(
                f"at {self._client.server} there is another cluster now; the database {self.location} belongs to the "
                "one before: start Sluice with another database"
            ) from error
        if (found.database, found.holder) == (self.database, self._holder):
            return
        self._holds_until = float("-inf")
        if found.database != self.database:
            raise self._refusal(found) from error
        if found.holder:
            raise LeaseLost(f"{found.holder} decides now, with the same database at {found.location}") from error

    async def _write(self) -> None:
        began = self._clock()
        await self._put(holder=self._holder)
        self._holds_until = began + HOLDS

    async def _put(self, *, holder: str) -> None:
        annotations = {
            DATABASE: self.database,
            LOCATION: self.location,
            EPOCH: str(self._epoch),
            REVISION: str(self._revision()),
        }
        renewed = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": int(DURATION), "renewTime": renewed}
        if self._lease is None:
            self._lease = await self._client.create(_PATH, _body(annotations, spec))
            return
        metadata = self._lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **annotations}
        changed = self._lease | {"metadata": metadata | {"annotations": annotations}, "spec": spec}
        self._lease = await self._client.replace(f"{_PATH}/{NAME}", changed)

    def _refusal(self, other: Claimant) -> RefusedByCluster:
        return RefusedByCluster(
            f"the database {other} has taken over the cluster {self._client.server}, for which "
            f"{self} was to decide: stop one of the two"
        )


def _claimant(lease: Object) -> Claimant | None:
    annotations = lease["metadata"].get("annotations") or {}
    if not annotations.get(DATABASE):
        return None

    def number(name: str) -> int:
        text = annotations.get(name, "")
        return int(text) if text.isdecimal() else 0

    return Claimant(
        database=annotations[DATABASE],
        location=annotations.get(LOCATION, ""),
        epoch=number(EPOCH),
        revision=number(REVISION),
        holder=str((lease.get("spec") or {}).get("holderIdentity") or ""),
        version=lease["metadata"]["resourceVersion"],
    )


def _body(annotations: Object, spec: Object) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "annotations": annotations},
        "spec": spec,
    }


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"
