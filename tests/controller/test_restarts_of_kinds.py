"""Sluice is gone in each state of a custom resource, and goes on where it was: a known kind, and a user's own."""

from __future__ import annotations

import pytest
from custom_kinds import JOBSET, TRAINING_RUN_FORM, jobset, pod, pods_of, served, until
from job_examples import cluster_queue, flavor, job, local_queue, runs
from postgresql_databases import on_both_databases

from admission.kinds import all_kinds, parse_form

pytestmark = on_both_databases

KINDS = all_kinds(frameworks=("batch/job", "jobset.x-k8s.io/jobset"), own=[parse_form(TRAINING_RUN_FORM)])


def training_run(name):
    """Three pods of 1 CPU, as the JobSet has."""
    roles = [{"role": role, "count": count, "template": pod(cpu="1", seconds=1_000_000)} for role, count in
             (("actor", 1), ("critic", 2))]  # fmt: skip
    labels = {"sluice.dev/queue-name": "lq"}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    spec = {"paused": True, "roles": roles}
    return {"apiVersion": "example.com/v1", "kind": "TrainingRun", "metadata": metadata, "spec": spec}


MADE = {"JobSet": jobset, "TrainingRun": training_run}


@pytest.fixture(params=[JOBSET, ("example.com", "TrainingRun")], ids=lambda key: key[1])
def kind(request):
    return KINDS.get(*request.param)


async def test_it_goes_on_in_each_state(world, kind):
    await world.apply(flavor(), cluster_queue(), local_queue())
    user, plural = world.user, kind.plural

    async def restart():
        await world.end()
        await world.start(kinds=KINDS)

    async def is_ready():
        return await until(user, plural, "a", lambda obj: kind.observe(obj).ready)

    async with served(world.sandbox, kind):
        await world.start(kinds=KINDS)
        await world.submit(job("before", cpu="2"))
        await world.job("before", runs)
        created = await user.create(plural, "team-a", MADE[kind.kind]("a"))
        await world.record("a", "pending", reason="WaitingForQuota")
        await restart()  # it waits
        await world.record("a", "pending", reason="WaitingForQuota")
        await user.delete("jobs", "team-a", "before", propagation="Background")
        await world.record("a", "admitted")
        await restart()  # it is admitted, and may not be started yet
        await is_ready()
        await restart()  # it runs
        assert (await world.record("a", "admitted")).admission is not None
        for each in pods_of(user, created):
            note = {"metadata": {"annotations": {"sandbox.sluice.dev/stop-seconds": "never"}}}
            await user.patch("pods", "team-a", each["metadata"]["name"], note)
        await world.order("a", held=True)
        await until(user, plural, "a", lambda obj: kind.observe(obj).suspended)
        await restart()  # it is being stopped
        assert (await world.record("a", "evicting")).admission is not None
        for each in pods_of(user, created):
            await user.delete("pods", "team-a", each["metadata"]["name"], grace=0)
        await world.record("a", "pending", reason="OnHold")
        assert user.get(plural, "team-a", "a")["spec"] == created["spec"]
        await restart()  # it is on hold
        await world.record("a", "pending", reason="OnHold")
        await world.order("a", held=False)
        await is_ready()
        await world.end()
        done = {"conditions": [{"type": "Completed" if kind.kind == "JobSet" else "Succeeded", "status": "True"}]}
        await user.patch(plural, "team-a", "a", {"status": done}, subresource="status")
        await world.start(kinds=KINDS)  # it has ended meanwhile
        assert (await world.record("a", "finished")).outcome == "Succeeded"
        await world.submit(job("after", cpu="4"))
        await world.job("after", runs)
        assert world.controller.writer.outcomes.keys() <= {"ok"}
