"""An enabled kind whose objects cannot be listed: only its workloads wait, and the log names the cause."""

from __future__ import annotations

import pytest
from custom_kinds import JOBSET, KINDS, jobset, served, until
from job_examples import cluster_queue, flavor, job, local_queue, runs

from admission.kinds import all_kinds

JOBSETS = KINDS.get(*JOBSET)


@pytest.fixture
async def cluster(world):
    """A cluster with JobSets, and queues of 4 CPU."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    async with served(world.sandbox, JOBSETS):
        yield world


def forbid(world, code=403):
    match = {"resource": ["jobsets"], "user": ["sluice"]}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": code}]})


@pytest.mark.parametrize("code", [403, 500])
async def test_other_kinds_are_admitted_while_jobsets_cannot_be_listed(cluster, caplog, code):
    forbid(cluster, code)
    await cluster.start(kinds=KINDS)
    assert await cluster.controller.health() is None
    assert cluster.controller.watches.informers()["jobsets"] is False
    assert "jobsets" in caplog.text
    await cluster.submit(job("a"))
    await cluster.job("a", runs)
    await cluster.user.create("jobsets", "team-a", jobset("set"))
    cluster.sandbox.faults.remove()
    await until(cluster.user, "jobsets", "set", lambda obj: obj["spec"]["suspend"] is False)


async def test_jobs_are_admitted_while_pods_and_stateful_sets_cannot_be_listed(world):
    """They are queued by default, but an installation with its own roles may lack the rights."""
    await world.apply(flavor(), cluster_queue(), local_queue())
    match = {"resource": ["pods", "statefulsets"], "user": ["sluice"], "verb": ["list", "watch"]}
    world.sandbox.faults.install({"rules": [{"match": match, "do": "error", "code": 403}]})
    await world.start(kinds=all_kinds(frameworks=("batch/job", "pod", "statefulset")))
    assert await world.controller.health() is None
    await world.submit(job("a"))
    await world.job("a", runs)


@pytest.mark.costly
async def test_forbidden_list_puts_pending_jobset_on_hold_and_running_jobset_keeps_quota(cluster):
    await cluster.start(kinds=KINDS)
    await cluster.user.create("jobsets", "team-a", jobset("runs"))
    await until(cluster.user, "jobsets", "runs", lambda obj: JOBSETS.observe(obj).ready)
    await cluster.user.create("jobsets", "team-a", jobset("waits"))
    await cluster.record("waits", "pending", reason="WaitingForQuota")
    await cluster.end()
    forbid(cluster)
    await cluster.start(kinds=KINDS)
    waits = await cluster.record("waits", "pending", reason="Misconfigured")
    assert waits.message == (
        "Sluice is not allowed to list jobset.x-k8s.io/jobset, or listing fails: its object is left as it is. "
        "An admin finds the cause in the log; `sluice kinds rbac` prints the rights that it needs."
    )
    assert (await cluster.record("runs", "admitted")).admission is not None
    await cluster.submit(job("one", cpu="1"))
    await cluster.job("one", runs)
    await cluster.submit(job("more", cpu="1"))
    await cluster.record("more", "pending", reason="WaitingForQuota")
    cluster.sandbox.faults.remove()
    await cluster.record("waits", "pending", reason="WaitingForQuota")
    await cluster.user.delete("jobsets", "team-a", "runs")
    await until(cluster.user, "jobsets", "waits", lambda obj: obj["spec"]["suspend"] is False)


@pytest.mark.costly
async def test_jobset_deleted_while_list_is_forbidden_releases_quota_once_allowed(cluster):
    await cluster.start(kinds=KINDS)
    await cluster.user.create("jobsets", "team-a", jobset("runs"))
    await until(cluster.user, "jobsets", "runs", lambda obj: JOBSETS.observe(obj).ready)
    await cluster.end()
    forbid(cluster)
    await cluster.start(kinds=KINDS)
    await cluster.user.delete("jobsets", "team-a", "runs")
    assert (await cluster.record("runs", "admitted")).admission is not None
    cluster.sandbox.faults.remove()
    assert (await cluster.record("runs", "finished")).outcome == "Deleted"
    await cluster.submit(job("next", cpu="4"))
    await cluster.job("next", runs)
