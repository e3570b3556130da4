"""A large Job starts in the end, although smaller ones keep coming; and no user gets ahead by an annotation."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.model import sentences
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest


@pytest.mark.costly
async def test_job_that_waited_long_is_not_overtaken(world):
    await world.begin(flavor(), cluster_queue(cpu="2", aging={"strictAfter": "1h"}), local_queue())
    await world.submit(job("first"))
    await world.job("first", runs)
    await world.submit(job("large", pods=2))
    await world.record("large", "pending", reason="WaitingForQuota")
    world.pass_time(7200)  # the clock of the cluster is ahead
    ahead = job("ahead")
    ahead["metadata"]["annotations"] = {
        "kueue.x-k8s.io/priority-boost": "1000",
        "sluice.dev/priority-boost": "1000",
        "sluice.dev/aging": "1s",
    }
    await world.submit(ahead)
    waits = await world.record("ahead", "pending", reason="WaitingForQuota")
    assert waits.message == sentences.BEHIND_OVERDUE
    assert waits.workload.priority == 0
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.job("large", runs)


def test_aging_without_a_rule_is_a_fault():
    with pytest.raises(InvalidObject, match=r"spec.aging.priorityInterval: give this, strictAfter or both"):
        parse_manifest(cluster_queue(aging={}))
