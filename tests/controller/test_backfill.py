"""Backfill of a StrictFIFO queue in a cluster: a short Job passes the first one, one without a time limit does not."""

from __future__ import annotations

from job_examples import cluster_queue, flavor, job, local_queue, runs

LIMIT = "sluice.dev/max-exec-time-seconds"


def limited(name: str, seconds: int, **fields):
    manifest = job(name, **fields)
    manifest["metadata"].setdefault("labels", {})[LIMIT] = str(seconds)
    return manifest


async def test_short_job_passes_the_first_one_of_a_strict_queue(world):
    queue = cluster_queue(cpu="4", queueingStrategy="StrictFIFO", backfill="WithinTimeLimits")
    await world.begin(flavor(), queue, local_queue())
    await world.submit(limited("runs", 3600, cpu="2"))
    await world.job("runs", runs)
    await world.submit(limited("first", 600, cpu="4"))
    await world.record("first", "pending", reason="WaitingForQuota")
    await world.submit(job("endless"))
    await world.record("endless", "pending", reason="PendingEvaluation")
    await world.submit(limited("short", 1800))
    await world.job("short", runs)
    await world.end()
    await world.start()
    await world.record("endless", "pending", reason="PendingEvaluation")
    await world.user.delete("jobs", "team-a", "first", propagation="Background")
    await world.job("endless", runs)
