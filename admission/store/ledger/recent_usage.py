"""What LocalQueues used lately, from the ledger: admission fair sharing goes on after a restart where it was.

The engine's average decays exponentially, so an admission of `amount` from t1 to t2 counts now as
amount * (0.5^((now-t2)/h) - 0.5^((now-t1)/h)) with the half-life h, plus what is left of its entry penalty. That is
what the engine itself would have, but for the penalty, which it begins to decay a moment later, at the next change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import or_, select

from admission.store.database.tables import admissions

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.ext.asyncio import AsyncConnection

HALF_LIVES = 20
"""What ended so many half-lives ago counts no more: it would be a millionth."""


@dataclass(frozen=True, slots=True)
class Decay:
    """How usage is forgotten."""

    half_life: float
    """Seconds; 0 forgets all at once."""
    penalty: float
    """The share of its amount that an admission costs at once ..."""
    charging: Collection[str]
    """... in these ClusterQueues."""


async def used_lately(
    connection: AsyncConnection, decay: Decay, *, now: float
) -> dict[tuple[str, str], dict[str, float]]:
    """By (namespace, LocalQueue) and resource, in cores, bytes and devices."""
    if not decay.half_life:
        return {}
    columns = admissions.c
    recent = or_(columns.to_at.is_(None), columns.to_at > now - HALF_LIVES * decay.half_life)
    rows = await connection.stream(
        select(
            columns.namespace, columns.local_queue, columns.cluster_queue, columns.resource, columns.amount,
            columns.from_at, columns.to_at, columns.began_at.is_not(None),
        ).where(recent, columns.flavor != "").order_by(columns.id)
    )  # fmt: skip
    used: dict[tuple[str, str], dict[str, float]] = {}
    async for namespace, queue, cluster_queue, resource, amount, start, end, part in rows:
        before = 0.5 ** ((now - start) / decay.half_life)
        counts = (1.0 if end is None else 0.5 ** (max(now - end, 0.0) / decay.half_life)) - min(before, 1.0)
        # An admission that goes on with fewer pods has paid before.
        if cluster_queue in decay.charging and not part:
            counts += decay.penalty * min(before, 1.0)
        natural = amount / 1000 if resource == "cpu" else float(amount)
        resources = used.setdefault((namespace, queue), {})
        resources[resource] = resources.get(resource, 0.0) + natural * counts
    return used
