"""Jobs with fewer pods than requested: partial admission, and release of the quota of pods no longer needed."""

from __future__ import annotations

import pytest
from job_examples import job, runs


@pytest.fixture
async def sluice(world):
    await world.begin()
    return world


def held(record):
    return [assignment.usage for assignment in record.admission.pod_sets]


async def holds(world, name, cpu):
    record = await world.store.workloads.get("team-a", name)
    return record.admission is not None and held(record) == [{"cpu": cpu}]


def partial(name, minimum, **fields):
    manifest = job(name, **fields)
    manifest["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": str(minimum)}
    return manifest


async def test_job_with_min_parallelism_starts_partially_and_is_restored_at_eviction(sluice):
    before = await sluice.submit(partial("flexible", 2, pods=6))
    started = await sluice.job("flexible", runs)
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (4, 6)
    record = await sluice.record("flexible", "admitted")
    assert held(record) == [{"cpu": 4000}]
    assert record.admission.pod_sets[0].count == 4

    await sluice.order("flexible", held=True)
    await sluice.record("flexible", "pending", reason="OnHold")
    assert sluice.user.get("jobs", "team-a", "flexible")["spec"] == before["spec"]


@pytest.mark.parametrize(("changed", "given_back"), [(1, 6), (0, 6), (5, 6), ({"completions": 3, "parallelism": 3}, 3)])
async def test_completions_equal_to_parallelism_are_restored_after_user_edits(sluice, changed, given_back):
    manifest = partial("elastic", 2, pods=6)
    manifest["metadata"]["annotations"]["kueue.x-k8s.io/job-completions-equal-parallelism"] = "true"
    manifest["spec"]["completionMode"] = "Indexed"
    before = await sluice.submit(manifest)
    started = await sluice.job("elastic", runs)
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (4, 4)
    await sluice.patch("elastic", {"spec": changed if isinstance(changed, dict) else {"parallelism": changed}})
    await sluice.order("elastic", held=True)
    await sluice.record("elastic", "pending", reason="OnHold")
    numbers = {"parallelism": given_back, "completions": given_back}
    assert sluice.user.get("jobs", "team-a", "elastic")["spec"] == {**before["spec"], **numbers}


async def test_job_does_not_start_with_fewer_pods_than_its_minimum(sluice):
    await sluice.submit(job("big", pods=3))
    await sluice.job("big", runs)
    await sluice.submit(partial("flexible", 2, pods=6))
    await sluice.record("flexible", "pending", reason="WaitingForQuota")  # at least two pods, and only one CPU is free


async def test_quota_of_succeeded_pods_is_reclaimed_also_across_restart(sluice):
    manifest = job("shrinking", pods=4)
    await sluice.submit(manifest)
    await sluice.job("shrinking", runs)
    await sluice.submit(job("next", cpu="2"))
    await sluice.record("next", "pending", reason="WaitingForQuota")

    await succeed(sluice, "shrinking", 2)
    await sluice.job("next", runs)
    await sluice.eventually(lambda: holds(sluice, "shrinking", 2000))
    reclaimed = await ledger(sluice, "shrinking")
    assert [(amount, reason) for amount, reason in reclaimed][-1] == (2000, None)
    assert {reason for _, reason in reclaimed} == {"Reclaimed", None}
    assert runs(sluice.user.get("jobs", "team-a", "shrinking"))

    await sluice.end()
    await sluice.start()
    await sluice.submit(job("more", cpu="1"))
    await sluice.record("more", "pending", reason="WaitingForQuota")
    assert held(await sluice.record("shrinking", "admitted")) == [{"cpu": 2000}]


async def test_evicted_job_requests_quota_only_for_its_remaining_pods(sluice):
    before = await sluice.submit(job("half", pods=4))
    await sluice.job("half", runs)
    await succeed(sluice, "half", 3)
    await sluice.eventually(lambda: holds(sluice, "half", 1000))
    await sluice.order("half", held=True)
    waiting = await sluice.record("half", "pending", reason="OnHold")
    assert waiting.workload.pod_sets[0].count == 1
    assert sluice.user.get("jobs", "team-a", "half")["spec"] == before["spec"]
    await sluice.submit(job("big", cpu="3"))
    await sluice.job("big", runs)
    await sluice.order("half", held=False)
    again = await sluice.job("half", runs)
    assert again["spec"]["parallelism"] == 4
    assert held(await sluice.record("half", "admitted")) == [{"cpu": 1000}]


async def test_partly_completed_job_suspended_by_user_is_resumed_without_requeue(sluice):
    await sluice.submit(job("paused", pods=4))
    await sluice.job("paused", runs)
    await succeed(sluice, "paused", 2)
    await sluice.eventually(lambda: holds(sluice, "paused", 2000))
    await sluice.patch("paused", {"spec": {"suspend": True}})
    await sluice.job("paused", lambda obj: runs(obj) and obj["metadata"]["generation"] >= 4)
    assert "OutOfSync" not in [reason for reason, _ in await sluice.history("paused")]


async def test_job_with_raised_parallelism_is_requeued_and_admitted_for_more_pods(sluice):
    manifest = job("grown", pods=2)
    manifest["spec"]["completions"] = 9
    await sluice.submit(manifest)
    await sluice.job("grown", runs)
    await sluice.patch("grown", {"spec": {"parallelism": 3}})
    await sluice.eventually(lambda: holds(sluice, "grown", 3000))
    assert "OutOfSync" in [reason for reason, _ in await sluice.history("grown")]


async def succeed(world, name, count):
    """Let `count` of the Job's running pods succeed."""

    async def running():
        pods = [pod for pod in world.user.list("pods", "team-a") if pod["status"].get("phase") == "Running"]
        mine = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == name]
        return mine if len(mine) >= count else None

    for pod in (await world.eventually(running))[:count]:
        body = {"status": {"phase": "Succeeded"}}
        await world.user.patch("pods", "team-a", pod["metadata"]["name"], body, subresource="status")


async def ledger(world, name):
    """(amount, end reason) of all ledger rows of a workload, in order."""
    record = await world.store.workloads.get("team-a", name)
    return [(row.amount, row.end_reason) for row in await world.store.workloads.ledger(record.workload.uid)]
