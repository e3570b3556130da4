"""Initial state of policies after a restart, computed from the ledger."""

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
    """Return the policy events that a new engine has to receive before its workloads. Raises DatabaseUnavailable."""
    # A temporary engine reads the ledger, as the read may fail halfway: the engine in use never has a part of it.
    engine = Engine(policy)
    if not policy.policies:
        return []
    for obj in objects:
        engine.observe(QueueObjectChanged(obj), now=now)
    if not engine.history:
        return []
    async for admissions in store.past_admissions(since=now - engine.history):
        engine.seed(admissions, now=now)
    return engine.policy_events()
