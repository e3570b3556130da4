"""RayJobs created by a RayCronJob without its queue label, so that a rule names their queue."""

from __future__ import annotations

import pytest
import yaml
from custom_kinds import pods_of, served, until
from job_examples import flavor, job, local_queue, runs
from kind_manifests import FOLDER, GI, GPU, MI
from pod_examples import gated
from test_way_of_each_kind import PAGE, end_and_delete, held_by, node, queue_of, with_lasting_pods

from admission.kinds import all_kinds
from admission.kinds.rules import QueueRule

KINDS = all_kinds(frameworks=("batch/job", "ray.io/rayjob"))
RAY_JOB = KINDS.get("ray.io", "RayJob")
BY = "ray.io/cronjob-name"
POD_SETS = [("head", 1, {"cpu": 1000, "memory": 2 * GI}), ("submitter", 1, {"cpu": 500, "memory": 200 * MI})]
"""Computed by hand."""
AMOUNTS = {"cpu": 1500, "memory": 2 * GI + 200 * MI, GPU: 0, "pods": 2}


def made():
    """The RayJob that KubeRay creates from the manifest's RayCronJob; its only label names the RayCronJob."""
    _, cron = yaml.safe_load_all((FOLDER / "rayjob.yaml").read_text())
    name = cron["metadata"]["name"]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "name": name, "uid": "c-1", "controller": True}
    metadata = {"name": f"{name}-x7k2p", "namespace": "team-a", "labels": {BY: name}, "ownerReferences": [owner]}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": cron["spec"]["jobTemplate"]}


async def until_running(world, name):
    running = await until(world.user, "rayjobs", name, lambda each: RAY_JOB.observe(each).ready)
    assert held_by(await world.record(name, "admitted")) == AMOUNTS
    assert running["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert len(pods_of(world.user, running)) == AMOUNTS["pods"]


@pytest.mark.long
async def test_lifecycle_of_rayjob_created_by_a_ray_cron_job(world, tmp_path):
    user, obj, steps = world.user, with_lasting_pods(RAY_JOB, made()), []
    name, labels = obj["metadata"]["name"], obj["metadata"]["labels"]
    await user.create("nodes", "", node(0))
    await world.apply(flavor(), queue_of(AMOUNTS), local_queue("user-queue"))
    rule = QueueRule("user-queue", kinds=("ray.io/rayjob",), labels=labels)
    async with (
        served(world.sandbox, RAY_JOB),
        gated(world.sandbox.local("admin"), KINDS, tmp_path / "certificates", rules=(rule,)),
    ):
        await world.start(kinds=KINDS)
        await world.submit(job("before", queue="user-queue", cpu="1500m"))
        await world.job("before", runs)
        created = await world.sandbox.local("kuberay").create("rayjobs", "team-a", obj)
        assert created["metadata"]["labels"] == {**labels, "sluice.dev/queue-name": "user-queue"}
        waiting = await world.record(name, "pending", reason="WaitingForQuota")
        assert [(each.name, each.count, dict(each.requests)) for each in waiting.workload.pod_sets] == POD_SETS
        assert "less is free" in waiting.message
        steps += ["queued", "explained"]
        await user.delete("jobs", "team-a", "before", propagation="Background")
        await until_running(world, name)
        steps += ["admitted", "running", "ready"]
        await world.order(name, held=True)
        assert (await world.record(name, "pending", reason="OnHold")).admission is None
        stopped = user.get("rayjobs", "team-a", name)
        assert stopped["spec"] == created["spec"]
        assert stopped["metadata"]["labels"] == created["metadata"]["labels"]
        steps += ["evicted", "restored byte for byte"]
        await world.order(name, held=False)
        await until_running(world, name)
        steps.append("admitted again")
        steps += await end_and_delete(world, "rayjobs", name, created, cpu="1500m")
    row = f"| RayJob v1 of a RayCronJob | `rayjob.yaml` | head 1, submitter 1 | `spec.suspend` | {', '.join(steps)} |"
    assert row in PAGE.read_text().splitlines(), f"docs/kinds/tests.md has not the row\n{row}"
