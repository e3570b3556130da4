"""Trees are made of what there is: how deep they may be, and what a deleted ClusterQueue leaves behind."""

from __future__ import annotations

import pytest

from admission.engine import QueueObjectDeleted
from tests.engine.scenes import World, cluster_queue, cohort, local_queue, workload


@pytest.mark.parametrize(("cohorts", "expected"), [(64, ["w"]), (65, [])])
def test_a_tree_has_at_most_64_cohorts_above_a_queue(cohorts, expected):
    chain = [cohort(f"c{number}", parent=f"c{number + 1}" if number + 1 < cohorts else "") for number in range(cohorts)]
    world = World(*chain, cluster_queue("a", 4, cohort="c0"), local_queue("a"))
    world.submit(workload("w", "a"))
    assert world.admitted() == expected


def test_what_runs_in_a_deleted_queue_counts_again_when_it_is_back():
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
