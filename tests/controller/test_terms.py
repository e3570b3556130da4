"""Terms of admission in annotations: a Job that neither borrows nor preempts, also across a restart."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.kinds import all_kinds


def annotated(name, *, seconds=1_000_000, pods=1, **annotations):
    made = job(name, pods=pods, seconds=seconds)
    made["metadata"]["annotations"] = {f"sluice.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return made


@pytest.mark.costly
async def test_job_that_cannot_borrow_waits_for_nominal_quota_also_after_a_restart(world):
    queues = [cluster_queue(name, cpu="2", cohortName="all") for name in ("cq", "lender")]
    await world.begin(flavor(), *queues, local_queue())
    await world.submit(annotated("first", pods=2))
    await world.job("first", runs)
    await world.submit(annotated("own", cannot_borrow="true", cannot_preempt="true"))
    waits = await world.record("own", "pending", reason="WaitingForQuota")
    assert not waits.workload.terms.may_borrow
    assert not waits.workload.terms.preempts
    await world.submit(annotated("any"))
    await world.job("any", runs)
    await world.end()
    await world.start()
    assert (await world.record("own", "pending", reason="WaitingForQuota")).workload.terms == waits.workload.terms
    (loaded,) = [each for each in (await world.store.load()).workloads if each.workload.name == "own"]
    assert loaded.workload.terms == waits.workload.terms
    await world.user.patch("jobs", "team-a", "own", {"metadata": {"annotations": {"sluice.dev/cannot-borrow": None}}})
    await world.job("own", runs)


@pytest.mark.parametrize("key", ["sluice.dev/cannot-borrow", "kueue.x-k8s.io/cannot-preempt"])
def test_value_that_is_no_boolean_is_a_fault(key):
    wrong = job("j")
    wrong["metadata"]["annotations"] = {key: "yes"}
    (kind,) = [kind for kind in all_kinds() if kind.kind == "Job" and kind.group == "batch"]
    assert kind.faults(wrong) == [(f"metadata.annotations[{key}]", 'must be "true" or "false", not "yes"')]
