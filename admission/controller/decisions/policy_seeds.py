"""What policies go by after a restart: their state as it follows from the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine import Engine, QueueObjectChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine import Policy, PolicyEvent
    from admission.model.queues import QueueObject
    from admission.store.store import Store


async def policy_seeds(
    store: Store, policy: Policy, objects: Iterable[QueueObject], *, now: float
) -> list[PolicyEvent]:
    """The events to tell a new engine before it is told of workloads. Raises DatabaseUnavailable."""
    # An engine of its own takes in the ledger, so that one that is in use never has half of it.
    engine = Engine(policy)
    if not engine.history:
        return []
    for obj in objects:
        engine.observe(QueueObjectChanged(obj), now=now)
    async for admissions in store.past_admissions(since=now - engine.history):
        engine.seed(admissions, now=now)
    return engine.policy_events()
