"""Preemptions in vain: workloads were stopped so that another one can start, which it has not done minutes later."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import select

from admission.engine.victims import preemptor_in
from admission.engine.vocabulary import PREEMPTED
from admission.store.database.tables import workloads
from admission.store.records import State
from admission.store.workloads.loading import UNFINISHED

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row, Select

    from admission.store.database.connection import Database

IN_VAIN_SECONDS: Final = 300.0
"""So long after the last of its victims was told to stop, who preempted should have started."""
TOLD_SECONDS: Final = 86_400.0
"""Older preemptions are not told of any more."""
_MOST = 500


class Victim(NamedTuple):
    """A workload that was preempted."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PreemptionInVain:
    """What was preempted for one workload, which waits all the same."""

    namespace: str
    """Of the workload that waits ..."""
    name: str
    """... and its name."""
    cluster_queue: str
    victims: tuple[Victim, ...]
    at: float
    """When the last of them was preempted, in seconds since the epoch."""


async def in_vain(database: Database, *, now: float) -> tuple[PreemptionInVain, ...]:
    """The latest first, at most 500.

    Told of is a workload that waits, and has not started since others were preempted for it: all of them have given
    their quota back, the last was told to five minutes ago or more, and a day ago or less. What has ended since is not
    counted.
    """

    def query(connection: Connection) -> tuple[PreemptionInVain, ...]:
        return tuple(_found(connection, now))

    return await database.read_sync(query)


@cache
def _statement() -> Select[Any]:
    columns = workloads.c
    shown = columns.namespace, columns.name, columns.state, columns.eviction
    return select(*shown).where(UNFINISHED, columns.eviction.is_not(None))


def _found(connection: Connection, now: float) -> list[PreemptionInVain]:
    groups: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(_statement()):
        said = row.eviction
        if said["reason"] == PREEMPTED and said["at"] > now - TOLD_SECONDS:
            # Who it was for is in the sentence alone: older versions do not load an eviction that says more.
            groups.setdefault(preemptor_in(said["message"]), []).append(row)
    ends = {
        uid: max(row.eviction["at"] for row in rows)
        for uid, rows in groups.items()
        if uid and all(row.state != State.EVICTING for row in rows)
    }
    over = sorted((uid for uid, at in ends.items() if at <= now - IN_VAIN_SECONDS), key=ends.__getitem__, reverse=True)
    columns = workloads.c
    waits = select(columns.uid, columns.namespace, columns.name, columns.cluster_queue, columns.eviction).where(
        columns.uid.in_(over[:_MOST]), columns.state == State.PENDING
    )
    found = []
    for row in connection.execute(waits):
        # Those before its own last eviction have let it start.
        since = 0.0 if row.eviction is None else row.eviction["at"]
        victims = [(each.namespace, each.name) for each in groups[row.uid] if each.eviction["at"] > since]
        if victims:
            told = tuple(Victim(*each) for each in sorted(victims))
            found.append(PreemptionInVain(row.namespace, row.name, row.cluster_queue, told, ends[row.uid]))
    return sorted(found, key=lambda each: (-each.at, each.namespace, each.name))
