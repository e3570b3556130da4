"""What preemption could do for a waiting workload, as a hint: whose quota the policies would let it take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from admission.engine.tree import borrows_with
from admission.engine.victims import Claim, permitted
from admission.model.quantity import format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.engine.clusterqueue import ClusterQueue, Held
    from admission.engine.forest import Domain
    from admission.engine.pending_item import Item
    from admission.engine.tree import Node

_EXAMINED = 1000  # how many candidates are looked at in one ClusterQueue; what more there are is left out
_QUEUES = 1000  # how many other ClusterQueues are


@dataclass(frozen=True, slots=True)
class Prospect:
    """What could be taken of one resource of one flavor. Amounts as in the model, all of them upper bounds."""

    within_cluster_queue: str
    """The policies that decide."""
    reclaim_within_cohort: str
    resource: str
    flavor: str
    missing: int
    own: int = 0
    """Held by workloads of the same ClusterQueue that might be preempted."""
    own_workloads: int = 0
    others: int = 0
    """Used beyond their nominal quota by other ClusterQueues of the tree, by workloads that might be preempted."""
    others_workloads: int = 0

    @property
    def hint(self) -> str:
        """In words."""
        policies = f"withinClusterQueue is {self.within_cluster_queue}"
        policies += f", reclaimWithinCohort is {self.reclaim_within_cohort}"
        if self.within_cluster_queue == self.reclaim_within_cohort == "Never":
            return f"its ClusterQueue preempts nobody ({policies})"
        if not self.own_workloads and not self.others_workloads:
            return f"nobody is admitted whom it may preempt for {self.resource} in flavor {self.flavor} ({policies})"
        own, others, missing = (
            format_amount(self.resource, amount) for amount in (self.own, self.others, self.missing)
        )
        verdict = "might be enough" if self.own + self.others >= self.missing else "is not enough"
        return (
            f"of {self.resource} in flavor {self.flavor} it might take {own} from {self.own_workloads} workload(s) of "
            f"its ClusterQueue and {others} from {self.others_workloads} of others that borrow ({policies}), "
            f"which {verdict} for the {missing} that are missing"
        )


def prospect(domain: Domain, queue: ClusterQueue, item: Item, fr: int, missing: int) -> Prospect:
    """What the workload might preempt of one flavor-resource. No search for victims: its cost is bounded."""
    assert queue.node is not None
    policy = queue.spec.preemption
    claim = Claim(queue, queue.node, item.shape.priority, item.since, {}, frozenset((fr,)), {})
    own, own_workloads = _sum(permitted(claim, queue, policy.within_cluster_queue), fr)
    others = others_workloads = 0
    if policy.reclaim_within_cohort != "Never" and queue.node.path:
        borrowers = (entry for entry in domain.at.items() if _borrows(entry[0], queue.node, fr))
        for node, other in islice(borrowers, _QUEUES):
            amount, workloads = _sum(permitted(claim, other, policy.reclaim_within_cohort), fr)
            others += min(amount, node.usage[fr] - node.quota[fr])
            others_workloads += workloads
    flavor, resource = domain.tree.frs[fr]
    return Prospect(
        policy.within_cluster_queue,
        policy.reclaim_within_cohort,
        resource,
        flavor,
        missing,
        own,
        own_workloads,
        others,
        others_workloads,
    )


def _borrows(node: Node, own: Node, fr: int) -> bool:
    return node is not own and borrows_with(node, fr, 0)


def _sum(candidates: Iterable[Held], fr: int) -> tuple[int, int]:
    amount = count = 0
    for held in islice(candidates, _EXAMINED):
        amount += sum(used for at, used in held.amounts if at == fr)
        count += 1
    return amount, count
