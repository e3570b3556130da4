"""Before Kubernetes 1.36 the template of a Job that has run can be changed only after its start time was cleared."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, is_gated, job, local_queue, runs


@pytest.fixture
def before_1_36() -> bool:
    return True


async def test_an_evicted_job_is_restored_exactly_and_can_be_started_again(world):
    await world.begin()
    before = await world.submit(job("a"))
    await world.job("a", runs)

    await world.patch("a", {"metadata": {"labels": {"sluice.dev/hold": "true"}}})
    await world.record("a", "pending", reason="OnHold")
    stopped = await world.job("a", is_gated)
    assert stopped["spec"] == before["spec"]
    assert "startTime" not in stopped["status"]

    await world.patch("a", {"metadata": {"labels": {"sluice.dev/hold": None}}})
    await world.job("a", runs)


async def test_job_running_before_sluice_is_stopped_and_started_with_quota(world):
    await world.apply(flavor(), cluster_queue(), local_queue())
    await world.submit(job("early", suspend=False, tolerations=[{"operator": "Exists"}]))
    await world.job("early", runs)
    await world.start()
    started = await world.job("early", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 3)
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    await world.record("early", "admitted")
