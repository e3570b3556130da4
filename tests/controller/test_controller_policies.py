"""A custom policy, defined in this module, from a Job's submission to its end, and across a restart."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs

from admission.controller.state.policy import ControllerPolicy
from admission.engine import Policy as EnginePolicy
from tests.engine.max_running import MaxRunning

POLICY = ControllerPolicy(engine=EnginePolicy(policies=(MaxRunning(1),)))


def job_of(user, name):
    made = job(name)
    made["metadata"]["annotations"] = {"sluice.dev/submitted-by": user}
    return made


@pytest.mark.costly
async def test_limit_per_user_survives_restart_and_is_explained(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    await world.start(POLICY)
    await world.submit(job_of("ann", "first"))
    await world.job("first", runs)
    await world.submit(job_of("ann", "second"))
    await world.submit(job_of("bob", "other"))
    await world.job("other", runs)
    refused = await world.record("second", "pending", reason="MaxRunningPerUser")
    assert refused.message == "user ann runs 1 workloads of at most 1, in all ClusterQueues"

    await world.end()
    await world.start(POLICY)
    await world.submit(job_of("bob", "one-more"))
    await world.record("one-more", "pending", reason="MaxRunningPerUser")
    assert is_gated(world.user.get("jobs", "team-a", "second"))
    explanation = world.controller.engine().explain(refused.workload.uid)
    assert (explanation.reason, explanation.message) == ("MaxRunningPerUser", refused.message)

    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.job("second", runs)
    assert is_gated(world.user.get("jobs", "team-a", "one-more"))
