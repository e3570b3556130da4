"""Who was where: the admissions of the ledger whose pods were placed in a domain of a topology, such as a node."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Text, and_, literal, or_, select, type_coerce

from admission.model.topology_documents import topology_assignment
from admission.store.database.dialects import parsed_json
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, workloads
from admission.store.ledger.usage_rows import lasts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.store.database.connection import Database

_BATCH: Final = 5_000
"""Rows fetched at a time."""


@dataclass(frozen=True, slots=True)
class DomainStay:
    """Pods of one pod set of an admission in one domain."""

    namespace: str
    queue: str
    user: str
    kind: str
    """Empty, like `name`, if the workload is not kept any more."""
    name: str
    uid: str
    pod_set: str
    domain: tuple[str, ...]
    pods: int
    requests: dict[str, int]
    """What these pods hold; amounts as in the model."""
    start: float
    """Unix time (s)."""
    end: float | None
    """None: they are still there."""
    reason: str
    """Why it ended."""


async def stays(database: Database, domain: str, *, start: float, end: float) -> list[DomainStay]:
    """Return the stays in a domain, by one of its values, that overlap a period (Unix times, s), in order of time."""
    with_domains = admissions.alias()
    held, placed, known = admissions.c, with_domains.c, workloads.c
    of_one = held.workload_uid == placed.workload_uid, held.pod_set == placed.pod_set, held.from_at == placed.from_at
    statement = (
        select(
            held.workload_uid, held.pod_set, held.from_at, held.to_at, held.resource, held.amount, held.count,
            type_coerce(held.topology, Text), held.namespace, held.local_queue, held.submitted_by, held.end_reason,
            known.kind, known.name,
        )
        .select_from(
            with_domains.join(admissions, and_(*of_one)).outerjoin(workloads, held.workload_uid == known.uid)
        )
        .where(
            placed.topology.is_not(None),
            lasts(with_domains),
            lasts(admissions),
            placed.from_at <= literal(end, Instant()),
            or_(placed.to_at.is_(None), placed.to_at > literal(start, Instant())),
        )
        .order_by(held.from_at, held.workload_uid, held.pod_set, held.id)
    )  # fmt: skip
    found: list[DomainStay] = []
    rest: list[Any] = []
    async with database.read() as connection:
        async for rows in (await connection.stream(statement)).partitions(_BATCH):
            # In a thread: there may be many documents. The last pod set may have more rows, in the next batch.
            rest, more = await asyncio.to_thread(_stays, [*rest, *rows], domain)
            found += more
    return found + _stays([*rest, None], domain)[1]


def _stays(rows: list[Any], domain: str) -> tuple[list[Any], list[DomainStay]]:
    """Return the rows of the last pod set, and the stays of all others; of all, if the last row is None."""
    parts = [[*part] for _, part in groupby(rows, lambda row: row and row[:3])]
    return parts[-1], [stay for part in parts[:-1] for stay in _stays_of(part, domain)]


def _stays_of(rows: list[Any], domain: str) -> Iterator[DomainStay]:
    """Yield the stays of a pod set by its rows, one for each resource."""
    document = next(row[7] for row in rows if row[7] is not None)
    counts: dict[tuple[str, ...], int] = {}
    for values, pods in topology_assignment(parsed_json(document)).domains:
        if domain in values:
            within = values[: values.index(domain) + 1]
            counts[within] = counts.get(within, 0) + pods
    uid, pod_set, begun, ended, _, _, count, _, namespace, queue, user, reason, kind, name = rows[0]
    for within, pods in counts.items():
        requests = {row[4]: row[5] * pods // count for row in rows if row[4]}
        yield DomainStay(
            namespace, queue, user, kind or "", name or "", uid, pod_set, within, pods, requests, begun, ended,
            reason or "",
        )  # fmt: skip
