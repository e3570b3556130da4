"""Claim of a cluster for one database: a Lease in the cluster that names the database, renewed by the leader.

The Lease of the leader election selects one of several processes on the same database. This Lease prevents a process on
another database from deciding at the same time. It is kept when nothing runs, and still names the last database. It is
in kube-system, so that all installations of Sluice in a cluster share it, whatever their namespace.

Whether another process is alive is observed by changes of its record, which it renews; clocks are never compared.
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
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from admission.cluster.client import Client, Object

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "sluice-database"
DATABASE: Final = "sluice.dev/database-id"
LOCATION: Final = "sluice.dev/database"
EPOCH: Final = "sluice.dev/epoch"
REVISION: Final = "sluice.dev/revision"
LEADER: Final = "sluice.dev/leader"
ELECTION: Final = "sluice.dev/election"

_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_RIGHTS: Final = f"the right to get, create and update the Lease {NAMESPACE}/{NAME}: apply deploy/rbac/sluice.yaml"

RENEW_PERIOD: Final = 2.0
"""Seconds between two renewals."""
RENEW_DEADLINE: Final = 10.0
"""Seconds after a renewal for which the holder may rely on the claim. Less than LEASE_DURATION, so that no other
process can have taken it yet."""
LEASE_DURATION: Final = 15.0
"""Seconds without a renewal after which the holder is considered dead."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The database that has claimed the cluster, as recorded in the Lease."""

    database: str
    """Identity of the database."""
    location: str
    """Location of the database, for messages."""
    epoch: int
    """Epoch of its leader."""
    revision: int
    """Revision of the database at the last renewal: a copy of the database with a lower one was made before."""
    holder: str
    """The process that holds the claim; empty: it has released it at its shutdown."""
    leader: str
    """The process that claimed last, also after it has released the claim; empty: unknown."""
    election: str | None
    """Lease by which the process was elected; empty: without election; None: unknown, an earlier version claimed."""
    renewed: float | None
    """When it was last renewed (Unix time, s), by the clock of its process."""
    version: str
    """resourceVersion of the Lease, which changes with each renewal."""

    def __str__(self) -> str:
        return f"{self.location} ({self.database[:8]})"


async def cluster_identities(client: Client) -> tuple[str, ...]:
    """Return the identities of a cluster, the preferred one first: the uid of kube-system, then that of the Lease.

    The second one is for a Sluice that may not read namespaces; the Lease is created if there is no other identity.
    """
    found, fault = [], None
    try:
        found.append(str((await client.get(f"/api/v1/namespaces/{NAMESPACE}"))["metadata"]["uid"]))
    except (Forbidden, NotFound) as error:
        fault = error
    lease = await _read(client)
    if lease is None:
        if found:
            return tuple(found)
        with _explain_forbidden():
            lease = await client.create(_PATH, _body({}, {}))
    if fault is not None:
        log.warning("the cluster %s is identified by the Lease %s/%s only: %s", client.server, NAMESPACE, NAME, fault)
    return (*found, str(lease["metadata"]["uid"]))


async def _read(client: Client) -> Object | None:
    """Return the Lease; None if it does not exist."""
    with _explain_forbidden():
        try:
            return await client.get(f"{_PATH}/{NAME}")
        except NotFound:
            return None


@contextmanager
def _explain_forbidden() -> Iterator[None]:
    """Raise Forbidden as RefusedByCluster, with a message that names the missing right and the file that grants it."""
    try:
        yield
    except Forbidden as error:
        raise RefusedByCluster(f"Sluice lacks {_RIGHTS} ({error})") from error


class Claim:
    """Claim of a cluster by one process for its database: `read`, `is_alive`, then `take` and `keep` while it leads.

    All methods raise ClusterError, and RefusedByCluster if Sluice lacks the right.
    """

    def __init__(
        self,
        client: Client,
        *,
        database: str,
        location: str,
        holder: str,
        election: str,
        revision: Callable[[], int],
        stored: Callable[[], Awaitable[tuple[int, int]]],
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        is_local: bool = True,
    ) -> None:
        """Parameters: `database`: identity of the database. `location`: its location, for messages.
        `holder`: identity of this process, a different one for each start. `election`: Lease by which it is elected;
        empty: without election. `revision`: returns the newest revision that is known to be committed. `stored`: reads
        the last epoch and the newest revision from the database. `clock`: monotonic clock (s). `now`: Unix time (s),
        only for `renewTime`. `is_local`: whether the database belongs to this cluster, and the
        cluster has not only joined.
        """
        self.database = database
        self.election = election
        self.location = location
        self._client = client
        self._holder = holder
        self._revision = revision
        self._stored = stored
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._is_local = is_local
        self._lease: Object | None = None
        self._epoch = 0
        self._cluster = ""
        self._replacing: Claimant | None = None
        self._holds_until = float("-inf")
        self.renewed_before: float | None = None
        """When the claim was last renewed before `take` (Unix time, s); None: it was not."""

    def __str__(self) -> str:
        return f"{self.location} ({self.database[:8]})"

    def elsewhere(self, client: Client) -> Claim:
        """Return a claim of another cluster by the same process for the same database."""
        return Claim(
            client,
            database=self.database,
            location=self.location,
            holder=self._holder,
            election=self.election,
            revision=self._revision,
            stored=self._stored,
            clock=self._clock,
            now=self._now,
            sleep=self._sleep,
            is_local=False,
        )

    @property
    def _name(self) -> str:
        where = "" if self._is_local else f" at {self._client.server}"
        return f"the Lease {NAMESPACE}/{NAME}{where}"

    def holds(self) -> bool:
        """Whether it is certain that no process on another database holds the claim."""
        return self._clock() < self._holds_until

    async def read(self) -> Claimant | None:
        """Read and return the claimant of the cluster; None: no database has claimed it yet."""
        self._lease = await _read(self._client)
        return None if self._lease is None else _claimant(self._lease)

    async def is_alive(self, claimant: Claimant) -> bool:
        """Whether the claimant's process renews the claim. Waits for a renewal, for LEASE_DURATION seconds at most."""
        until = self._clock() + LEASE_DURATION
        while claimant.holder:
            now = await self.read()
            if now is None or not now.holder:
                return False
            if now.version != claimant.version:
                return True
            if self._clock() >= until:
                return False
            await self._sleep(RENEW_PERIOD / 4)
        return False

    def permit(self, *, cluster: str, replacing: Claimant | None) -> None:
        """Allow `take` to claim the cluster with the identity `cluster`, also from the claimant `replacing`."""
        self._cluster, self._replacing = cluster, replacing

    async def take(self, *, epoch: int, leaders: Mapping[int, str] | None = None) -> None:
        """Claim the cluster as the leader of `epoch`. `leaders`: leaders of some epochs, according to the database.

        Raises RefusedByCluster if another database, or another copy of this one, has claimed it, unless `permit` allows
        to replace that; StoreError.
        """
        self._epoch = epoch
        while True:
            found = await self.read()
            self.renewed_before = None if found is None else found.renewed
            if found is not None and found != self._replacing:
                await self._check_database(found, leaders or {})
            try:
                with _explain_forbidden():
                    await self._write()
            except (Conflict, AlreadyExists, NotFound):
                await self._sleep(RENEW_PERIOD / 20)  # a concurrent change: read the Lease again
            else:
                return

    async def _check_database(self, found: Claimant, leaders: Mapping[int, str]) -> None:
        """Raise RefusedByCluster if `found`, which was just read, has another database or another copy of this one.

        A copy with further revisions and epochs of its own is not recognized.
        """
        if found.database != self.database:
            raise self._refusal(found)
        # Read after the claim, as in `check_ownership`: on the same database neither is behind that of the claim.
        epoch, revision = await self._stored()
        is_older = found.epoch > epoch or found.revision > revision
        if is_older or (found.leader and leaders.get(found.epoch, found.leader) != found.leader):
            raise RefusedByCluster(
                f"the database {self} is {'an older' if is_older else 'another'} copy of the one that was last used "
                f"for the cluster {self._client.server}, at {found.location}: give all replicas the same --database-url"
            )

    async def keep(self) -> None:
        """Renew the claim until cancelled.

        Raises RefusedByCluster when another database, or a process of another election, has claimed the cluster, or
        when the API server is that of another cluster, and LeaseLost when another process of the same election has
        taken the claim.
        """
        failed = False
        while True:
            await self._sleep(RENEW_PERIOD)
            try:
                async with asyncio.timeout(RENEW_DEADLINE / 2):
                    await self._renew()
            except (LeaseLost, RefusedByCluster):
                raise
            except (ClusterError, TimeoutError) as error:
                if not failed:
                    log.warning("%s was not renewed, trying again: %s", self._name, _why(error))
                failed = True
            else:
                failed = False

    async def release(self) -> None:
        """Clear the holder in the Lease; the cluster stays claimed for the database."""
        if self._lease is None or not self.holds():
            return
        self._holds_until = float("-inf")
        try:
            async with asyncio.timeout(RENEW_PERIOD):
                await self._put(holder="")
        except (ClusterError, TimeoutError) as error:
            log.warning("%s was not released: %s", self._name, _why(error))

    async def _renew(self) -> None:
        try:
            await self._write()
        except Forbidden:
            raise  # `keep` retries: rights may be restored, and the error says nothing about the holder
        except StatusError as error:  # changed or deleted: Conflict, NotFound or Invalid, depending on the server
            await self._check_taken(error)
            await self._write()

    async def _check_taken(self, error: ClusterError) -> None:
        """Read a Lease that has changed, and raise if another process or database has taken the claim."""
        found = await self.read()
        if found is None:
            if self._cluster in await cluster_identities(self._client):
                return
            self._holds_until = float("-inf")
            effect = f"; the database {self.location} belongs to the former one: start Sluice with another database"
            raise RefusedByCluster(
                f"{self._client.server} is the API server of another cluster now{effect if self._is_local else ''}"
            ) from error
        if (found.database, found.holder) == (self.database, self._holder):
            return
        self._holds_until = float("-inf")
        if found.database != self.database:
            raise self._refusal(found) from error
        if found.holder and not self.has_election_of(found):
            raise RefusedByCluster(self.other_election(found)) from error
        if found.holder:
            raise LeaseLost(f"{found.holder} leads now, with the same database at {found.location}") from error

    async def _write(self) -> None:
        began = self._clock()
        await self._put(holder=self._holder)
        self._holds_until = began + RENEW_DEADLINE

    async def _put(self, *, holder: str) -> None:
        annotations = {
            DATABASE: self.database,
            LOCATION: self.location,
            EPOCH: str(self._epoch),
            REVISION: str(self._revision()),
            LEADER: self._holder,
            ELECTION: self.election,
        }
        renewed = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": int(LEASE_DURATION), "renewTime": renewed}
        if self._lease is None:
            self._lease = await self._client.create(_PATH, _body(annotations, spec))
            return
        metadata = self._lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **annotations}
        changed = self._lease | {"metadata": metadata | {"annotations": annotations}, "spec": spec}
        self._lease = await self._client.replace(f"{_PATH}/{NAME}", changed)

    def has_election_of(self, other: Claimant) -> bool:
        """Whether `other` stands, as far as it is known, in the same election as this process."""
        return other.election in (None, self.election)

    def other_election(self, other: Claimant) -> str:
        """Return the message about a process that decides with the same database, or a copy, after another election."""
        return (
            f"another Sluice, {other.holder}, decides for the cluster {self._client.server} with the database {other} "
            f"and {_lease(other.election)}, and this one has the database {self} and {_lease(self.election)}: "
            "give all replicas on one database the same --lease, or stop the other one first"
        )

    def _refusal(self, other: Claimant) -> RefusedByCluster:
        return RefusedByCluster(
            f"the database {other} has claimed the cluster {self._client.server}, which this Sluice was to manage with "
            f"the database {self}: stop one of the two"
        )


def _claimant(lease: Object) -> Claimant | None:
    annotations = lease["metadata"].get("annotations") or {}
    if not annotations.get(DATABASE):
        return None

    def number(name: str) -> int:
        text = annotations.get(name, "")
        return int(text) if text.isdecimal() else 0

    spec = lease.get("spec") or {}
    return Claimant(
        database=annotations[DATABASE],
        location=annotations.get(LOCATION, ""),
        epoch=number(EPOCH),
        revision=number(REVISION),
        leader=annotations.get(LEADER, ""),
        election=annotations.get(ELECTION),
        holder=str(spec.get("holderIdentity") or ""),
        renewed=datetime.fromisoformat(spec["renewTime"]).timestamp() if spec.get("renewTime") else None,
        version=lease["metadata"]["resourceVersion"],
    )


def _body(annotations: Object, spec: Object) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "annotations": annotations},
        "spec": spec,
    }


def _lease(election: str | None) -> str:
    return f"the Lease {election}" if election else "no Lease"


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"
