"""Whether the database of a start and its cluster belong together, and what is done if not: refuse, or adopt.

A database that does not know the Jobs of a cluster stops those that run: nobody gave them quota, as far as it can tell.
So before anything is decided the database's note of its cluster is compared with the cluster's note of its database
(`admission.cluster.claim`), and only if they disagree the Jobs are listed and compared with what is on record.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from admission.cluster.claim import DURATION, cluster_identities
from admission.cluster.errors import RefusedByCluster
from admission.controller.intake.served import listed as listed_objects
from admission.kinds.grouped import belongs_to_groups
from admission.model.names import listed
from admission.store.records import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.cli.serve.startup import Starting
    from admission.cluster.claim import Claim, Claimant
    from admission.cluster.client import Client
    from admission.kinds import Kinds, Observed
    from admission.store.leadership.identity import Identity
    from admission.store.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Survey:
    """What a start would do, by the names of Jobs: `namespace/name`."""

    stopped: list[str] = field(default_factory=list)
    """They run, and no record lets them."""
    queued: list[str] = field(default_factory=list)
    """They are suspended, and not on record: they queue anew."""
    forgotten: list[str] = field(default_factory=list)
    """They are on record, and not in the cluster: their records are finished."""
    known: int = 0
    """How many are on record and in the cluster."""

    def __str__(self) -> str:
        parts = []
        if self.stopped:
            parts.append(f"stop {_jobs(self.stopped, 'running Job')}, which would queue again")
        if self.queued:
            parts.append(f"queue {_jobs(self.queued, 'waiting Job')} anew")
        if self.forgotten:
            parts.append(f"finish the records of {_jobs(self.forgotten, 'Job')} that it does not find there")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) or "change no Job"


def _jobs(names: list[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({listed(sorted(names))})"


async def survey(store: Store, client: Client, kinds: Kinds) -> Survey:
    """List the cluster's Jobs, and compare them with what is on record. Raises ClusterError and StoreError."""
    records = {
        record.workload.uid: (record.workload.key, record.state)  # the rest of 100,000 records would stay in memory
        async for piece in store.unfinished()
        for record in piece
        if kinds.of(record.workload) is not None and not kinds.is_composed(record.workload)
    }
    found = Survey()
    for kind in kinds:
        async for page in listed_objects(client, kinds, kind):
            for obj in page:
                uid = obj["metadata"]["uid"]
                if belongs_to_groups(kind, obj):
                    continue  # whose group is on record, nobody can tell by one pod
                if kind.queue_name(obj):
                    _compare(found, kind.observe(obj), records.pop(uid, None))
                else:
                    records.pop(uid, None)
    found.forgotten.extend(key for key, _ in records.values())
    return found


def _compare(found: Survey, seen: Observed, record: tuple[str, State] | None) -> None:
    """Note what a start would do about an object that is queued; `record`: what is on record of it."""
    found.known += record is not None
    if seen.finished is not None:
        return
    if not seen.suspended and (record is None or record[1] is State.PENDING):
        found.stopped.append(seen.key)
    elif record is None:
        found.queued.append(seen.key)


@dataclass(frozen=True, slots=True)
class _Disagreement:
    """Why database and cluster may not belong together, as a sentence, and what of a survey would then be harm."""

    sentence: str
    is_harmful: Callable[[Survey], bool]


async def check(
    starting: Starting, store: Store, client: Client, kinds: Kinds, claim: Claim, *, alone: bool, adopt: bool
) -> None:
    """Permit `claim`, or raise RefusedByCluster with what the start would do; before this start takes the lead.

    `alone`: no replicas are elected on the same database. `adopt`: do what would else be refused. Another Sluice that
    decides for the cluster at this moment is never replaced.
    """
    clusters = await starting.asked(lambda: cluster_identities(client))
    last = await starting.asked(claim.look)
    if last is not None and not _is_own(last, claim, alone=alone):
        if last.holder:
            log.info("waits for up to %g s to see whether the Sluice with the database %s runs", DURATION, last)
        if await starting.patiently(partial(claim.is_alive, last)):
            raise RefusedByCluster(
                f"another Sluice, {last.holder}, decides for the cluster {client.server} with the database {last}, and "
                f"this one has the database {claim}: stop the other one first, or give its --database-url"
            )
        last = await starting.asked(claim.look)
    # After the claim was read: whoever has claimed the cluster had taken the lead on the database before.
    identity = await starting.patiently(store.identity)
    disagreement = _disagreement(identity, last, claim, clusters=clusters, server=client.server)
    if disagreement is not None:
        found = await starting.patiently(lambda: survey(store, client, kinds))
        if not disagreement.is_harmful(found):
            log.info("%s; no Job is stopped for that", disagreement.sentence)
        elif adopt:
            log.warning("%s; adopts the cluster, and will %s", disagreement.sentence, found)
        else:
            raise RefusedByCluster(
                f"{disagreement.sentence}; a start would {found}: check --database-url and --kubeconfig, or add "
                "--adopt for one start to do that"
            )
    elif adopt:
        log.info("there is nothing to adopt: the database %s and the cluster %s agree", claim, client.server)
    if identity.cluster not in clusters:
        await starting.patiently(lambda: store.note_cluster(clusters[0]))
    claim.permit(cluster=clusters[0], instead_of=last)


def _is_own(last: Claimant, claim: Claim, *, alone: bool) -> bool:
    """Whether it is this database, and not a copy: where replicas elect one, their URLs may differ."""
    return last.database == claim.database and (not alone or last.location == claim.location)


def _disagreement(
    identity: Identity, last: Claimant | None, claim: Claim, *, clusters: tuple[str, ...], server: str
) -> _Disagreement | None:
    cluster = f"the cluster {server} ({clusters[0]})"
    if identity.cluster and identity.cluster not in clusters:
        return _Disagreement(
            f"the database {claim} belongs to another cluster ({identity.cluster}) than {cluster}",
            lambda found: bool(found.stopped or found.queued or found.forgotten),
        )
    if last is not None and last.database != claim.database:
        return _Disagreement(
            f"the database {claim} is not the one that decided last for {cluster}: that is {last}",
            lambda found: bool(found.stopped or found.queued),
        )
    if last is not None and (last.epoch > identity.epoch or last.revision > identity.revision):
        return _Disagreement(
            f"the database {claim} is an older copy of the one that decided last for {cluster}, at {last.location}",
            lambda found: bool(found.stopped),
        )
    if last is None and not identity.cluster:
        return _Disagreement(
            f"the database {claim} is new to {cluster}",
            lambda found: bool(found.stopped) and not found.known,
        )
    return None
