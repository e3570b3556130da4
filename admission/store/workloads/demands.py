"""What workloads waited for over time, before and between their admissions."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, select

from admission.engine.vocabulary import HOPELESS, ON_HOLD
from admission.model.queues import LocalQueue
from admission.store.database.tables import admissions, queue_objects, workloads
from admission.store.ledger.fairness import Demand
from admission.store.workloads.loading import existed, plain, shapes_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_NOT_DEMAND: Final = HOPELESS | {ON_HOLD, "Deactivated"}
"""Present reasons of waiting workloads that count as no demand: quota would not start them."""


async def demands(connection: AsyncConnection, start: float, end: float) -> list[Demand]:
    """Return what workloads waited for between `start` and `end` (Unix times, s): before and between admissions."""
    columns, dialect = workloads.c, connection.dialect.name
    condition = existed(start, end)
    shapes = await connection.run_sync(shapes_of, select(columns.shape).where(condition).distinct())
    amounts: dict[str, dict[str, int]] = {}
    for shape, sets in shapes.items():
        total: defaultdict[str, int] = defaultdict(int)
        for pod_set in () if isinstance(sets, Exception) else sets:
            for resource, amount in pod_set.total(pod_set.count).items():
                total[resource] += amount
        amounts[shape] = dict(total)
    lead = and_(
        queue_objects.c.kind == LocalQueue.kind,
        queue_objects.c.namespace == columns.namespace,
        queue_objects.c.name == columns.local_queue,
    )
    arrivals = (
        select(columns.uid, columns.shape, plain(columns.created_at, dialect), plain(columns.finished_at, dialect),
               queue_objects.c.cluster_queue, columns.cluster_queue, columns.reason)
        .select_from(workloads.outerjoin(queue_objects, lead)).where(condition)
    )  # fmt: skip
    found = (await connection.execute(arrivals)).all()
    rows = admissions.c
    spells = (
        select(rows.workload_uid, plain(rows.from_at, dialect), plain(rows.to_at, dialect), rows.cluster_queue)
        .where(rows.workload_uid.in_(select(columns.uid).where(condition)))
        .distinct()
    )
    held: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for uid, begins, ends, cluster_queue in await connection.execute(spells):
        held[uid].append((begins, math.inf if ends is None else ends, cluster_queue))

    def convert() -> list[Demand]:
        wanted = []
        for uid, shape, created, finished, leads_to, last_queue, reason in found:
            since, last = created, end if finished is None else finished
            for begins, ends, cluster_queue in sorted(held.get(uid, ())):
                if begins > since:
                    wanted.append(Demand(cluster_queue, since, begins, amounts[shape]))
                since = max(since, ends)
            if last > since and not (finished is None and reason in _NOT_DEMAND):
                wanted.append(Demand(leads_to or last_queue, since, last, amounts[shape]))
        return wanted

    return await asyncio.to_thread(convert)
