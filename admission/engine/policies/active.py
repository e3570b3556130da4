"""Active policies of one engine: calls the methods that each policy overrides, and tracks refused workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.engine.pending_item import sharer_of
from admission.engine.policies.contract import AdmissionPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
    from admission.engine.pending import PendingQueue
    from admission.engine.pending_item import Item
    from admission.engine.policies.contract import (
        EngineView,
        Eviction,
        PastAdmission,
        PolicyConfig,
        PolicyEvent,
        Refusal,
        SharerOrder,
    )
    from admission.engine.tree import FlavorResource
    from admission.model.queues import ClusterQueueSpec
    from admission.model.workload import Workload


class ActivePolicies:
    """The policies of one engine. Without a policy that is not idle, each method is a loop over an empty tuple."""

    def __init__(self, configs: Iterable[PolicyConfig], view: EngineView) -> None:
        self._view = view
        self.all = tuple(config.start(view) for config in configs)
        """All policies in the order of the configuration: the first that orders a ClusterQueue, or refuses, decides."""
        self._observing = self._with("observe", self.all)
        self.lowering: tuple[AdmissionPolicy, ...] = ()
        """Those that lower the priority of workloads."""
        self._lowering_changed = False
        self._list_active()
        self.refused: dict[str, tuple[Item, Mapping[FlavorResource, int]]] = {}
        """Pending workloads that a policy has refused, by uid, with the quota that they would have held; some of them
        may be deleted or moved by now."""
        self._retry_at: float | None = None
        """When time may permit one of them (Unix time, s); None: never."""
        self._stale = False
        """Whether a change may permit refused workloads, which have to be checked again."""
        self._reasons_outdated = False
        """Whether refusals, or the numbers in their messages, may have changed since `take_changes`."""

    def _list_active(self) -> None:
        self.active = tuple(policy for policy in self.all if not policy.idle)
        self.filtering = self._with("filter", self.active)
        self.ordering = self._with("order", self.active)
        charging, filtering = self._with("charge", self.active), set(self.filtering)
        self._charged_at_decision = tuple(policy for policy in charging if policy in filtering)
        self._charged_after_cycle = tuple(policy for policy in charging if policy not in filtering)
        self._released = self._with("release", self.active)
        self.evicting = self._with("evict", self.active)
        was_lowering = self.lowering
        self.lowering = self._with("lowers", self.active)
        self._lowering_changed |= self.lowering != was_lowering
        self.counting = self._with("arrive", self.active)
        """Those that count pending workloads, too."""

    @staticmethod
    def _with(method: str, policies: tuple[AdmissionPolicy, ...]) -> tuple[AdmissionPolicy, ...]:
        """Return those of the policies that override the method."""
        base = getattr(AdmissionPolicy, method)
        return tuple(policy for policy in policies if getattr(type(policy), method) is not base)

    # --- state from the ledger, queue objects or another engine

    @property
    def history(self) -> float:
        """Seconds of the ledger's past that `seed` needs."""
        return max((policy.history for policy in self.all), default=0.0)

    def seed(self, admissions: list[PastAdmission]) -> None:
        """Pass past admissions to each policy, as far back as it needs them."""
        for policy in self.all:
            if not policy.history:
                continue
            since = self._view.now - policy.history
            policy.seed(row for row in admissions if row.to_at is None or row.to_at > since)

    def observe(
        self,
        event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted,
        holders: Iterable[Held],
        waiting: Iterable[Item],
    ) -> None:
        """Pass a queue object, or a policy's state from another engine, to the policies.

        `holders`, `waiting`: the workloads that hold quota, or are pending; they are counted by a policy that is not
        idle any more.
        """
        for policy in self._observing:
            was_idle = policy.idle
            policy.observe(event)
            if policy.idle is not was_idle:
                self._list_active()
                for held in holders if was_idle else ():
                    policy.charge(held, restored=True)
                if was_idle and policy in self.counting:
                    for item in waiting:
                        if item.cluster_queue:
                            policy.arrive(item)
        if self._observing:
            self.changed()

    def events(self) -> list[PolicyEvent]:
        """Return the policies' state, for `observe` in another engine."""
        return [event for policy in self.all for event in policy.events()]

    # --- order

    def order(self, name: str, queue: ClusterQueueSpec) -> SharerOrder | None:
        """Return the order of the first policy that orders the ClusterQueue; None: none does."""
        return next((order for policy in self.ordering if (order := policy.order(name, queue)) is not None), None)

    def victims_key(self, held: Held) -> float:
        """Return the usage of the LocalQueue or user of a workload that holds quota; 0 if no policy orders them."""
        order = self.order(held.queue.name, held.queue.spec)
        return 0.0 if order is None else order.usage(sharer_of(held.workload, by_user=order.by_user))

    # --- filter

    def refusal(
        self,
        item: Item,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int] | None = None,
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Return the refusal of the first policy that refuses the workload now; None: none does.

        `usage`: the quota that it would hold; None: as when it was last refused, or without flavors. `victims`: the
        workloads that it would preempt.
        """
        if usage is None:
            refused = self.refused.get(item.uid)
            usage = item.shape.usage if refused is None or refused[0] is not item else refused[1]
        for policy in self.filtering:
            refusal = policy.filter(item.workload, cluster_queue, usage, victims)
            if refusal is not None:
                if refusal.until is not None and (self._retry_at is None or refusal.until < self._retry_at):
                    self._retry_at = refusal.until
                return refusal
        return None

    def make_inadmissible(self, item: Item, pending: PendingQueue, usage: Mapping[FlavorResource, int]) -> None:
        """Make a workload inadmissible until no policy refuses it any more that has refused it with this `usage`."""
        pending.make_one_inadmissible(item, until_woken=True)
        self.note(item, usage)

    def note(self, item: Item, usage: Mapping[FlavorResource, int]) -> None:
        """Have a workload checked again that was refused with this `usage`."""
        self.refused[item.uid] = item, usage

    def changed(self) -> None:
        """Record that an input of the policies, such as a queue object, has changed."""
        self._stale = self._reasons_outdated = True

    def take_changes(self) -> bool:
        """Whether refusals, or the numbers in them, may have changed; returns True once for each change."""
        changed, self._reasons_outdated = self._reasons_outdated, False
        return changed and bool(self.filtering)

    def retry_due(self) -> bool:
        """Whether refused workloads, of which there are some, have to be checked again: once for each change."""
        is_time = self._retry_at is not None and self._retry_at <= self._view.now
        due = self._stale or is_time
        self._stale = False
        if due:  # those that are refused again say anew until when
            self._retry_at = None
        self._reasons_outdated |= is_time
        return due

    def wake_at(self) -> float | None:
        """Return the Unix time (s) at which a policy may permit a workload that it has refused; None: never."""
        return self._retry_at if self.refused else None

    # --- priorities

    def lowers(self, workload: Workload, cluster_queue: str, usage: Mapping[FlavorResource, int]) -> str:
        """Return why the priority of a workload is lowered, as a sentence; empty: it is not."""
        return next((why for policy in self.lowering if (why := policy.lowers(workload, cluster_queue, usage))), "")

    def lowering_changed(self) -> bool:
        """Whether `lowers` may return something else for a workload than at the last call."""
        if not self.lowering and not self._lowering_changed:
            return False
        found = [policy.lowering_changed() for policy in self.lowering]
        changed, self._lowering_changed = self._lowering_changed or any(found), False
        return changed

    # --- evictions

    def evictions(self) -> list[Eviction]:
        """Return the workloads that policies want to release their quota."""
        return [eviction for policy in self.evicting for eviction in policy.evict()]

    def evicts_at(self) -> float | None:
        """Return the Unix time (s) at which a policy evicts workloads; None: never."""
        return min((at for policy in self.evicting if (at := policy.evicts_at()) is not None), default=None)

    # --- accounts

    def arrive(self, item: Item) -> None:
        """Count a workload that is pending in a ClusterQueue from now on."""
        for policy in self.counting:
            policy.arrive(item)

    def leave(self, uid: str) -> None:
        """Stop counting a pending workload; others may be permitted in its place."""
        for policy in self.counting:
            policy.leave(uid)
        self._stale = self._reasons_outdated = True

    def charge_at_decision(self, held: Held) -> None:
        """Charge a workload admitted by the running cycle to the policies that filter."""
        for policy in self._charged_at_decision:
            policy.charge(held, restored=False)
        self._reasons_outdated = True

    def charge_after_cycle(self, held: Held) -> None:
        """Charge a workload admitted by a cycle to the policies that do not filter, after the cycle."""
        for policy in self._charged_after_cycle:
            policy.charge(held, restored=False)

    def restore(self, held: Held) -> None:
        """Charge a workload that already holds quota, as after loading the state."""
        for policy in (*self._charged_at_decision, *self._charged_after_cycle):
            policy.charge(held, restored=True)
        self._reasons_outdated = True

    def release(self, held: Held) -> None:
        """Release a workload whose quota is free."""
        for policy in self._released:
            policy.release(held)
        self._stale = self._reasons_outdated = True
