"""Evictions that seem to lead nowhere: of workloads that are evicted again and again, and preemptions in vain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import func, select

from admission.engine.victims import preemptor_in
from admission.engine.vocabulary import PREEMPTED
from admission.model.queues import ClusterQueue
from admission.store.database.tables import admissions, workloads
from admission.store.records import GOES_ON, State
from admission.store.workloads.loading import UNFINISHED
from admission.store.workloads.waiting import WAITS_IN, WITH_LOCAL_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Row, Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from admission.model.queues import QueueObject
    from admission.store.database.connection import Database

IN_VAIN_SECONDS: Final = 300.0
"""Seconds from the eviction of its last victim, after which a preemptor should have started."""
REPORTED_SECONDS: Final = 86_400.0
"""Seconds from a preemption, after which it is no longer reported."""
_LIMIT = 500
"""Preemptors that are reported at most."""


REPETITIONS: Final = 3
"""Evictions within REPETITION_SECONDS from which on a workload is reported, and counted by the leader's metric."""
REPETITION_SECONDS: Final = 3600.0


class EvictedAgain(NamedTuple):
    """A workload that was evicted again and again."""

    uid: str
    times: int
    """Number of its evictions in the last hour."""


class Victim(NamedTuple):
    """A workload that was preempted."""

    namespace: str
    name: str
    cluster: str


@dataclass(frozen=True, slots=True)
class PreemptionInVain:
    """A preemptor that is still pending, and the workloads that were preempted for it."""

    namespace: str
    """Namespace of the preemptor."""
    name: str
    """Name of the preemptor."""
    cluster: str
    cluster_queue: str
    """ClusterQueue of the preemptor's LocalQueue; empty if there is no such LocalQueue."""
    victims: tuple[Victim, ...]
    at: float
    """When the last victim was preempted (Unix time, s)."""


async def evicted_again(database: Database, *, now: float) -> tuple[EvictedAgain, ...]:
    """Return the unfinished workloads that were evicted REPETITIONS times or more in the hour before `now`.

    `now`: Unix time (s). Those with most evictions come first.
    """
    columns = admissions.c
    times = func.count(columns.from_at.distinct())
    evicted = (
        select(columns.workload_uid, times)
        .join(workloads, (workloads.c.uid == columns.workload_uid) & UNFINISHED)
        .where(columns.to_at > now - REPETITION_SECONDS, columns.end_reason.not_in(GOES_ON))
        .group_by(columns.workload_uid)
        .having(times >= REPETITIONS)
        .order_by(times.desc(), columns.workload_uid)
    )

    def query(connection: Connection) -> tuple[EvictedAgain, ...]:
        return tuple(EvictedAgain(*row) for row in connection.execute(evicted))

    return await database.read_sync(query)


async def protecting(
    connection: AsyncConnection, queue_objects: Iterable[QueueObject]
) -> tuple[tuple[str, float], ...]:
    """Return the preemptions of unfinished workloads: uid, and when the quota was free (Unix time, s), in order.

    Empty if no ClusterQueue has `preemptionProtection.afterPreemptions`, for which they count.
    """
    rules = (obj.spec.preemption_protection for obj in queue_objects if isinstance(obj, ClusterQueue))
    if not any(rule is not None and rule.after_preemptions is not None for rule in rules):
        return ()
    columns = admissions.c
    # Those before the present admission count, which may be long ago: so there is no earliest time.
    statement = (
        select(columns.workload_uid, columns.to_at)
        .distinct()
        .join(workloads, (workloads.c.uid == columns.workload_uid) & UNFINISHED)
        .where(columns.end_reason == PREEMPTED)
        .order_by(columns.to_at, columns.workload_uid)
    )
    return tuple((row.workload_uid, row.to_at) for row in await connection.execute(statement))


async def in_vain(database: Database, *, now: float) -> tuple[PreemptionInVain, ...]:
    """Return pending preemptors that have not started since others were preempted for them, the latest first.

    Reported are those of which all victims have released their quota, the last eviction being between
    IN_VAIN_SECONDS and REPORTED_SECONDS old at `now` (Unix time, s). Victims that have finished since are left out.
    """

    def query(connection: Connection) -> tuple[PreemptionInVain, ...]:
        return tuple(_found(connection, now))

    return await database.read_sync(query)


@cache
def _statement() -> Select[Any]:
    columns = workloads.c
    shown = columns.namespace, columns.name, columns.cluster, columns.state, columns.eviction
    return select(*shown).where(UNFINISHED, columns.eviction.is_not(None))


def _found(connection: Connection, now: float) -> list[PreemptionInVain]:
    groups: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(_statement()):
        eviction = row.eviction
        if eviction["reason"] == PREEMPTED and eviction["at"] > now - REPORTED_SECONDS:
            # The preemptor is in the message only: older versions cannot load an `eviction` with another field.
            groups.setdefault(preemptor_in(eviction["message"]), []).append(row)
    ends = {
        uid: max(row.eviction["at"] for row in rows)
        for uid, rows in groups.items()
        if uid and all(row.state != State.EVICTING for row in rows)
    }
    due = sorted((uid for uid, at in ends.items() if at <= now - IN_VAIN_SECONDS), key=ends.__getitem__, reverse=True)
    columns = workloads.c
    preemptors = (
        select(columns.uid, columns.namespace, columns.name, columns.cluster, WAITS_IN, columns.eviction)
        .select_from(WITH_LOCAL_QUEUE)
        .where(columns.uid.in_(due[:_LIMIT]), columns.state == State.PENDING)
    )
    found = []
    for row in connection.execute(preemptors):
        # Preemptions before its own last eviction had an effect: they let it start.
        since = 0.0 if row.eviction is None else row.eviction["at"]
        victims = [(each.namespace, each.name, each.cluster) for each in groups[row.uid] if each.eviction["at"] > since]
        if victims:
            sorted_victims = tuple(Victim(*each) for each in sorted(victims))
            preemptor = row.namespace, row.name, row.cluster
            found.append(PreemptionInVain(*preemptor, row.waits_in, sorted_victims, ends[row.uid]))
    return sorted(found, key=lambda each: (-each.at, each.namespace, each.name))
