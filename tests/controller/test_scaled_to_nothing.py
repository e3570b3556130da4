"""Running workloads that are scaled to no pods hold no quota, and request it again when scaled up."""

from __future__ import annotations

import pytest
from custom_kinds import TRAINING_RUN_FORM, pod, pods_of, served, until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from pod_examples import gated

from admission.kinds import all_kinds, parse_form

KINDS = all_kinds(frameworks=("batch/job",), own=[parse_form({**TRAINING_RUN_FORM, "scales": True})])
KIND = KINDS.get("example.com", "TrainingRun")
RUNS = "trainingruns"


@pytest.fixture
async def cluster(world, tmp_path):
    """A cluster whose TrainingRuns and Jobs are gated, with a queue of 2 CPUs; Sluice runs."""
    await world.apply(flavor(), cluster_queue(cpu="2"), local_queue())
    async with served(world.sandbox, KIND), gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates"):
        await world.start(kinds=KINDS)
        yield world


def training_run(count, *, stop):
    template = pod(cpu="1", seconds=1_000_000)
    template["metadata"]["annotations"]["sandbox.sluice.dev/stop-seconds"] = stop
    metadata = {"name": "run", "namespace": "team-a", "labels": {"sluice.dev/queue-name": "lq"}}
    roles = [{"role": "actor", "count": count, "template": template}]
    return {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": metadata, "spec": {"roles": roles}}


async def scale(cluster, count):
    role = cluster.user.get(RUNS, "team-a", "run")["spec"]["roles"][0]
    spec = {"roles": [{**role, "count": count}]}
    return await cluster.sandbox.local("alice").patch(RUNS, "team-a", "run", {"spec": spec})


async def has_pods(cluster, count):
    def is_so(obj):
        seen = KIND.observe(obj)
        return seen.ready and seen.counts[0].wanted == count == len(pods_of(cluster.user, obj))

    return await until(cluster.user, RUNS, "run", is_so)


async def holds(cluster, name, count):
    async def look():
        (held,) = (await cluster.record(name, "admitted")).admission.pod_sets
        return held.count == count

    await cluster.eventually(look)


@pytest.mark.costly
async def test_custom_kind_scaled_to_zero_releases_quota_as_pods_end_and_scales_up(cluster):
    await cluster.sandbox.local("alice").create(RUNS, "team-a", training_run(2, stop="never"))
    await has_pods(cluster, 2)
    await cluster.submit(job("next", cpu="1"))
    await cluster.record("next", "pending", reason="WaitingForQuota")
    await scale(cluster, 0)
    await cluster.user.delete("pods", "team-a", "run-actor-1", grace=0)
    await cluster.job("next", runs)
    await cluster.submit(job("last", cpu="1"))
    await cluster.record("last", "pending", reason="WaitingForQuota")
    await cluster.end()
    await cluster.start(kinds=KINDS)
    await holds(cluster, "run", 1)  # of its terminating pod
    assert not runs(cluster.user.get("jobs", "team-a", "last"))
    await cluster.user.delete("pods", "team-a", "run-actor-0", grace=0)
    await cluster.job("last", runs)
    await holds(cluster, "run", 0)
    # Scaled up again, it waits for quota.
    await scale(cluster, 1)
    await cluster.user.delete("jobs", "team-a", "last", propagation="Background")
    await has_pods(cluster, 1)
    await holds(cluster, "run", 1)
    assert (await cluster.record("run", "admitted")).workload.pod_sets[0].count == 1


async def test_admitted_job_with_parallelism_zero_holds_no_quota(cluster):
    paused = job("queue", pods=2)
    del paused["spec"]["completions"]
    await cluster.submit(paused)
    await cluster.job("queue", lambda each: each.get("status", {}).get("active") == 2)
    await cluster.submit(job("next", cpu="2"))
    await cluster.user.patch("jobs", "team-a", "queue", {"spec": {"parallelism": 0}})
    await cluster.job("next", runs)
    await holds(cluster, "queue", 0)


def unsuspended(obj):
    return obj["spec"]["suspend"] is False


@pytest.mark.costly
async def test_job_created_without_pods_is_admitted_once_and_queues_when_scaled_up(cluster):
    await cluster.submit({**(paused := job("paused", pods=2)), "spec": {**paused["spec"], "parallelism": 0}})
    await cluster.job("paused", unsuspended)
    await cluster.submit(job("next", cpu="2"))  # observed later than the start of the other one
    await cluster.job("next", runs)
    assert [reason for reason, _ in await cluster.history("paused")].count("OutOfSync") == 0
    await cluster.user.patch("jobs", "team-a", "paused", {"spec": {"parallelism": 1}})
    await cluster.record("paused", "pending", reason="WaitingForQuota")
    await cluster.user.delete("jobs", "team-a", "next", propagation="Background")
    await cluster.job("paused", lambda each: each.get("status", {}).get("active") == 1)
    await holds(cluster, "paused", 1)


async def test_running_job_scaled_to_zero_pods_is_requeued_once(cluster):
    await cluster.submit(job("paused", pods=2))
    await cluster.job("paused", lambda each: each.get("status", {}).get("active") == 2)
    await cluster.user.patch("jobs", "team-a", "paused", {"spec": {"parallelism": 0}})
    await holds(cluster, "paused", 0)
    await cluster.job("paused", unsuspended)
    await cluster.submit(job("next", cpu="2"))
    await cluster.job("next", runs)
    assert [reason for reason, _ in await cluster.history("paused")].count("OutOfSync") == 1
