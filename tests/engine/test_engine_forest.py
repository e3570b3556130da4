"""Building of quota trees from queue objects: maximum depth, and deleted ClusterQueues that still hold workloads."""

from __future__ import annotations

from random import Random

import pytest

from admission.engine import QueueObjectDeleted
from admission.engine.share_report import WeightedShares
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload


@pytest.mark.parametrize(("cohorts", "expected"), [(64, ["w"]), (65, [])])
def test_a_tree_has_at_most_64_cohorts_above_a_queue(cohorts, expected):
    chain = [cohort(f"c{number}", parent=f"c{number + 1}" if number + 1 < cohorts else "") for number in range(cohorts)]
    world = World(*chain, cluster_queue("a", 4, cohort="c0"), local_queue("a"))
    world.submit(workload("w", "a"))
    assert world.admitted() == expected


def test_usage_in_a_deleted_cluster_queue_counts_again_when_recreated():
    queue = cluster_queue("a", 4)
    world = World(queue, local_queue("a"))
    world.submit(workload("runs", "a", 3))
    assert world.admitted() == ["runs"]
    world.engine.observe(QueueObjectDeleted(queue.kind, "", "a"), now=world.now)
    assert world.admitted() == []
    world.tell(queue)
    world.submit(workload("w", "a", 2))
    assert world.admitted() == []
    assert world.engine.usage()["a"] == {"default": {"cpu": 3000}}


@pytest.mark.parametrize("seed", range(5))
def test_incremental_shares_equal_shares_computed_from_scratch(seed):
    """Shares are updated incrementally, for changed ClusterQueues only."""
    random = Random(seed)
    cohorts = [cohort("company", 4), *(cohort(name, 1, parent="company") for name in ("left", "right"))]
    queues = [
        cluster_queue(f"{side}-{n}", 3, cohort=side, limits={"lendingLimit": n}, fairSharing={"weight": str(n)})
        for side in ("left", "right")
        for n in range(3)
    ]
    known = WeightedShares(queues, cohorts)
    told = set()
    for _ in range(20):
        # ClusterQueues without usage may be missing, and flavor-resources without quota are ignored.
        usage = {
            queue.name: {("default", "cpu"): random.choice((0, 2000, 4500, 9000)), ("gone", "cpu"): 1}
            for queue in queues
            if random.random() < 0.7
        }
        shares = known.at(usage)
        assert shares == WeightedShares(queues, cohorts).at(usage)
        told |= {(kind, share > 0) for (kind, _), share in shares.items()}
    assert told == {(kind, borrows) for kind in ("ClusterQueue", "Cohort") for borrows in (True, False)}
