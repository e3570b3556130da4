"""Malformed custom resources that no schema has checked: the sandbox's controllers ignore them and continue."""

import logging

import pytest
from custom_kinds import JOBSET, KINDS, jobset, served
from grouped_kinds import grouped_served, lasting, manifest, pods_until

from admission.sandbox.sandbox import Sandbox

SETS, JOBS, JOBSETS = "leaderworkersets", "jobs.batch.volcano.sh", "jobsets"


def changed(obj, path, value):
    *path, last = path
    inner = obj
    for key in path:
        inner = inner[key]
    inner[last] = value
    obj["metadata"] |= {"name": "odd", "namespace": "default"}
    return obj


def forged(owner):
    """Return a user's pod with a forged reference to `owner` as its controller."""
    reference = {**owner, "name": "odd", "uid": "0-0", "controller": True}
    containers = [{"name": "main", "image": "pause"}]
    return {"metadata": {"name": "odd", "ownerReferences": [reference]}, "spec": {"containers": containers}}


@pytest.fixture
async def user():
    async with Sandbox(speed=60) as sandbox, grouped_served(sandbox), served(sandbox, KINDS.get(*JOBSET)):
        yield sandbox.local("admin")


async def test_malformed_object_is_logged_and_ignored_until_changed_and_blocks_no_other(user, caplog):
    sets, job, jobs = manifest("leaderworkerset"), manifest("volcano-torchx-echo"), jobset("good", suspend=False)
    with caplog.at_level(logging.WARNING):
        await user.create("pods", "default", forged({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}))
        await user.create(SETS, "default", changed(manifest("leaderworkerset"), ("spec", "replicas"), "x"))
        await user.create(JOBS, "default", changed(manifest("volcano-torchx-echo"), ("spec", "tasks"), 7))
        await user.create(JOBSETS, "default", changed(jobset("odd"), ("metadata", "labels"), {}))
        await user.patch(JOBSETS, "default", "odd", {"status": {"conditions": [7]}}, subresource="status")
        for plural, obj in ((SETS, lasting(sets)), (JOBS, lasting(job)), (JOBSETS, jobs)):
            obj["metadata"] |= {"namespace": "default", "name": "good"}
            await user.create(plural, "default", obj)
        # The garbage collector may have deleted the forged pod, whose owner does not exist.
        await pods_until(user, "default", lambda found: sum(name.startswith("good") for name in found) == 8 + 1 + 3)
    logged = [each for each in caplog.messages if "and ignores it until it changes" in each]
    names = ("LeaderWorkerSetController", "VolcanoController", "Operator")
    assert {each.partition(" cannot read ")[0] for each in logged} == {*names}
    assert "LeaderWorkerSetController cannot read ('default', 'odd'), and ignores it until it changes" in caplog.text
    await user.patch(SETS, "default", "odd", {"spec": {"replicas": 1}})
    await pods_until(user, "default", lambda found: {"odd-0", "odd-0-3"} <= found.keys())
