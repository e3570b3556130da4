"""Check at startup that the database and the cluster belong together; refuse to start, or adopt the cluster.

With a database that has no records of the cluster's Jobs, Sluice would stop all running Jobs, since they have no quota
reserved there. Before any decision the cluster identity stored in the database is therefore compared with the database
identity stored in the cluster (`admission.cluster.claim`). Only if these differ are the Jobs listed and compared with
the records.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from admission.cluster.claim import LEASE_DURATION, Claim, cluster_identities
from admission.cluster.errors import RefusedByCluster
from admission.controller.intake.served import listed as listed_objects
from admission.kinds.grouped import belongs_to_groups
from admission.model.names import listed
from admission.model.workload import LOCAL
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cli.serve.startup import Startup
    from admission.cluster.claim import Claimant
    from admission.cluster.client import Client
    from admission.kinds import Kinds, Observed
    from admission.store.leadership.identity import DatabaseIdentity
    from admission.store.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Survey:
    """Effects that a start would have on Jobs; each list has their keys, `namespace/name`."""

    stopped: list[str] = field(default_factory=list)
    """Running Jobs that no record admits: they would be stopped."""
    queued: list[str] = field(default_factory=list)
    """Suspended Jobs without a record: they would be queued again."""
    missing: list[str] = field(default_factory=list)
    """Jobs with a record that are not in the cluster: their records would be marked as finished."""
    known: int = 0
    """Number of Jobs in the cluster that have a record."""

    def __str__(self) -> str:
        parts = []
        if self.stopped:
            parts.append(f"stop {_jobs(self.stopped, 'running Job')}, which would queue again")
        if self.queued:
            parts.append(f"queue {_jobs(self.queued, 'waiting Job')} again")
        if self.missing:
            parts.append(f"finish the records of {_jobs(self.missing, 'Job')} that are not in the cluster")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) or "change no Job"


def _jobs(names: list[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({listed(sorted(names))})"


async def survey(store: Store | None, client: Client, kinds: Kinds, cluster: str = LOCAL) -> Survey:
    """List the Jobs of a cluster and compare them with its records. Raises ClusterError and StoreError.

    `store`: None: there are no records of this cluster.
    """
    records: dict[str, tuple[str, State]] = {}
    if store is not None:
        records = {
            # Whole records of 100,000 Jobs would take too much memory.
            record.workload.uid: (record.workload.key, record.state)
            async for piece in store.unfinished()
            for record in piece
            if record.workload.cluster == cluster
            if kinds.of(record.workload) is not None and not kinds.is_composed(record.workload)
        }
    found = Survey()
    for kind in kinds:
        async for page in listed_objects(client, kinds, kind):
            for obj in page:
                uid = obj["metadata"]["uid"]
                if belongs_to_groups(kind, obj):
                    continue  # a single pod does not show whether its group has a record
                if kind.queue_name(obj):
                    _compare(found, kind.observe(obj), records.pop(uid, None))
                else:
                    records.pop(uid, None)
    found.missing.extend(key for key, _ in records.values())
    return found


def _compare(found: Survey, seen: Observed, record: tuple[str, State] | None) -> None:
    """Add to `found` what a start would do about a queued object; `record` is its workload's key and stored state."""
    found.known += record is not None
    if seen.finished is not None:
        return
    if not seen.suspended and (record is None or record[1] is State.PENDING):
        found.stopped.append(seen.key)
    elif record is None:
        found.queued.append(seen.key)


@dataclass(frozen=True, slots=True)
class _Disagreement:
    """A mismatch of database and cluster, as a message, and the test whether a start would have harmful effects."""

    message: str
    is_harmful: Callable[[Survey], bool]


async def new_claim(starting: Startup, store: Store, client: Client, *, holder: str, election: str) -> Claim:
    """Return the claim of the database in `store`, of a process that is elected by the Lease `election` if any."""
    identity = await starting.retry(store.identity)

    async def stored() -> tuple[int, int]:
        now = await store.identity()
        return now.epoch, now.revision

    # The same path on two machines means two different files.
    location = store.location if store.is_shared else f"{store.location} on {socket.gethostname()}"
    return Claim(
        client,
        database=identity.database,
        location=location,
        holder=holder,
        election=election,
        stored=stored,
        revision=lambda: max(identity.revision, store.revisions.newest),
    )


async def check_ownership(
    starting: Startup, store: Store, client: Client, kinds: Kinds, claim: Claim, *, adopt: bool
) -> None:
    """Permit `claim`, or raise RefusedByCluster with the effects that the start would have. Runs before leading begins.

    `adopt`: accept the effects that would otherwise refuse the start. A Sluice that is running with another database,
    or with another election, is never replaced, not even with `adopt`.
    """
    clusters = await starting.retry_request(lambda: cluster_identities(client))
    last = await starting.retry_request(claim.read)
    if last is not None and not _is_own(last, claim):
        if last.holder:
            log.info(
                "waiting up to %g s to see whether the Sluice with the database %s still runs", LEASE_DURATION, last
            )
        if await starting.retry(partial(claim.is_alive, last)):
            if last.database == claim.database and not claim.has_election_of(last):
                raise RefusedByCluster(claim.other_election(last))
            raise RefusedByCluster(
                f"another Sluice, {last.holder}, decides for the cluster {client.server} with the database {last}, and "
                f"this one has the database {claim}: stop the other one first, or give its --database-url"
            )
        last = await starting.retry_request(claim.read)
    # Read after the claim: a leader takes its epoch in the database before it claims the cluster. So on the same
    # database identity.epoch is never behind last.epoch.
    identity = await starting.retry(store.identity)
    disagreement = _disagreement(identity, last, claim, clusters=clusters, server=client.server)
    if disagreement is not None:
        found = await starting.retry(lambda: survey(store, client, kinds))
        if not disagreement.is_harmful(found):
            log.info("%s; no Job is stopped because of that", disagreement.message)
        elif adopt:
            log.warning("%s; adopting the cluster, which will %s", disagreement.message, found)
        else:
            raise RefusedByCluster(
                f"{disagreement.message}; a start would {found}: check --database-url and --kubeconfig, or add "
                "--adopt for one start to do that"
            )
    elif adopt:
        log.info("there is nothing to adopt: the database %s and the cluster %s agree", claim, client.server)
    if identity.cluster not in clusters:
        await starting.retry(lambda: store.note_cluster(clusters[0]))
    claim.permit(cluster=clusters[0], replacing=last)


def _is_own(last: Claimant, claim: Claim) -> bool:
    """Whether `last` is a replica of this one. URLs are compared only without election: replicas' may differ."""
    same = last.database == claim.database and claim.has_election_of(last)
    return same and (bool(claim.election) or last.location == claim.location)


def _disagreement(
    identity: DatabaseIdentity, last: Claimant | None, claim: Claim, *, clusters: tuple[str, ...], server: str
) -> _Disagreement | None:
    cluster = f"the cluster {server} ({clusters[0]})"
    if identity.cluster and identity.cluster not in clusters:
        return _Disagreement(
            f"the database {claim} belongs to another cluster ({identity.cluster}) than {cluster}",
            lambda found: bool(found.stopped or found.queued or found.missing),
        )
    if last is not None and last.database != claim.database:
        return _Disagreement(
            f"the database {claim} is not the one that was last used for {cluster}: that is {last}",
            lambda found: bool(found.stopped or found.queued),
        )
    if last is not None and (last.epoch > identity.epoch or last.revision > identity.revision):
        return _Disagreement(
            f"the database {claim} is an older copy of the one that was last used for {cluster}, at {last.location}",
            lambda found: bool(found.stopped),
        )
    if last is None and not identity.cluster:
        return _Disagreement(
            f"the database {claim} is new to {cluster}",
            lambda found: bool(found.stopped) and not found.known,
        )
    return None
