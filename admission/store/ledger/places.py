"""Who was where: the admissions of the ledger whose pods were placed in a domain of a topology, such as a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import literal, or_, select

from admission.model.topology_documents import topology_assignment
from admission.store.database.instant import Instant
from admission.store.database.tables import admissions, workloads

if TYPE_CHECKING:
    from admission.store.database.connection import Database


@dataclass(frozen=True, slots=True)
class Stay:
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


async def stays(database: Database, domain: str, *, start: float, end: float) -> list[Stay]:
    """Return the stays in a domain, by one of its values, that overlap a period (Unix times, s), in order of time."""
    held, known = admissions.c, workloads.c
    placed = (
        select(held.workload_uid, held.pod_set, held.from_at, held.topology)
        .where(
            held.topology.is_not(None),
            held.from_at <= literal(end, Instant()),
            or_(held.to_at.is_(None), held.to_at > literal(start, Instant())),
        )
        .order_by(held.from_at, held.id)
    )
    amounts = select(
        held.resource, held.amount, held.count, held.namespace, held.local_queue, held.submitted_by, held.to_at,
        held.end_reason, known.kind, known.name,
    ).select_from(admissions.outerjoin(workloads, held.workload_uid == known.uid))  # fmt: skip
    found: list[Stay] = []
    async with database.read() as connection:
        for uid, pod_set, begun, document in await connection.execute(placed):
            counts = [one for one in topology_assignment(document).domains if domain in one.values]
            if not counts:
                continue
            of = held.workload_uid == uid, held.pod_set == pod_set, held.from_at == literal(begun, Instant())
            rows = (await connection.execute(amounts.where(*of))).mappings().all()
            first = rows[0]
            for values, pods in counts:
                requests = {row["resource"]: row["amount"] * pods // row["count"] for row in rows if row["resource"]}
                found.append(
                    Stay(
                        first["namespace"],
                        first["local_queue"],
                        first["submitted_by"],
                        first["kind"] or "",
                        first["name"] or "",
                        uid,
                        pod_set,
                        values,
                        pods,
                        requests,
                        begun,
                        first["to_at"],
                        first["end_reason"] or "",
                    )
                )
    return found
