"""Preemption hints: upper bounds of the quota that a pending workload might take by preemption, under the policies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.tree import borrows_with
from admission.engine.victims import Preemptor, permitted
from admission.model import sentences
from admission.model.resource_words import amount_number, resource_word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.engine.protection import Claim, Guard
    from admission.engine.tree import Node

_EXAMINED = 1000  # candidates that are summed at most in one ClusterQueue; further ones are ignored
_QUEUES = 1000  # other ClusterQueues that are considered at most


@dataclass(frozen=True, slots=True)
class PreemptionHint:
    """What preemption could free of one flavor-resource. Amounts as in the model, all of them upper bounds."""

    within_cluster_queue: str
    """The preemption policy `withinClusterQueue` of its ClusterQueue."""
    reclaim_within_cohort: str
    """The preemption policy `reclaimWithinCohort` of its ClusterQueue."""
    resource: str
    flavor: str
    missing: int
    """The amount that has to become free."""
    own: int = 0
    """Amount held by candidates of the same ClusterQueue."""
    own_workloads: int = 0
    """Number of candidates of the same ClusterQueue."""
    others: int = 0
    """Amount held by candidates of other ClusterQueues of the tree, as far as these exceed their nominal quota."""
    others_workloads: int = 0
    """Number of candidates of other ClusterQueues."""
    next_at: float | None = None
    """When the first workload may be preempted that is protected now, or has its time slice, and is a candidate
    otherwise (Unix time, s); None: there is none."""

    @property
    def hint(self) -> str:
        """The hint as text for users."""
        policies = f"withinClusterQueue is {self.within_cluster_queue}"
        policies += f", reclaimWithinCohort is {self.reclaim_within_cohort}"
        if self.within_cluster_queue == self.reclaim_within_cohort == "Never":
            return f"its ClusterQueue preempts no workloads ({policies})"
        what = f"{resource_word(self.resource)} ({self.flavor})"
        later = ""
        if self.next_at is not None:
            until = sentences.time(self.next_at)
            later = f"; others may be preempted later, the first at {until}"
        if not self.own_workloads and not self.others_workloads:
            return f"no admitted workload may be preempted for {what}: {policies}{later}"
        sources = [
            f"{amount_number(self.resource, amount)} from {count} {kind}{'s' if count > 1 else ''} {where}"
            for amount, count, kind, where in (
                (self.own, self.own_workloads, "workload", "in its ClusterQueue"),
                (self.others, self.others_workloads, "workload", "in others that borrow"),
            )
            if count
        ]
        verdict = "might be enough" if self.own + self.others >= self.missing else "is not enough"
        return (
            f"{what}: at most {' and '.join(sources)}, which {verdict} for the "
            f"{amount_number(self.resource, self.missing)} that are missing ({policies}){later}"
        )


def preemption_hint(
    domain: Domain, queue: ClusterQueue, item: Item, fr: int, missing: int, *, guard: Guard | None, fair_sharing: bool
) -> PreemptionHint:
    """Return what a pending workload might preempt of one flavor-resource. Cost is bounded: it searches no targets.

    `guard`: one that nobody else uses.
    """
    assert queue.node is not None
    policy = queue.spec.preemption
    preemptor = Preemptor(
        queue,
        queue.node,
        item.shape.priority,
        item.since,
        {},
        frozenset((fr,)),
        {},
        guard=guard,
        put_back_at=item.workload.queued_at,
    )
    own, own_workloads = _sum(permitted(preemptor, queue, policy.within_cluster_queue, "own"), fr)
    others = others_workloads = 0
    # Fair sharing compares shares only for a workload that has to borrow.
    claim: Claim = "share" if fair_sharing and borrows_with(queue.node, fr, missing) else "reclaim"
    if policy.reclaim_within_cohort != "Never" and queue.node.path:
        borrowers = (entry for entry in domain.active_by_node.items() if _borrows(entry[0], queue.node, fr))
        for node, other in islice(borrowers, _QUEUES):
            amount, workloads = _sum(permitted(preemptor, other, policy.reclaim_within_cohort, claim), fr)
            others += min(amount, node.usage[fr] - node.quota[fr])
            others_workloads += workloads
    flavor, resource = domain.tree.frs[fr]
    return PreemptionHint(
        policy.within_cluster_queue,
        policy.reclaim_within_cohort,
        resource,
        flavor,
        missing,
        own,
        own_workloads,
        others,
        others_workloads,
        None if guard is None else guard.ends_at,
    )


def _borrows(node: Node, own: Node, fr: int) -> bool:
    return node is not own and borrows_with(node, fr, 0)


def _sum(candidates: Iterable[Held], fr: int) -> tuple[int, int]:
    amount = count = 0
    for held in islice(candidates, _EXAMINED):
        amount += sum(used for at, used in held.amounts if at == fr)
        count += 1
    return amount, count
