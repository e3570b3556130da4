"""Initial state of policies after a restart, computed from the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from admission.engine import BudgetsSpent, Engine, QueueObjectChanged
from admission.model.queues import Budget

if TYPE_CHECKING:
    from collections.abc import Collection

    from admission.engine import Policy, PolicyEvent
    from admission.model.queues import QueueObject
    from admission.store.store import Store


async def policy_seeds(
    store: Store, policy: Policy, objects: Collection[QueueObject], *, now: float
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
    kept = "PreemptAfter", "LowerPriority"
    names = [each.name for each in objects if isinstance(each, Budget) and each.spec.action in kept]
    used_up_since = await store.budget_sums.used_up_since(names) if names else {}
    return [
        replace(event, used_up_since=used_up_since) if isinstance(event, BudgetsSpent) else event
        for event in engine.policy_events()
    ]
