"""Jobs that the API server accepts but that can never run, or request absurd amounts, do not block other Jobs."""

from __future__ import annotations

import pytest
from job_examples import cluster_queue, flavor, job, local_queue, runs

LIMITS = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}}


async def _start(world, **quota):
    await world.apply(flavor(), cluster_queue(**quota), local_queue())
    await world.begin(local_queue(namespace="team-b"))


async def _others_run(world, name="good"):
    """Start a Job of another team, which earlier Jobs must not prevent."""
    await world.submit(job(name, namespace="team-b"))
    await world.job(name, runs, namespace="team-b")


async def _again(world):
    """Stop Sluice abruptly, and start another one on the same database."""
    await world.end()
    await world.start()


@pytest.mark.parametrize("fields", [{}, {"overhead": {"cpu": "1"}}], ids=["", "with an overhead of its own"])
async def test_job_with_missing_runtime_class_waits_until_class_is_created(world, fields):
    await _start(world)
    await world.submit(job("odd", runtimeClassName="nope", **fields))
    record = await world.record("odd", "pending", reason="Misconfigured")
    assert record.message == (
        'spec.template.spec.runtimeClassName: there is no RuntimeClass "nope" in the cluster: name another one, or '
        "have it created"
    )
    assert record.workload.pod_sets == ()
    await _others_run(world)
    await _again(world)
    await _others_run(world, "later")
    await world.user.create(
        "runtimeclasses", "", {"metadata": {"name": "nope"}, "handler": "runc", "overhead": {"podFixed": {"cpu": "1"}}}
    )
    await world.job("odd", runs)


async def test_job_violating_limit_range_waits_until_limit_range_is_deleted(world):
    await _start(world)
    await world.user.create("limitranges", "team-a", LIMITS)
    await world.submit(job("odd"))
    record = await world.record("odd", "pending", reason="Misconfigured")
    assert "LimitRange" in record.message
    await _others_run(world)
    await _again(world)
    await world.user.delete("limitranges", "team-a", "small")
    await world.job("odd", runs)


async def test_quoted_annotations_of_job_are_escaped_and_truncated(world):
    await _start(world)
    odd = job("odd")
    odd["metadata"]["annotations"] = {
        "sluice.dev/job-min-parallelism": "one\x00two\x1b[31m" + "x" * 100_000,
        "sluice.dev/submitted-by": "eve\x00\x07",
    }
    await world.submit(odd)
    record = await world.record("odd", "pending", reason="Misconfigured")
    assert record.message.isprintable()
    assert r"one\x00two\x1b[31mxxx" in record.message
    assert len(record.message) <= 250
    assert record.workload.user == r"eve\x00\x07"
    await _others_run(world)


async def test_job_with_overflowing_requests_exceeds_normal_quota(world):
    await _start(world)
    await world.submit(job("odd", cpu="9000000000000000", pods=2000))
    await world.record("odd", "pending", reason="ExceedsMaxQuota")
    await _others_run(world)
    await _again(world)
    await _others_run(world, "later")


@pytest.mark.costly
async def test_overflowing_usage_is_capped_at_64_bits_with_maximum_quota(world):
    await _start(world, cpu="9223372036854775807")
    await world.submit(job("odd", cpu="9000000000000000", pods=2000))
    record = await world.record("odd", "admitted")
    assert record.admission.pod_sets[0].usage == {"cpu": 2**63 - 1}
    await world.submit(job("other", cpu="9000000000000000"))
    await world.record("other", "admitted")
    await _others_run(world)
    status = (await world.store.workloads.cluster_queue_status())["cq"]
    assert status.usage == {("default", "cpu"): 2**63 - 1}
    await _again(world)
    await _others_run(world, "later")
