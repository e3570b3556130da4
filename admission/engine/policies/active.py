"""The active policies of one engine: calls those that have something to say, and knows whom they have refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.policies.contract import AdmissionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission.engine.clusterqueue import Held
    from admission.engine.pending import Pending
    from admission.engine.pending_item import Item, LocalQueueKey
    from admission.engine.policies.contract import EngineView, PastAdmission, PolicyConfig, PolicyEvent, Refusal
    from admission.model.queues import ClusterQueueSpec
    from admission.model.workload import Workload


class ActivePolicies:
    """Without any policy each method is a loop over an empty tuple."""

    def __init__(self, configs: Iterable[PolicyConfig], view: EngineView) -> None:
        self._view = view
        self.all = tuple(config.start(view) for config in configs)
        """In the order of the configuration: the first that orders a ClusterQueue, or refuses, decides."""
        self.filtering = self._with("filter")
        self.ordering = self._with("order")
        charging, filtering = self._with("charge"), set(self.filtering)
        self._charged_at_decision = tuple(policy for policy in charging if policy in filtering)
        self._charged_after_cycle = tuple(policy for policy in charging if policy not in filtering)
        self._released = self._with("release")
        self._waking = self._with("wake_at")
        self.refused: dict[str, Item] = {}
        """Waiting workloads that a policy has refused, by uid; some of them may be gone or moved."""
        self._stale = False
        """Whether something has changed that may let them in."""
        self._untold = False
        """Whether what they say of waiting workloads may be another than it was when that was last asked for."""

    def _with(self, method: str) -> tuple[AdmissionPolicy, ...]:
        """Those that override the method."""
        base = getattr(AdmissionPolicy, method)
        return tuple(policy for policy in self.all if getattr(type(policy), method) is not base)

    # --- state from elsewhere

    @property
    def history(self) -> float:
        """How many seconds of the ledger they want to be given."""
        return max((policy.history for policy in self.all), default=0.0)

    def seed(self, admissions: list[PastAdmission]) -> None:
        """Give each policy what it wants of the ledger."""
        for policy in self.all:
            if not policy.history:
                continue
            since = self._view.now - policy.history
            policy.seed(row for row in admissions if row.to_at is None or row.to_at > since)

    def resume(self, event: PolicyEvent) -> None:
        """Pass on the state of a policy in another engine."""
        for policy in self.all:
            policy.resume(event)

    def events(self) -> list[PolicyEvent]:
        """Their state, for another engine."""
        return [event for policy in self.all for event in policy.events()]

    # --- order

    def order(self, queue: ClusterQueueSpec) -> Callable[[LocalQueueKey], float] | None:
        """The key of the first policy that orders the ClusterQueue."""
        return next((key for policy in self.ordering if (key := policy.order(queue)) is not None), None)

    def victims_key(self, held: Held) -> float:
        """The same key of an admitted workload's LocalQueue; 0 if no policy orders its ClusterQueue."""
        key = self.order(held.queue.spec)
        return 0.0 if key is None else key(held.local_queue)

    # --- filter

    def refusal(self, workload: Workload, cluster_queue: str) -> Refusal | None:
        """What the first policy says that refuses the workload now."""
        for policy in self.filtering:
            refusal = policy.filter(workload, cluster_queue)
            if refusal is not None:
                return refusal
        return None

    def make_inadmissible(self, item: Item, pending: Pending) -> None:
        """Take a refused workload out of the order of its ClusterQueue until it may be let in."""
        pending.make_one_inadmissible(item, until_woken=True)
        self.refused[item.uid] = item

    def changed(self) -> None:
        """Something has changed that the policies may go by."""
        self._stale = self._untold = True

    def take_changes(self) -> bool:
        """Whether refusals, or the numbers in them, may have changed; answers True once for each change."""
        changed, self._untold = self._untold, False
        return changed and bool(self.filtering)

    def retry_due(self) -> bool:
        """Whether those that are refused have to be asked about again; answers True once for each change."""
        due = self._stale
        self._stale = False
        if not self.refused:
            return False
        at = None if due else self.wake_at()
        is_time = at is not None and at <= self._view.now
        self._untold |= is_time
        return due or is_time

    def wake_at(self) -> float | None:
        """Unix time (s) at which a policy may let in a workload that it has refused; None: at none."""
        if not self.refused:
            return None
        return min((at for policy in self._waking if (at := policy.wake_at()) is not None), default=None)

    # --- accounts

    def charge_at_decision(self, held: Held) -> None:
        """A cycle has admitted a workload: for the policies that filter."""
        for policy in self._charged_at_decision:
            policy.charge(held, restored=False)
        self._untold = True

    def charge_after_cycle(self, held: Held) -> None:
        """The same for the others, once the cycle is over."""
        for policy in self._charged_after_cycle:
            policy.charge(held, restored=False)

    def restore(self, held: Held) -> None:
        """A workload holds quota already."""
        for policy in (*self._charged_at_decision, *self._charged_after_cycle):
            policy.charge(held, restored=True)
        self._untold = True

    def release(self, held: Held) -> None:
        """A workload holds quota no more."""
        for policy in self._released:
            policy.release(held)
        self._stale = self._untold = True
